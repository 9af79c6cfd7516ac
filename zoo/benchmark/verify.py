"""``python -m zoo benchmark --verify``: repeat some runs of a report and compare their figures with the committed ones."""

import argparse
import csv
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from scipy.stats import t

from zoo.benchmark.grid import BenchmarkError
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.report.files import ORIGIN
from zoo.benchmark.report.paired_differences import TESTED_METRICS
from zoo.benchmark.report.results import ALONE, RANKINGS
from zoo.benchmark.runner import run_all
from zoo.benchmark.runs import RUN_FILE, BenchmarkRun, runs_of, select_runs
from zoo.runtime.processes import cores
from zoo.runtime.run_folder import METRICS, read_summary, visible
from zoo.runtime.suggestions import count_of

#: Difference that rounding to six decimals allows, and the smallest tolerance for trained networks.
ROUNDING, LEAST_TOLERANCE = 1.5e-6, 0.005
#: Most threads of a run.
_MOST_THREADS = 1024
#: Probability that a figure of an unchanged method is called different.
FALSE_ALARMS = 0.001


@dataclass(frozen=True)
class Check:
    """One figure of a repeated run; `now` is NaN if the run failed."""

    run: str
    figure: str
    committed: float
    now: float
    tolerance: float
    error: str = ""

    @property
    def verdict(self) -> str:
        """`identical`, `within tolerance`, `within wide tolerance` (at least the figure), `differs`, or why the run failed.

        Examples:
            >>> [Check("a", "full/ndcg@10", 0.5, now, 0.01).verdict for now in (0.5, 0.505, 0.52)]
            ['identical', 'within tolerance', 'differs']
            >>> [Check("a", "full/ndcg@10", 0.1, now, 0.12).verdict for now in (0.0, math.nan)]
            ['within wide tolerance', 'differs']
        """
        difference = abs(self.now - self.committed)
        if self.error or difference <= ROUNDING:
            return f"failed: {self.error}" if self.error else "identical"
        if not difference <= self.tolerance:  # also without a figure
            return "differs"
        return "within tolerance" if self.tolerance < self.committed else "within wide tolerance"

    @property
    def holds(self) -> bool:
        """Whether the repeated run does not contradict the figure."""
        return self.verdict in ("identical", "within tolerance", "within wide tolerance")


def verify(folder: Path, options: argparse.Namespace, console: Console) -> list[Check]:
    """Repeat runs that are drawn at random from a report, in a temporary folder; return a check of each figure.

    Args:
        folder: Folder of a report, with ``seeds.csv`` and ``report.json``.
        options: `runs` (their number), `seed` (of the draw), `only`, `tolerance`, `search` and `processes` of the command.
        console: Where the progress is printed.

    Raises:
        BenchmarkError: If the folder is no report of a benchmark, or its benchmark file has other rows by now.
    """
    origin, rows = read_report(folder)
    seed = time.time_ns() % 2**32 if options.seed is None else options.seed
    console.print(f"Benchmark file: {escape(visible(origin['config']))}", highlight=False, soft_wrap=True)
    benchmark, threads = read_benchmark(Path(origin["config"])), int(next(iter(origin["threads"])) or 1)
    with tempfile.TemporaryDirectory(prefix="zoo-") as root:
        known = {key_of(run): run for run in runs_of(benchmark, Path(root))}
        if lost := [key for key in rows if key not in known]:
            raise BenchmarkError(f"{origin['config']} has no row {lost[0]} by now. Use the report's commit.")
        pool = select_runs([known[key] for key in rows], options.only or "*")
        drawn = random.Random(seed).sample(pool, min(options.runs, len(pool)))
        console.print(f"{count_of(len(drawn), 'run')} of {len(pool)} drawn with --seed {seed}.", highlight=False)
        todo = {one.name: one for run in drawn for one in _to_run(run, rows[key_of(run)], options)}
        processes = options.processes or max(1, cores() // threads)
        with console.status(f"Repeating {count_of(len(todo), 'run')} ..."):
            outcomes = run_all([*todo.values()], processes, threads, lambda outcome: None)
        errors = {outcome.run.name: outcome.error for outcome in outcomes}
        return [
            check for run in drawn for check in _checks(run, rows, origin, errors.get(run.name, ""), options.tolerance)
        ]


#: Task, system, release and seed.
Key = tuple[str, str, str, str]


def key_of(run: BenchmarkRun) -> Key:
    """Return task, system, release and seed, as ``seeds.csv`` names a run."""
    return visible(run.row.task), visible(run.row.system), visible(run.row.release), str(run.seed)


def read_report(folder: Path) -> tuple[dict[str, Any], dict[Key, dict[str, str]]]:
    """Return the content of ``report.json``, and the rows of ``seeds.csv`` by run; raise `BenchmarkError` without them."""
    try:
        origin = read_summary(folder / ORIGIN)
        with (folder / "seeds.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        keyed = {(row["task"], row["system"], row["release"], row["seed"]): row for row in rows}
        [*origin["versions"], *origin["machine"], next(iter(rows)), Path(origin["config"])]
        threads = int(next(iter(origin["threads"])) or 1)
        [float(row[name] or 0) for row in rows for name in row if "@" in name or name == "epochs"]
        figures = ["/".join(pair) for pair in product(RANKINGS, TESTED_METRICS)]
        if not 0 < threads <= _MOST_THREADS or not all(
            0 <= float(row.get(name) or 0) <= 1 for row in rows for name in figures
        ):
            raise ValueError("a figure outside [0, 1], or too many threads")
    except (OSError, ValueError, KeyError, TypeError, csv.Error, StopIteration) as error:
        raise BenchmarkError(
            f"{folder} lacks a readable {ORIGIN} or seeds.csv ({type(error).__name__}: {visible(str(error)[:80])}). Report again, "
            "with version 0.3 or later."
        ) from error
    return origin, keyed


def _to_run(run: BenchmarkRun, row: Mapping[str, str], options: argparse.Namespace) -> list[BenchmarkRun]:
    """Return the run with the settings that the report names, or, to search again, the run after the one that searches.

    A report of another party may name any settings, and these run code. So only those that the search can choose are taken.
    """
    if options.search or not row.get("chosen"):
        return [run.searcher, run]
    search = run.benchmark.search_of(run.row)
    ranges = search.parameters if search else {}
    try:
        chosen = json.loads(row["chosen"])
    except (ValueError, RecursionError):
        chosen = None
    sound = isinstance(chosen, dict) and ranges and chosen.keys() == ranges.keys()
    if not sound or not all(chosen[name] in each for name, each in ranges.items()):
        raise BenchmarkError(
            f"{options.verify / 'seeds.csv'}, {run.name}: chosen is {row['chosen'][:80]}. Allowed: values of the search "
            f"({', '.join(ranges) or 'none'}). Use --search."
        )
    return [replace(run, chosen=chosen)]


def _checks(
    run: BenchmarkRun, rows: Mapping[Key, Mapping[str, str]], origin: Mapping[str, Any], error: str, given: float | None
) -> list[Check]:
    own, now = rows[key_of(run)], {}
    exact = False
    if not error:
        now = json.loads((run.folder / METRICS).read_text(encoding="utf-8"))["metrics"]
        made = json.loads((run.folder / RUN_FILE).read_text(encoding="utf-8"))
        versions = ", ".join(f"{name} {value}" for name, value in made["versions"].items())
        found = {"versions": versions, "threads": str(made["threads"]), "machine": made["machine"]}
        same = all([*origin[name]] == [value] for name, value in found.items())
        exact = same and own["epochs"] == "1" and run.row.release in ALONE
    checks = []
    for figure in ("/".join(pair) for pair in product(RANKINGS, TESTED_METRICS)):
        if own.get(figure):
            wide = max(
                LEAST_TOLERANCE, allowed([row for key, row in rows.items() if key[0] == run.row.task], own, figure)
            )
            tolerance = given if given is not None else ROUNDING if exact else wide
            value = float(now.get(f"test/{figure}", math.nan))
            checks.append(Check(run.name, figure, float(own[figure]), value, tolerance, error))
    return checks


def allowed(rows: Sequence[Mapping[str, str]], own: Mapping[str, str], figure: str) -> float:
    """Return how far a repeated figure may lie from the committed one.

    Both vary by seed and noise, so their difference is compared with t * sqrt(2) * deviation, with t at the false-alarm rate. The
    deviation is that over the row's seeds, or that of all rows of the task together if it is larger: two or three seeds alone
    measure it badly.

    Args:
        rows: Lines of ``seeds.csv`` of one task.
        own: The line of the repeated run.
        figure: A column.

    Examples:
        >>> rows = [{"system": "DMF", "release": "", "seed": str(n), "full/ndcg@10": str(n / 100)} for n in range(5)]
        >>> round(allowed(rows, rows[0], "full/ndcg@10"), 3)
        0.193
    """
    by_row: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row[figure]:
            by_row.setdefault((row["system"], row["release"]), []).append(float(row[figure]))
    varied = [found for found in by_row.values() if len(found) > 1 and statistics.variance(found) > ROUNDING**2]
    if not varied:
        return 0.0
    freedom = sum(len(found) - 1 for found in varied)
    pooled = sum((len(found) - 1) * statistics.variance(found) for found in varied) / freedom
    seeds = by_row[own["system"], own["release"]]
    widest = max(pooled, statistics.variance(seeds) if len(seeds) > 1 else 0.0)
    return float(t.ppf(1 - FALSE_ALARMS / 2, freedom)) * math.sqrt(2 * widest)


def check_table(checks: Sequence[Check]) -> Group:
    """Return a table for each run, with a line for each of its figures."""
    tables = []
    for run, own in groupby(checks, key=lambda check: check.run):
        table = Table(title=escape(visible(run)), title_justify="left", box=None, pad_edge=False)  # 79 characters
        for column in ("figure", "committed", "now", "difference", "tolerance", "verdict"):
            table.add_column(column, overflow="fold")
        for check in own:
            numbers = check.committed, check.now, check.now - check.committed, check.tolerance
            table.add_row(*map(escape, (check.figure, *(f"{n:.4f}" for n in numbers), visible(check.verdict))))
        tables.append(table)
    return Group(*tables)
