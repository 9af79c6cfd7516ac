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
    """Held-out cases to be ranked among their candidates and among all items.

    Attributes:
        users: Shape ``(cases,)``.
        positives: The held-out item of each case, shape ``(cases,)``.
        candidates: Sampled negatives, shape ``(cases, candidates)``, padded with -1.
        seen_rows: Which case of the batch an item is left out for in full ranking, shape ``(entries,)``.
        seen_items: That item, shape ``(entries,)``. A case's own positive is never among them.
        ratings: What the held-out pair was rated, shape ``(cases,)``: 1, or a sign where ratings are signs.
    """

    users: Tensor
    positives: Tensor
    candidates: Tensor
    seen_rows: Tensor
    seen_items: Tensor
    ratings: Tensor


class PredictBatch(NamedTuple):
    """Users to recommend to.

    Attributes:
        users: Shape ``(batch,)``.
        seen_rows: Which user of the batch an item is left out for, shape ``(entries,)``.
        seen_items: That item, shape ``(entries,)``.
    """

    users: Tensor
    seen_rows: Tensor
    seen_items: Tensor


Batch = UserBatch | PairBatch | TripleBatch
