"""Kept help: what ``fit --help`` prints, written down, since finding it out imports Lightning for seconds."""

import io
import os
import sys
from contextlib import redirect_stdout, suppress
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

#: The text, below a line of what it was made with.
KEPT = Path(__file__).with_name("fit_help.txt")
#: Whose options and descriptions it shows, and what lays them out.
LIBRARIES = ("pytorch-lightning", "jsonargparse", "docstring-parser")
#: Of lines, as of a terminal that does not say how wide it is.
WIDTH = "80"


def kept_help() -> str | None:
    """The text of ``fit --help``; None where what is installed might print another: other versions, or plugins."""
    if not KEPT.is_file() or any(group.startswith("zoo.") for group in entry_points().groups):
        return None
    made_with, _, text = KEPT.read_text(encoding="utf-8").partition("\n")
    return text if made_with == installed() else None


def installed() -> str:
    """The versions of Python and of the libraries that the text depends on, in one line."""
    found = [f"python {sys.version_info.major}.{sys.version_info.minor}"]
    for name in LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def live_help() -> str:
    """What the command line itself prints now; to be called in a process that has imported nothing else and ends with it."""
    from zoo.runs.cli import ZooCLI, import_names  # what takes seconds

    import_names()
    os.environ["COLUMNS"] = WIDTH
    with redirect_stdout(io.StringIO()) as printed, suppress(SystemExit):
        ZooCLI(args=["fit", "--help"])
    return printed.getvalue()


def keep() -> None:
    """Write the text down anew."""
    KEPT.write_text(f"{installed()}\n{live_help()}", encoding="utf-8")


if __name__ == "__main__":
    keep()
