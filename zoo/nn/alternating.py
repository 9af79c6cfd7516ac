"""Alternating least squares: factors of one side in closed form, given those of the other."""

import torch
from torch import Tensor

from zoo.data.rows import SparseRows
from zoo.nn.item_sum import padded

#: Numbers of the other side's factors that are gathered at once.
_AT_ONCE = 1 << 24


def solved_factors(rows: SparseRows, table: Tensor, unobserved_weight: float, penalties: Tensor) -> Tensor:
    """Factors that make the loss of iALS least while the other side's are held.

    For a row of the observed set ``S`` with ratings ``r``, other factors ``h`` and penalty ``p``, the factor ``w`` makes
    ``sum_S (w.h - r)^2 + unobserved_weight sum_all (w.h)^2 + p |w|^2`` least: it solves
    ``(sum_S h h' + unobserved_weight H'H + p I) w = sum_S r h``.

    Args:
        rows: Ratings of the side that is solved for, over the other side.
        table: Factors of the other side, shape ``(width, dim)``.
        unobserved_weight: Of a pair's squared score, observed or not.
        penalties: Of each row, positive, shape ``(rows,)``.

    Returns:
        Factors, shape ``(rows, dim)``; 0 for a row without a rating.
    """
    counts, dim = rows.counts(), table.shape[1]
    found = torch.zeros(rows.num_rows, dim, dtype=table.dtype, device=table.device)
    everything = unobserved_weight * table.T @ table
    identity = torch.eye(dim, dtype=table.dtype, device=table.device)
    order = counts.argsort(descending=True)
    for index in _blocks(order[: int((counts > 0).sum())], counts, dim):
        items, weights = padded(rows.bags(index))
        others = table[items] * (weights != 0)[..., None]  # (block, longest, dim); what is padding adds nothing
        gram = others.mT @ others + everything + penalties[index, None, None] * identity
        right = (others * weights[..., None]).sum(1)
        found[index] = torch.cholesky_solve(right[..., None], torch.linalg.cholesky(gram)).squeeze(2)
    return found


def _blocks(order: Tensor, counts: Tensor, dim: int) -> list[Tensor]:
    """Rows, longest first, in blocks of which each is as large as memory may be when padded to its longest."""
    blocks, lengths = [], counts[order].tolist()
    start = 0
    while start < len(lengths):
        size = max(_AT_ONCE // (lengths[start] * dim + dim * dim), 1)
        blocks.append(order[start : start + size])
        start += size
    return blocks
