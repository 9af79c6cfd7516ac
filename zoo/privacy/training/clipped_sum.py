"""Sums of users' gradients, each clipped, without any one user's gradient being written down.

The arithmetic of a private step, before its noise; `zoo.privacy.training.private_gradient` is what protects somebody.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from zoo.privacy.training.user_norms import has_user_norms, user_norms

Losses = Callable[[Tensor], Tensor]
"""Users ``(batch,)`` in, the loss of each ``(batch,)`` out, through one forward pass."""

# Norms come in single precision. What they may be too small by is taken off the clip, so that no user's part exceeds it.
_MARGIN = 1e-5
_AGREES = 1e-3  # how far two ways to compute a number may lie apart before something else than rounding is behind it


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Its parameters that are trained, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _trained_layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Those that have trained parameters of their own, by name."""
    for name, layer in module.named_modules():
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            yield name, layer


def check_module(module: nn.Module) -> None:
    """Refuse a module whose users' gradients would not be what they seem.

    Raises:
        ValueError: If users' outputs depend on each other, a parameter belongs to two layers or is no float32, nothing is
            trained, a layer is in evaluation mode, or no norm is known for a layer.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) or getattr(layer, "track_running_stats", False):
            raise ValueError(
                f"{_called(name, layer)} takes statistics over users, so that a user's gradient depends on the others' data "
                "and clipping it bounds nothing. Use LayerNorm or GroupNorm."
            )
    for name, layer in _trained_layers(module):
        _check_layer(_called(name, layer), layer)
    _check_parameters([named for named in module.named_parameters(remove_duplicate=False) if named[1].requires_grad])


def _called(name: str, layer: nn.Module) -> str:
    return f"{name or 'the module'} ({type(layer).__name__})"


def _check_layer(name: str, layer: nn.Module) -> None:
    if not has_user_norms(layer):
        raise ValueError(
            f"No norm of a user's gradient is known for {name}. Build it of layers such as ItemSum, Linear, Embedding and "
            "LayerNorm, or give it user_norms."
        )
    if next(layer.buffers(recurse=False), None) is not None:
        raise ValueError(f"{name} is trained and has buffers, in which data may stay without noise. Use another layer.")
    if not layer.training:
        raise ValueError(f"{name} is in evaluation mode, in which no gradient is taken user by user. Call train().")


def _check_parameters(named: Sequence[tuple[str, nn.Parameter]]) -> None:
    if not named:
        raise ValueError("The module has no parameter that is trained.")
    if len({id(parameter) for _, parameter in named}) < len(named):
        raise ValueError("Two layers share a parameter: the norms of both parts do not give that of their sum.")
    for name, parameter in named:
        if parameter.dtype != torch.float32:
            raise ValueError(f"{name} is {parameter.dtype}; a private gradient is taken in float32 and nothing less.")


def clipped_sum(
    module: nn.Module, losses: Losses, users: Tensor, clip: float, *, check: bool = False
) -> dict[str, Tensor]:
    """The sum of the users' gradients, each clipped jointly over all trained parameters to an L2 norm of ``clip``.

    Ghost clipping (Lee & Kifer, PoPETs 2021; Li et al., ICLR 2022): ``sum_u min(1, clip / |g_u|) g_u``, by one pass back
    for the norms ``|g_u|``, from each layer's inputs and the gradients of its outputs, and a second one of the losses
    weighted by these factors. So no loss may depend on another user's data. ``.grad`` is not touched, and no hook stays.

    Not private: the sum must not leave without noise.

    Args:
        module: A module that `check_module` lets pass.
        losses: Runs the module forward, once, and gives the loss of each user; each user must be a row of its own, and the
            same one, in every layer.
        users: The users, at least one of them, shape ``(batch,)``.
        clip: Positive.
        check: Whether to see to it that no loss depends on what the layers make of other users, and that the longest of
            the users' gradients, computed by itself, has the norm that was found. Three further passes back.

    Returns:
        A tensor for each trained parameter, by name.

    Raises:
        ValueError: If losses have another shape or no gradient, or a parameter gets none.
        RuntimeError: If the forward pass is not of the form above.
        FloatingPointError: If a gradient is not finite.
    """
    parameters = trainable(module)
    with torch.enable_grad():
        with _recorded(module) as calls:
            values = losses(users)
        _check_losses(values, users)
        norms = _norms(calls, values, parameters)
        if check:
            _check_independent(values, calls.outputs)
            _check_longest(values, list(parameters.values()), norms, clip)
        weights = (clip / (norms * (1 + _MARGIN))).clamp(max=1.0)
        sums = torch.autograd.grad(values, list(parameters.values()), grad_outputs=weights.to(values.dtype))
    if not all(bool(total.isfinite().all()) for total in sums):
        raise FloatingPointError(
            "A user's loss or its gradient is not finite: the training has diverged. Use a smaller learning rate; what was "
            "trained so far must not be published for having stopped here."
        )
    return dict(zip(parameters, sums, strict=True))


def _norms(calls: _Calls, values: Tensor, parameters: Mapping[str, nn.Parameter]) -> Tensor:
    """Each user's norm over all parameters, float64, shape ``(batch,)``."""
    if calls.differentiated:
        raise RuntimeError(
            "The loss takes gradients itself, and their norms would stand for its own. Take a gradient penalty outside of a "
            "private pass, of rows that are no user's."
        )
    # Of the sum of losses, so that each row of a layer's outputs gets the gradient of its own user's loss.
    gradients = (
        torch.autograd.grad(values.sum(), calls.outputs, retain_graph=True, allow_unused=True) if calls.outputs else ()
    )
    found: dict[nn.Parameter, Tensor] = {}
    for layer, inputs, gradient in zip(calls.layers, calls.inputs, gradients, strict=True):
        if gradient is not None:
            found |= user_norms(layer, inputs, gradient)
    if missing := [name for name, parameter in parameters.items() if parameter not in found]:
        raise ValueError(
            f"No user's loss reaches {missing}: they would be trained on noise alone. Freeze them, use them through their "
            "layers' forward, or detach what goes into these."
        )
    for name, parameter in parameters.items():
        if found[parameter].shape != values.shape:
            raise RuntimeError(
                f"{name} saw {len(found[parameter])} rows for {len(values)} users. Every user must be one row in every layer."
            )
    return torch.stack([found[parameter].double().square() for parameter in parameters.values()]).sum(dim=0).sqrt()


def _check_losses(values: Tensor, users: Tensor) -> None:
    if not isinstance(values, Tensor) or values.shape != users.shape:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"The loss must have the shape ({len(users)},), one value per user, got {shape}. A mean or a sum over users has "
            "one gradient, in which no user's part can be clipped."
        )
    if values.dtype != torch.float32:
        raise ValueError(f"The loss is {values.dtype}; a private gradient is taken in float32 and nothing less.")
    if not values.requires_grad:
        raise ValueError("The loss has no gradient: it was detached, or does not depend on the module.")


def _check_independent(values: Tensor, outputs: list[Tensor]) -> None:
    # If each loss depends on its own row alone, then weighting the losses weights the rows' gradients, and nothing else.
    weights = (0.5 + torch.rand(len(values), generator=torch.Generator().manual_seed(0))).to(values)
    plain = torch.autograd.grad(values.sum(), outputs, retain_graph=True)
    weighted = torch.autograd.grad(values, outputs, grad_outputs=weights, retain_graph=True)
    sizes = [max(float(one.abs().max()), float(other.abs().max())) for one, other in zip(plain, weighted, strict=True)]
    for one, other, size in zip(plain, weighted, sizes, strict=True):
        gap = float((other - weights.view(-1, *[1] * (one.ndim - 1)) * one).abs().max())
        if gap > _AGREES * size + 1e-6 * max(sizes):
            raise RuntimeError(
                "The loss of a user depends on the rows of others, as through a mean over the batch: clipping it would bound "
                "nothing. Give each user a loss of its own."
            )


def _check_longest(values: Tensor, parameters: list[nn.Parameter], norms: Tensor, clip: float) -> None:
    place = int(norms.argmax())
    own = torch.autograd.grad(values[place], parameters, retain_graph=True)
    exact = math.sqrt(sum(float(part.double().square().sum()) for part in own))
    if exact > float(norms[place]) * (1 + _AGREES) + 1e-6 * clip:
        raise RuntimeError(
            "A user's gradient is longer than its layers say: a parameter is used outside of its layer's forward, or users "
            "are not in the same order everywhere. Call layers as modules."
        )


class _Calls:
    """Calls of trained layers in one forward pass, in their order.

    Attributes:
        layers: What was called.
        inputs: Of each call, without their gradients.
        outputs: Of each call, shape ``(batch, ...)``.
        differentiated: Whether a gradient has come back through an output.
    """

    def __init__(self) -> None:
        self.layers: list[nn.Module] = []
        self.inputs: list[list[Tensor]] = []
        self.outputs: list[Tensor] = []
        self.differentiated = False

    def note(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        """A forward hook: the output goes on through `_Watch`."""
        if not torch.is_grad_enabled():
            return None
        if layer in self.layers:
            raise RuntimeError("A layer was called twice. One forward pass is all that a private step may take.")
        watched: Tensor = _Watch.apply(output, self)  # type: ignore[no-untyped-call]
        self.layers.append(layer)
        self.inputs.append([given.detach() for given in inputs])
        self.outputs.append(watched)
        return watched


class _Watch(torch.autograd.Function):
    """Identity, which tells `_Calls` of a gradient.

    Torch refuses to change the output of such a function in place: a changed one would have another gradient than the layer's.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, calls: _Calls) -> Tensor:  # noqa: ANN401  torch's own
        """The output."""
        ctx.calls = calls
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        """The gradient."""
        ctx.calls.differentiated = True
        return gradient, None


@contextlib.contextmanager
def _recorded(module: nn.Module) -> Iterator[_Calls]:
    """The calls of a module's trained layers within the block."""
    calls = _Calls()
    handles = [layer.register_forward_hook(calls.note) for _, layer in _trained_layers(module)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
