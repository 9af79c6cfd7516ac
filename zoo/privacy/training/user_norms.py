"""Norms of users' gradients, layer by layer: from the layer itself or from Opacus.

Only Opacus's tables of norms and gradients by kind of layer are read. Its hooks and attributes are not used, and nothing is
registered with it.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class UserwiseLayer(Protocol):
    """A layer that computes its users' gradient norms, such as `zoo.nn.item_sum.ItemSum`.

    Its ``forward`` takes only tensors, each with a row per user.
    """

    def user_norms(self, inputs: Sequence[Tensor], gradients: Tensor) -> Mapping[nn.Parameter, Tensor]:
        """Return the L2 norm of each user's gradient, by parameter, ``(batch,)``, from inputs and the outputs' gradients."""


# Layers whose norms in Opacus equal those of a loop over users. That of nn.EmbeddingBag is too small where an id repeats.
_LAYERS = (
    *(nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)
# Settings that Opacus's norms ignore: other padding has another gradient, scale_grad_by_freq counts other users' items, max_norm
# changes the weights of a user's items without noise, and padding_idx has no gradient. Sparse sums cannot get noise.
_REQUIRED = {
    "padding_mode": "zeros",
    "scale_grad_by_freq": False,
    "max_norm": None,
    "padding_idx": None,
    "sparse": False,
}


def unknown_setting(layer: nn.Module) -> str | None:
    """Return the first setting under which Opacus's norms of a layer are wrong, as ``name=value``, or None."""
    if isinstance(layer, UserwiseLayer):
        return None
    if isinstance(layer, nn.LayerNorm) and "bias" not in dict(layer.named_parameters()):  # Opacus reads it
        return "bias=False"
    found = {name: getattr(layer, name, usual) for name, usual in _REQUIRED.items()}
    return next((f"{name}={value!r}" for name, value in found.items() if value != _REQUIRED[name]), None)


def has_user_norms(layer: nn.Module) -> bool:
    """Whether `user_norms` supports a layer's own parameters, without those of layers within it."""
    return isinstance(layer, UserwiseLayer) or (type(layer) in _LAYERS and not unknown_setting(layer))


def user_norms(layer: nn.Module, inputs: Sequence[Tensor], gradients: Tensor) -> Mapping[nn.Parameter, Tensor]:
    """Return the L2 norm of each user's gradient, by parameter, ``(batch,)``, of a supported layer.

    Args:
        layer: A layer that `has_user_norms` accepts.
        inputs: Inputs of its ``forward``, each ``(batch, ...)``.
        gradients: Gradient of each user's loss with respect to the user's own output, ``(batch, ...)``.
    """
    if isinstance(layer, UserwiseLayer):
        return layer.user_norms(inputs, gradients)
    direct = False
    if isinstance(layer, nn.Linear) and gradients.ndim > 2:  # sums over a sequence, which may cancel
        inputs, gradients = [given.double() for given in inputs], gradients.double()
        # A user's gradient may be smaller than the inputs and gradients of the sequence; then it is also faster.
        places, width, height = gradients[0, ..., 0].numel(), layer.in_features, layer.out_features
        direct = gradients.ndim > 3 or places * (width + height) > width * height
    if type(layer) in _opacus().NORM_SAMPLERS and not direct:  # without storing any user's gradient
        found: Mapping[nn.Parameter, Tensor] = _opacus().NORM_SAMPLERS[type(layer)](layer, inputs, gradients)
        return found
    each = _opacus().GRAD_SAMPLERS[type(layer)](layer, inputs, gradients)
    return {parameter: torch.linalg.vector_norm(own.flatten(1), dim=1) for parameter, own in each.items()}


@cache
def _opacus() -> Any:  # noqa: ANN401  opacus has no types
    # Imported here: it takes seconds, and only private training needs it.

    from opacus.grad_sample import GradSampleHooksFastGradientClipping

    return GradSampleHooksFastGradientClipping
