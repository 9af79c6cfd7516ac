"""Cached help: what ``fit --help`` printed at its first use, since computing it imports Lightning for seconds."""

import hashlib
import io
import os
import sys
from contextlib import redirect_stdout, suppress
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

from zoo.runtime.exports import VERSION

#: Libraries whose options and descriptions it shows, and that lay it out.
LIBRARIES = ("pytorch-lightning", "jsonargparse", "docstring-parser")
#: Width of its lines, as of a terminal that does not tell its own.
WIDTH = "80"


def fit_help() -> str:
    """Return what ``python -m zoo fit --help`` prints, from the user's cache folder (``ZOO_CACHE`` names another) if it is there.

    Nothing is cached where plugins are installed: their classes may change the text.
    """
    if any(group.startswith("zoo.") for group in entry_points().groups):
        return live_help()
    cached = cache_path()
    with suppress(OSError, UnicodeDecodeError):
        return cached.read_text(encoding="utf-8")
    text = live_help()
    with suppress(OSError):  # a cache that cannot be written is no reason to stop
        from zoo.runtime.run_folder import whole  # imports the parser

        cached.parent.mkdir(parents=True, exist_ok=True)
        with whole(cached) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return text


def cache_path() -> Path:
    """Return the file of the cached text; its name is a digest of everything that the text depends on."""
    import platformdirs  # only here: a bare `--help` does without

    folder = Path(os.environ.get("ZOO_CACHE") or platformdirs.user_cache_dir("cdr-zoo"))
    parts = [VERSION, sys.version, *map(_version, LIBRARIES)]
    for room in ("zoo", "callbacks", "datamodules"):
        for file in sorted((Path(__file__).parents[2] / room).rglob("*.py")):
            parts.append(f"{file} {file.stat().st_mtime_ns}")
    return folder / f"fit-help-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.txt"


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"


def live_help() -> str:
    """Return what the command line itself prints now; its process should end with it."""
    from zoo.runs.cli import ZooCLI, import_names  # takes seconds

    import_names()
    os.environ["COLUMNS"] = WIDTH
    sys.argv[1:] = []  # Lightning warns of arguments given twice
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        ZooCLI(args=["fit", "--help"])
    return printed.getvalue()
