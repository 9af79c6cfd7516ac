"""Rows of a matrix on the device, kept as they are (dense or compressed), read a batch at a time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from zoo.data.lookup import sums_of_rows
from zoo.data.ratings import Ratings


class Bags(NamedTuple):
    """A batch of sparse rows in the form that ``torch.nn.functional.embedding_bag`` takes."""

    items: Tensor  # column of each entry, row after row, (entries,)
    offsets: Tensor  # where each row begins, (batch,)
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
        """The rows times a table (columns, width), shape ``(batch, width)``, at the cost of the entries that are there.

        ``by_column`` are the same entries column by column, where they are at hand, to sum the gradient of the table.
        """
        by_row = by_column and (by_column.items, by_column.offsets, by_column.weights.to(table.dtype))
        return sums_of_rows(table, self.items, self.offsets, self.weights.to(table.dtype), by_row)

    def dense(self, width: int) -> Tensor:
        """The same rows as a dense matrix, shape ``(batch, width)``."""
        dense = self.weights.new_zeros(len(self.offsets), width)
        return dense.index_put_((self.rows, self.items), self.weights, accumulate=True)


class SparseRows(nn.Module):
    """Compressed rows as non-persistent buffers: they follow the module's device and stay out of checkpoints."""

    starts: Tensor  # row pointers, (rows + 1,)
    items: Tensor  # columns, (entries,)
    weights: Tensor  # values, (entries,)

    def __init__(self, starts: Tensor, items: Tensor, weights: Tensor, width: int) -> None:
        super().__init__()
        self.width = width
        for name, tensor in {"starts": starts, "items": items, "weights": weights}.items():
            self.register_buffer(name, tensor, persistent=False)

    @classmethod
    def of(cls, ratings: Ratings) -> SparseRows:
        """The rows of a rating matrix."""
        return cls(*ratings.compressed(), ratings.num_items)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    def counts(self) -> Tensor:
        """Entries in each row, shape ``(rows,)``."""
        return self.starts.diff()

    def counts_of(self, rows: Tensor) -> Tensor:
        """Entries in some rows (any shape), of that shape; what the others have is not worked out."""
        return self.starts[rows + 1] - self.starts[rows]

    def transposed(self) -> SparseRows:
        """The columns as rows, the entries of each in the order of the rows they come from."""
        order = self.items.argsort(stable=True)
        counts = torch.bincount(self.items, minlength=self.width)
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        rows = torch.repeat_interleave(self.counts(), output_size=len(self.items))
        return SparseRows(starts, rows[order], self.weights[order], self.num_rows)

    def all_bags(self) -> Bags:
        """All rows, as they lie here."""
        return Bags(self.items, self.starts[:-1], self.weights)

    def bags(self, index: Tensor, entries: int | None = None) -> Bags:
        """Rows ``index`` (batch,), in any order and as often as wanted.

        ``entries``, their number of entries together, spares a wait for the device. Torch refuses a wrong number: by a
        `RuntimeError` on a CPU, by the device's own assertion elsewhere. Entry ``e`` of the batch, of its row ``r``, is entry
        ``starts[index[r]] + (e - offsets[r])`` of the matrix.
        """
        begin = self.starts[index]  # (batch,)
        lengths = self.counts_of(index)
        offsets = lengths.cumsum(0) - lengths
        shift = torch.repeat_interleave(begin - offsets, lengths, output_size=entries)  # (entries of the batch,)
        position = shift + torch.arange(len(shift), device=shift.device)
        return Bags(self.items[position], offsets, self.weights[position])

    def dense(self, index: Tensor, entries: int | None = None) -> Tensor:
        """Rows ``index`` (batch,) as a dense matrix, shape ``(batch, width)``; ``entries`` as `bags` takes them."""
        return self.bags(index, entries).dense(self.width)

    def times(self, table: Tensor) -> Tensor:
        """All rows times a table (width, columns), shape ``(rows, columns)``."""
        return self.all_bags().times(table.contiguous())

    def mean(self) -> Tensor:
        """Mean of the rows that have an entry, shape ``(width,)``."""
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
        """Rows ``index`` (batch,), shape ``(batch, width)``."""
        return self.rows[index]

    def times(self, table: Tensor) -> Tensor:
        """All rows times a table (width, columns), shape ``(rows, columns)``."""
        return self.rows @ table

    def mean(self) -> Tensor:
        """Mean row, shape ``(width,)``."""
        return self.rows.double().mean(0).float()


class ReadableRows(Protocol):
    """Rows of a release: :class:`SparseRows`, :class:`DenseRows`, or what makes them when they are read."""

    width: int

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    def dense(self, index: Tensor) -> Tensor:
        """Rows ``index`` (batch,) as a dense matrix, shape ``(batch, width)``."""


def is_binary(rows: ReadableRows) -> bool:
    """Whether every number of rows that are at hand is 0 or 1; False of rows that are made when they are read."""
    if isinstance(rows, SparseRows):
        return bool((rows.weights == 1).all())
    return isinstance(rows, DenseRows) and bool(((rows.rows == 0) | (rows.rows == 1)).all())


class LinkedRows(nn.Module):
    """Rows of another party's release, read by the target's own user index."""

    links: Tensor  # row of each target user in the release, -1 where there is none, (users,)
    rows: ReadableRows

    def __init__(self, rows: ReadableRows, links: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.register_buffer("links", links, persistent=False)

    def entries_per_user(self) -> Tensor:
        """Entries of sparse rows that are read for each target user, the first row's for who has none, shape ``(users,)``."""
        assert isinstance(self.rows, SparseRows)
        return self.rows.counts_of(self.links.clamp(min=0)) if self.has_rows else torch.zeros_like(self.links)

    def dense(self, users: Tensor, entries: int | None = None) -> tuple[Tensor, Tensor]:
        """Rows of users (batch,), shape ``(batch, width)``, zero where there is none, and who has one, shape ``(batch,)``.

        ``entries`` is their number together, as :meth:`entries_per_user` counts, where it is known.
        """
        links = self.links[users]
        present = links >= 0
        if not self.has_rows:
            return torch.zeros(len(users), self.rows.width, device=links.device), present
        read = links.clamp(min=0)
        rows = self.rows.dense(read, entries) if isinstance(self.rows, SparseRows) else self.rows.dense(read)
        return rows * present[:, None], present

    def shared(self) -> Tensor:
        """Which rows of the release are of a user of the target, as a mask (rows,); the others are strangers'."""
        mask = torch.zeros(self.rows.num_rows + 1, dtype=torch.bool, device=self.links.device)
        mask[self.links] = True  # -1, of who has no row, is the last
        return mask[:-1]

    @property
    def has_rows(self) -> bool:
        """Whether the release covers anybody at all."""
        return bool(self.rows.num_rows)
