"""What a held-out item is ranked against: candidate lists, in index space."""

import logging
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from datamodules.splits import Split
from zoo.data.evaluation import HeldOut
from zoo.data.ratings import Ratings, index_of
from zoo.data.sampling import distinct_items, hash_ids

logger = logging.getLogger(__name__)

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Cases(NamedTuple):
    """Held-out cases by phase."""

    validation: HeldOut
    test: HeldOut


class _Positives(NamedTuple):
    """All pairs of a split, train, validation, test and hidden: never to be drawn as negatives."""

    pairs: Integers  # user * num_items + item, rising, distinct
    num_items: int

    def of(self, users: Integers) -> tuple[Integers, Integers]:
        """Gives (indptr, indices) of the positives of some users."""
        starts = np.searchsorted(self.pairs, users * self.num_items)
        lengths = np.searchsorted(self.pairs, (users + 1) * self.num_items) - starts
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(int(indptr[-1])) + np.repeat(starts - indptr[:-1], lengths)
        return indptr, self.pairs[at] % max(self.num_items, 1)

    def hold(self, users: Integers, items: Integers) -> npt.NDArray[np.bool_]:
        """Says which pairs are positives."""
        return np.isin(users * self.num_items + items, self.pairs)


def candidates(
    train: Ratings,
    split: Split,
    seed: int,
    count: int = 99,
    shared: bool = False,
    weighted: bool = False,
    negatives: pl.DataFrame | None = None,
) -> Cases:
    """Gives the held-out cases of a split, each with its list of negatives.

    A user's negatives are drawn without replacement from the items that occur in train, outside all the user's own items
    (train, validation, test and hidden), uniformly or by popularity; they depend on the seed, the user's id and the phase.
    A user with several held-out items has one list for all of them. Fewer than `count` available: all, and it is logged.

    Args:
        train: the training ratings; its ids cover all parts of the split.
        split: where the rows went.
        seed: of the draw.
        count: negatives per user.
        shared: validation and test have the same list (as in PriCDR); otherwise they are drawn apart.
        weighted: items are drawn one after the other with chances proportional to their counts in train.
        negatives: user_id and item_id of lists that ship with the data: nothing is drawn, both phases use them.

    Raises:
        ValueError: an id of the split that `train` lacks, a count below 1, or given negatives that are unknown, repeated,
            the user's own items, or lacking for a user with a held-out item.
    """
    if count < 1:
        raise ValueError(f"Each held-out item needs at least 1 negative, got count={count}.")
    held = {name: _index(train, getattr(split, name), name) for name in ("validation", "test", "hidden")}
    own = [train.pair_keys, *(users * train.num_items + items for users, items in held.values())]
    positives = _Positives(np.unique(np.concatenate(own)), train.num_items)
    phases = {name: held[name] for name in ("validation", "test")}
    ratings = {name: getattr(split, name)["rating"].cast(pl.Float64).to_numpy() for name in phases}
    if negatives is not None:
        if weighted:
            raise ValueError("Given negatives are used as they are: leave weighted=False, or give no negatives.")
        lists = _given_lists(train, negatives, positives, np.concatenate([users for users, _ in phases.values()]))
        return Cases(*(HeldOut(*pairs, _rows(*lists, pairs[0]), ratings[name]) for name, pairs in phases.items()))
    counts = np.bincount(train.matrix.indices, minlength=train.num_items)
    pool = np.flatnonzero(counts).astype(np.int64)
    result = []
    for name, (users, items) in phases.items():
        cases, which = np.unique(users, return_inverse=True)
        drawn = distinct_items(
            hash_ids(train.user_ids[cases]),
            count,
            pool,
            positives.of(cases),
            seed=seed,
            phase="candidates" if shared else f"{name} candidates",
            weights=counts[pool].astype(np.float64) if weighted else None,
        )
        short = int((drawn[:, -1] < 0).sum())
        if short:
            logger.warning(
                "%s: %d of %d users have fewer than %d negatives; all are used", name, short, len(cases), count
            )
        result.append(HeldOut(users, items, drawn[which], ratings[name]))
    return Cases(*result)


def _index(train: Ratings, part: pl.DataFrame, name: str) -> tuple[Integers, Integers]:
    """Gives the rows of one part as numbers."""
    users, items = index_of(train.user_ids, part["user_id"]), index_of(train.item_ids, part["item_id"])
    strange = int(((users < 0) | (items < 0)).sum())
    if strange:
        raise ValueError(
            f"{strange} of {part.height} {name} rows have a user or item that the training ratings do not know: make them "
            "with the ids of the whole table (Ratings.from_table(train, user_ids, item_ids))."
        )
    return users, items


def _given_lists(
    train: Ratings, negatives: pl.DataFrame, positives: _Positives, cases: Integers
) -> tuple[Integers, Integers]:
    """Gives the users (rising) and items of given negatives, cut to the users with a case; checks them."""
    users = index_of(train.user_ids, negatives["user_id"])
    # A list of users may have cut the data: lists of people who are not evaluated do no harm.
    wanted = np.isin(users, cases)
    users, items = users[wanted], index_of(train.item_ids, negatives["item_id"])[wanted]
    if gone := int((items < 0).sum()):
        # Filters or a list of users have left nobody who has the item.
        logger.warning("%d of %d given negatives are items that are filtered out; they are left out", gone, len(items))
        users, items = users[items >= 0], items[items >= 0]
    problems = {
        "are the user's own items": int(positives.hold(users, items).sum()),
        "are repeated": len(users) - len(np.unique(users * train.num_items + items)),
    }
    found = [f"{number} {what}" for what, number in problems.items() if number]
    lacking = len(np.setdiff1d(cases, users))
    if lacking:
        found.append(f"{lacking} of {len(np.unique(cases))} users with a held-out item have none")
    if found:
        raise ValueError(
            f"The given negatives do not fit: of {len(users)} rows {'; '.join(found)}. They belong to unfiltered data: use "
            "the filters they were made with, or leave them away to draw new ones."
        )
    order = np.argsort(users, kind="stable")
    return users[order], items[order]


def _rows(users: Integers, items: Integers, wanted: Integers) -> Integers:
    """Gives the lists of some users as rows (wanted, longest), -1 after the last."""
    starts, ends = np.searchsorted(users, wanted), np.searchsorted(users, wanted, side="right")
    places = starts[:, None] + np.arange(int((ends - starts).max(initial=0)))
    padded = np.append(items, -1)
    rows: Integers = padded[np.where(places < ends[:, None], places, len(items))]
    return rows
