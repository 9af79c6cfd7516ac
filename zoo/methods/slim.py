"""SLIM: a sparse, non-negative item-item matrix."""

import logging

import torch
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.methods.base import Outputs
from zoo.methods.ease import ItemWeights
from zoo.runtime import checks

#: Explaining items whose rest is worked out by one matrix product.
_BLOCK = 64


def item_regressions(gram: Tensor, l1: float, l2: float, tolerance: float, max_sweeps: int) -> tuple[Tensor, int]:
    """Return the item-item weights that minimise SLIM's loss, and the number of sweeps.

    Column ``j`` of the weights ``W`` explains item ``j``. A sweep of coordinate descent sets each row of ``W`` in turn, for all
    explained items at once, to its minimum given the others: ``W_i = max(0, G_i - sum_{k != i} G_ik W_k - l1) / (G_ii + l2)``.
    ``G_i - G_i W`` is one matrix product per block, updated within it.

    Args:
        gram: ``G = X'X``, shape ``(items, items)``.
        l1: Weight of the absolute values.
        l2: Weight of half the squares.
        tolerance: Stop when no weight changes by more.
        max_sweeps: Largest number of sweeps.

    Returns:
        Non-negative weights (items, items) with an empty diagonal, and the number of sweeps.
    """
    weights = torch.zeros_like(gram)
    diagonal = gram.diagonal().tolist()
    sweeps, largest = 0, float("inf")
    while sweeps < max_sweeps and largest > tolerance:
        sweeps, largest = sweeps + 1, 0.0
        for first in range(0, len(gram), _BLOCK):
            block = slice(first, first + _BLOCK)
            before = weights[block].clone()
            rest = gram[block] - gram[block] @ weights  # (block, items)
            for place, item in enumerate(range(first, first + len(before))):
                new = (rest[place] + diagonal[item] * weights[item] - l1).clamp_(min=0).div_(diagonal[item] + l2)
                new[item] = 0
                rest[place + 1 :].addr_(gram[item + 1 : block.stop, item], new - weights[item], alpha=-1)
                weights[item] = new
            largest = max(largest, float((weights[block] - before).abs().max()))
    return weights, sweeps


logger = logging.getLogger(__name__)


class SLIM(ItemWeights):
    """Sparse linear method: each item is explained by few other items with non-negative weights.

    Minimise ``|X - X W|^2 / 2 + l2 |W|^2 / 2 + l1 |W|_1`` with ``W >= 0`` and ``diag(W) = 0`` over the 0/1 matrix ``X`` of
    training ratings. Target only. EASE is the same without l1 and signs. Memory is two dense matrices: 20,000 items are 3.2 GB.

    Reference: Ning & Karypis, *SLIM: Sparse Linear Methods for Top-N Recommender Systems*, ICDM 2011, equation 4 and section
    4.3 (coordinate descent and soft thresholding). Departure: columns are solved together, over the Gram matrix.

    Args:
        l1: Weight of the sum of weights (lambda), at least 0; larger values give fewer weights.
        l2: Weight of half their squares (beta), above 0.
        tolerance: Stop when no weight changes by more in a sweep.
        max_sweeps: Largest number of sweeps over all items; a warning reports that it was reached.
        max_items: Largest catalogue; larger ones raise an error before memory is exhausted.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.SLIM(), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    def __init__(
        self, l1: float = 1.0, l2: float = 50.0, tolerance: float = 1e-4, max_sweeps: int = 100, max_items: int = 20_000
    ) -> None:
        super().__init__(max_items)
        checks.not_negative(l1=l1)
        checks.positive(l2=l2, tolerance=tolerance)
        checks.at_least_one(max_sweeps=max_sweeps)
        self.l1, self.l2, self.tolerance, self.max_sweeps = l1, l2, tolerance, max_sweeps

    def step(self, batch: Batch) -> Outputs:
        """Solve for the item-item matrix."""
        ratings = self.data.train.matrix
        gram = torch.from_numpy((ratings.T @ ratings).toarray()).to(self.weights)
        found, sweeps = item_regressions(gram, self.l1, self.l2, self.tolerance, self.max_sweeps)
        if sweeps == self.max_sweeps:
            logger.warning(
                "SLIM stops after %d sweeps without converging to %g; raise max_sweeps.", sweeps, self.tolerance
            )
        self.weights.copy_(found)
        return {}
