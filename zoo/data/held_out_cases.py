"""Held-out cases to rank, and batches of cases or users for evaluation."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

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


class _Cases(NamedTuple):
    users: Tensor  # (cases,); a user with several held-out items has several cases
    items: Tensor  # the held-out item of each, (cases,)
    candidates: Tensor  # sampled negatives, (cases, candidates), int32, padded with -1
    ratings: Tensor  # rating of each held-out item, (cases,), float32: 1, or a sign
    seen: SparseRows  # items that full ranking leaves out, one row per user
    left_out: Tensor = NONE  # items that no case ranks in full ranking, (left_out_items,), rising


class HeldOutCases(_Cases):
    """The cases of one phase, by row and column of the training ratings."""

    @cached_property
    def by_user(self) -> SparseRows:
        """The held-out items of each user, one row per user."""
        order = self.users.argsort(stable=True)
        counts = torch.bincount(self.users, minlength=self.seen.num_rows)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return SparseRows(starts, self.items[order], self.ratings[order], self.seen.width)

    def batch(self, index: Tensor) -> RankingBatch:
        """Return the cases ``index`` (batch,)."""
        users, positives = self.users[index], self.items[index]
        seen, held_out = (_without(positives, *entries(rows, users)) for rows in (self.seen, self.by_user))
        candidates = self.candidates[index].long()
        return RankingBatch(users, positives, candidates, *seen, self.ratings[index], self.left_out, *held_out)

    def num_others(self) -> Tensor:
        """Return the number of other items in the full ranking of each case, (cases,)."""
        ranked = torch.ones(self.seen.width, dtype=torch.long)
        ranked[self.left_out] = 0
        before = torch.cat(
            [NONE.new_zeros(1), ranked[self.seen.items].cumsum(0)]
        )  # ranked items among the first entries
        return ranked.sum() - before[self.seen.starts].diff()[self.users]  # the positive is among the seen items


def _without(positives: Tensor, rows: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
    other = items != positives[rows]
    return rows[other], items[other]


def entries(rows: SparseRows, users: Tensor) -> tuple[Tensor, Tensor]:
    """Return position in the batch and item (entries,) of every entry of the rows of users (batch,)."""
    bags = rows.bags(users)
    return bags.rows, bags.items


def protocol_lines(found: Mapping[str, Any]) -> list[str]:
    """Return lines on held-out items without a training rating, ties in time and dates, from a summary of data, if there are any.

    Examples:
        >>> unknown = {"validation": 0, "of_validation": 9, "test": 2, "of_test": 10, "rule": "exclude"}
        >>> protocol_lines({"unknown_items": unknown, "ties_in_time": {"users": 1, "of_users": 10}})[0]
        'no training rating: items of 0 of 9 validation and 2 of 10 test cases, which are not ranked'
    """
    unknown, ties = found.get("unknown_items") or {}, found.get("ties_in_time") or {}
    lines = []
    if unknown and unknown["validation"] + unknown["test"]:
        validation, test = (f"{unknown[part]:,} of {unknown[f'of_{part}']:,} {part}" for part in ("validation", "test"))
        ranked = "are not ranked" if unknown["rule"] == "exclude" else "count"
        lines.append(f"no training rating: items of {validation} and {test} cases, which {ranked}")
    if ties and ties["users"]:
        lines.append(
            f"ties in time decide the held-out items of {ties['users']:,} of {ties['of_users']:,} users, by a hash"
        )
    if times := found.get("times"):
        lines.append(f"times from {times['first']} to {times['last']} (unit {times['unit']})")
    return lines
