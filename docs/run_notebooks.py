"""Run the notebooks under docs/notebooks and store their outputs. Usage: `python docs/run_notebooks.py`.

Figures differ a little each time: the noise of a release comes from the operating system.
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
    """Return a notebook with new outputs, run in a folder. The first cell that raises stops it with its traceback."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # Without TCP no other process on this machine can connect.
        kernel = Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}})
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where, config=kernel).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # warnings name paths of this machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        cell.metadata.pop("execution", None)  # times of execution, which differ in every run
    return notebook


def main() -> None:
    """Run each notebook and write it with its outputs."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        nbformat.write(executed(path, path.parent), path)
        print(path)


if __name__ == "__main__":
    main()
