"""Gradient reversal: features are learned from which a classifier cannot tell where they come from."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.nn.towers import relu_layers


def reverse_gradient(inputs: Tensor, weight: float) -> Tensor:
    """The inputs, whose gradient goes back with its sign turned, times ``weight``.

    Reference: Ganin et al., *Domain-Adversarial Training of Neural Networks*, JMLR 2016, section 4.2.
    """
    reversed_: Tensor = _Reversed.apply(inputs, weight)  # type: ignore[no-untyped-call]
    return reversed_


class DomainClassifier(nn.Module):
    """Tells from features (batch, in_dim) which of ``num_domains`` they come from, and teaches them not to tell.

    Its own weights go down its cross-entropy, whatever made the features goes up it: one backward pass does both, and one
    optimiser steps for both. ``dims`` are the widths of its hidden layers, with ReLU. With one domain there is nothing to tell,
    and the loss is 0.

    Reference: Ganin et al., JMLR 2016, equations 13 to 17; there ``weight`` is lambda.
    """

    def __init__(self, in_dim: int, dims: Sequence[int], num_domains: int) -> None:
        super().__init__()
        first, *rest = *dims, num_domains
        self.layers = nn.Sequential(nn.Linear(in_dim, first), *relu_layers([first, *rest]))

    def loss(self, features: Tensor, domains: Tensor, weight: float) -> Tensor:
        """Cross-entropy of the domains (batch,) of features (batch, in_dim), summed; 0 of nobody."""
        logits = self.layers(reverse_gradient(features, weight))
        return F.cross_entropy(logits, domains, reduction="sum")


class _Reversed(torch.autograd.Function):
    """Identity forward, minus ``weight`` times the gradient backward."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: float) -> Tensor:  # noqa: ANN401
        ctx.weight = weight
        return inputs.view_as(inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return -ctx.weight * gradient, None
