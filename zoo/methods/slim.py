"""SLIM: a sparse, non-negative item-item matrix."""

import logging

import torch
from torch import Tensor

from zoo.data.batches import Batch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.runtime import checks

#: Explaining items whose rest is worked out by one matrix product.
_BLOCK = 64


def item_regressions(gram: Tensor, l1: float, l2: float, tolerance: float, max_sweeps: int) -> tuple[Tensor, int]:
    """Non-negative weights ``W`` with an empty diagonal that make SLIM's loss least.

    ``|X - X W|^2 / 2 + l2 |W|^2 / 2 + l1 sum W`` is convex in each row of weights with the others held, and has its least value at
    ``W_i = max(0, G_i - sum_{k != i} G_ik W_k - l1) / (G_ii + l2)``, for all items that are explained at once: they do not meet.
    A sweep does so for each explaining item in turn. ``G_i - G_i W`` is worked out for a block of items at once, a matrix product,
    and then follows what changes within the block.

    Args:
        gram: ``G = X'X``, symmetric, shape ``(items, items)``.
        l1: Weight of the sum of weights; not negative.
        l2: Weight of their squares; positive.
        tolerance: No weight has changed by more in the last sweep.
        max_sweeps: Sweeps at most.

    Returns:
        Weights, column ``j`` explains item ``j``, shape ``(items, items)``; and how many sweeps were made.
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


class SLIM(Recommender):
    """Sparse linear method: each item is explained by few other items, with weights that are not negative.

    Minimises ``|X - X W|^2 / 2 + l2 |W|^2 / 2 + l1 |W|_1`` with ``W >= 0`` and ``diag(W) = 0`` over the 0/1 matrix ``X`` of
    training ratings, by coordinate descent for all items at once. Target only. EASE is the same without l1 and signs.

    Memory is two dense items x items matrices: 20,000 items are 3.2 GB.

    Reference: Ning & Karypis, *SLIM: Sparse Linear Methods for Top-N Recommender Systems*, ICDM 2011, equation 4 and section 4.3
    (coordinate descent and soft thresholding).

    Departures: none; columns are solved together, and over the Gram matrix, where the paper solves one after another.

    Args:
        l1: Weight of the sum of weights (lambda): larger, fewer of them.
        l2: Weight of half their squares (beta).
        tolerance: Ends when no weight has changed by more in a sweep.
        max_sweeps: Sweeps over all items at most; a warning says where they did not do.
        max_items: Refuse catalogues larger than this before memory runs out.
    """

    batches = "once"

    weights: Tensor

    def __init__(
        self,
        l1: float = 1.0,
        l2: float = 50.0,
        tolerance: float = 1e-4,
        max_sweeps: int = 100,
        max_items: int = 20_000,
    ) -> None:
        super().__init__()
        checks.not_negative(l1=l1)
        checks.positive(l2=l2, tolerance=tolerance)
        checks.at_least_one(max_sweeps=max_sweeps, max_items=max_items)
        self.l1, self.l2 = l1, l2
        self.tolerance, self.max_sweeps, self.max_items = tolerance, max_sweeps, max_items

    def build(self, sizes: Sizes) -> None:
        """Make the item-item buffer."""
        if sizes["num_items"] > self.max_items:
            raise ValueError(
                f"SLIM needs dense matrices of items x items; {sizes['num_items']} items are more than max_items = "
                f"{self.max_items}. Raise max_items if there is memory for {8 * sizes['num_items'] ** 2 / 2**30:.0f} GiB, "
                "or filter rare items out."
            )
        self.register_buffer("weights", torch.zeros(sizes["num_items"], sizes["num_items"]))

    def step(self, batch: Batch) -> Outputs:
        """Solve for the item-item matrix."""
        ratings = self.data.train.matrix
        gram = torch.from_numpy((ratings.T @ ratings).toarray()).to(self.weights)
        found, sweeps = item_regressions(gram, self.l1, self.l2, self.tolerance, self.max_sweeps)
        if sweeps == self.max_sweeps:
            logger.warning(
                "SLIM stops after %d sweeps, of which the last may have changed a weight by more than %g; raise max_sweeps.",
                sweeps,
                self.tolerance,
            )
        self.weights.copy_(found)
        return {}

    def score_all(self, users: Tensor) -> Tensor:
        """A user's row times the item-item matrix, shape ``(batch, num_items)``."""
        return self.target_rows.bags(users).times(self.weights)
