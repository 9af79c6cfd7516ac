"""What a row gains over its controls: paired over users and over seeds, with Holm's correction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import polars as pl

from zoo.benchmark.grid import Row
from zoo.benchmark.report.results import DECIDING, RANKINGS, Line, Results
from zoo.benchmark.report.significance import Comparison, common_cases, holm, over_seeds, over_users

#: What claims are made in.
CLAIMED = (DECIDING, "hit_rate@10")
NOISE, NOTHING = "its own noise control", "the same model without a release"


@dataclass(frozen=True)
class Gain:
    """A row less one of its controls, in one figure of one ranking."""

    task: str
    line: Line
    against: str  # `NOISE`, `NOTHING`, the name of the baseline, or in words what else
    ranking: str  # ``full`` or ``sampled``
    measure: str
    users: Comparison  # paired over users, each averaged over seeds
    seeds: Comparison | None  # paired over seeds; None with fewer than two
    users_holm: float = 1.0  # p-value over users, corrected for all rows compared with the same control in this figure
    seeds_holm: float | None = None  # the same over seeds; None without one


def gains(results: Results) -> list[Gain]:
    """Every row against every control it has, the baseline among them, corrected within each task, control and figure."""
    controls = dict.fromkeys(filter(None, (NOISE, results.baseline, NOTHING)))
    families = product(results.lines, controls, RANKINGS, CLAIMED)
    return [gain for family in families for gain in corrected(list(_family(results, *family)))]


def control_of(results: Results, line: Line, against: str) -> Line | None:
    """The control of a row, if it has one and is no noise control itself."""
    own = line.row
    if own.control == "noise":
        return None
    others = [other for other in results.lines[own.task] if other is not line]
    return next((other for other in others if _is_control(other.row, own, against)), None)


def _is_control(row: Row, own: Row, against: str) -> bool:
    if against == NOISE:
        return (row.system, row.control, row.of) == (own.system, "noise", own.release)
    if against == NOTHING:
        return (row.system, row.release) == (own.system, "Nothing")
    return row.name == against


def _family(results: Results, task: str, against: str, ranking: str, measure: str) -> Iterator[Gain]:
    for line in results.lines[task]:
        control = control_of(results, line, against)
        if control is None or not (line.has(ranking, measure) and control.has(ranking, measure)):
            continue
        if tested := paired_tests(results, line, control, f"{ranking}/{measure}"):
            yield Gain(task, line, against, ranking, measure, *tested)


def paired_tests(results: Results, line: Line, other: Line, name: str) -> tuple[Comparison, Comparison | None] | None:
    """One row less another in a figure, over users and over seeds; None where there is nothing to compare yet."""
    ours, theirs = _by_user(line, name), _by_user(other, name)
    # Of rows with several seeds each, one that is missing is not finished.
    if min(len(results.seeds_of(line)), len(results.seeds_of(other))) > 1:
        ours, theirs = ours.join(theirs, on="seed", how="semi"), theirs.join(ours, on="seed", how="semi")
    if common_cases(ours, theirs, name)["user_id"].n_unique() < 2:
        return None
    return over_users(ours, theirs, name), over_seeds(ours, theirs, name)


def _by_user(line: Line, name: str) -> pl.DataFrame:
    """A figure of every user and seed; several held-out items of one user count as their mean."""
    return line.cases.group_by("seed", "user_id").agg(pl.col(name).cast(pl.Float64).mean())


def corrected(family: Sequence[Gain]) -> list[Gain]:
    """The gains of one family, with Holm's p-values."""
    users = holm([gain.users.p_value for gain in family])
    seeds = iter(holm([gain.seeds.p_value for gain in family if gain.seeds is not None]))
    return [
        replace(gain, users_holm=own, seeds_holm=None if gain.seeds is None else next(seeds))
        for gain, own in zip(family, users, strict=True)
    ]
