"""Norms of users' gradients, layer by layer: a layer's own, or what Opacus knows of it. Nothing else touches Opacus.

Of Opacus only the tables of norms and gradients by kind of layer are read. Its hooks, and what they leave on layers and
parameters, are not used, and nothing is registered with it.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class UserwiseLayer(Protocol):
    """A layer that knows its users' gradients, as `zoo.nn.item_sum.ItemSum` does.

    Its ``forward`` takes tensors and nothing else, each with a row per user.
    """

    def user_norms(self, inputs: Sequence[Tensor], gradients: Tensor) -> Mapping[nn.Parameter, Tensor]:
        """L2 norm of each user's gradient, by parameter, shape ``(batch,)``; from inputs and the outputs' gradients."""


def has_user_norms(layer: nn.Module) -> bool:
    """Whether `user_norms` knows the gradients of a layer; of its own parameters, not of those of layers within it."""
    return isinstance(layer, UserwiseLayer) or type(layer) in _opacus().GRAD_SAMPLERS


def user_norms(layer: nn.Module, inputs: Sequence[Tensor], gradients: Tensor) -> Mapping[nn.Parameter, Tensor]:
    """L2 norm of each user's gradient, by parameter, shape ``(batch,)``, of a layer that `has_user_norms`.

    Inputs are what its ``forward`` was given, each ``(batch, ...)``; gradients are of each user's loss with respect to the
    user's own output, ``(batch, ...)``.
    """
    if isinstance(layer, UserwiseLayer):
        return layer.user_norms(inputs, gradients)
    if type(layer) in _opacus().NORM_SAMPLERS:  # without any user's gradient being written down
        found: Mapping[nn.Parameter, Tensor] = _opacus().NORM_SAMPLERS[type(layer)](layer, inputs, gradients)
        return found
    each = _opacus().GRAD_SAMPLERS[type(layer)](layer, inputs, gradients)
    return {parameter: torch.linalg.vector_norm(own.flatten(1), dim=1) for parameter, own in each.items()}


@cache
def _opacus() -> Any:  # noqa: ANN401  opacus has no types
    # Imported here: it takes seconds, and only private training needs it.
    from opacus.grad_sample import GradSampleHooksFastGradientClipping

    return GradSampleHooksFastGradientClipping
