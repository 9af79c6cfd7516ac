"""What one batch holds: the types that datamodules make and methods read."""

from typing import NamedTuple

from torch import Tensor


class UserBatch(NamedTuple):
    """Users ``(batch,)`` whose whole rows are learned from."""

    users: Tensor


class PairBatch(NamedTuple):
    """Users ``(batch,)`` and items ``(batch,)`` with labels ``(batch,)``: 1.0 for an observed pair, 0.0 for a sampled one."""

    users: Tensor
    items: Tensor
    labels: Tensor


class TripleBatch(NamedTuple):
    """Users ``(batch,)``, an item ``(batch,)`` that each has, and one ``(batch,)`` that each has not."""

    users: Tensor
    positives: Tensor
    negatives: Tensor


class RankingBatch(NamedTuple):
    """Held-out cases to be ranked among their candidates and among all items."""

    users: Tensor  # (cases,)
    positives: Tensor  # the held-out item of each case, (cases,)
    candidates: Tensor  # sampled negatives, (cases, candidates), padded with -1
    seen_rows: Tensor  # which case of the batch an item is left out for in full ranking, (entries,)
    seen_items: Tensor  # that item, (entries,); a case's own positive is never among them
    ratings: Tensor  # what the held-out pair was rated, (cases,): 1, or a sign where ratings are signs


class PredictBatch(NamedTuple):
    """Users to recommend to."""

    users: Tensor  # (batch,)
    seen_rows: Tensor  # which user of the batch an item is left out for, (entries,)
    seen_items: Tensor  # that item, (entries,)


Batch = UserBatch | PairBatch | TripleBatch
