"""Evaluation batches: the held-out cases that a recommender ranks, and users to recommend to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.batches import PredictBatch, RankingBatch
from zoo.data.training import Share
from zoo.nn.rows import SparseRows

Made = TypeVar("Made")
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The evaluation cases of one phase, as row and column numbers of the training ratings.

    Attributes:
        users: user of each case (cases,); a user with several held-out items has several cases.
        items: held-out item of each case (cases,).
        candidates: items it is ranked against (cases, count), -1 after the last.
        ratings: what each held-out item was rated (cases,), 1 unless ratings are signs.
    """

    users: Integers
    items: Integers
    candidates: Integers
    ratings: Floats

    def __post_init__(self) -> None:
        """Checks the sizes.

        Raises:
            ValueError: sizes that do not fit.
        """
        of_each = (self.items.shape, self.candidates.shape[:1], self.ratings.shape)
        if any(shape != self.users.shape for shape in of_each):
            raise ValueError(
                f"Cases need one user, one item, one row of candidates and one rating each, got {self.users.shape}, "
                f"{self.items.shape}, {self.candidates.shape} and {self.ratings.shape}."
            )


class EvaluationBatches(Generic[Made]):
    """Evaluation batches, shared among processes without padding: no case counts twice.

    Args:
        size: How many cases there are.
        batch_size: Cases in a batch.
        make: From case indices (batch,) to a batch.
        share: Rank and number of processes.
    """

    def __init__(self, size: int, batch_size: int, make: Callable[[Tensor], Made], share: Share) -> None:
        self.make, self.batch_size = make, batch_size
        self.order = torch.arange(size)[share.rank :: share.world_size]

    def __len__(self) -> int:
        return -(-len(self.order) // self.batch_size)

    def __iter__(self) -> Iterator[Made]:
        for start in range(0, len(self.order), self.batch_size):
            yield self.make(self.order[start : start + self.batch_size])


class HeldOutCases(NamedTuple):
    """Cases to be ranked, by index.

    Attributes:
        users: Shape ``(cases,)``.
        items: The held-out item of each, shape ``(cases,)``.
        candidates: Sampled negatives, shape ``(cases, candidates)``, padded with -1.
        seen: Rows of items that full ranking leaves out for each user.
        ratings: What each held-out item was rated, shape ``(cases,)``.
    """

    users: Tensor
    items: Tensor
    candidates: Tensor
    seen: SparseRows
    ratings: Tensor

    @classmethod
    def of(cls, held_out: HeldOut, seen: SparseRows) -> Self:
        """The cases of one phase, with the rows (users, items) that full ranking leaves out."""
        users, items, lists = map(torch.tensor, (held_out.users, held_out.items, held_out.candidates))
        return cls(users, items, lists, seen, torch.tensor(held_out.ratings, dtype=torch.float32))

    def batch(self, index: Tensor) -> RankingBatch:
        """The cases ``index`` (batch,)."""
        users, positives = self.users[index], self.items[index]
        rows, items = entries(self.seen, users)
        other = items != positives[rows]
        return RankingBatch(users, positives, self.candidates[index], rows[other], items[other], self.ratings[index])


def entries(rows: SparseRows, users: Tensor) -> tuple[Tensor, Tensor]:
    """Position in the batch and item of every entry of the users' rows (batch,)."""
    bags = rows.bags(users)
    lengths = bags.offsets.diff(append=bags.offsets.new_tensor([len(bags.items)]))
    return torch.repeat_interleave(lengths), bags.items


def predict_batch(rows: SparseRows, users: Tensor) -> PredictBatch:
    """Users (batch,) with what they have rated already."""
    return PredictBatch(users, *entries(rows, users))
