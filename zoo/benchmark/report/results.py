"""The finished runs of a benchmark by row."""

import json
import math
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from zoo.benchmark.grid import SEARCH, TRIALS, Row, slug
from zoo.benchmark.report.lists import activity_gap, list_figures
from zoo.benchmark.runs import BENCHMARK, RUN_FILE, digest_of, folder_of
from zoo.data.open_table import column_names, open_table
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.record.fields import Guarantee
from zoo.privacy.record.record import PrivacyRecord, PublicView, rounded_up, shown_delta
from zoo.privacy.record.words import sentence
from zoo.privacy.spending.total import OWN_ROWS, Total, record_of, total_of_run
from zoo.runtime.run_folder import CASES, DATA, METRICS, PRIVACY, read_mapping, read_summary, visible
from zoo.runtime.suggestions import suggest

CUT_OFFS = (5, 10)
MEASURES = tuple(f"{name}@{k}" for k in CUT_OFFS for name in ("hit_rate", "ndcg", "mrr"))
#: Titles of list metrics: those that follow from the cases, and of a list's contents. A run reports all others itself.
OF_CASES = {"recall": "Recall", "precision": "Precision", "map": "MAP", "ndcg_gap": "NDCG gap"}
OF_CONTENTS = {"coverage": "coverage", "gini": "Gini", "novelty": "novelty", "arp": "ARP", "diversity": "diversity"}
LIST_NAMES = OF_CASES | {"user_ndcg": "user NDCG", "gauc": "GAUC"} | OF_CONTENTS
LIST_MEASURES = (*(f"{name}@{k}" for k in CUT_OFFS for name in LIST_NAMES if name != "gauc"), "gauc")
RANKINGS = {"full": "all items", "sampled": "1 + 99 candidates"}
#: Rows are compared by this metric; on validation it chose the checkpoint.
PRIMARY_METRIC = "ndcg@10"
#: Releases of single-domain rows: none, or one without any rating.
ALONE = ("", "Nothing")
#: Reason for separate tables by differing part of the test.
REASONS = {
    "held out": "other test items",
    "history": "other training ratings",
    "ratings": "other training or held-out ratings",
    "drawn": "other candidates",
    "candidates": "other candidates",
    "ties": "another rule for ties",
    "average": "another average (cases or users)",
}
#: Maximum number of rows in a message.
SHOWN = 8

#: Required keys of ``metrics.json``.
REPORTED: tuple[str, ...] = ("method", "metrics", "ranked_by_item_counts", "train_seconds", "epochs", "parameters")
REPORTED += ("peak_memory", "release_bytes")


class ResultsError(ValueError):
    """Runs that a report cannot be made of."""


@dataclass(frozen=True)
class GuaranteeKind:
    """Privacy unit, neighbouring relation and delta, which the rows of a curve share.

    >>> str(GuaranteeKind("rating", "change_one_rating", 1e-5))
    'one rating (change one rating), delta 1e-05'
    """

    unit: str
    relation: str
    delta: float

    def __str__(self) -> str:
        """Return the text of a heading."""
        return f"one {self.unit} ({self.relation.replace('_', ' ')}), delta {shown_delta(self.delta)}"


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    seed: int
    folder: Path
    report: dict[str, Any]  # ``metrics.json``
    privacy: dict[str, dict[str, Any]]  # ``privacy.json``: record and ledger by source
    seconds: float  # with the hyperparameter search
    num_trials: int  # of the hyperparameter search; 0 for none
    versions: dict[str, str]
    search: dict[str, Any] | None = None  # chosen settings, results of the trials, and ranges, if this run searched
    settings: Mapping[str, Any] = field(default_factory=dict)  # dotted; empty for a run of a benchmark
    listed: pl.DataFrame | None = None  # its cases, if they are ranked by lists of a file
    _lists: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict, init=False)  # by ranking and cut-off

    def figure(self, ranking: str, measure: str) -> float:
        """Return a test figure, such as ``("full", "ndcg@10")``; NaN if neither the run nor its cases have it."""
        found = self.report["metrics"].get(f"test/{ranking}/{measure}")
        if found is None and measure.split("@")[0] in OF_CASES:
            found = self.lists(ranking, int(measure.split("@")[1])).get(measure)
        return math.nan if found is None else float(found)

    def lists(self, ranking: str, k: int) -> dict[str, float]:
        """Return list metrics of its cases."""
        if (ranking, k) not in self._lists:
            self._lists[ranking, k] = list_figures(self.cases, ranking, k) | activity_gap(self.cases, ranking, k)
        return self._lists[ranking, k]

    @property
    def test_warnings(self) -> list[str]:
        """Why the metrics of its test are unreliable; empty for an ordinary test."""
        return [str(sentence) for sentence in self._summary.get("test_says_little", ())]

    @property
    def num_negatives(self) -> list[int]:
        """Least and largest number of negatives of its test cases; empty without a sampled ranking, or if not stated."""
        return [number for number in self._summary.get("negatives", ()) if type(number) is int]

    @property
    def tested(self) -> dict[str, str]:
        """What it was tested on, as ``metrics.json`` states it; of an earlier version or of lists not all of it."""
        return {str(name): str(value) for name, value in self.report.get("tested", {}).items()}

    @cached_property
    def _summary(self) -> dict[str, Any]:
        path = self.folder / DATA
        return read_summary(path) if path.is_file() else {}

    @cached_property
    def total(self) -> Total:
        """Total privacy loss of all releases, as ``python -m zoo privacy total`` computes it."""
        return total_of_run(self.privacy)

    @cached_property
    def attack_success(self) -> float:
        """Upper bound of the success of an attack that sees all releases; 1 without a guarantee."""
        own = [record.attack_success for record in self.records.values()]
        return (own[0] if len(own) == 1 else self.total.attack_success) or 1.0

    @cached_property
    def records(self) -> dict[str, PrivacyRecord]:
        """Privacy record of each release, by source."""
        return {source: record_of(kept) for source, kept in self.privacy.items()}

    @cached_property
    def cases(self) -> pl.DataFrame:
        """Metrics of every test case; raises `ResultsError` for an unreadable file."""
        if self.listed is not None:
            return self.listed
        path = self.folder / CASES
        try:
            found = open_table(path, ".parquet", "", column_names(path)).with_columns(seed=pl.lit(self.seed))
            if lost := [name for name in ("user_id", "item_id", "train_items", "linked") if name not in found.columns]:
                raise ValueError(f"column {lost[0]} is missing")
            if texts := [name for name, kind in found.schema.items() if "/" in name and not kind.is_numeric()]:
                raise ValueError(f"{texts[0]} is no number")
            return found
        except (OSError, ValueError) as error:
            what = str(error).split("\n", 1)[0]  # polars writes many lines
            raise ResultsError(f"{path} is unreadable ({what}). Delete its folder and repeat it.") from error

    @cached_property
    def held_out(self) -> int:
        """Hash of its pairs of user and held-out item, in any order."""
        return int(self.cases.select(pl.col("user_id", "item_id").cast(pl.String)).hash_rows().sort().hash().sum())


@dataclass(frozen=True, eq=False)
class Line:
    """A row with its finished runs, one per seed."""

    row: Row
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """System and release."""
        return self.row.name

    def has(self, ranking: str, measure: str = PRIMARY_METRIC) -> bool:
        """Return whether the cases have this metric."""
        return f"{ranking}/{measure}" in self.cases.columns

    @property
    def uses_item_counts(self) -> bool:
        """Whether some users were ranked by item counts, because the method cannot score them."""
        return any(run.report["ranked_by_item_counts"] for run in self.runs)

    def mean(self, ranking: str, measure: str) -> float:
        """Return the mean of a metric over seeds."""
        return self.average(lambda run: run.figure(ranking, measure))

    def sd(self, ranking: str, measure: str) -> float:
        """Return the sample standard deviation over seeds; NaN for one seed or a missing metric."""
        found = [run.figure(ranking, measure) for run in self.runs]
        return math.nan if len(found) < 2 or math.isnan(sum(found)) else statistics.stdev(found)

    def average(self, value: Callable[[Run], float]) -> float:
        """Return the mean of a value over runs."""
        return statistics.mean(map(value, self.runs))

    @property
    def is_external(self) -> bool:
        """Whether it is ranked by lists of a file, whose cost is unknown."""
        return self.runs[0].listed is not None

    @property
    def costs(self) -> dict[str, float]:
        """Means over runs; peak memory in MiB."""
        return {
            "train_seconds": self.average(lambda run: run.report["train_seconds"]),
            "cell_seconds": self.average(lambda run: run.seconds),
            "epochs": self.average(lambda run: run.report["epochs"]),
            "parameters": self.average(lambda run: run.report["parameters"]),
            "peak_mib": self.average(lambda run: run.report["peak_memory"]),
            "energy_kwh": self.average(lambda run: run.report.get("energy_kwh", math.nan)),
            "bytes_released": self.average(lambda run: sum(run.report["release_bytes"].values())),
        }

    @property
    def num_trials(self) -> int:
        """Largest number of search trials of a run; 0 without a search."""
        return max(run.num_trials for run in self.runs)

    def chosen(self, run: Run) -> dict[str, Any] | None:
        """Return the settings that a run's own search chose, or that of the row's first seed; None without a search."""
        searches = [one.search for one in (run, *self.runs) if one.search is not None]
        return searches[0]["chosen"] if searches else None

    @cached_property
    def cases(self) -> pl.DataFrame:
        """Metrics of every test case and seed."""
        return pl.concat([run.cases for run in self.runs], how="diagonal")  # earlier versions wrote fewer columns

    @cached_property
    def guarantee(self) -> GuaranteeKind | None:
        """The guarantee of all releases of all runs; None without a release, if one release has none, or if they differ."""
        records = [record for run in self.runs for record in run.records.values()]
        if not records or not all(record.claims for record in records) or len(self._kinds) > 1:
            return None
        ((unit, relation),) = self._kinds
        deltas = [run.total.delta for run in self.runs if run.total.delta is not None]
        return GuaranteeKind(unit, relation, max(deltas)) if len(deltas) == len(self.runs) else None

    @cached_property
    def _kinds(self) -> dict[tuple[str, str], float]:
        """The largest epsilon of a release of the runs, by unit and relation."""
        found: dict[tuple[str, str], float] = {}
        for record in (record for run in self.runs for record in run.records.values() if record.claims):
            kind = str(record.unit), str(record.relation)
            found[kind] = max(found.get(kind, 0.0), record.epsilon or 0.0)
        return found

    @cached_property
    def epsilon(self) -> float | None:
        """The largest epsilon of a run at the delta of its guarantee; None without a guarantee."""
        return None if self.guarantee is None else max(run.total.epsilon or 0.0 for run in self.runs)

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of a conditional epsilon; empty for a proved one."""
        records = [record for run in self.runs for record in run.records.values()]
        return tuple(dict.fromkeys(text for record in records for text in record.sentences("conditions")))

    @cached_property
    def unprotected_metrics(self) -> str:
        """Sentence on metrics if the scores of a run also read the source's rows without noise, else ""."""
        own = any(
            entry.get(OWN_ROWS) or "personal_recommendations" in run.records[source].not_protected
            for run in self.runs
            for source, entry in run.privacy.items()
        )
        return f"not protected: {sentence('metrics')}" if own else ""

    @cached_property
    def view(self) -> PublicView:
        """What every table, page, tracker and file of a report states of the row's guarantee."""
        kind = self.guarantee
        if kind is None:
            return PublicView(guarantee=self.guarantee_status, reason="; ".join(self.reasons) or None)
        records = [record for run in self.runs for record in run.records.values()]
        return PublicView(
            guarantee=self.guarantee_status,
            relation=Relation(kind.relation),
            epsilon=self.epsilon,
            delta=kind.delta,
            conditions=self.conditions,
            attack_success=max(run.attack_success for run in self.runs),
            attack_scope=next(filter(None, (record.view.attack_scope for record in records)), ""),
            not_protected=tuple(
                dict.fromkeys(text for record in records for text in record.sentences("not_protected"))
            ),
        )

    @property
    def guarantee_status(self) -> str:
        """A value of `Guarantee`, or `no release`."""
        if self.guarantee is None:
            return Guarantee.NONE.value if self.row.release else "no release"
        return (Guarantee.CONDITIONAL if self.conditions else Guarantee.PROVED).value

    @property
    def reasons(self) -> list[str]:
        """Reasons why releases have no guarantee."""
        found = {record.reason for run in self.runs for record in run.records.values() if record.reason}
        if not found and len(self._kinds) > 1:
            each = ", ".join(f"{kind[1]} {rounded_up(own)}" for kind, own in sorted(self._kinds.items()))
            found = {f"the relations differ (largest epsilon of one release: {each}), so losses do not add up"}
        found = found or {run.total.reason for run in self.runs if run.records and run.total.reason}
        return sorted(found or {"not stated" for run in self.runs if run.listed is not None})


@dataclass(frozen=True, eq=False)
class Results:
    """The finished runs of a benchmark."""

    benchmark: dict[str, Any]  # ``benchmark.json``
    lines: dict[str, list[Line]]  # by task, in the order of the benchmark; only rows with finished runs
    num_finished: int
    # Row for paired tests; None for the best single-domain row of each task and ranking, "" for no row.
    baseline: str | None = None
    # Sentence on why a task has a table of its own.
    separation: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[Path, ...] = ()  # of runs outside a benchmark
    lists: tuple[str, ...] = ()  # files of lists, each as ``NAME=FILE``

    @property
    def num_runs(self) -> int:
        """Number of runs of the benchmark, finished or not."""
        return len(self.benchmark["cells"])

    @property
    def rows(self) -> list[Line]:
        """The rows of all tasks."""
        return [line for lines in self.lines.values() for line in lines]

    def ranked(self, task: str, ranking: str) -> list[Line]:
        """Return the rows of a task with this ranking by descending mean NDCG@10."""
        lines = [line for line in self.lines[task] if line.has(ranking)]
        return sorted(lines, key=lambda line: -nan_to_lowest(line.mean(ranking, PRIMARY_METRIC)))

    def ranking_of(self, task: str) -> str:
        """Return the main ranking of a task: all items, unless more of its rows ranked candidates."""
        return max(RANKINGS, key=lambda ranking: sum(line.has(ranking) for line in self.lines[task]))

    def baseline_of(self, task: str, ranking: str) -> str:
        """Return the row for paired tests; by default the single-domain row with the highest NDCG@10, "" if there is none.

        The test figure chooses it, which favours the baseline: no other single-domain row of the table is above it, except rows of
        another test, which are passed over if there are others.
        """
        if self.baseline is not None:
            return self.baseline
        alone = [line.name for line in self.ranked(task, ranking) if line.row.release in ALONE]
        odd = other_tests(self.lines[task]) if alone else {}
        return next((name for name in alone if name not in odd), next(iter(alone), ""))

    def seeds_of(self, line: Line) -> list[int]:
        """Return the seeds of a row, finished or not."""
        key = {"task": line.row.task, "system": line.row.system, "release": line.row.release}
        seeds: list[int] = next(row["seeds"] for row in self.benchmark["rows"] if key.items() <= row.items())
        return seeds

    def only_tasks(self, names: Sequence[str]) -> "Results":
        """Return the results of these tasks; raise `ResultsError` for a task without a finished run."""
        if self.folders:
            raise ResultsError("--task is given, but these are runs of fit. Remove it.")
        for name in names:
            if name not in self.lines:
                known = f"{suggest(name, self.lines)} Finished tasks: {', '.join(self.lines)}."
                raise ResultsError(f"Task {name!r} has no finished run.{known}")
        lines = {task: some for task, some in self.lines.items() if task in names}
        rows = [row for row in self.benchmark["rows"] if row["task"] in names]
        own = tuple(f"{slug(name)}/" for name in names)
        digests = {name: digest for name, digest in self.benchmark["cells"].items() if name.startswith(own)}
        finished = sum(len(line.runs) for some in lines.values() for line in some)
        return replace(
            self, benchmark=self.benchmark | {"rows": rows, "cells": digests}, lines=lines, num_finished=finished
        )

    def with_baseline(self, name: str) -> "Results":
        """Return the results with another baseline; raise `ResultsError` for an unknown row."""
        names = list(dict.fromkeys(line.name for line in self.rows))
        if name not in names:
            rows = "; ".join([*names[:SHOWN], *([f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else [])])
            raise ResultsError(f"Baseline {name!r} is no finished row.{suggest(name, names)} Rows: {rows}.")
        return replace(self, baseline=name)


def other_tests(lines: Sequence[Line]) -> dict[str, list[str]]:
    """Return how the tests of rows differ from that of most rows, by row; without a majority all are named, and lists never.

    Digests are compared under the same seed, and rules under all seeds.
    """
    tests: dict[tuple[int | None, str], list[tuple[str, str]]] = {}
    for name, run in ((line.name, run) for line in lines if not line.is_external for run in line.runs):
        for key, value in {"held out": str(run.held_out), **run.tested}.items():
            seed = None if key in ("drawn", "ties", "average") else run.seed
            tests.setdefault((seed, key), []).append((name, value))
    found: dict[str, dict[str, None]] = {}
    for (_, key), values in ((key, list(dict.fromkeys(values))) for key, values in tests.items()):
        ((usual, count),) = Counter(value for _, value in values).most_common(1)
        odd = [name for name, value in values if value != usual or 0 < 2 * count <= len(values)]
        for name in odd if key in REASONS and any(value != usual for _, value in values) else ():
            found.setdefault(name, {})[REASONS[key]] = None
    return {name: list(reasons) for name, reasons in found.items()}


def nan_to_lowest(value: float) -> float:
    """Return a value, minus infinity for NaN."""
    return -math.inf if math.isnan(value) else value


def read_results(runs: Path) -> Results:
    """Read the runs of a benchmark; raise `ResultsError` if no run is finished."""
    path = runs / BENCHMARK
    if not path.is_file():
        raise ResultsError(f"{runs} has no {BENCHMARK}. Run `python -m zoo benchmark --config FILE`, or name runs.")
    try:
        benchmark, lines = _read_lines(runs)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ResultsError(f"{path} or one of its runs is unreadable ({reason}). Repeat the benchmark.") from error
    count = sum(len(line.runs) for some in lines.values() for line in some)
    if not count:
        command = f"python -m zoo benchmark --config {shlex.quote(visible(benchmark['config']))}"
        raise ResultsError(f"{runs} has no finished run. Run: {command}")
    finished = {task: some for task, some in lines.items() if some}
    return Results(benchmark, finished, count, benchmark.get("baseline") or None)


def _read_lines(runs: Path) -> tuple[dict[str, Any], dict[str, list[Line]]]:
    benchmark = json.loads((runs / BENCHMARK).read_text(encoding="utf-8"))
    for key in ("name", "config", "title", "about"):
        benchmark[key].strip()  # fails if another version wrote no texts
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
    """Return ``metrics.json`` and ``privacy.json`` of a run; raise KeyError or ValueError for malformed files."""
    report = read_summary(folder / METRICS)
    privacy = read_mapping(folder / PRIVACY)
    for key in REPORTED:
        report[key]  # fails now, not halfway through the report
    for stored in privacy.values():
        record_of(stored)
    return report, privacy


def _read_run(root: Path, name: str, seed: int, digests: dict[str, str]) -> Run | None:
    folder = root / name
    if not (folder / RUN_FILE).is_file():
        return None
    stored = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    if digest_of(stored["settings"]) != digests.get(name):
        return None  # of another version of the benchmark
    report, privacy = read_files(folder)
    settings, trials = stored["settings"]["search"], folder / SEARCH / TRIALS
    search = {**(settings or {}), **json.loads(trials.read_text(encoding="utf-8"))} if trials.is_file() else None
    num_trials = settings["trials"] if settings else 0
    return Run(seed, folder, report, privacy, stored["seconds"], num_trials, stored["versions"], search)
