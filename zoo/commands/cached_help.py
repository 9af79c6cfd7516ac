"""Help of ``fit``, ``validate``, ``test``, ``predict`` and ``publish``: first options at once, the full list from a cache."""

import hashlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from zoo.runtime.exports import VERSION
from zoo.runtime.settings_files import user_path

#: Libraries whose options and descriptions the full list shows, and that lay it out.
LIBRARIES = ("pytorch-lightning", "jsonargparse", "docstring-parser")
#: Width of the full list, in columns.
WIDTH = "80"
ALL = "--help-all"

EXPERIMENT = """\
experiment:
  --config FILE               file, or name (python -m zoo configs list); repeatable
  --seed_everything N         seed of everything except privacy noise (default: 0)
  --print_config              print the resulting settings and exit
"""
PARTS = """\
method and data:
  --model NAME                method (python -m zoo list methods)
  --model.ARGUMENT VALUE      its argument (list: --model.help NAME)
  --data NAME                 datamodule (python -m zoo list datamodules)
  --data.ARGUMENT VALUE       its argument, e.g. root (list: --data.help NAME)
"""
PUBLISHER = """\
release:
  --publisher NAME            publisher (python -m zoo list publishers)
  --publisher.ARGUMENT VALUE  its argument, e.g. epsilon (list: --publisher.help NAME)
"""
COMPUTING = """\
  --trainer.accelerator NAME  cpu, gpu or auto (default: auto)
  --trainer.devices N         number of processes, one per device (default: auto)
"""
CHECKPOINT = f"""\
checkpoint and computing:
  --ckpt_path FILE            checkpoint of a run (required), with its config.yaml
  --data.ARGUMENT VALUE       change where data are, e.g. --data.releases.SOURCE DIR
{COMPUTING}"""
#: What each command does, and the options that its help shows.
COMMANDS = {
    "fit": (
        "Publish missing releases if possible, train at the target, and test at the end.",
        EXPERIMENT,
        PARTS,
        PUBLISHER,
        f"training:\n  --trainer.max_epochs N      number of epochs\n{COMPUTING}"
        "  --resume RUN                continue an interrupted run from its folder\n",
    ),
    "publish": (
        "Write the release of a source party. Only data of that party are opened.",
        EXPERIMENT,
        PUBLISHER,
        "publication:\n"
        "  --data.ARGUMENT VALUE       argument of the datamodule, e.g. root or files\n"
        "  --out DIR                   folder to write; must not exist (required)\n"
        "  --source NAME               source domain, if the experiment has several\n"
        "  --budget FILE               privacy budget to charge (python -m zoo privacy budget)\n"
        "  --sign FILE                 private Ed25519 key of this party, as PEM\n"
        "  --about.curator NAME        party that publishes\n",
    ),
    "validate": ("Compute validation metrics of a checkpoint.", EXPERIMENT, CHECKPOINT),
    "test": ("Compute test metrics of a checkpoint.", EXPERIMENT, CHECKPOINT),
    "predict": (
        "Write the recommendations of a checkpoint as Parquet.",
        EXPERIMENT,
        CHECKPOINT,
        "recommendations:\n  --recommendations.path FILE  file to write (default: in a new run folder)\n",
    ),
}


def requested_help(arguments: Sequence[str]) -> str | None:
    """Return the help that arguments of the command line ask for; None if the parser has to answer."""
    if not arguments or arguments[0] not in COMMANDS:
        return None
    for argument in arguments[1:]:
        if argument in ("-h", "--help"):
            return first_options(arguments[0])
        if argument == ALL:
            return all_options(arguments[0])
        if argument.split("=")[0].endswith(".help"):  # of a class
            return None
    return None


def first_options(command: str) -> str:
    """Return the short help of a command: the options that most runs need.

    Examples:
        >>> print(first_options("publish").splitlines()[0])
        usage: python -m zoo publish --config FILE [options]
    """
    what, *groups = COMMANDS[command]
    rest = f"All options: python -m zoo {command} {ALL}"
    return f"usage: python -m zoo {command} --config FILE [options]\n\n{what}\n\n" + "\n".join([*groups, f"{rest}\n"])


def all_options(command: str) -> str:
    """Return every option of a command, from the user's cache folder (``ZOO_CACHE`` names another) if it is cached.

    With plugins installed nothing is cached: their classes may change the text.
    """
    if any(group.startswith("zoo.") for group in entry_points().groups):
        return live_help(command)
    cached = cache_path(command)
    with suppress(OSError, UnicodeDecodeError):
        return cached.read_text(encoding="utf-8")
    text = live_help(command)
    with suppress(OSError):  # the help does not need its cache
        from zoo.runtime.run_folder import atomic_write  # imports the parser

        cached.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(cached) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return text


def cache_path(command: str) -> Path:
    """Return the file of the cached text; its name is a digest of everything that the text depends on."""
    import platformdirs  # slow; the short help does without

    folder = user_path(os.environ.get("ZOO_CACHE") or platformdirs.user_cache_dir("cdr-zoo"))
    parts = [VERSION, sys.version, *map(_version, LIBRARIES)]
    for room in ("zoo", "callbacks", "datamodules"):
        for file in sorted((Path(__file__).parents[2] / room).rglob("*.py")):
            parts.append(f"{file} {file.stat().st_mtime_ns}")
    return folder / f"{command}-help-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.txt"


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"


def live_help(command: str) -> str:
    """Return the options that the parser of a command has now, under a usage of one line."""
    from zoo.runs.cli import ZooCLI, import_names  # takes seconds

    import_names()
    os.environ["COLUMNS"] = WIDTH
    sys.argv[1:] = []  # Lightning warns of arguments given twice
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        ZooCLI(args=[command, "--help"])
    options = printed.getvalue().split("\n\n", 1)[1]  # behind a usage of a page
    return f"usage: python -m zoo {command} --config FILE [options]\n\n{options}"
