"""Rows of a matrix on the device, dense or compressed, read a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from zoo.data.lookup import sums_of_rows
from zoo.data.ratings import Ratings

#: Most numbers of dense rows, or of a layer, at once where scores are computed: a received file may state any width.
MOST_NUMBERS = 2**26


def in_parts(make: Callable[[Tensor], Tensor], index: Tensor, width: int) -> Tensor:
    """Return ``make`` of an index (batch,), concatenated from parts of ``width`` numbers each, at most `MOST_NUMBERS`.

    Examples:
        >>> import torch
        >>> in_parts(lambda part: part + len(part), torch.arange(5), width=2**25).tolist()
        [2, 3, 4, 5, 5]
    """
    return torch.cat([make(part) for part in torch.split(index, max(1, MOST_NUMBERS // width))])


class Bags(NamedTuple):
    """A batch of sparse rows as input of ``torch.nn.functional.embedding_bag``."""

    items: Tensor  # column of each entry, row after row, (entries,)
    offsets: Tensor  # first entry of each row, (batch,)
    weights: Tensor  # value of each entry, (entries,)

    @property
    def lengths(self) -> Tensor:
        """Entries in each row, shape ``(batch,)``."""
        return self.offsets.diff(append=self.offsets.new_full((1,), len(self.items)))

    @property
    def rows(self) -> Tensor:
        """Row of each entry, shape ``(entries,)``."""
        return torch.repeat_interleave(self.lengths, output_size=len(self.items))

    def times(self, table: Tensor, by_column: Bags | None = None) -> Tensor:
        """Return the rows times a table (columns, width), shape ``(batch, width)``, at a cost linear in the entries.

        ``by_column`` are the same entries column by column, if available, to sum the gradient of the table.
        """
        by_row = by_column and (by_column.items, by_column.offsets, by_column.weights.to(table.dtype))
        return sums_of_rows(table, self.items, self.offsets, self.weights.to(table.dtype), by_row)

    def dense(self, width: int) -> Tensor:
        """Return the same rows as a dense matrix, shape ``(batch, width)``."""
        dense = self.weights.new_zeros(len(self.offsets), width)
        return dense.index_put_((self.rows, self.items), self.weights, accumulate=True)


class SparseRows(nn.Module):
    """Compressed rows as non-persistent buffers: they follow the module's device and stay out of checkpoints.

    Examples:
        >>> import torch
        >>> rows = SparseRows(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), torch.ones(3), width=3)
        >>> rows.dense(torch.tensor([1, 0])).tolist()
        [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    starts: Tensor  # row pointers, (rows + 1,)
    items: Tensor  # columns, (entries,)
    weights: Tensor  # values, (entries,)

    def __init__(self, starts: Tensor, items: Tensor, weights: Tensor, width: int) -> None:
        super().__init__()
        self.width = width
        for name, tensor in {"starts": starts, "items": items, "weights": weights}.items():
            self.register_buffer(name, tensor, persistent=False)

    @classmethod
    def from_ratings(cls, ratings: Ratings) -> SparseRows:
        """Return the rows of a rating matrix."""
        return cls(*ratings.compressed(), ratings.num_items)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    def counts(self) -> Tensor:
        """Return the number of entries of each row, shape ``(rows,)``."""
        return self.starts.diff()

    def counts_of(self, rows: Tensor) -> Tensor:
        """Return the number of entries of some rows, an index of any shape, in that shape."""
        return self.starts[rows + 1] - self.starts[rows]

    def transposed(self) -> SparseRows:
        """Return the columns as rows, the entries of each in row order."""
        order = self.items.argsort(stable=True)
        counts = torch.bincount(self.items, minlength=self.width)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        rows = torch.repeat_interleave(self.counts(), output_size=len(self.items))
        return SparseRows(starts, rows[order], self.weights[order], self.num_rows)

    def all_bags(self) -> Bags:
        """Return all rows, without a copy."""
        return Bags(self.items, self.starts[:-1], self.weights)

    def bags(self, index: Tensor, entries: int | None = None) -> Bags:
        """Return rows ``index`` (batch,), in any order, repeated or not.

        ``entries``, their total number of entries, avoids synchronising the device. Torch refuses a wrong number: by a
        `RuntimeError` on a CPU, by the device's assertion elsewhere. Entry ``e`` of the batch, in its row ``r``, is entry
        ``starts[index[r]] + (e - offsets[r])`` of the matrix.
        """
        begin = self.starts[index]  # (batch,)
        lengths = self.counts_of(index)
        offsets = lengths.cumsum(0) - lengths
        shift = torch.repeat_interleave(begin - offsets, lengths, output_size=entries)  # (entries of the batch,)
        position = shift + torch.arange(len(shift), device=shift.device)
        return Bags(self.items[position], offsets, self.weights[position])

    def dense(self, index: Tensor, entries: int | None = None) -> Tensor:
        """Return rows ``index`` (batch,) as a dense matrix, shape ``(batch, width)``; ``entries`` as in `bags`."""
        return self.bags(index, entries).dense(self.width)

    def times(self, table: Tensor) -> Tensor:
        """Return all rows times a table (width, columns), shape ``(rows, columns)``."""
        return self.all_bags().times(table.contiguous())

    def mean(self) -> Tensor:
        """Return the mean of the non-empty rows, shape ``(width,)``."""
        total = torch.zeros(self.width, dtype=torch.float64, device=self.weights.device)
        total.index_add_(0, self.items, self.weights.double())
        return (total / (self.counts() > 0).sum().clamp(min=1)).float()


class DenseRows(nn.Module):
    """Dense rows, shape ``(rows, width)``, as a non-persistent buffer."""

    rows: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.width = rows.shape[1]
        self.register_buffer("rows", rows, persistent=False)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def dense(self, index: Tensor) -> Tensor:
        """Return rows ``index`` (batch,), shape ``(batch, width)``."""
        return self.rows[index]

    def times(self, table: Tensor) -> Tensor:
        """Return all rows times a table (width, columns), shape ``(rows, columns)``."""
        return self.rows @ table

    def mean(self) -> Tensor:
        """Return the mean row, shape ``(width,)``."""
        return self.rows.double().mean(0).float()


class ReadableRows(Protocol):
    """Rows of a release: :class:`SparseRows`, :class:`DenseRows`, or lazy rows that are computed on reading."""

    width: int

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    def dense(self, index: Tensor) -> Tensor:
        """Return rows ``index`` (batch,) as a dense matrix, shape ``(batch, width)``."""


def is_binary(rows: ReadableRows) -> bool:
    """Return whether every value is 0 or 1; False for lazy rows."""
    if isinstance(rows, SparseRows):
        return bool((rows.weights == 1).all())
    return isinstance(rows, DenseRows) and bool(((rows.rows == 0) | (rows.rows == 1)).all())


class LinkedRows(nn.Module):
    """Rows of another party's release, read by the target's user index."""

    links: Tensor  # row of each target user in the release, -1 for none, (users,)
    rows: ReadableRows

    def __init__(self, rows: ReadableRows, links: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.register_buffer("links", links, persistent=False)

    def entries_per_user(self) -> Tensor:
        """Return the number of sparse entries that are read per target user, (users,); the first row's for unlinked users."""
        assert isinstance(self.rows, SparseRows)
        return self.rows.counts_of(self.links.clamp(min=0)) if self.has_rows else torch.zeros_like(self.links)

    def dense(self, users: Tensor, entries: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the rows of users (batch,), shape ``(batch, width)``, zero without link, and a mask of linked users (batch,).

        ``entries`` is their total number of entries as :meth:`entries_per_user` counts, if known.
        """
        links = self.links[users]
        present = links >= 0
        if not self.has_rows:
            return torch.zeros(len(users), self.rows.width, device=links.device), present
        read = links.clamp(min=0)
        rows = self.rows.dense(read, entries) if isinstance(self.rows, SparseRows) else self.rows.dense(read)
        return rows * present[:, None], present

    def shared(self) -> Tensor:
        """Return a mask (rows,) of the rows of the release that belong to target users."""
        mask = torch.zeros(self.rows.num_rows + 1, dtype=torch.bool, device=self.links.device)
        mask[self.links] = True  # -1, of unlinked users, is the last
        return mask[:-1]

    @property
    def has_rows(self) -> bool:
        """Whether the release has any row."""
        return bool(self.rows.num_rows)
