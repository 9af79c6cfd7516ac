"""Types of batches, which datamodules make and methods read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

#: No items.
NONE = torch.zeros(0, dtype=torch.long)


@dataclass(frozen=True, eq=False)
class UserBatch:
    """Users ``(batch,)`` whose whole rows are trained on, with counts that avoid synchronising the device.

    It iterates over its users alone, since a trainer sums the sizes of all that it yields.
    """

    users: Tensor
    ratings: int | None = None  # total number of their training ratings; None if unknown
    released: Mapping[str, int] = field(default_factory=dict)  # entries of their rows in each release of sparse rows

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.users,))

    def to(self, device: torch.device) -> UserBatch:
        """Return the same batch on a device."""
        return replace(self, users=self.users.to(device))


class PairBatch(NamedTuple):
    """Users ``(batch,)`` and items ``(batch,)`` with labels ``(batch,)``: 1.0 for an observed pair, 0.0 for a sampled one."""

    users: Tensor
    items: Tensor
    labels: Tensor


class TripleBatch(NamedTuple):
    """Users ``(batch,)``, an item ``(batch,)`` that each has rated, and one ``(batch,)`` that each has not."""

    users: Tensor
    positives: Tensor
    negatives: Tensor


class RankingBatch(NamedTuple):
    """Held-out cases to rank among their candidates and among all items."""

    users: Tensor  # (cases,)
    positives: Tensor  # the held-out item of each case, (cases,)
    candidates: Tensor  # sampled negatives, (cases, candidates), padded with -1
    seen_rows: Tensor  # position in the batch of the case of each seen pair, (entries,)
    seen_items: Tensor  # its item, left out of full ranking, (entries,); never the case's own positive
    ratings: Tensor  # rating of each held-out pair, (cases,): 1, or a sign
    left_out: Tensor = NONE  # items that no case ranks, (left_out_items,), rising


class PredictBatch(NamedTuple):
    """Users to recommend items to."""

    users: Tensor  # (batch,)
    seen_rows: Tensor  # position in the batch of the user of each seen pair, (entries,)
    seen_items: Tensor  # its item, which is not recommended, (entries,)


Batch = UserBatch | PairBatch | TripleBatch
