"""Pairs of a released 0/1 matrix, drawn on the device with negatives, for methods that also train on a source's pairs."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from zoo.data.batch_types import PairBatch, TripleBatch
from zoo.data.rows import DenseRows, ReadableRows, SparseRows, is_binary
from zoo.data.unseen import UnseenItems


def observed_rows(rows: ReadableRows) -> SparseRows:
    """Return rows of zeros and ones as sparse rows of the ones; other values and lazy rows raise a `ValueError`."""
    if not isinstance(rows, SparseRows | DenseRows):
        raise ValueError("its rows are computed on reading")
    if not is_binary(rows):
        raise ValueError("its rows have values other than 0 and 1")
    if isinstance(rows, SparseRows):
        return rows
    users, items = rows.rows.nonzero(as_tuple=True)
    starts = torch.cat([users.new_zeros(1), torch.bincount(users, minlength=rows.num_rows).cumsum(0)])
    return SparseRows(starts, items, torch.ones(len(items), device=items.device), rows.width)


class ReleasedPairs(nn.Module):
    """Random observed pairs of a release, each with items that its user has not rated.

    A user is a row of the release, linked to the target or not. Users with every item have no negative and are left out, with a
    warning that ``source`` names. A release without users gives empty batches.
    """

    users: Tensor  # row of each pair, (pairs,)
    items: Tensor  # item of each pair, (pairs,)

    def __init__(self, rows: SparseRows, source: str = "") -> None:
        super().__init__()
        self.rows = rows
        self.num_users, self.num_items = rows.num_rows, rows.width
        counts = rows.counts()
        users, full = torch.repeat_interleave(counts), counts == rows.width
        pairs = ~full[users]
        if num_full := int(full.sum()):
            found = f"The release of {source!r}: {num_full} of {rows.num_rows} users have all {rows.width} items"
            if not len(pairs.nonzero()):
                raise ValueError(f"{found}, so there are no negatives. Use a method of whole rows.")
            warnings.warn(f"{found}. Their pairs are left out, as they have no negatives.", stacklevel=2)
        self.register_buffer("users", users[pairs], persistent=False)
        self.register_buffer("items", rows.items[pairs], persistent=False)
        self._unseen = UnseenItems((users * rows.width + rows.items).sort().values, rows.num_rows, rows.width)

    @classmethod
    def from_release(cls, rows: ReadableRows, source: str, reader: str) -> ReleasedPairs:
        """Return the pairs of a source's release for a method; both names are for messages.

        Raises:
            TypeError: If the rows are not binary.
            ValueError: If every user has every item.
        """
        try:
            observed = observed_rows(rows)
        except ValueError as error:
            needs = f"{reader} needs a binary release of {source!r}, and {error}"
            raise TypeError(f"{needs}. Use Plaintext or FlippedRows without denoiser.") from error
        return cls(observed, source)

    @property
    def num_pairs(self) -> int:
        """Number of pairs."""
        return len(self.users)

    def pairs(self, count: int, num_negatives: int = 1) -> PairBatch:
        """Return ``count`` observed pairs, drawn with replacement, with label 1; then ``num_negatives`` each with label 0."""
        users, items = self._observed(count)
        repeated = users.repeat(num_negatives)
        labels = torch.zeros(len(users) + len(repeated), device=users.device)
        labels[: len(users)] = 1
        return PairBatch(torch.cat([users, repeated]), torch.cat([items, self._unseen.draw(repeated)]), labels)

    def triples(self, count: int) -> TripleBatch:
        """Return ``count`` observed pairs, drawn with replacement, with one negative each."""
        users, items = self._observed(count)
        return TripleBatch(users, items, self._unseen.draw(users))

    def _observed(self, count: int) -> tuple[Tensor, Tensor]:
        index = torch.randint(max(self.num_pairs, 1), (count if self.num_pairs else 0,), device=self.users.device)
        return self.users[index], self.items[index]
