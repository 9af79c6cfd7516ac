"""``python -m zoo export``: write a run as a bundle to hand over. Imports are late, so that ``--help`` stays quick."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from zoo.runtime.arguments import Arguments, offer_imports


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo export",
        description="Write a run's best checkpoint as a bundle to hand over: weights (safetensors, no pickle), settings, item "
        "ids, metrics, privacy record and a model card (README.md). `python -m zoo recommend` and zoo.load open it.",
    )
    option = made.add_argument
    option("run", type=Path, metavar="RUN", help="folder of a run")
    option("--out", type=Path, required=True, metavar="DIR", help="folder to write; must not exist")
    option(
        "--with-user-ids", action="store_true", help="include user ids: personal data, which reveal the target's users"
    )
    option(
        "--with-ratings", action="store_true", help="include ratings, which some methods need; takes --with-user-ids"
    )
    head = "write instead the scores as a network (torch.export), for methods with vectors; has user ids, vectors, item counts"
    option("--head", action="store_true", help=head)
    option("--onnx", action="store_true", help="the same, also as ONNX (extra onnx)")
    option(
        "--push",
        metavar="OWNER/NAME",
        help="also upload the bundle of a public data set to this repository (extra hub)",
    )
    option("--registry", default="https://huggingface.co", metavar="URL", help="where to upload (default: %(default)s)")
    offer_imports(made)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; an expected error ends it with its message."""
    options = parser().parse_args(arguments)
    from zoo.methods.target_data import ReleaseMismatchError
    from zoo.runs.bundle import BUNDLE
    from zoo.runs.exporting import abilities, export, export_head, privacy
    from zoo.runs.import_policy import import_trusted
    from zoo.runs.trainer import quietly
    from zoo.runtime.run_folder import refusal, visible

    try:
        with quietly():
            import_trusted(options.imports)
            if options.head or options.onnx:
                if options.push:
                    raise ValueError("--push takes no --head or --onnx: these have user ids.")
                print(f"Scoring head: {visible(str(export_head(options.run, options.out, onnx=options.onnx)))}")
                print(
                    "It has ids and vectors of users, outside every guarantee. If a user has no score: item counts, too."
                )
                return
            given = {name: getattr(options, name) for name in ("with_user_ids", "with_ratings", "push", "registry")}
            out = export(options.run, options.out, **given)
        manifest = json.loads((out / BUNDLE).read_text(encoding="utf-8"))
        for line in [*abilities(manifest), *privacy(out, manifest)]:
            print(line.replace("**", ""))
        print(f"Bundle: {visible(str(out))}")
        if options.push:
            print(f"Pushed: {options.registry}/{options.push}")
    except (OSError, TypeError, ValueError, ReleaseMismatchError) as error:
        sys.exit(refusal(error))
