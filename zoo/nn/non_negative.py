"""Sparse non-negative regression of every item on all others, by coordinate descent on the items' Gram matrix."""

import torch
from torch import Tensor

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
