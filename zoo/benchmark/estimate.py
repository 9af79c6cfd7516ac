"""How long cells will take, from what is known of others."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from zoo.benchmark.cell import Cell

#: Reports of the shipped benchmarks.
SHIPPED = Path("docs/results")
#: Task, system and release of a cell, and the seconds that it took.
Known = tuple[tuple[str, str, str], float]


class Estimate:
    """Estimate seconds of a cell from finished cells of its row or system, from shipped reports, or from any cell."""

    def __init__(self, cells: Iterable[Cell], name: str) -> None:
        self._known: list[Known] = []
        for cell in cells:
            if (kept := cell.finished()) is not None:
                self.add(cell, kept["seconds"])
        self._shipped = _shipped(SHIPPED / name / "results.csv")

    def add(self, cell: Cell, seconds: float) -> None:
        """Remember what a cell took."""
        self._known.append(((cell.row.task, cell.row.system, cell.row.release), seconds))

    def of(self, cell: Cell) -> float | None:
        """Return the seconds of a cell; None if nothing is known."""
        key = (cell.row.task, cell.row.system, cell.row.release)
        alike = [(known, length) for known in (self._known, self._shipped) for length in (3, 2)]
        for known, length in [*alike, ([*self._known, *self._shipped], 0)]:
            if found := [seconds for other, seconds in known if other[:length] == key[:length]]:
                return statistics.mean(found)
        return None

    def total(self, cells: Sequence[Cell], processes: int) -> float | None:
        """Return the seconds of cells, `processes` at a time; None if nothing is known."""
        known = [seconds for cell in cells if (seconds := self.of(cell)) is not None]
        return sum(known) / max(1, min(processes, len(cells))) if len(known) == len(cells) else None


def _shipped(path: Path) -> list[Known]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [((r["task"], r["system"], r["release"]), float(r["cell_seconds"])) for r in csv.DictReader(file)]


def duration(seconds: float | None) -> str:
    """Seconds in words: ``45 s``, ``12 min``, ``3.5 h``."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
