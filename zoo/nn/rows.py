"""Rows of a matrix on the device, kept as they are (dense or compressed), read a batch at a time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn


class Bags(NamedTuple):
    """A batch of sparse rows in the form that ``torch.nn.functional.embedding_bag`` takes.

    Attributes:
        items: Column of each entry, row after row, shape ``(entries,)``.
        offsets: Where each row begins, shape ``(batch,)``.
        weights: Value of each entry, shape ``(entries,)``.
    """

    items: Tensor
    offsets: Tensor
    weights: Tensor


def gather_bags(starts: Tensor, items: Tensor, weights: Tensor, index: Tensor) -> Bags:
    """Rows ``index`` of a compressed matrix, without a loop over rows.

    Args:
        starts: Row pointers, shape ``(rows + 1,)``.
        items: Columns, shape ``(entries,)``.
        weights: Values, shape ``(entries,)``.
        index: Rows wanted, in any order and as often as wanted, shape ``(batch,)``.
    """
    begin = starts[index]
    lengths = starts[index + 1] - begin
    offsets = lengths.cumsum(0) - lengths
    position = torch.repeat_interleave(begin - offsets, lengths)
    position = position + torch.arange(len(position), device=position.device)
    return Bags(items[position], offsets, weights[position])


def scatter_dense(bags: Bags, width: int) -> Tensor:
    """The same batch as a dense matrix, shape ``(batch, width)``."""
    lengths = torch.diff(bags.offsets, append=bags.offsets.new_tensor([len(bags.items)]))
    rows = torch.repeat_interleave(lengths)
    dense = bags.weights.new_zeros(len(bags.offsets), width)
    return dense.index_put_((rows, bags.items), bags.weights, accumulate=True)


class Compressed(Protocol):
    """What :class:`SparseRows` is made from; ``zoo.data.ratings.Ratings`` is one."""

    @property
    def num_items(self) -> int:
        """Number of columns."""

    def compressed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers, columns and values."""


class SparseRows(nn.Module):
    """Compressed rows as non-persistent buffers: they follow the module's device and stay out of checkpoints.

    Args:
        starts: Row pointers, shape ``(rows + 1,)``.
        items: Columns, shape ``(entries,)``.
        weights: Values, shape ``(entries,)``.
        width: Number of columns.
    """

    starts: Tensor
    items: Tensor
    weights: Tensor

    def __init__(self, starts: Tensor, items: Tensor, weights: Tensor, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("starts", starts, persistent=False)
        self.register_buffer("items", items, persistent=False)
        self.register_buffer("weights", weights, persistent=False)

    @classmethod
    def of(cls, ratings: Compressed) -> SparseRows:
        """The rows of a rating matrix."""
        return cls(*ratings.compressed(), ratings.num_items)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    def counts(self) -> Tensor:
        """Entries in each row, shape ``(rows,)``."""
        return self.starts.diff()

    def bags(self, index: Tensor) -> Bags:
        """Rows ``index`` (batch,) for ``embedding_bag``."""
        return gather_bags(self.starts, self.items, self.weights, index)

    def dense(self, index: Tensor) -> Tensor:
        """Rows ``index`` (batch,) as a dense matrix, shape ``(batch, width)``."""
        return scatter_dense(self.bags(index), self.width)


class DenseRows(nn.Module):
    """Dense rows as a non-persistent buffer, with the same readers as :class:`SparseRows`.

    Args:
        rows: Shape ``(rows, width)``.
    """

    rows: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.width = rows.shape[1]
        self.register_buffer("rows", rows, persistent=False)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def bags(self, index: Tensor) -> Bags:
        """Rows ``index`` (batch,) with every column as an entry."""
        columns = torch.arange(self.width, device=self.rows.device)
        offsets = torch.arange(len(index), device=self.rows.device) * self.width
        return Bags(columns.repeat(len(index)), offsets, self.rows[index].flatten())

    def dense(self, index: Tensor) -> Tensor:
        """Rows ``index`` (batch,), shape ``(batch, width)``."""
        return self.rows[index]


class ReadableRows(Protocol):
    """Rows of a release: :class:`SparseRows`, :class:`DenseRows`, or what makes them when they are read."""

    width: int

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    def bags(self, index: Tensor) -> Bags:
        """Rows ``index`` (batch,) for ``embedding_bag``."""

    def dense(self, index: Tensor) -> Tensor:
        """Rows ``index`` (batch,) as a dense matrix, shape ``(batch, width)``."""


class LinkedRows(nn.Module):
    """Rows of another party's release, read by the target's own user index.

    Args:
        rows: The release's rows.
        links: Row of each target user in the release, -1 where there is none, shape ``(users,)``.
    """

    links: Tensor

    rows: ReadableRows

    def __init__(self, rows: ReadableRows, links: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.register_buffer("links", links, persistent=False)

    def dense(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the users, and which of them have one.

        Args:
            users: Shape ``(batch,)``.

        Returns:
            Rows of shape ``(batch, width)``, zero where there is none, and a mask of shape ``(batch,)``.
        """
        links = self.links[users]
        present = links >= 0
        if not self.has_rows:
            return torch.zeros(len(users), self.rows.width, device=links.device), present
        rows = self.rows.dense(links.clamp(min=0))
        return rows * present[:, None], present

    def bags(self, users: Tensor) -> tuple[Bags, Tensor]:
        """The same for ``embedding_bag``; a user without a row has entries of weight zero, or none."""
        links = self.links[users]
        present = links >= 0
        if not self.has_rows:
            empty = links.new_empty(0)
            return Bags(empty, torch.zeros_like(links), torch.empty(0, device=links.device)), present
        bags = self.rows.bags(links.clamp(min=0))
        lengths = torch.diff(bags.offsets, append=bags.offsets.new_tensor([len(bags.items)]))
        keep = torch.repeat_interleave(present, lengths)
        return bags._replace(weights=bags.weights * keep), present

    @property
    def has_rows(self) -> bool:
        """Whether the release covers anybody at all."""
        return bool(self.rows.num_rows)
