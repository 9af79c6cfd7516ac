"""Losses that methods share; each says how it is reduced."""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.data.rows import Bags


def all_items_loss(logits: Tensor, observed: Bags) -> Tensor:
    """Binary cross-entropy of every item of every user in the batch, summed, without sampled negatives.

    An entry with logit ``x`` and target ``y`` costs ``softplus(x) - x y``; the second term is summed over observed entries,
    whose weights are the targets in [0, 1], so no dense ``y`` is made.
    """
    return F.softplus(logits).sum() - (logits[observed.rows, observed.items] * observed.weights).sum()


def pairwise_loss(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """``-log sigmoid(s+ - s-)`` of each triple, summed; scores are inner products of factors (batch, dim). BPR, section 4.1."""
    return -F.logsigmoid((users * (positives - negatives)).sum(1)).sum()


def reconstruction_loss(decoded: Tensor, rows: Tensor, present: Tensor) -> Tensor:
    """Squared error of decoded rows (batch, width), summed over those that are present (batch,)."""
    return ((decoded - rows).square().sum(1) * present).sum()


def alignment_loss(source: Tensor, target: Tensor, present: Tensor) -> Tensor:
    """Squared distance between source and target factor (batch, dim), summed over users with both; PriCDR, equation 7."""
    return ((source - target).square().sum(1) * present).sum()


def correlations(factors: Tensor) -> Tensor:
    """Correlations of the columns of a finite matrix (rows, dim) over its rows, shape ``(dim, dim)``; a ValueError without a row.

    A column whose spread is within rounding of its largest entry counts as constant: its correlations, that with itself
    included, and gradients are 0. Half precision is computed in single.
    """
    if factors.ndim != 2 or not len(factors):
        raise ValueError(f"Columns are correlated over rows of a matrix; got the shape {tuple(factors.shape)}.")
    columns = factors.to(torch.promote_types(factors.dtype, torch.float32))
    centred = columns - columns.mean(0)
    squares = centred.square().sum(0)
    rounding = 16 * torch.finfo(columns.dtype).eps * columns.detach().abs().amax(0)
    varies = squares > len(columns) * rounding.square()
    unit = torch.where(varies, centred * torch.where(varies, squares, 1.0).rsqrt(), 0.0)
    with torch.autocast(unit.device.type, enabled=False):
        return unit.T @ unit


def decorrelation_loss(factors: Tensor) -> Tensor:
    """Mean squared correlation of two different columns of a matrix (rows, dim): 0 uncorrelated, 1 all proportional.

    Pairs with a constant column count as uncorrelated and stay in the denominator; one row, or one column, gives 0. Over B
    distinct rows with ``K > B - 1`` varying columns, the loss is at least ``(K - B + 1) / ((B - 1) (K - 1))``; independent
    columns give ``1 / (B - 1)`` in expectation.

    Reference: Liao et al., *PPGenCDR* (AAAI 2023), either term of equation 11, there summed.
    """
    correlation = correlations(factors)
    dim = len(correlation)
    return correlation.triu(1).square().sum() * (2 / max(dim * (dim - 1), 1))


def bits_loss(logits: Tensor, rows: Tensor, present: Tensor) -> Tensor:
    """Binary cross-entropy of dense rows of zeros and ones (batch, width), summed over those that are present (batch,)."""
    return (F.binary_cross_entropy_with_logits(logits, rows, reduction="none").sum(1) * present).sum()
