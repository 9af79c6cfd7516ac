"""``python -m zoo decrypt``: the map that a source made of encrypted places, at the target that has the keys.

What the command needs is imported when it runs: ``--help`` and a refusal of its options stay quick.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.runtime.arguments import Arguments


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo decrypt",
        description="Decrypts the map that a source published for encrypted places, and writes it as a release that fit reads "
        "(--data.releases.NAME). Needs the extra encryption: pip install 'cdr-zoo[encryption]'.",
    )
    option = made.add_argument
    option("release", type=Path, metavar="RELEASE", help="folder of the source's release, of kind encrypted_map")
    option(
        "--key",
        type=Path,
        required=True,
        metavar="FILE",
        help="file of keys that publishing the places wrote; stays here",
    )
    option("--out", type=Path, required=True, metavar="DIR", help="folder to write; must not exist")
    option(
        "--trusted",
        type=Path,
        metavar="KEYS",
        help="public keys (a PEM file, or a folder of them), one of which must have signed the release",
    )
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; a refusal ends with its message."""
    options = parser().parse_args(arguments)
    from zoo.runs.decrypting import decrypt
    from zoo.runtime.run_folder import refusal, visible
    from zoo.runtime.suggestions import count_of

    try:
        release = decrypt(options.release, options.key, options.out, trusted=options.trusted)
    except (OSError, TypeError, ValueError) as error:
        sys.exit(refusal(error))
    print(
        f"{release.record}\n\nRelease of {release.domain!r} ({release.kind}, {count_of(release.num_users, 'user')}): "
        f"{visible(str(options.out))}"
    )
