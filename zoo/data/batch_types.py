"""What one batch holds: the types that datamodules make and methods read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class UserBatch:
    """Users ``(batch,)`` whose whole rows are learned from, and counts that spare a wait for the device.

    It iterates over its users alone: a trainer counts a batch by all that it yields.
    """

    users: Tensor
    ratings: int | None = None  # training ratings that they have together; None where nobody has counted
    released: Mapping[str, int] = field(default_factory=dict)  # entries of their rows in each release of sparse rows

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.users,))

    def to(self, device: torch.device) -> UserBatch:
        """The same on a device."""
        return replace(self, users=self.users.to(device))


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
