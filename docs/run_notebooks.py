"""Run the notebooks under docs/notebooks and store their outputs. Usage: `python docs/run_notebooks.py`.

Figures differ a little every time, because the noise of a release comes from the operating system.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

NOTEBOOKS = Path(__file__).parent / "notebooks"


def executed(path: Path, folder: Path) -> Any:  # noqa: ANN401  nbformat has no types
    """A notebook with what its cells print and draw, run in a folder; a cell that raises ends it with its traceback."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # Not by TCP: nobody else on this machine listens.
        kernel = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=None, kernel_name="python3", resources=where, config=kernel).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each ran: another time in every run
    return notebook


def main() -> None:
    """Write each with its outputs in the place of what it had."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(executed(path, path.parent), path)
        print(path)


if __name__ == "__main__":
    main()
