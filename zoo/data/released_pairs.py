"""Pairs of a released 0/1 matrix, drawn on the device with negatives: for methods that learn from a source's pairs, too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from zoo.data.batch_types import PairBatch, TripleBatch
from zoo.data.rows import DenseRows, ReadableRows, SparseRows, is_binary
from zoo.data.unseen import UnseenItems


def observed_rows(rows: ReadableRows) -> SparseRows:
    """Rows of zeros and ones as sparse rows of the ones; `ValueError` if a number is neither, or rows are made when read."""
    if not isinstance(rows, SparseRows | DenseRows):
        raise ValueError("its rows are made when they are read")
    if not is_binary(rows):
        raise ValueError("its rows hold numbers other than 0 and 1")
    if isinstance(rows, SparseRows):
        return rows
    users, items = rows.rows.nonzero(as_tuple=True)
    starts = torch.cat([users.new_zeros(1), torch.bincount(users, minlength=rows.num_rows).cumsum(0)])
    return SparseRows(starts, items, torch.ones(len(items), device=items.device), rows.width)


class ReleasedPairs(nn.Module):
    """The observed pairs of a release, drawn at random by torch, each with items that its user has not.

    A user is a row of the release, linked to the target or not. A release of nobody gives empty batches.
    """

    users: Tensor  # row of each pair, (pairs,)
    items: Tensor  # item of each pair, (pairs,)

    def __init__(self, rows: SparseRows) -> None:
        super().__init__()
        self.rows = rows
        self.num_users, self.num_items = rows.num_rows, rows.width
        counts = rows.counts()
        if full := int((counts == rows.width).sum()):
            raise ValueError(f"{full} of its users have every one of the {rows.width} items, and no other to be drawn")
        users = torch.repeat_interleave(counts)
        self.register_buffer("users", users, persistent=False)
        self.register_buffer("items", rows.items, persistent=False)
        self._unseen = UnseenItems((users * rows.width + rows.items).sort().values, rows.num_rows, rows.width)

    @classmethod
    def of(cls, rows: ReadableRows, source: str, reader: str) -> ReleasedPairs:
        """The pairs of a source's release, for a method, both by name.

        Raises:
            TypeError: If the rows do not say who has which item.
            ValueError: If a user has every item.
        """
        try:
            observed = observed_rows(rows)
        except ValueError as error:
            raise TypeError(
                f"{reader} learns from who has which item, and the release of {source!r} does not say: {error}. Release ratings "
                "(Plaintext) or flipped cells (FlippedRows), not denoised, or choose a method that reads rows."
            ) from error
        try:
            return cls(observed)
        except ValueError as error:
            raise ValueError(
                f"{reader} draws items that a user has not, and of the release of {source!r}, {error}. Leave such users out at "
                "the source, or choose a method that reads whole rows."
            ) from error

    @property
    def num_pairs(self) -> int:
        """How many pairs there are."""
        return len(self.users)

    def pairs(self, count: int, num_negatives: int = 1) -> PairBatch:
        """So many observed pairs, drawn with replacement, with label 1; then ``num_negatives`` others for each, with label 0."""
        users, items = self._observed(count)
        repeated = users.repeat(num_negatives)
        labels = torch.zeros(len(users) + len(repeated), device=users.device)
        labels[: len(users)] = 1
        return PairBatch(torch.cat([users, repeated]), torch.cat([items, self._unseen.draw(repeated)]), labels)

    def triples(self, count: int) -> TripleBatch:
        """So many observed pairs, drawn with replacement, with another item each."""
        users, items = self._observed(count)
        return TripleBatch(users, items, self._unseen.draw(users))

    def _observed(self, count: int) -> tuple[Tensor, Tensor]:
        index = torch.randint(max(self.num_pairs, 1), (count if self.num_pairs else 0,), device=self.users.device)
        return self.users[index], self.items[index]
