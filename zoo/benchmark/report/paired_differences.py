"""Paired differences between a row and its baselines, between more and fewer sources, and along a sweep.

Reference of negative transfer: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation* (FedGCDR), NeurIPS 2024,
section 4.2. Departure: the paper compares means; here each difference is also tested.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import polars as pl

from zoo.benchmark.grid import Row
from zoo.benchmark.report.results import PRIMARY_METRIC, RANKINGS, REASONS, Line, Results, ResultsError, Run
from zoo.benchmark.report.run_folders import display_path, read_run
from zoo.benchmark.report.significance import Comparison, Shape, common_cases, holm, over_seeds, over_users, shape

#: Metrics that are tested.
TESTED_METRICS = (PRIMARY_METRIC, "hit_rate@10")
#: The same method with a release of random ratings, and without a release.
NOISE_BASELINE, NO_RELEASE = "noise baseline", "single-domain baseline"
Kind = Literal["soft", "hard"]
#: Metrics of negative transfer, as in the paper.
TRANSFER_METRICS = ("hit_rate@5", "ndcg@5", "hit_rate@10", "ndcg@10")
#: Figures of sweeps: that of the papers' figures, and the one that leaders are chosen by.
SWEPT = {("sampled", "hit_rate@10"): "HR@10, 1 + 99", ("full", PRIMARY_METRIC): "NDCG@10, all items"}


@dataclass(frozen=True)
class Gain:
    """A row minus one of its baselines, in one metric of one ranking."""

    task: str
    line: Line
    against: str  # `NOISE_BASELINE`, `NO_RELEASE`, the name of the baseline row, or a text
    ranking: str  # ``full`` or ``sampled``
    measure: str
    users: Comparison  # paired over users, each averaged over seeds
    seeds: Comparison | None  # paired over seeds; None with fewer than two
    users_holm: float = 1.0  # p-value over users, corrected for all rows with this baseline and metric
    seeds_holm: float | None = None  # the same over seeds; None without one


def paired_differences(results: Results) -> list[Gain]:
    """Return the gain of every row over each of its baselines, corrected within each task, baseline and metric."""
    made: list[Gain] = []
    for task, position, ranking, measure in product(results.lines, range(3), RANKINGS, TESTED_METRICS):
        against = (NOISE_BASELINE, results.baseline_of(task, ranking), NO_RELEASE)[position]
        pairs = [(line, control_of(results, line, against)) for line in results.lines[task]]
        family = [_gain(results, *pair, against, ranking, measure) for pair in pairs]
        made += corrected([gain for gain in family if gain is not None])
    return made


def control_of(results: Results, line: Line, against: str) -> Line | None:
    """Return the row to compare with; None for a noise baseline, or if there is none."""
    own = line.row
    if own.control == "noise":
        return None
    others = [other for other in results.lines[own.task] if other is not line]
    return next((other for other in others if _is_control(other.row, own, against)), None)


def _is_control(row: Row, own: Row, against: str) -> bool:
    if against == NOISE_BASELINE:
        return (row.system, row.control, row.of) == (own.system, "noise", own.release)
    if against == NO_RELEASE:
        return (row.system, row.release) == (own.system, "Nothing")
    return row.name == against


def _gain(results: Results, line: Line, other: Line | None, against: str, ranking: str, measure: str) -> Gain | None:
    """Return the tested difference of two rows; None if there is nothing to compare."""
    if other is None or not (line.has(ranking, measure) and other.has(ranking, measure)):
        return None
    tested = paired_tests(results, line, other, f"{ranking}/{measure}")
    return Gain(line.row.task, line, against, ranking, measure, *tested) if tested else None


def paired_tests(results: Results, line: Line, other: Line, name: str) -> tuple[Comparison, Comparison | None] | None:
    """Return the tests of one row minus another, over users and over seeds.

    None with fewer than two common users, if ties count otherwise, or if under the same seed a user has other held-out items or
    a sampled figure other candidates.

    A row of one seed stands for every seed of the other only if these have its test items. Among candidates of other seeds it is
    tested over users alone: one draw of candidates says nothing about another.
    """
    ours, theirs = _by_user(line, name), _by_user(other, name)
    # A missing seed of a row with several seeds is not finished yet.
    one = min(len(results.seeds_of(line)), len(results.seeds_of(other))) == 1
    runs = [*line.runs, *other.runs]
    if not one or len({run.held_out for run in runs}) > 1:
        ours, theirs = ours.join(theirs, on="seed", how="semi"), theirs.join(ours, on="seed", how="semi")
    if common_cases(ours, theirs, name)["user_id"].n_unique() < 2 or _other_test(line, other, name):
        return None
    drawn = {run.tested.get("candidates", "") for run in runs}
    drawn_once = one and name.startswith("sampled/") and (len(drawn) > 1 or "" in drawn)
    return over_users(ours, theirs, name), None if drawn_once else over_seeds(ours, theirs, name)


def _other_test(line: Line, other: Line, name: str) -> bool:
    """Return whether ties count otherwise, a sampled figure is among other candidates, or a user of both has other items."""
    both = {run.seed: run for run in line.runs}
    pairs = [(both[run.seed], run) for run in other.runs if run.seed in both]
    runs, of_pairs = [[*line.runs, *other.runs]], name.startswith("sampled/")
    if _differ(runs, "ties") or (of_pairs and (_differ(runs, "drawn") or _differ(pairs, "candidates"))):
        return True
    for ours, theirs in ((ours, theirs) for ours, theirs in pairs if ours.held_out != theirs.held_out):
        mine, own = (run.cases.group_by("user_id").agg(pl.col("item_id").sort()) for run in (ours, theirs))
        if mine.join(own, on="user_id").filter(pl.col("item_id") != pl.col("item_id_right")).height:
            return True
    return False


def _differ(groups: Iterable[Sequence[Run]], key: str) -> bool:
    """Return whether the runs of a group state different tests; some may not state any."""
    return any(len({run.tested[key] for run in group if key in run.tested}) > 1 for group in groups)


def _by_user(line: Line, name: str) -> pl.DataFrame:
    """Return a metric by user and seed, averaged over the user's held-out items."""
    return line.cases.group_by("seed", "user_id").agg(pl.col(name).cast(pl.Float64).mean())


def corrected(family: Sequence[Gain]) -> list[Gain]:
    """Return the gains of one family with Holm-corrected p-values."""
    users = holm([gain.users.p_value for gain in family])
    seeds = iter(holm([gain.seeds.p_value for gain in family if gain.seeds is not None]))
    return [
        replace(gain, users_holm=own, seeds_holm=None if gain.seeds is None else next(seeds))
        for gain, own in zip(family, users, strict=True)
    ]


@dataclass(frozen=True)
class Sweep:
    """The shape of a figure of `SWEPT`, or of its gain over noise baselines, along the rows of a sweep."""

    task: str
    title: str
    of: str
    rows: Sequence[Line]
    seeds: int
    shape: Shape
    trend_holm: float = 1.0  # p-values corrected for all sweeps of the task and figure
    bend_holm: float = 1.0

    @property
    def verdict(self) -> str:
        """The significant shapes; `-` for none."""
        trend = ("rises" if self.shape.correlation > 0 else "falls") if self.trend_holm < 0.05 else ""
        bend = ("bell" if self.shape.bend.difference > 0 else "valley") if self.bend_holm < 0.05 else ""
        return ", ".join(filter(None, [trend, bend])) or "-"


def sweeps(results: Results) -> list[Sweep]:
    """Return the shapes of each finished sweep, corrected within each task and figure."""
    family: list[Sweep] = []
    for (task, lines), name in product(results.lines.items(), SWEPT):
        made: list[Sweep] = []
        for title, names in results.benchmark.get("sweeps", {}).items():
            rows = [line for row in names for line in lines if line.name == row]
            noise = [control_of(results, line, NOISE_BASELINE) for line in rows]
            if len(rows) == len(names):
                made += filter(None, [_sweep(name, task, title, rows, others) for others in ([], noise)])
        trends, bends = holm([each.shape.p_trend for each in made]), holm([each.shape.bend.p_value for each in made])
        family += [replace(s, trend_holm=t, bend_holm=b) for s, t, b in zip(made, trends, bends, strict=True)]
    return family


def _sweep(
    name: tuple[str, str], task: str, title: str, rows: Sequence[Line], noise: Sequence[Line | None]
) -> Sweep | None:
    """Return the shape of rows, less their noise baselines if given; None if one lacks or without two common seeds."""
    others = [line for line in noise if line is not None]
    seeds = sorted(set.intersection(*({run.seed for run in line.runs} for line in [*rows, *others])))
    if len(others) < len(noise) or len(seeds) < 2 or not all(line.has(*name) for line in [*rows, *others]):
        return None
    ours, theirs = (
        np.array([[run.figure(*name) for run in line.runs if run.seed in seeds] for line in some])
        for some in (rows, others)
    )
    of = f"{SWEPT[name]}, gain over noise" if noise else SWEPT[name]
    return Sweep(task, title, of, rows, len(seeds), shape((ours - theirs if noise else ours).T))


@dataclass(frozen=True)
class Transfer:
    """A row minus the same row with fewer sources, or minus its single-domain baseline."""

    series: str  # title
    kind: Kind  # of negative transfer, if the row is lower
    domains: int  # number of domains, target included
    fewer: int | None  # domains of the other row; None for the single-domain baseline
    other: Line
    gain: Gain  # corrected for all rows of the series, of one kind and figure

    @property
    def negative(self) -> bool:
        """Whether the row is lower, as the paper defines it."""
        return self.gain.users.difference < 0

    @property
    def verdict(self) -> str:
        """`soft`, `hard` or `-`, with a remark if the difference is not significant over users."""
        if not self.negative:
            return "-"
        return self.kind if self.gain.users_holm < 0.05 else f"{self.kind}, not significant"


def transfers(results: Results) -> list[Transfer]:
    """Return the comparisons of every series in `TRANSFER_METRICS`, corrected within each kind and metric."""
    found: list[Transfer] = []
    for title in results.benchmark.get("series", {}):
        pairs = list(_pairs(results, title))
        for _, _, line, _, other in pairs:
            _check_same_cases(title, line, other)
        for ranking, measure in product(RANKINGS, TRANSFER_METRICS):
            family = []
            for kind, domains, line, fewer, other in pairs:
                against = other.name if fewer is None else f"{fewer} domains"
                if gain := _gain(results, line, other, against, ranking, measure):
                    family.append(Transfer(title, kind, domains, fewer, other, gain))
            found += _corrected(family)
    return found


def series_tasks(results: Results, title: str) -> dict[int, str]:
    """Return the tasks of a series by number of domains, ascending."""
    return dict(sorted((int(domains), task) for domains, task in results.benchmark["series"][title].items()))


def _corrected(family: Sequence[Transfer]) -> list[Transfer]:
    """Correct soft and hard comparisons separately, as they answer two questions."""
    made: list[Transfer] = []
    for kind in get_args(Kind):
        own = [found for found in family if found.kind == kind]
        gains = corrected([found.gain for found in own])
        made += [replace(found, gain=gain) for found, gain in zip(own, gains, strict=True)]
    return made


def _pairs(results: Results, title: str) -> Iterator[tuple[Kind, int, Line, int | None, Line]]:
    """Yield kind, domains, row, fewer domains and other row, of systems with a `single` and without controls."""
    tables = {domains: results.lines.get(task, []) for domains, task in series_tasks(results, title).items()}
    for domains, lines in tables.items():
        for line in lines:
            single = results.benchmark["systems"][line.row.system].get("single")
            if not single or not line.row.release or line.row.control:
                continue
            everywhere = [lines, *tables.values()]
            alone = next((other for table in everywhere for other in table if other.name == single), None)
            if alone is not None:
                yield "soft", domains, line, None, alone
            for fewer in (count for count in tables if count < domains):
                same = (other for other in tables[fewer] if other.name == line.name)
                yield from (("hard", domains, line, fewer, other) for other in same)


def _check_same_cases(title: str, line: Line, other: Line) -> None:
    """Refuse rows that have other test items under the same seed."""
    key = ["seed", "user_id", "item_id"]
    ours, theirs = (some.cases.select(key) for some in (line, other))
    mine, others = ours.join(theirs, on="seed", how="semi"), theirs.join(ours, on="seed", how="semi")
    if mine.join(others, on=key, how="anti").height or others.join(mine, on=key, how="anti").height:
        both = f"{line.name} on {line.row.task!r} and {other.name} on {other.row.task!r}"
        raise ResultsError(
            f"Series {title!r}: {both} have different test cases. A series needs one target, split "
            "and list of users (not Synthetic). Or remove the series."
        )


@dataclass(frozen=True)
class ChampionTest:
    """Result of `champion_test` in words, and whether the challenger is significantly worse."""

    text: str
    worse: bool


def champion_test(folders: Sequence[Path]) -> ChampionTest:
    """Compare two tested runs over the same test cases, by NDCG@10 over all items if both have it.

    The seeds of the runs may differ. The test is paired over users (`significance.over_users`), two-sided at level 0.05, without
    correction: it is the only one.

    Args:
        folders: Folder of the run in use (champion), and of the run that may replace it (challenger).

    Raises:
        ResultsError: If there are not two folders, one is no tested run, or their tests differ.
    """
    if len(folders) != 2:
        raise ResultsError(f"--champion has {len(folders)} runs. It compares two. Name the one in use first.")
    runs = [read_run(folder) for folder in folders]
    before, after = (run.tested for run in runs)
    champion, challenger = map(display_path, folders)
    common = before.keys() & after.keys()  # earlier versions stated less
    if reasons := dict.fromkeys(why for key, why in REASONS.items() if key in common and before[key] != after[key]):
        raise ResultsError(
            f"{challenger} has {' and '.join(reasons)} than {champion}. Train the champion's settings on the same data."
        )
    cases = [run.run.cases.with_columns(seed=pl.lit(0)) for run in runs]
    names = [f"{ranking}/{PRIMARY_METRIC}" for ranking in RANKINGS]
    name = next(name for name in names if all(name in own.columns for own in cases))
    was, now = (own.group_by("seed", "user_id").agg(pl.col(name).cast(pl.Float64).mean()) for own in cases)
    found = over_users(now, was, name)
    better, worse = (found.p_value < 0.05 and sign * found.difference > 0 for sign in (1, -1))
    verdict = "significantly better" if better else "significantly worse" if worse else "not significantly different"
    interval = f"difference {found.difference:+.4f} (95 % interval {found.low:+.4f} to {found.high:+.4f})"
    test = f"{interval}, p = {found.p_value:.2g}, {found.pairs} users"
    return ChampionTest(f"{name}, challenger {challenger} minus champion {champion}: {test}: {verdict}.", worse)
