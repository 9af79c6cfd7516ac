"""Remarks: what is odd about data that are used all the same, what was done with it, and warnings of it, each said once."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import polars as pl
from pytorch_lightning.utilities import rank_zero_only

from datamodules.protocol import Evaluation, Filters
from zoo.data.evaluation import HeldOutCases
from zoo.data.ratings import Ratings, as_ids, index_of

logger = logging.getLogger(__name__)

_listening: list[list[str]] = []


def negative_ratings(table: pl.DataFrame, domain: str, filters: Filters) -> str | None:
    """Return a sentence on negative ratings of a domain, None where there are none, or where the sign is the rating."""
    negative = table.filter(pl.col("rating") < 0)["rating"]
    if negative.is_empty() or filters.signs:
        return None
    if filters.threshold is None:
        done = "each counts as 1, like every other rating; filters.threshold leaves low ones out"
    else:
        done = f"those below filters.threshold {filters.threshold} are left out"
    return f"{domain}: {len(negative)} of {table.height} ratings are negative, the lowest is {min(negative)}; {done}."


def users_not_listed(train: Ratings, listed: Iterable[str]) -> list[str]:
    """Return how many of the target's users are not on the agreed list, and what becomes of them; nothing where all are."""
    on = int((index_of(as_ids(listed), train.user_ids) >= 0).sum())
    if on == train.num_users:
        return []
    return [
        f"{train.num_users - on} of {train.num_users} users are not on the agreed list: all are kept, without a row in a release"
    ]


def unreliable_reasons(train: Ratings, test: HeldOutCases, evaluation: Evaluation, signs: bool) -> list[str]:
    """Return reasons why the figures of a test are unreliable: its users, items, or number of candidates; a sentence each."""
    if not (number := len(test.users)):
        return []
    said = []
    if train.num_users == 1:
        said.append("there is one user, so the figures are of nobody else")
    if number == 1:
        said.append("there is one test case, so every figure is of one rank")
    elif signs and len(set(test.ratings.tolist())) == 1:
        said.append(f"all {number} held-out signs are {int(test.ratings[0]):+d}, so a constant is always right")
    elif len(set(test.items.tolist())) == 1:
        item = train.item_ids[int(test.items[0])]
        said.append(f"all {number} test cases hold out the item {str(item)!r}, so who ranks it first is always right")
    most, short = max(evaluation.ks), {}
    if evaluation.full_ranking:
        short["all"] = int((train.num_items - test.seen.counts()[test.users] < most).sum())
    if evaluation.num_candidates:
        listed = test.candidates.shape[1]  # -1 after the last: one column tells
        short["sampled"] = int((test.candidates[:, most - 1] < 0).sum()) if most <= listed else number
    for kind, few in short.items():
        if few:
            said.append(
                f"{few} of {number} test cases rank among fewer than {most} {kind} other items, so their HR@{most} is 1 whatever "
                "the scores are"
            )
    return said


def warn_once(text: str) -> None:
    """Log a warning about data once, however often and by how many processes they are read."""
    for heard in _listening:
        heard.append(text)
    _say(text)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings given meanwhile, whether or not they were logged before."""
    heard: list[str] = []
    _listening.append(heard)
    try:
        yield heard
    finally:
        _listening[:] = [other for other in _listening if other is not heard]


@cache
def _say(text: str) -> None:
    if not rank_zero_only.rank:  # type: ignore[attr-defined]  # Lightning sets it
        logger.warning("%s", text)
