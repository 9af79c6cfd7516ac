"""``python -m encrypted_bridge decrypt``: decrypt the map of a source at the target. Imports are late, for a quick ``--help``."""

import sys
from collections.abc import Sequence
from pathlib import Path

import zoo.runtime.import_order  # noqa: F401  before anything is taken from the working directory
from zoo.runtime.arguments import Arguments


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m encrypted_bridge",
        description="Decrypt the map of a source and write it as a release for fit (--data.releases.NAME).",
    )
    option = made.add_argument
    option("command", choices=["decrypt"], help="the only command")
    option("release", type=Path, metavar="RELEASE", help="folder of the release, of kind encrypted_map")
    option("--key", type=Path, required=True, metavar="FILE", help="key file that publishing the embeddings wrote")
    option("--out", type=Path, required=True, metavar="DIR", help="folder to write; must not exist")
    option("--trusted", type=Path, metavar="KEYS", help="public keys, one of which must have signed the release")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; an expected error ends it with its message."""
    options = parser().parse_args(arguments)
    from encrypted_bridge.decryption import decrypt
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


if __name__ == "__main__":
    main()
