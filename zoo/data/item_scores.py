"""Scores of items that are the same for all users: exact ranks of held-out cases, and recent popularity."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from zoo.data.held_out_cases import HeldOutCases
from zoo.data.metrics import METRICS, Counts, Ties, rank_counts, ranking_values
from zoo.data.ratings import Ratings

#: Shares of the training ratings, the latest ones, that recent popularity counts; validation chooses one.
WINDOWS = tuple(2.0**-power for power in range(11))
#: The share without a validation set.
DEFAULT_WINDOW = 1 / 8


def sampled_ranks(scores: Tensor, cases: HeldOutCases) -> Counts:
    """Return num_better and num_tied (cases,) among the sampled candidates, by one finite score per item (num_items,)."""
    return rank_counts(scores[cases.items], scores[cases.candidates.clamp(min=0)], cases.candidates >= 0)


def full_ranks(scores: Tensor, cases: HeldOutCases) -> Counts:
    """Return num_better and num_tied (cases,) among all items of full ranking, by one finite score per item (num_items,).

    Items are sorted once, and each user's seen items are subtracted, so no matrix of all items is made.

    Examples:
        >>> import torch
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> data.read_target()
        >>> num_better, num_tied = full_ranks(torch.zeros(40), data.test)  # equal scores: all other unseen items tie
        >>> int(num_better.max()), bool((num_tied > 0).all())
        (0, True)
    """
    ranked = torch.ones(len(scores), dtype=torch.bool)
    ranked[cases.left_out] = False
    ordered, own = scores[ranked].sort().values, scores[cases.items]
    until, below = (torch.searchsorted(ordered, own, right=right) for right in (True, False))
    bags = cases.seen.bags(cases.users)  # the positive is among them, so it does not tie with itself
    kept = ranked[bags.items]
    rows, seen = bags.rows[kept], scores[bags.items[kept]]
    better, level = (
        torch.zeros_like(until).index_add_(0, rows, part.long()) for part in (seen > own[rows], seen == own[rows])
    )
    return len(ordered) - until - better, until - below - level


def case_values(
    scores: Tensor, cases: HeldOutCases, ks: Sequence[int], ties: Ties, *, full: bool, sampled: bool
) -> dict[str, Tensor]:
    """Return each metric of every case by one score per item, float64 (cases,), under names such as ``full/ndcg@10``."""
    kinds = ({"sampled": sampled_ranks} if sampled else {}) | ({"full": full_ranks} if full else {})
    values = {kind: ranking_values(*ranks(scores, cases), ks, ties) for kind, ranks in kinds.items()}
    return {
        f"{kind}/{metric}@{k}": found[i, j]
        for kind, found in values.items()
        for i, k in enumerate(ks)
        for j, metric in enumerate(METRICS)
    }


def item_counts(train: Ratings) -> Tensor:
    """Return the number of ratings of each item, int64 (num_items,)."""
    return torch.from_numpy(np.bincount(train.matrix.indices, minlength=train.num_items))


def window_start(train: Ratings, window: float) -> int:
    """Return the time from which on a share of the ratings, rounded up, lies: the first time of a window."""
    assert train.times is not None
    number = max(-int(-window * train.num_ratings // 1), 1)
    return int(np.partition(train.times, -number)[-number])


def recent_popularity(train: Ratings, window: float) -> Tensor:
    """Return the score of each item by its number of ratings in the latest part of the ratings, float32 (num_items,).

    Scores are places in the order by recent and then by all ratings, so float32 holds them exactly. Equal items have equal
    scores. Ratings of the window's first time all count.

    Args:
        train: Ratings with times.
        window: Share of the ratings in (0, 1].

    Examples:
        >>> import polars as pl
        >>> rows = {"user_id": list("abcabd"), "item_id": list("xxxyyz"), "rating": 1.0, "timestamp": [1, 1, 2, 8, 9, 9]}
        >>> train = Ratings.from_table(pl.DataFrame(rows), with_times=True)
        >>> recent_popularity(train, window=1 / 3).tolist()  # of y and z, each with one of the latest ratings, y has more
        [0.0, 2.0, 1.0]
    """
    assert train.times is not None
    every, items = item_counts(train), train.matrix.indices[train.times >= window_start(train, window)]
    recent = torch.from_numpy(np.bincount(items, minlength=train.num_items))
    places: Tensor = torch.unique(recent * (int(every.max()) + 1) + every, return_inverse=True)[1]
    return places.float()


def choose_window(train: Ratings, validation: HeldOutCases, ties: Ties, *, sampled: bool) -> float:
    """Return the largest of `WINDOWS` with the best NDCG@10 on validation, of the ranking that selects checkpoints.

    Without a validation case it is `DEFAULT_WINDOW`.
    """
    if not len(validation.users):
        return DEFAULT_WINDOW
    kinds, selecting = {"sampled": sampled, "full": not sampled}, f"{'sampled' if sampled else 'full'}/ndcg@10"

    def value(window: float) -> float:
        return float(case_values(recent_popularity(train, window), validation, [10], ties, **kinds)[selecting].mean())

    return max(WINDOWS, key=value)  # the first of equal ones
