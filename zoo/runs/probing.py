"""Probes of a protocol: trivial rules that show what a split and its candidates give away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from scipy import stats
from torch import Tensor

from datamodules import CrossDomainDataModule
from datamodules.frames import as_datamodule
from zoo.data.arrays import Integers, contains
from zoo.data.item_scores import case_values, choose_window, item_counts, recent_popularity
from zoo.data.ratings import Ratings, index_of
from zoo.runs.inputs import UsageError
from zoo.runs.loading import data_of_run
from zoo.runtime import checks

#: Probability that a rule is named although it does not beat Popularity, for all rules and rankings of a probe together.
FAILURE_PROBABILITY = 0.001
#: Below this number of tested users no rule is named: the test of means needs more.
LEAST_USERS = 30
#: By rule that may be named: what gives the answer away, and what to do.
MEANINGS = {
    "unknown first": "Test items without a training rating are ranked, and few candidates are unknown. Exclude unknown items.",
    "largest id": "Item ids rise with time or within ties, so ids point to test items. Break ties by a hash, or renumber items.",
    "smallest id": "Item ids fall with time or within ties, so ids point to test items. Break ties by a hash, or renumber items.",
    "first row": "The order of the file points to test items: they come early. Shuffle the rows, or break ties by a hash.",
    "last row": "The order of the file points to test items: they come late. Shuffle the rows, or break ties by a hash.",
    "most recent item": "Recently rated items are more often test items. Compare every row with RecentPopularity.",
    "recent popularity": "The split rewards recency. Compare every row with RecentPopularity, not only with Popularity.",
}
_BASE, _CHANCE, _RECENT = "popularity", "chance", "recent popularity"
_MEASURES = ("hit_rate@10", "ndcg@10")
_ROUNDING = 1e-12  # of a standard error


@dataclass(frozen=True)
class Probe:
    """What trivial rules reach on the test cases of a protocol.

    Attributes:
        domain: The target.
        split: Its split.
        rules: A row per rule: ``rule``; by ranking and metric the mean over cases and its standard error over users, such as
            ``full/ndcg@10`` and ``full/ndcg@10_se``; and by ranking ``full/t``, the t statistic of its NDCG@10 minus Popularity's.
        missing: Reason for each rule that could not be scored.
        named: Rules that beat Popularity beyond chance, with what that means.
        window: Share of the training ratings that recent popularity counts; None without times.
        users: Number of tested users.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> found = zoo.probe(Synthetic(num_users=60, num_items=40))
        >>> found.users, sorted(found.named)
        (60, [])
    """

    domain: str
    split: str
    rules: pl.DataFrame
    missing: dict[str, str]
    named: dict[str, str]
    window: float | None
    users: int

    @property
    def verdict(self) -> str:
        """The named rules in one line, with the failure probability."""
        if self.users < LEAST_USERS:
            return f"Probes: {self.users} tested users are too few to compare rules. At least {LEAST_USERS} are needed."
        head = f"Probes (failure probability {FAILURE_PROBABILITY:g})"
        if not self.named:
            return f"{head}: no trivial rule beats Popularity in NDCG@10."
        rows = self.rules.rows_by_key("rule", named=True, unique=True)
        kinds = [name.split("/")[0] for name in self.rules.columns if name.endswith("/t")]
        reached = {
            name: [f"{rows[name][f'{kind}/ndcg@10']:.4f} {kind}" for kind in kinds] for name in (*self.named, _BASE)
        }
        said = [f"{name} ({', '.join(values)})" for name, values in reached.items()]
        return f"{head}: {', '.join(said[:-1])} in NDCG@10 {'beats' if len(said) == 2 else 'beat'} {said[-1]}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        own = {name: value for name, value in vars(self).items() if name != "rules"}
        return own | {
            "rules": self.rules.to_dicts(),
            "verdict": self.verdict,
            "failure_probability": FAILURE_PROBABILITY,
        }


def probe(data: CrossDomainDataModule | Any) -> Probe:  # noqa: ANN401  or a table
    """Score trivial rules on the test cases of a datamodule, to show what its protocol gives away.

    Each rule is one score per item: items without a training rating first (then popularity), the largest or smallest id (as
    numbers if all ids are integers), the item whose first row comes first or whose last row comes last among the training rows of
    the file, the latest training time, recent popularity with its window chosen on validation, popularity, and chance. The target
    is read again, in the order of its file.

    A rule is named if its NDCG@10 exceeds Popularity's in some ranking, by a one-sided paired t-test over users with Bonferroni's
    correction over rules and rankings. Errors are clustered by user. On a protocol that gives nothing away some rule is named
    with a probability of at most `FAILURE_PROBABILITY`, up to the normal approximation of means.

    Args:
        data: The target, its split and candidates; releases and method do not matter. A table is read as by `zoo.fit`.

    Raises:
        ValueError: If the data rank nothing: no test case, or signs.

    Examples:
        >>> import zoo
        >>> from datamodules import Evaluation, Synthetic
        >>> found = zoo.probe(Synthetic(num_users=60, num_items=40, evaluation=Evaluation("random2")))
        >>> found.rules["rule"].to_list()[-3:], found.missing
        (['recent popularity', 'popularity', 'chance'], {})
        >>> print(found.verdict)
        Probes (failure probability 0.001): no trivial rule beats Popularity in NDCG@10.
    """
    data = as_datamodule(data)
    checks.instance(CrossDomainDataModule, "datamodules.Files(...)", data=data)
    data.read_target()
    test = data.test
    if data.signs or not len(test.users):
        raise ValueError(f"split is {data.evaluation.split!r}, signs {data.signs}. Probes need ranked test cases.")
    scores, missing, window = _rules(data)
    kinds = {"sampled": data.sampled_ranking, "full": bool(data.full_ranking)}
    values = {
        rule: case_values(own, test, [10], "expected" if rule == _CHANCE else data.ties, **kinds)
        for rule, own in scores.items()
    }
    users = torch.unique(test.users, return_inverse=True)[1]
    rows = [{"rule": rule} | _row(own, values[_BASE], users) for rule, own in values.items()]
    num_users, num_tests = int(users.max()) + 1, (len(rows) - 2) * sum(kinds.values())  # not of popularity, chance
    least = float(stats.t.isf(FAILURE_PROBABILITY / num_tests, max(num_users - 1, 1)))
    best = {row["rule"]: max(row[f"{kind}/t"] for kind, wanted in kinds.items() if wanted) for row in rows}
    named = {rule: what for rule, what in MEANINGS.items() if num_users >= LEAST_USERS and best.get(rule, 0) > least}
    return Probe(data.target, data.evaluation.split, pl.DataFrame(rows), missing, named, window, num_users)


def _row(own: Mapping[str, Tensor], base: Mapping[str, Tensor], users: Tensor) -> dict[str, Any]:
    """Return the figures of a rule by its metrics and Popularity's of every case (cases,), and the user of each (cases,)."""
    row: dict[str, Any] = {}
    for name, values in own.items():
        kind, measure = name.split("/")
        if measure in _MEASURES:
            row[name], row[f"{name}_se"] = mean_and_error(values, users)
        if measure == _MEASURES[1]:
            difference, error = mean_and_error(values - base[name], users)
            row[f"{kind}/t"] = difference / max(error, _ROUNDING)
    return row


def mean_and_error(values: Tensor, users: Tensor) -> tuple[float, float]:
    """Return the mean of values (cases,) and its standard error, clustered by the user of each case (cases,), from 0 without gaps.

    With one case per user it is the standard error of a mean.

    Examples:
        >>> mean_and_error(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 1, 2]))
        (2.0, 0.5773502691896257)
    """
    num_users, mean = int(users.max()) + 1, values.double().mean()
    sums = torch.zeros(num_users, dtype=torch.float64).index_add_(0, users, values.double() - mean)
    factor = num_users / max(num_users - 1, 1)
    return float(mean), float((sums.square().sum() * factor).sqrt() / len(values))


def _rules(data: CrossDomainDataModule) -> tuple[dict[str, Tensor], dict[str, str], float | None]:
    """Return the score of each item (num_items,) by rule, reasons for rules without one, and the window of recent popularity."""
    train, counts = data.train, item_counts(data.train)
    table = data.read(data.target)
    keys = index_of(train.user_ids, table["user_id"]) * train.num_items
    columns = index_of(train.item_ids, table["item_id"])
    trained = (keys >= 0) & (columns >= 0)
    trained &= contains(train.pair_keys, keys + columns)
    keys, items = (keys + columns)[trained], columns[trained]
    by_id = _id_order(train)
    first, last = np.full(train.num_items, len(items)), np.full(train.num_items, -1)
    last[items], first[items[::-1]] = (
        np.arange(len(items)),
        np.arange(len(items))[::-1],
    )  # the last of several is assigned
    scores = {
        "unknown first": torch.where(counts == 0, counts.max() + 1, counts),
        "largest id": torch.from_numpy(by_id),
        "smallest id": torch.from_numpy(-by_id),
        "first row": torch.from_numpy(-first),
        "last row": torch.from_numpy(last),
    }
    missing, window = {}, None
    times = table["timestamp"].filter(pl.Series(trained))
    if unknown := times.null_count():
        reason = f"{unknown:,} of {len(times):,} training rows have no time"
        missing = {"most recent item": reason, _RECENT: reason}
    else:
        known = _times(train, keys, times.cast(pl.Int64).to_numpy())
        timed = replace(train, times=known)
        latest = np.full(train.num_items, np.iinfo(np.int64).min)
        np.maximum.at(latest, train.matrix.indices, known)
        window = choose_window(timed, data.validation, data.ties, sampled=data.sampled_ranking)
        scores |= {"most recent item": torch.from_numpy(latest), _RECENT: recent_popularity(timed, window)}
    return scores | {_BASE: counts, _CHANCE: torch.zeros(train.num_items)}, missing, window


def _times(train: Ratings, keys: Integers, times: Integers) -> Integers:
    """Return the time of each training rating (num_ratings,) from rows of a file; a repeated pair has its latest."""
    found = np.full(train.num_ratings, np.iinfo(np.int64).min)
    np.maximum.at(found, np.searchsorted(train.pair_keys, keys), times)
    return found


def _id_order(train: Ratings) -> npt.NDArray[np.int64]:
    """Return the place of each item (num_items,) in the order of ids: numeric if all ids are integers, else of text."""
    ids = train.item_ids.tolist()
    whole = all(name.removeprefix("-").isdecimal() for name in ids)
    order = sorted(range(len(ids)), key=lambda at: (int(ids[at]) if whole else 0, ids[at]))
    places = np.empty(len(ids), dtype=np.int64)
    places[order] = np.arange(len(ids))
    return places


def verdict_of_run(folder: Path) -> str:
    """Return the verdict of a probe of a run's data in one line, or why there is none, without local paths.

    Examples:
        >>> from pathlib import Path
        >>> verdict_of_run(Path("runs/missing"))
        'Probes: not measured, since the data of these runs are not available here.'
    """
    try:
        return probe(data_of_run(folder)).verdict
    except (OSError, UsageError):
        return "Probes: not measured, since the data of these runs are not available here."
    except (TypeError, ValueError) as error:
        return f"Probes: not measured, since the data cannot be probed ({type(error).__name__})."
