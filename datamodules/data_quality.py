"""Data quality: unusual properties of data that are used all the same, and warnings about them, each logged once."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import polars as pl
from pytorch_lightning.utilities import rank_zero_only

from datamodules.protocol import Evaluation, Filters
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.ratings import Ratings, as_ids, index_of

logger = logging.getLogger(__name__)

_collectors: list[list[str]] = []


def negative_ratings(table: pl.DataFrame, domain: str, filters: Filters) -> str | None:
    """Return a sentence on negative ratings of a domain; None if there are none, or if ratings are signs."""
    negative = table.filter(pl.col("rating") < 0)["rating"]
    if negative.is_empty() or filters.signs:
        return None
    effect = "Each counts as 1. Set filters.threshold to drop low ratings."
    if filters.threshold is not None:
        effect = f"Those below filters.threshold {filters.threshold} are dropped."
    return f"{domain}: {len(negative)} of {table.height} ratings are negative (lowest {min(negative)}). {effect}"


def users_not_listed(train: Ratings, listed: Iterable[str]) -> list[str]:
    """Return a sentence on the target's users who are not on the agreed list, or nothing."""
    on = int((index_of(as_ids(listed), train.user_ids) >= 0).sum())
    if on == train.num_users:
        return []
    return [
        f"{train.num_users - on} of {train.num_users} users are not on the agreed list. They stay, without a released row."
    ]


def users_with_every_item(train: Ratings) -> list[str]:
    """Return a sentence on users whose training ratings have every item, or nothing."""
    if not (full := int((np.diff(train.matrix.indptr) == train.num_items).sum())):
        return []
    found = f"{full} of {train.num_users} users have all {train.num_items} items in training"
    return [f"{found}. They are left out of negative sampling."]


def unreliable_reasons(train: Ratings, test: HeldOutCases, evaluation: Evaluation, signs: bool) -> list[str]:
    """Return reasons why the metrics of a test are unreliable: its users, items or number of candidates; a clause each."""
    if not (number := len(test.users)):
        return []
    reasons = []
    if train.num_users == 1:
        reasons.append("only one user")
    if number == 1:
        reasons.append("only one test case")
    elif signs and len(set(test.ratings.tolist())) == 1:
        reasons.append(f"all {number} test signs are {int(test.ratings[0]):+d}, so a constant is always right")
    elif len(set(test.items.tolist())) == 1:
        item = str(train.item_ids[int(test.items[0])])
        reasons.append(f"all {number} test cases have the item {item!r}, so a constant ranking is always right")
    most, short = max(evaluation.ks), {}
    if evaluation.full_ranking:
        short["all"] = int((test.num_others() < most).sum())
    if evaluation.num_candidates:
        listed = test.candidates.shape[1]  # -1 after the last, so one column tells
        short["sampled"] = int((test.candidates[:, most - 1] < 0).sum()) if most <= listed else number
    reasons += [
        f"{few} of {number} test cases have fewer than {most} other items ({kind} ranking), so their HR@{most} is always 1"
        for kind, few in short.items()
        if few
    ]
    return reasons


def warn_once(text: str) -> None:
    """Log a warning about data once per process, and only in the first of several processes."""
    for texts in _collectors:
        texts.append(text)
    _log_once(text)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of a block, logged before or not."""
    texts: list[str] = []
    _collectors.append(texts)
    try:
        yield texts
    finally:
        _collectors[:] = [other for other in _collectors if other is not texts]


@cache
def _log_once(text: str) -> None:
    if not rank_zero_only.rank:  # type: ignore[attr-defined]  # Lightning sets it
        logger.warning("%s", text)
