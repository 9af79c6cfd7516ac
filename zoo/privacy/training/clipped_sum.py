"""Sums of users' gradients, each clipped, without any one user's gradient being written down.

The arithmetic of a private step, before its noise; `zoo.privacy.training.private_gradient` is what protects somebody.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from zoo.privacy.training.independence import Losses as Losses
from zoo.privacy.training.independence import check_alone
from zoo.privacy.training.user_norms import has_user_norms, user_norms

# Norms come in single precision. What they may be too small by is taken off the clip, so that no user's part exceeds it.
_MARGIN = 1e-5
_AGREES = 1e-3  # how far two ways to compute a number may lie apart before something else than rounding is behind it


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Its parameters that are trained, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def check_module(module: nn.Module) -> None:
    """Refuse a module whose users' gradients would not be what they seem.

    So one where users' outputs depend on each other, a parameter belongs to two layers or is no float32, nothing is trained,
    a layer is in evaluation mode, or no norm is known for a layer.
    """
    for name, layer in module.named_modules():
        named = f"{name or 'the module'} ({type(layer).__name__})"
        if isinstance(layer, _BatchNorm) or getattr(layer, "track_running_stats", False):
            raise ValueError(
                f"{named} takes statistics over users, so that a user's gradient depends on the others' data and clipping it "
                "bounds nothing. Use LayerNorm or GroupNorm."
            )
        if _trained(layer):
            _check_layer(named, layer)
    parameters = [named for named in module.named_parameters(remove_duplicate=False) if named[1].requires_grad]
    if not parameters:
        raise ValueError("The module has no parameter that is trained.")
    if len({id(parameter) for _, parameter in parameters}) < len(parameters):
        raise ValueError("Two layers share a parameter: the norms of both parts do not give that of their sum.")
    for name, parameter in parameters:
        if parameter.dtype != torch.float32:
            raise ValueError(f"{name} is {parameter.dtype}; a private gradient is taken in float32 and nothing less.")


def _trained(layer: nn.Module) -> bool:
    """Whether it has trained parameters of its own."""
    return any(parameter.requires_grad for parameter in layer.parameters(recurse=False))


def _check_layer(named: str, layer: nn.Module) -> None:
    if not has_user_norms(layer):
        raise ValueError(
            f"No norm of a user's gradient is known for {named}. Build it of layers such as ItemSum, Linear, Embedding and "
            "LayerNorm, or give it user_norms."
        )
    if next(layer.buffers(recurse=False), None) is not None:
        raise ValueError(
            f"{named} is trained and has buffers, in which data may stay without noise. Use another layer."
        )
    if not layer.training:
        raise ValueError(f"{named} is in evaluation mode, in which no gradient is taken user by user. Call train().")


def clipped_sum(
    module: nn.Module, losses: Losses, users: Tensor, clip: float, *, check: bool = False
) -> dict[str, Tensor]:
    """The sum of the users' gradients, each clipped jointly over all trained parameters to an L2 norm of ``clip``.

    Ghost clipping (Lee & Kifer, PoPETs 2021; Li et al., ICLR 2022): ``sum_u min(1, clip / |g_u|) g_u``, by one pass back
    for the norms ``|g_u|``, from each layer's inputs and the gradients of its outputs, and a second one of the losses
    weighted by these factors. So no loss may depend on another user's data. ``.grad`` is not touched, and no hook stays.

    Not private: the sum, a tensor for each trained parameter by name, must not leave without noise.

    The module is one that `check_module` lets pass. ``losses`` runs it forward, once, and gives the loss of each of at least
    one user ``(batch,)``, who must be a row of its own, and the same one, in every layer. With ``check`` it is seen to that no
    loss depends on what the layers make of other users, that the longest of the users' gradients, computed by itself, has the
    norm that was found, and that losses are the same beside other users (`check_alone`): one further pass forward, four back.

    Raises:
        ValueError: If losses have another shape or no gradient, or a parameter gets none.
        RuntimeError: If the forward pass is not of the form above.
        FloatingPointError: If a gradient is not finite.
    """
    parameters = trainable(module)
    random_state = torch.get_rng_state()
    with torch.enable_grad():
        with _recorded(module) as calls:
            values = losses(users)
        _check_losses(values, users)
        # Of the sum of losses, so that each row of a layer's outputs gets the gradient of its own user's loss.
        outputs = [call.output for call in calls]
        gradients = torch.autograd.grad(values.sum(), outputs, retain_graph=True, allow_unused=True) if calls else ()
        norms = _norms(calls, gradients, values, parameters)
        if check:
            _check_independent(values, outputs, gradients)
            _check_longest(values, list(parameters.values()), norms, clip)
            if len(users) > 1:
                check_alone(losses, users, values, list(parameters.values()), random_state)
        # min(1, clip / |g_u|), shape (batch,): by linearity the weight of a user's loss is that of the user's gradient.
        weights = (clip / (norms * (1 + _MARGIN))).clamp(max=1.0)
        sums = torch.autograd.grad(values, list(parameters.values()), grad_outputs=weights.to(values.dtype))
    if not all(bool(total.isfinite().all()) for total in sums):
        raise FloatingPointError(
            "A user's loss or its gradient is not finite: the training has diverged. Use a smaller learning rate; what was "
            "trained so far must not be published for having stopped here."
        )
    return dict(zip(parameters, sums, strict=True))


def _norms(
    calls: Sequence[_Call], gradients: Sequence[Tensor], values: Tensor, parameters: Mapping[str, nn.Parameter]
) -> Tensor:
    """Each user's norm over all parameters, float64, shape ``(batch,)``."""
    found: dict[nn.Parameter, Tensor] = {}
    for call, gradient in zip(calls, gradients, strict=True):
        if gradient is not None:  # of a layer that no loss uses
            found |= user_norms(call.layer, call.inputs, gradient)
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


def _check_independent(values: Tensor, outputs: Sequence[Tensor], plain: Sequence[Tensor]) -> None:
    # If each loss depends on its own row alone, then weighting the losses weights the rows' gradients, and nothing else.
    weights = (0.5 + torch.rand(len(values), generator=torch.Generator().manual_seed(0))).to(values)
    weighted = torch.autograd.grad(values, outputs, grad_outputs=weights, retain_graph=True)
    sizes = [float(torch.stack([one, other]).abs().max()) for one, other in zip(plain, weighted, strict=True)]
    for one, other, size in zip(plain, weighted, sizes, strict=True):
        gap = float((other - weights.view(-1, *[1] * (one.ndim - 1)) * one).abs().max())
        if gap > _AGREES * size + 1e-6 * max(sizes):
            raise RuntimeError(
                "The loss of a user depends on the rows of others, as through a mean over the batch: clipping it would bound "
                "nothing. Give each user a loss of its own."
            )


def _check_longest(values: Tensor, parameters: list[nn.Parameter], norms: Tensor, clip: float) -> None:
    # The one that clipping matters most for; all others would take a pass back each.
    place = int(norms.argmax())
    own = torch.autograd.grad(values[place], parameters, retain_graph=True)
    exact = math.sqrt(sum(float(part.double().square().sum()) for part in own))
    if exact > float(norms[place]) * (1 + _AGREES) + 1e-6 * clip:
        raise RuntimeError(
            "A user's gradient is longer than its layers say: a parameter is used outside of its layer's forward, or users "
            "are not in the same order everywhere. Call layers as modules."
        )


class _Call(NamedTuple):
    """A trained layer in a forward pass, its inputs without their gradients, and its output, shape ``(batch, ...)``."""

    layer: nn.Module
    inputs: list[Tensor]
    output: Tensor


@contextlib.contextmanager
def _recorded(module: nn.Module) -> Iterator[list[_Call]]:
    """The calls of a module's trained layers within the block, which may take no gradient itself."""
    calls: list[_Call] = []
    early: list[bool] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            raise RuntimeError(
                "A trained layer was called without gradients inside a private pass. What it says of some users could enter "
                "the losses of others, which no clip would bound: call it outside."
            )
        if any(call.layer is layer for call in calls):
            raise RuntimeError("A layer was called twice. One forward pass is all that a private step may take.")
        watched: Tensor = _Watch.apply(output, early)  # type: ignore[no-untyped-call]
        calls.append(_Call(layer, [given.detach() for given in inputs], watched))
        return watched

    handles = [layer.register_forward_hook(note) for layer in module.modules() if _trained(layer)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
    if early:
        raise RuntimeError(
            "The loss takes gradients itself, and their norms would stand for its own. Take a gradient penalty outside of a "
            "private pass, of rows that are no user's."
        )


class _Watch(torch.autograd.Function):
    """Identity that notes when a gradient comes back; torch refuses to change its output in place.

    A changed output would have another gradient than the layer's.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, back: list[bool]) -> Tensor:  # noqa: ANN401  torch's own
        """The output."""
        ctx.back = back
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        """The gradient."""
        ctx.back.append(True)
        return gradient, None
