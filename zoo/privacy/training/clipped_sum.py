"""Sums of users' gradients, each clipped, without any one user's gradient being written down.

The arithmetic of a private step, before its noise; `zoo.privacy.training.private_gradient` is what protects somebody.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Losses = Callable[[Tensor], Tensor]
"""Users ``(batch,)`` in, the loss of each ``(batch,)`` out, through one forward pass."""

# Norms come in single precision. What they may be too small by is taken off the clip, so that no user's part exceeds it.
_MARGIN = 1e-5
_AGREES = 1e-3  # how far two ways to compute a number may lie apart before something else than rounding is behind it


@runtime_checkable
class UserwiseLayer(Protocol):
    """A layer that knows its users' gradients, as `zoo.nn.item_sum.ItemSum` does.

    Its ``forward`` takes tensors and nothing else, each with a row per user.
    """

    def user_norms(self, inputs: Sequence[Tensor], gradients: Tensor) -> dict[nn.Parameter, Tensor]:
        """L2 norm of each user's gradient, by parameter, shape ``(batch,)``; from inputs and the outputs' gradients."""

    def user_gradients(self, inputs: Sequence[Tensor], gradients: Tensor) -> dict[nn.Parameter, Tensor]:
        """Each user's gradient, by parameter, shape ``(batch, *parameter)``."""


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Its parameters that are trained, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def check_module(module: nn.Module) -> None:
    """Refuse a module whose users' gradients would not be what they seem.

    Raises:
        ValueError: If users' outputs depend on each other, a parameter belongs to two layers or is no float32, nothing is
            trained, a layer is in evaluation mode, or no norm is known for a layer.
    """
    samplers = _hooks_class().GRAD_SAMPLERS
    for name, layer in module.named_modules():
        kind = f"{name or 'the module'} ({type(layer).__name__})"
        if isinstance(layer, _BatchNorm) or (getattr(layer, "track_running_stats", False)):
            raise ValueError(
                f"{kind} takes statistics over users, so that a user's gradient depends on the others' data and clipping "
                "it bounds nothing. Use LayerNorm or GroupNorm."
            )
        if not any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            continue
        if not isinstance(layer, UserwiseLayer) and type(layer) not in samplers:
            raise ValueError(
                f"No norm of a user's gradient is known for {kind}. Build it of layers such as ItemSum, Linear, Embedding and "
                "LayerNorm, or give it user_norms and user_gradients."
            )
        if next(layer.buffers(recurse=False), None) is not None:
            raise ValueError(
                f"{kind} is trained and has buffers, in which data may stay without noise. Use another layer."
            )
        if not layer.training:
            raise ValueError(f"{kind} is in evaluation mode, in which no gradient is taken user by user. Call train().")
    named = [entry for entry in module.named_parameters(remove_duplicate=False) if entry[1].requires_grad]
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

    Ghost clipping: one pass back finds the norms, from each layer's inputs and the gradients of its outputs, a second one
    the sum of the losses weighted by what clipping leaves of each (Lee & Kifer, PoPETs 2021; Li et al., ICLR 2022). So no
    loss may depend on another user's data. Nothing is kept: neither hooks nor norms, and ``.grad`` is not touched.

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
        with _recorded(module) as hooks, _outputs(module, wanted=check) as outputs:
            try:
                values = losses(users)
            except NotImplementedError as error:
                raise RuntimeError(
                    "A layer was called twice. One forward pass is all that a private step may take."
                ) from error
            _check_losses(values, users)
            norms = _norms(module, values, parameters)
            hooks.disable_hooks()
            if check:
                _check_independent(values, outputs)
                _check_longest(values, list(parameters.values()), norms, clip)
        weights = (clip / (norms * (1 + _MARGIN))).clamp(max=1.0)
        sums = torch.autograd.grad(values, list(parameters.values()), grad_outputs=weights.to(values.dtype))
    if not all(bool(total.isfinite().all()) for total in sums):
        raise FloatingPointError(
            "A user's loss or its gradient is not finite: the training has diverged. Use a smaller learning rate; what was "
            "trained so far must not be published for having stopped here."
        )
    return dict(zip(parameters, sums, strict=True))


def _norms(module: nn.Module, values: Tensor, parameters: dict[str, nn.Parameter]) -> Tensor:
    """Each user's norm over all parameters, float64, shape ``(batch,)``."""
    # The way back to the smallest parameter of a layer passes its outputs; the others' gradients need not be computed.
    trained = [[p for p in layer.parameters(recurse=False) if p.requires_grad] for layer in module.modules()]
    smallest = [min(own, key=torch.Tensor.numel) for own in trained if own]
    if any(hasattr(parameter, "_norm_sample") for parameter in parameters.values()):
        raise RuntimeError(
            "The loss takes gradients itself, and their norms would stand for its own. Take a gradient penalty outside of a "
            "private pass, of rows that are no user's."
        )
    torch.autograd.grad(values.sum(), smallest, retain_graph=True, allow_unused=True)
    found = {name: getattr(parameter, "_norm_sample", None) for name, parameter in parameters.items()}
    if missing := [name for name, norms in found.items() if norms is None]:
        raise ValueError(
            f"No user's loss reaches {missing}: they would be trained on noise alone. Freeze them, use them through their "
            "layers' forward, or detach what goes into these."
        )
    for name, norms in found.items():
        if norms is not None and norms.shape != values.shape:
            raise RuntimeError(
                f"{name} saw {len(norms)} rows for {len(values)} users. Every user must be one row in every layer."
            )
    squares = torch.stack([norms.double().square() for norms in found.values() if norms is not None])
    return squares.sum(dim=0).sqrt()


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


@contextlib.contextmanager
def _outputs(module: nn.Module, *, wanted: bool) -> Iterator[list[Tensor]]:
    """Outputs of the trained layers, as the forward pass makes them."""
    outputs: list[Tensor] = []
    handles = []
    for layer in module.modules() if wanted else ():
        if any(parameter.requires_grad for parameter in layer.parameters(recurse=False)):
            handles.append(layer.register_forward_hook(lambda _layer, _inputs, output: outputs.append(output)))
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def _recorded(module: nn.Module) -> Iterator[Any]:
    """Opacus' hooks on the module's layers, and no trace of them afterwards."""
    from opacus.grad_sample import register_grad_sampler, register_norm_sampler  # imported here, see below

    for kind in {type(layer) for layer in module.modules() if isinstance(layer, UserwiseLayer)}:
        register_norm_sampler(kind)(_norms_of)
        register_grad_sampler(kind)(_gradients_of)
    hooks = _hooks_class()(module, loss_reduction="sum")
    try:
        yield hooks
    finally:
        hooks.cleanup()
        for layer in module.modules():
            for name in ("activations", "max_batch_len"):
                if hasattr(layer, name):
                    delattr(layer, name)


@cache
def _hooks_class() -> Any:  # noqa: ANN401  opacus has no types
    # Imported here: it takes seconds, and only private training needs it.
    from opacus.grad_sample import GradSampleHooksFastGradientClipping

    # The rows that a first layer reads have no gradient; its hook is called all the same, which is what is wanted.
    warnings.filterwarnings("ignore", message="Full backward hook is firing when gradients are computed")

    return GradSampleHooksFastGradientClipping


def _norms_of(layer: UserwiseLayer, inputs: Sequence[Tensor], gradients: Tensor) -> dict[nn.Parameter, Tensor]:
    return layer.user_norms(inputs, gradients)


def _gradients_of(layer: UserwiseLayer, inputs: Sequence[Tensor], gradients: Tensor) -> dict[nn.Parameter, Tensor]:
    return layer.user_gradients(inputs, gradients)
