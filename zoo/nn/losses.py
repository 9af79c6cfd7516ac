"""Losses that methods share; each says how it is reduced."""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.data.rows import Bags


def all_items_loss(logits: Tensor, observed: Bags) -> Tensor:
    """Binary cross-entropy of every item of every user in the batch, summed, without sampled negatives.

    With logits ``x`` and targets ``y``, both (users, items), a cell costs ``softplus(x) - x y``. The second term is 0 wherever
    nothing was observed, so it is summed over the observed entries alone, whose weights are targets in [0, 1], and the dense
    ``y`` is never made.
    """
    return F.softplus(logits).sum() - (logits[observed.rows, observed.items] * observed.weights).sum()


def pairwise_loss(users: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """``-log sigmoid(s+ - s-)`` of each triple, summed; scores are inner products of factors, each (batch, dim).

    Reference: Rendle et al., *BPR* (UAI 2009), section 4.1.
    """
    return -F.logsigmoid((users * (positives - negatives)).sum(1)).sum()


def reconstruction_loss(decoded: Tensor, rows: Tensor, present: Tensor) -> Tensor:
    """Squared error of decoded rows (batch, width), summed over those that are present (batch,)."""
    return ((decoded - rows).square().sum(1) * present).sum()


def alignment_loss(source: Tensor, target: Tensor, present: Tensor) -> Tensor:
    """Squared distance between source and target factor (batch, dim) of each user, summed over who has both (batch,).

    User i's source factor is pulled to user i's target factor and to nobody else's.
    Reference: Chen et al., PriCDR (WWW 2022), equation 7.
    """
    return ((source - target).square().sum(1) * present).sum()


def correlations(factors: Tensor) -> Tensor:
    """Correlations of the columns of a finite matrix (rows, dim) over its rows, shape ``(dim, dim)``.

    What is left of a constant column, centred, is rounding: a column whose spread is below a few units in the last place
    of its largest entry counts as constant. Its correlations are 0, that with itself included, and so are its gradients.
    With one row every column is constant. Half precision is worked out in single. A ValueError without a row.
    """
    if factors.ndim != 2 or not len(factors):
        raise ValueError(f"Columns are correlated over the rows of a matrix; got the shape {tuple(factors.shape)}.")
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

    The squared Frobenius distance of the correlation matrix C to the identity, over the ``K (K - 1)`` entries off the
    diagonal for K columns; on the diagonal C is 1 whatever the factors are. Pairs with a constant column count as
    uncorrelated and stay in the denominator; one row, or one column, gives 0.

    C has at most rank B - 1 over B distinct rows. With K > B - 1, and no column constant, its eigenvalues cannot all be
    1: since their sum is K and the sum of their squares at least ``K^2 / (B - 1)``, the loss does not fall below
    ``(K - B + 1) / ((B - 1) (K - 1))``.
    Independent columns over B independent rows give ``1 / (B - 1)`` in expectation, at any K.

    Reference: Liao et al., *PPGenCDR* (AAAI 2023), either term of equation 11, there summed.
    """
    correlation = correlations(factors)
    dim = len(correlation)
    return correlation.triu(1).square().sum() * (2 / max(dim * (dim - 1), 1))


def bits_loss(logits: Tensor, rows: Tensor, present: Tensor) -> Tensor:
    """Binary cross-entropy of dense rows of zeros and ones (batch, width), summed over those that are present (batch,)."""
    return (F.binary_cross_entropy_with_logits(logits, rows, reduction="none").sum(1) * present).sum()
