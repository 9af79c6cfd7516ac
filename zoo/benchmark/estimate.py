"""Estimated time of runs, from other runs."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from zoo.benchmark.runs import BenchmarkRun

#: Reports of the shipped benchmarks.
SHIPPED = Path("docs/results")
#: Task, system and release of a run, and its seconds.
Known = tuple[tuple[str, str, str], float]


class Estimate:
    """Estimated seconds of runs, from finished runs of the same row or system, from shipped reports, or from any run."""

    def __init__(self, runs: Iterable[BenchmarkRun], name: str) -> None:
        self._known: list[Known] = []
        for run in runs:
            if (report := run.finished()) is not None:
                self.add(run, report["seconds"])
        self._shipped = _shipped(SHIPPED / name / "results.csv")

    def add(self, run: BenchmarkRun, seconds: float) -> None:
        """Record the seconds of a run."""
        self._known.append(((run.row.task, run.row.system, run.row.release), seconds))

    def seconds_of(self, run: BenchmarkRun) -> float | None:
        """Return the seconds of a run; None if nothing is known."""
        key = (run.row.task, run.row.system, run.row.release)
        alike = [(known, length) for known in (self._known, self._shipped) for length in (3, 2)]
        for known, length in [*alike, ([*self._known, *self._shipped], 0)]:
            if found := [seconds for other, seconds in known if other[:length] == key[:length]]:
                return statistics.mean(found)
        return None

    def total(self, runs: Sequence[BenchmarkRun], processes: int) -> float | None:
        """Return the seconds of runs, `processes` at a time; None if nothing is known."""
        known = [seconds for run in runs if (seconds := self.seconds_of(run)) is not None]
        return sum(known) / max(1, min(processes, len(runs))) if len(known) == len(runs) else None


def _shipped(path: Path) -> list[Known]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [((r["task"], r["system"], r["release"]), float(r["cell_seconds"])) for r in csv.DictReader(file)]


def duration(seconds: float | None) -> str:
    """Return seconds as text.

    Examples:
        >>> duration(45), duration(720), duration(12_600)
        ('45 s', '12 min', '3.5 h')
    """
    if seconds is None:
        return "unknown"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
