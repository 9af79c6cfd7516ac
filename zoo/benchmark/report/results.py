"""The finished runs of a benchmark, row by row."""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from zoo.benchmark.grid import SEARCH, TRIALS, Row, slug
from zoo.benchmark.runs import BENCHMARK, RUN_FILE, digest_of, folder_of
from zoo.privacy.record.record import PrivacyRecord, shown_delta
from zoo.privacy.spending.total import Total, record_of, total_of_run
from zoo.runtime.run_folder import CASES, DATA, METRICS, PRIVACY
from zoo.runtime.suggestions import suggest

CUT_OFFS = (5, 10)
MEASURES = tuple(f"{name}@{k}" for k in CUT_OFFS for name in ("hit_rate", "ndcg", "mrr"))
#: What is told of the lists, and how tables call it; the last two stand in the run's own figures (`zoo.data.metrics.ListMetrics`).
LIST_NAMES = {"recall": "Recall", "precision": "Precision", "map": "MAP", "coverage": "coverage", "novelty": "novelty"}
LIST_MEASURES = tuple(f"{name}@{k}" for k in CUT_OFFS for name in LIST_NAMES)
RANKINGS = {"full": "all items", "sampled": "1 + 99 candidates"}
#: The metric that rows are compared by; on validation it chose the checkpoint.
DECIDING = "ndcg@10"
#: The default row for paired tests.
BASELINE = "EASE"
#: Rows that a message names at most.
SHOWN = 8

#: Required keys of ``metrics.json``.
REPORTED: tuple[str, ...] = ("method", "metrics", "ranked_by_item_counts", "train_seconds", "epochs", "parameters")
REPORTED += ("peak_memory", "release_bytes")


class ResultsError(ValueError):
    """Runs that cannot be reported on."""


@dataclass(frozen=True)
class GuaranteeKind:
    """Privacy unit, relation and delta, which the rows of one figure share."""

    unit: str
    relation: str
    delta: float

    def __str__(self) -> str:
        """For a heading."""
        return f"one {self.unit} ({self.relation.replace('_', ' ')}), delta {shown_delta(self.delta)}"


@dataclass(frozen=True, eq=False)
class Run:
    """One finished cell."""

    seed: int
    folder: Path
    report: dict[str, Any]  # what ``metrics.json`` says
    privacy: dict[str, dict[str, Any]]  # what ``privacy.json`` says: a record and its ledger, by source
    cell_seconds: float  # the whole cell, search included
    tuned: int  # trials of a hyperparameter search
    versions: dict[str, str]
    search: dict[str, Any] | None = None  # the trials and what was chosen of them, where this run searched
    settings: Mapping[str, Any] = field(default_factory=dict)  # dotted, of a run that no benchmark has run
    _lists: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict, init=False)  # by ranking and cut-off

    def figure(self, ranking: str, measure: str) -> float:
        """Return a test figure, such as ``("full", "ndcg@10")``; NaN if neither the run nor its cases have it."""
        found = self.report["metrics"].get(f"test/{ranking}/{measure}")
        if found is None and measure.split("@")[0] in ("recall", "precision", "map"):
            found = self.lists(ranking, int(measure.split("@")[1])).get(measure)
        return math.nan if found is None else float(found)

    def lists(self, ranking: str, k: int) -> dict[str, float]:
        """Return list metrics of its cases."""
        if (ranking, k) not in self._lists:
            self._lists[ranking, k] = list_figures(self.cases, ranking, k)
        return self._lists[ranking, k]

    @cached_property
    def says_little(self) -> list[str]:
        """Why the metrics of its test are unreliable; empty for an ordinary test."""
        path = self.folder / DATA
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return [str(sentence) for sentence in found.get("test_says_little", ())]

    @cached_property
    def total(self) -> Total:
        """What all its releases cost together, as ``python -m zoo privacy total`` has it."""
        return total_of_run(self.privacy)

    @cached_property
    def records(self) -> dict[str, PrivacyRecord]:
        """Privacy record of each release, by source."""
        return {source: record_of(kept) for source, kept in self.privacy.items()}

    @cached_property
    def cases(self) -> pl.DataFrame:
        """Figures of every held-out case; a file that cannot be read is refused."""
        path = self.folder / CASES
        try:
            return pl.read_parquet(path).with_columns(seed=pl.lit(self.seed))
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            what = str(error).split("\n", 1)[0]  # polars may go on for many lines
            raise ResultsError(f"{path} cannot be read ({what}). Remove its folder and run it again.") from error


@dataclass(frozen=True, eq=False)
class Line:
    """A row with its finished runs, one for each seed."""

    row: Row
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """What the line is called."""
        return self.row.name

    def has(self, ranking: str, measure: str = DECIDING) -> bool:
        """Whether its cases were ranked so and measured by this."""
        return f"{ranking}/{measure}" in self.cases.columns

    @property
    def counted(self) -> bool:
        """Whether some users were ranked by item counts, as the method means nothing for them."""
        return any(run.report["ranked_by_item_counts"] for run in self.runs)

    def mean(self, ranking: str, measure: str) -> float:
        """Mean of a figure over seeds."""
        return self.average(lambda run: run.figure(ranking, measure))

    def sd(self, ranking: str, measure: str) -> float:
        """Sample standard deviation of a figure over seeds; NaN for one seed, or where the figure is."""
        found = [run.figure(ranking, measure) for run in self.runs]
        return math.nan if len(found) < 2 or math.isnan(sum(found)) else statistics.stdev(found)

    def average(self, value: Callable[[Run], float]) -> float:
        """Mean over runs."""
        return statistics.mean(map(value, self.runs))

    @property
    def costs(self) -> dict[str, float]:
        """Means over runs; peak memory in MiB."""
        return {
            "train_seconds": self.average(lambda run: run.report["train_seconds"]),
            "cell_seconds": self.average(lambda run: run.cell_seconds),
            "epochs": self.average(lambda run: run.report["epochs"]),
            "parameters": self.average(lambda run: run.report["parameters"]),
            "peak_mib": self.average(lambda run: run.report["peak_memory"]),
            "bytes_released": self.average(lambda run: sum(run.report["release_bytes"].values())),
        }

    @property
    def trials(self) -> int:
        """Of the hyperparameter search of a run, at most; 0 for none."""
        return max(run.tuned for run in self.runs)

    @cached_property
    def cases(self) -> pl.DataFrame:
        """Figures of every case of every seed."""
        return pl.concat([run.cases for run in self.runs], how="diagonal")  # earlier versions wrote fewer columns

    @cached_property
    def guarantee(self) -> GuaranteeKind | None:
        """What all releases of all runs guarantee; None without a release, or if one guarantees nothing."""
        records = [record for run in self.runs for record in run.records.values()]
        if not records or not all(record.claims for record in records):
            return None
        kinds = {(str(record.unit), str(record.relation)) for record in records}
        if len(kinds) > 1:
            raise ResultsError(f"The releases of {self.name} protect different things: {sorted(kinds)}.")
        unit, relation = kinds.pop()
        deltas = [run.total.delta for run in self.runs if run.total.delta is not None]
        return GuaranteeKind(unit, relation, max(deltas)) if len(deltas) == len(self.runs) else None

    @cached_property
    def epsilon(self) -> float | None:
        """The largest epsilon of a run, at the delta of its guarantee; None without one."""
        return None if self.guarantee is None else max(run.total.epsilon or 0.0 for run in self.runs)

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """What the epsilon assumes; empty for a proved one."""
        records = [record for run in self.runs for record in run.records.values()]
        return tuple(dict.fromkeys(text for record in records for text in record.sentences("conditions")))

    @property
    def standing(self) -> str:
        """`proved` or `conditional`; without an epsilon `none` or `no release`."""
        if self.guarantee is None:
            return "none" if self.row.release else "no release"
        return "conditional" if self.conditions else "proved"

    @property
    def reasons(self) -> list[str]:
        """Why releases guarantee nothing."""
        found = {record.reason for run in self.runs for record in run.records.values() if record.reason}
        return sorted(found or {run.total.reason for run in self.runs if run.records and run.total.reason})


@dataclass(frozen=True, eq=False)
class Results:
    """What a benchmark has found so far."""

    benchmark: dict[str, Any]  # as ``benchmark.json`` has it
    lines: dict[str, list[Line]]  # by task, in the order of the benchmark; rows without a finished run are left out
    finished: int  # how many cells are
    baseline: str = BASELINE  # the row that all others are held against, by name; empty for none
    # Why a task's runs are not in the table of the first, in a sentence.
    apart: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()  # of runs that no benchmark has run

    @property
    def cells(self) -> int:
        """How many cells the benchmark has."""
        return len(self.benchmark["cells"])

    @property
    def rows(self) -> list[Line]:
        """The rows of all tasks."""
        return [line for lines in self.lines.values() for line in lines]

    def ranked(self, task: str, ranking: str) -> list[Line]:
        """Rows of a task that have a ranking, by their mean NDCG@10, the best first."""
        lines = [line for line in self.lines[task] if line.has(ranking)]
        return sorted(lines, key=lambda line: -or_least(line.mean(ranking, DECIDING)))

    def ranking_of(self, task: str) -> str:
        """The ranking that sums a task up: among all items, unless more of its rows ranked candidates."""
        return max(RANKINGS, key=lambda ranking: sum(line.has(ranking) for line in self.lines[task]))

    def seeds_of(self, line: Line) -> list[int]:
        """Seeds that a row is run with, finished or not."""
        key = {"task": line.row.task, "system": line.row.system, "release": line.row.release}
        seeds: list[int] = next(row["seeds"] for row in self.benchmark["rows"] if key.items() <= row.items())
        return seeds

    def of_tasks(self, names: Sequence[str]) -> "Results":
        """Return the results of these tasks alone; raise `ResultsError` for one without a finished cell."""
        if self.folders:
            raise ResultsError("--task chooses a task of a benchmark. These are runs of fit; leave it out.")
        for name in names:
            if name not in self.lines:
                known = f"{suggest(name, self.lines)} Finished ones are of {', '.join(self.lines)}."
                raise ResultsError(f"No cell of a task {name!r} is finished.{known}")
        lines = {task: some for task, some in self.lines.items() if task in names}
        rows = [row for row in self.benchmark["rows"] if row["task"] in names]
        own = tuple(f"{slug(name)}/" for name in names)
        cells = {name: digest for name, digest in self.benchmark["cells"].items() if name.startswith(own)}
        finished = sum(len(line.runs) for some in lines.values() for line in some)
        return replace(self, benchmark=self.benchmark | {"rows": rows, "cells": cells}, lines=lines, finished=finished)

    def held_against(self, name: str) -> "Results":
        """Return the results with another baseline; raise `ResultsError` if no row has this name."""
        names = list(dict.fromkeys(line.name for line in self.rows))
        if name not in names:
            rows = "; ".join([*names[:SHOWN], *([f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else [])])
            raise ResultsError(f"No finished row is called {name!r}.{suggest(name, names)} Rows: {rows}.")
        return replace(self, baseline=name)


def or_least(value: float) -> float:
    """Return the value, minus infinity for NaN."""
    return -math.inf if math.isnan(value) else value


def read_results(runs: Path) -> Results:
    """Read the runs of one benchmark; raise `ResultsError` if there is none, or no cell is finished."""
    path = runs / BENCHMARK
    if not path.is_file():
        raise ResultsError(
            f"{runs} holds no {BENCHMARK}, so it is no folder of a benchmark. Run `python -m zoo benchmark --config FILE`, or "
            "give folders of runs, such as runs/PriCDR/version_0."
        )
    try:
        benchmark, lines = _read_lines(runs)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
        raise ResultsError(f"{path} or a run below it cannot be read ({said}). Repeat the benchmark.") from error
    count = sum(len(line.runs) for some in lines.values() for line in some)
    if not count:
        command = f"python -m zoo benchmark --config {benchmark['config']}"
        raise ResultsError(f"No cell of {runs} is finished. Run: {command}")
    kept = {task: some for task, some in lines.items() if some}
    return Results(benchmark, kept, count, benchmark.get("baseline") or BASELINE)


def _read_lines(runs: Path) -> tuple[dict[str, Any], dict[str, list[Line]]]:
    benchmark = json.loads((runs / BENCHMARK).read_text(encoding="utf-8"))
    for key in ("name", "config", "title", "about"):
        benchmark[key].strip()  # texts, or another version wrote it
    benchmark["cells"].keys()
    known = {entry.name for entry in fields(Row)}
    lines: dict[str, list[Line]] = {task: [] for task in benchmark["tasks"]}
    for entry in benchmark["rows"]:
        row = Row(**{key: value for key, value in entry.items() if key in known})
        found = [_read_run(runs, f"{folder_of(row)}/seed-{seed}", seed, benchmark["cells"]) for seed in entry["seeds"]]
        if finished := tuple(run for run in found if run is not None):
            lines[row.task].append(Line(row, finished))
    return benchmark, lines


def read_files(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return ``metrics.json`` and ``privacy.json`` of a run; raise KeyError or ValueError for wrong files."""
    report = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    privacy = json.loads((folder / PRIVACY).read_text(encoding="utf-8"))
    for key in REPORTED:
        report[key]  # raises now, not halfway through the report
    for kept in privacy.values():
        record_of(kept)
    return report, privacy


def _read_run(root: Path, name: str, seed: int, digests: dict[str, str]) -> Run | None:
    folder = root / name
    if not (folder / RUN_FILE).is_file():
        return None
    cell = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    if digest_of(cell["settings"]) != digests.get(name):
        return None  # of another version of the benchmark
    report, privacy = read_files(folder)
    asked, trials = cell["settings"]["search"], folder / SEARCH / TRIALS
    search = json.loads(trials.read_text(encoding="utf-8")) if trials.is_file() else None
    tuned = asked["trials"] if asked else 0
    return Run(seed, folder, report, privacy, cell["seconds"], tuned, cell["versions"], search)


def list_figures(cases: pl.DataFrame, ranking: str, k: int) -> dict[str, float]:
    """Return mean recall, precision and MAP over users by names such as ``recall@10``; empty if cases lack them.

    With ``m`` held-out items, AP@K is the sum of the precision at the rank of each that is among the first K, over ``min(m, K)``.
    If every ``m`` is 1, the metrics are HR@K, HR@K / K and MRR@K. Ties count in expectation, exactly.

    Reference: Manning, Raghavan and Schütze, *Introduction to Information Retrieval*, 2008, sections 8.3 and 8.4. McSherry and
    Najork, *Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores*, ECIR 2008.

    Args:
        cases: Of one run, with the columns ``user_id``, and ``<ranking>/hit_rate@K`` and ``mrr@K``. If a user has several held-out
            items, ``full/above`` and ``full/level``: the number of other items above each and level with it.
        ranking: ``full``, or ``sampled``, in which only a user with one held-out item has a list.
        k: The cut-off.
    """
    hits, reciprocal = (f"{ranking}/{name}@{k}" for name in ("hit_rate", "mrr"))
    if not cases["user_id"].is_duplicated().any():
        if not {hits, reciprocal} <= {*cases.columns}:
            return {}
        recall, mean_precision = (float(cases[name].cast(pl.Float64).to_numpy().mean()) for name in (hits, reciprocal))
        return {f"recall@{k}": recall, f"precision@{k}": recall / k, f"map@{k}": mean_precision}
    if ranking != "full" or not {"full/above", "full/level"} <= {*cases.columns}:
        return {}
    users = _users(cases.select("user_id", above=pl.col("full/above"), level=pl.col("full/level")), k)
    of_users = users.select(
        (pl.col("hits") / pl.col("held_out")).mean().alias(f"recall@{k}"),
        (pl.col("hits") / k).mean().alias(f"precision@{k}"),
        (pl.col("found") / pl.col("held_out").clip(upper_bound=k)).mean().alias(f"map@{k}"),
    )
    return of_users.row(0, named=True)


def _users(cases: pl.DataFrame, k: int) -> pl.DataFrame:
    """Return each user's number of held-out items, expected hits, and expected sum of precisions among the first K.

    Every order within a tie is equally likely. A tie of ``size`` items, ``m`` of them held out, follows ``before`` items, ``h`` of
    them held out. Its place ``t`` is a held-out item with probability ``m / size``; up to there are then on average
    ``h + 1 + (t - 1)(m - 1)/(size - 1)`` held-out items.
    """
    m, h, before, size = (pl.col(name) for name in ("m", "h", "before", "size"))
    ties = (
        cases.group_by("user_id", "above", "level")
        .agg(pl.len().cast(pl.Int64).alias("m"))
        .sort("user_id", "above", "level")
        .with_columns(h=m.cum_sum().over("user_id") - m)
        .with_columns(before=pl.col("above") + h, size=m + pl.col("level"))
    )
    share, others = m / size, (m - 1) / (size - 1).clip(lower_bound=1)
    places = [
        pl.when((t <= size) & (before + t <= k)).then(share * (h + 1 + others * (t - 1)) / (before + t)).otherwise(0.0)
        for t in range(1, k + 1)
    ]
    hits = share * (k - before).clip(lower_bound=0, upper_bound=size)
    return (
        ties.with_columns(hits=hits, found=pl.sum_horizontal(places))
        .group_by("user_id")
        .agg(pl.col("m").sum().alias("held_out"), pl.col("hits", "found").sum())
        .sort("user_id")
    )
