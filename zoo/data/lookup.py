"""Rows of a table by index, and weighted sums of them, with fast gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def rows_at(table: Tensor, index: Tensor) -> Tensor:
    """Return rows ``index`` of a table (rows, width), shape ``(*index.shape, width)``, as `torch.nn.functional.embedding`.

    On a CPU `torch.Tensor.index_add_` sums the gradient, two to three times as fast. Elsewhere the embedding's kernel sorts
    first, so it is deterministic.
    """
    if table.device.type != "cpu":
        return F.embedding(index, table)
    return table.index_select(0, index.reshape(-1)).view(*index.shape, table.shape[1])


def linear_at(table: Tensor, index: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a linear map, weight (outputs, width), of rows ``index`` of a table (rows, width): ``(*index.shape, outputs)``.

    If the index is longer than the table, all rows are mapped once and then looked up.
    """
    if len(table) > index.numel():
        return F.linear(rows_at(table, index), weight, bias)
    return rows_at(F.linear(table, weight, bias), index)


class Table(nn.Embedding):
    """Embedding table of users or items, read by `rows_at`."""

    __call__: Callable[..., Tensor]

    def forward(self, input: Tensor) -> Tensor:
        """Return the rows at an index of any shape, shape ``(*shape, embedding_dim)``."""
        return rows_at(self.weight, input)


#: Entries in order of their table rows: sum of each (entries,), first entry of each row (rows,), weights (entries,).
ByRow = tuple[Tensor, Tensor, Tensor]


def sums_of_rows(table: Tensor, index: Tensor, offsets: Tensor, weights: Tensor, by_row: ByRow | None = None) -> Tensor:
    """Return weighted sums of the rows ``index`` (entries,) of a table (rows, width), shape ``(sums, width)``.

    As `torch.nn.functional.embedding_bag` with mode ``sum``: ``offsets`` (sums,) are the first entry of each sum, and ``weights``
    (entries,) get no gradient. On a CPU the gradient of the table is such a sum too, over the entries in order of their table
    rows: ``by_row`` if the caller has them, else they are sorted.
    """
    if table.device.type == "cpu" and table.requires_grad and not weights.requires_grad:
        sums: Tensor = _SumsOfRows.apply(table, index, offsets, weights, *(by_row or ()))  # type: ignore[no-untyped-call]
        return sums
    return F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=weights)


class _SumsOfRows(torch.autograd.Function):
    @staticmethod
    def forward(table: Tensor, index: Tensor, offsets: Tensor, weights: Tensor, *by_row: Tensor) -> Tensor:
        return F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=weights)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ANN401  torch's context
        table, *entries = inputs
        ctx.sorted, ctx.num_rows = len(entries) > 3, len(table)
        ctx.save_for_backward(*entries[-3:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        entries = ctx.saved_tensors
        sums, starts, weights = entries if ctx.sorted else _by_row(entries, ctx.num_rows)
        rows = F.embedding_bag(sums, gradient.contiguous(), starts, mode="sum", per_sample_weights=weights)
        return rows, *[None] * (6 if ctx.sorted else 3)


def _by_row(entries: tuple[Tensor, Tensor, Tensor], num_rows: int) -> ByRow:
    index, offsets, weights = entries
    order = index.int().argsort(stable=True)
    sums = torch.repeat_interleave(offsets.diff(append=offsets.new_full((1,), len(index))), output_size=len(index))
    counts = torch.bincount(index, minlength=num_rows)
    return sums[order], counts.cumsum(0) - counts, weights[order]
