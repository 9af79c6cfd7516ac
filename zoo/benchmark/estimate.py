"""Estimated time and energy of runs, from other runs."""

import csv
import json
import statistics
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from zoo.benchmark.runs import BENCHMARK, RUN_FILE, BenchmarkRun
from zoo.runtime.run_folder import METRICS
from zoo.runtime.settings_files import read_yaml

#: Reports of the shipped benchmarks.
SHIPPED = Path("docs/results")
#: Task, system and release of a run, and its seconds.
Known = tuple[tuple[str, str, str], float]


class Finished(NamedTuple):
    """Cost of a finished run of any benchmark."""

    method: str
    seconds: float  # of the whole run
    kwh: float | None  # of its training, if measured


class Estimate:
    """Estimated seconds and kWh of runs.

    Seconds are those of the nearest finished runs: the same row, the same system, the same in shipped reports, then the same method
    in any benchmark of the same folder, then any run. Energy is the mean kWh of a second, of the same method or else of any.
    """

    def __init__(self, runs: Iterable[BenchmarkRun], name: str) -> None:
        runs = list(runs)
        self._known: list[Known] = []
        self._all = _finished_in(runs[0].root.parent) if runs else []
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
        for known, length in alike:
            if found := [seconds for other, seconds in known if other[:length] == key[:length]]:
                return statistics.mean(found)
        method = method_of(run)
        found = [one.seconds for one in self._all if one.method == method]
        found = found or [seconds for _, seconds in (*self._known, *self._shipped)]
        found = found or [one.seconds for one in self._all]
        return statistics.mean(found) if found else None

    def kwh(self, runs: Sequence[BenchmarkRun]) -> float | None:
        """Return the kWh of runs; None if no finished run was measured (`callbacks.Energy`)."""
        measured = [one for one in self._all if one.kwh is not None and one.seconds > 0]
        total = 0.0
        for run in runs:
            seconds, method = self.seconds_of(run), method_of(run)
            like = [one for one in measured if one.method == method] or measured
            if seconds is None or not like:
                return None
            total += seconds * sum(one.kwh or 0.0 for one in like) / sum(one.seconds for one in like)
        return total

    def total(self, runs: Sequence[BenchmarkRun], processes: int) -> float | None:
        """Return the seconds of runs, `processes` at a time; None if nothing is known."""
        known = [seconds for run in runs if (seconds := self.seconds_of(run)) is not None]
        return sum(known) / max(1, min(processes, len(runs))) if len(known) == len(runs) else None


def method_of(run: BenchmarkRun) -> str:
    """Return the class name of a run's method, from its config; "" if it is not stated there."""
    return _method_in(run.benchmark.systems[run.row.system].config)


@cache
def _method_in(config: Path) -> str:
    settings = read_yaml(config.read_text(encoding="utf-8"), config)
    model = settings.get("model") if isinstance(settings, dict) else None
    path = model.get("class_path") if isinstance(model, dict) else model
    return str(path or "").rpartition(".")[2]


def _finished_in(folder: Path) -> list[Finished]:
    """Return all finished runs of the benchmarks in a folder; unreadable ones are left out."""
    found = []
    for path in (path for benchmark in folder.glob(f"*/{BENCHMARK}") for path in benchmark.parent.rglob(RUN_FILE)):
        try:
            facts, report = (json.loads(file.read_text(encoding="utf-8")) for file in (path.parent / METRICS, path))
            kwh = facts.get("energy_kwh")
            found.append(Finished(str(facts["method"]), float(report["seconds"]), None if kwh is None else float(kwh)))
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            continue
    return found


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
