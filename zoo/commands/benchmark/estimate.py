"""How long cells will take, from what is known of others."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from zoo.commands.benchmark.cell import Cell

#: Where the figures of the shipped benchmarks lie, seconds among them.
SHIPPED = Path("docs/results")


class Estimate:
    """Seconds of a cell: of finished ones of its row, else of its system; else of those shipped; else of any.

    Args:
        cells: All cells of the benchmark; the finished ones are read.
        name: Of the benchmark, whose shipped figures stand in where nothing is finished.
    """

    def __init__(self, cells: Iterable[Cell], name: str) -> None:
        self._known: list[tuple[tuple[str, str, str], float]] = []
        for cell in cells:
            if (kept := cell.finished()) is not None:
                self.add(cell, kept["seconds"])
        self._shipped = _shipped(SHIPPED / name / "results.csv")

    def add(self, cell: Cell, seconds: float) -> None:
        """Remember what a cell took."""
        self._known.append(((cell.row.task, cell.row.system, cell.row.release), seconds))

    def of(self, cell: Cell) -> float | None:
        """Seconds that a cell may take; None if nothing is known of any."""
        key = (cell.row.task, cell.row.system, cell.row.release)
        for known in (self._known, self._shipped):
            for length in (3, 2):
                if found := [seconds for other, seconds in known if other[:length] == key[:length]]:
                    return statistics.mean(found)
        anything = [seconds for _, seconds in (*self._known, *self._shipped)]
        return statistics.mean(anything) if anything else None

    def total(self, cells: Sequence[Cell], processes: int) -> float | None:
        """Seconds that cells may take together, so many at a time; None if nothing is known."""
        each = [self.of(cell) for cell in cells]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) / max(1, min(processes, len(cells))) if len(known) == len(each) else None


def _shipped(path: Path) -> list[tuple[tuple[str, str, str], float]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(row["task"], row["system"], row["release"]): float(row["cell_seconds"]) for row in rows}
    return list(found.items())


def duration(seconds: float | None) -> str:
    """Seconds in words: ``45 s``, ``12 min``, ``3.5 h``."""
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
