"""Held-out cases to rank, and batches of cases or users for evaluation."""

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from zoo.data.batch_types import NONE, RankingBatch
from zoo.data.rows import SparseRows
from zoo.data.training_batches import Share

Made = TypeVar("Made")


class EvaluationBatches(Generic[Made]):
    """Evaluation batches of ``size`` cases, divided among processes without padding: each case counts once.

    ``make`` returns a batch of case indices (batch,). More processes than cases are refused.
    """

    def __init__(self, size: int, batch_size: int, make: Callable[[Tensor], Made], share: Share) -> None:
        if size < share.world_size:
            raise ValueError(f"{size} cases are too few for {share.world_size} processes. Lower trainer.devices.")
        self.make, self.batch_size = make, batch_size
        self.order = torch.arange(size)[share.rank :: share.world_size]

    def __len__(self) -> int:
        return -(-len(self.order) // self.batch_size)

    def __iter__(self) -> Iterator[Made]:
        for start in range(0, len(self.order), self.batch_size):
            yield self.make(self.order[start : start + self.batch_size])


class HeldOutCases(NamedTuple):
    """The cases of one phase, by row and column of the training ratings."""

    users: Tensor  # (cases,); a user with several held-out items has several cases
    items: Tensor  # the held-out item of each, (cases,)
    candidates: Tensor  # sampled negatives, (cases, candidates), int32, padded with -1
    ratings: Tensor  # rating of each held-out item, (cases,), float32: 1, or a sign
    seen: SparseRows  # items that full ranking leaves out, one row per user
    left_out: Tensor = NONE  # items that no case ranks in full ranking, (left_out_items,), rising

    def batch(self, index: Tensor) -> RankingBatch:
        """Return the cases ``index`` (batch,)."""
        users, positives = self.users[index], self.items[index]
        rows, items = entries(self.seen, users)
        other = items != positives[rows]
        seen = rows[other], items[other]
        return RankingBatch(users, positives, self.candidates[index].long(), *seen, self.ratings[index], self.left_out)


def entries(rows: SparseRows, users: Tensor) -> tuple[Tensor, Tensor]:
    """Return position in the batch and item (entries,) of every entry of the rows of users (batch,)."""
    bags = rows.bags(users)
    return bags.rows, bags.items
