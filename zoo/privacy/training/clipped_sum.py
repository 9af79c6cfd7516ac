"""Sums of clipped per-user gradients, without storing any single user's gradient.

The arithmetic of a private step before its noise. `zoo.privacy.training.private_gradient` adds the protection.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import _has_any_global_hook

from zoo.privacy.training.independence import Losses as Losses
from zoo.privacy.training.independence import check_alone
from zoo.privacy.training.random_draws import RandomDraws
from zoo.privacy.training.user_norms import has_user_norms, unknown_setting, user_norms

# Gradients are in single precision; the usual error of their norms is taken off the clip.
_MARGIN = 1e-5
_AGREES = 1e-3  # tolerance of rounding between two ways to compute a number


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trained parameters of a module, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def check_module(module: nn.Module) -> None:
    """Refuse a module whose per-user gradients would be wrong.

    That is: users' outputs depend on each other, a parameter belongs to two layers or is not float32, nothing is trained, a
    layer is in evaluation mode, a layer's norm is unknown, or a hook may change a gradient or see one before the noise.
    """
    if _has_any_global_hook():  # type: ignore[no-untyped-call]  # torch's
        raise ValueError("torch has hooks for all modules. Remove them.")
    for name, layer in module.named_modules():
        named = f"{name or 'the module'} ({type(layer).__name__})"
        if isinstance(layer, _BatchNorm) or getattr(layer, "track_running_stats", False):
            raise ValueError(f"{named} computes statistics over users. Use LayerNorm or GroupNorm.")
        if _is_hooked(layer):
            raise ValueError(f"{named} has hooks, as of wandb.watch, which act before the noise. Remove them.")
        if _trained(layer):
            _check_layer(named, layer)
    parameters = [named for named in module.named_parameters(remove_duplicate=False) if named[1].requires_grad]
    if not parameters:
        raise ValueError("The module has no trained parameter.")
    if len({id(parameter) for _, parameter in parameters}) < len(parameters):
        raise ValueError("Two layers share a parameter. Give each layer its own.")
    for name, parameter in parameters:
        if parameter.dtype != torch.float32:
            raise ValueError(f"{name} is {parameter.dtype}. A private gradient needs float32.")


def _trained(layer: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in layer.parameters(recurse=False))


def _is_hooked(layer: nn.Module) -> bool:
    hooks: list[Any] = [layer._backward_hooks, layer._backward_pre_hooks]
    for own in layer.parameters(recurse=False):
        hooks += [own._backward_hooks or {}, getattr(own, "_post_accumulate_grad_hooks", None) or {}]
    if _trained(layer):  # others' outputs are compared, whatever makes them
        hooks += [layer._forward_hooks, layer._forward_pre_hooks, {"forward"} & vars(layer).keys()]
    return any(hooks)


def _check_layer(named: str, layer: nn.Module) -> None:
    if not has_user_norms(layer):
        named += f" with {setting}" if (setting := unknown_setting(layer)) else ""
        raise ValueError(f"The norm of a user's gradient is unknown for {named}. Define user_norms.")
    if next(layer.buffers(recurse=False), None) is not None:
        raise ValueError(f"{named} is trained and has buffers, which may store data. Replace it.")
    if not layer.training:
        raise ValueError(f"{named} is in evaluation mode. Call train() first.")


def clipped_sum(
    module: nn.Module,
    losses: Losses,
    users: Tensor,
    clip: float,
    *,
    check: bool = False,
    resized: bool = True,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Return the sum of the users' gradients, each clipped jointly over all trained parameters to an L2 norm of ``clip``.

    Ghost clipping (Lee & Kifer, PoPETs 2021; Li et al., ICLR 2022): ``sum_u min(1, clip / |g_u|) g_u``. One backward pass gives
    the norms ``|g_u|`` from each layer's inputs and output gradients; a second one, of losses weighted by these factors, gives
    the sum. So no loss may depend on another user's data. ``.grad`` is not changed, and no hook remains.

    Not private: the sum must not leave without noise.

    Args:
        module: A module that `check_module` accepts.
        losses: Runs the module forward, once, and returns the loss of each user ``(batch,)``. Each user must be one row, the
            same in every layer.
        users: At least one user, ``(batch,)``.
        clip: L2 norm.
        check: Check with one further forward pass and five backward passes, and half of two more if ``resized``, that no loss
            depends on other users' layer outputs, that the longest gradient and a random user's have the computed norms, and
            `check_alone`.
        resized: Of `check_alone`.
        seed: Of torch's random numbers in ``losses``. It must be secret, since they depend on places in the sample.

    Returns:
        The sum, a tensor for each trained parameter by name.

    Raises:
        ValueError: If losses have another shape or no gradient, or a parameter gets none.
        RuntimeError: If the forward pass does not have this form.
        FloatingPointError: If a gradient is not finite.
    """
    parameters = trainable(module)
    draws = RandomDraws(seed, next(iter(parameters.values())).device)
    before = _state_of(module, values=check)
    with torch.enable_grad():
        with _recorded(module) as calls, draws.once():
            values = losses(users)
        _check_losses(values, users)
        if changed := _changed(module, before, values=check):
            raise RuntimeError(
                f"The forward pass changes {changed[0]}. Omit max_norm; keep counters as plain numbers. Publish nothing."
            )
        # Of the sum of losses, so that each row of a layer's outputs gets the gradient of its own user's loss.
        outputs = [call.output for call in calls]
        gradients = torch.autograd.grad(values.sum(), outputs, retain_graph=True, allow_unused=True) if calls else ()
        norms = _norms(calls, gradients, values, parameters)
        _check_paths(values, calls, parameters)
        _check_finite(values, norms)
        # min(1, clip / |g_u|), shape (batch,): by linearity the weight of a user's loss is that of the user's gradient.
        weights = (clip / (norms * (1 + _MARGIN))).clamp(max=1.0)
        factors = weights.to(values.dtype)
        # Before checks: these call the losses again, which may overwrite a buffer that they fill with rows.
        sums = torch.autograd.grad(values, list(parameters.values()), grad_outputs=factors, retain_graph=check)
        if check:
            _check_independent(values, outputs, gradients, factors)
            _check_users(values, list(parameters.values()), norms, clip)
            check_alone(losses, users, values, factors, list(parameters.values()), draws, clip, resized=resized)
    _check_finite(*sums)
    _check_length(sums, clip * len(users), clip)
    return dict(zip(parameters, sums, strict=True))


def _state_of(module: nn.Module, *, values: bool) -> dict[str, tuple[Tensor, int, Tensor | None]]:
    """Return each parameter and buffer, frozen ones too, how often it was changed in place, and on demand a copy."""
    parts = (*module.named_parameters(), *module.named_buffers())
    found = {}
    for name, part in parts:
        comparable = part.layout is torch.strided and not part.is_meta and not part.is_quantized
        copy = part.detach().clone() if values and comparable else None
        found[name] = part, 0 if part.is_inference() else part._version, copy
    return found


def _bits(part: Tensor) -> Tensor:
    return part.detach().reshape(-1).view(torch.uint8)


def _changed(module: nn.Module, before: Mapping[str, tuple[Tensor, int, Tensor | None]], *, values: bool) -> list[str]:
    """Return the names of parameters and buffers that are others now; by value if it is asked for, as `data` counts no change."""
    found = []
    for name, (part, version, _) in _state_of(module, values=False).items():
        known, counted, copy = before.get(name, (None, 0, None))
        same = known is part and counted == version
        if not same or (values and copy is not None and not torch.equal(*map(_bits, (copy, part)))):
            found.append(name)
    return found


def _check_finite(*found: Tensor) -> None:
    if not all(bool(each.isfinite().all()) for each in found):
        raise FloatingPointError("A user's gradient is not finite. Lower lr; publish nothing.")


def _norms(
    calls: Sequence[_Call], gradients: Sequence[Tensor], values: Tensor, parameters: Mapping[str, nn.Parameter]
) -> Tensor:
    """Return each user's norm over all parameters, float64, ``(batch,)``."""
    found: dict[nn.Parameter, Tensor] = {}
    for call, gradient in zip(calls, gradients, strict=True):
        if gradient is not None:  # None: a layer that no loss uses
            found |= user_norms(call.layer, call.inputs, gradient)
    if missing := [name for name, parameter in parameters.items() if parameter not in found]:
        raise ValueError(f"No user's loss reaches {missing}. Freeze these, or use their layers' forward.")
    for name, parameter in parameters.items():
        if found[parameter].shape != values.shape:
            raise RuntimeError(f"{name} has {len(found[parameter])} rows for {len(values)} users.")
    return torch.stack([found[parameter].double().square() for parameter in parameters.values()]).sum(dim=0).sqrt()


def _check_losses(values: Tensor, users: Tensor) -> None:
    if not isinstance(values, Tensor) or values.shape != users.shape:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"The loss has shape {shape}. Allowed: ({len(users)},), one per user.")
    if values.dtype != torch.float32:
        raise ValueError(f"The loss is {values.dtype}. A private gradient needs float32.")
    if not values.requires_grad:
        raise ValueError("The loss has no gradient. Use the module's outputs undetached.")


def _check_paths(values: Tensor, calls: Sequence[_Call], parameters: Mapping[str, nn.Parameter]) -> None:
    # A norm is that of the gradient through the recorded output, with fixed inputs. So every path from the losses to a layer's
    # parameter must pass its output, and none its inputs.
    marks = {call.output.grad_fn: 1 << place for place, call in enumerate(calls)}
    homes = {id(own): 1 << place for place, call in enumerate(calls) for own in call.layer.parameters(recurse=False)}
    inlets: dict[Any, int] = {}
    for place, call in enumerate(calls):
        for node in call.origins:
            inlets[node] = inlets.get(node, 0) | 1 << place
    passed, entered = (
        {values.grad_fn: 0},
        {values.grad_fn: 0},
    )  # by node: outputs on all paths to it, inputs on any, as bits
    nodes = _sorted_graph(values)
    for node in nodes:
        through = passed[node] | marks.get(node, 0)
        entered[node] |= inlets.get(node, 0)
        for child, _ in node.next_functions:
            if child is not None:
                passed[child] = passed.get(child, through) & through
                entered[child] = entered.get(child, 0) | entered[node]
    outside = {
        id(node.variable)
        for node in nodes
        if hasattr(node, "variable") and not passed[node] & ~entered[node] & homes.get(id(node.variable), 0)
    }
    for name, parameter in parameters.items():
        if id(parameter) in outside:
            raise RuntimeError(f"{name} is used outside forward. Call its layer.")


def _sorted_graph(values: Tensor) -> list[Any]:
    """Return the nodes of a tensor's graph, each after all nodes that lead to it."""
    done: list[Any] = []
    root: Any = values.grad_fn
    seen, open_nodes = {root}, [(root, iter(root.next_functions))]
    while open_nodes:
        for child, _ in open_nodes[-1][1]:
            if child is not None and child not in seen:
                seen.add(child)
                open_nodes.append((child, iter(child.next_functions)))
                break
        else:
            done.append(open_nodes.pop()[0])
    return done[::-1]


def _check_independent(values: Tensor, outputs: Sequence[Tensor], plain: Sequence[Tensor], factors: Tensor) -> None:
    # If each loss depends on its own row alone, weighting the losses only weights the rows' gradients. Clipping factors in
    # the weights: large losses of some users must not hide others.
    weights = (0.5 + torch.rand(len(values), generator=torch.Generator().manual_seed(0))).to(values) * factors
    weighted = torch.autograd.grad(values, outputs, grad_outputs=weights, retain_graph=True)
    expected = [weights.view(-1, *[1] * (one.ndim - 1)) * one for one in plain]
    sizes = [float(torch.stack([one, other]).abs().max()) for one, other in zip(expected, weighted, strict=True)]
    for one, other, size in zip(expected, weighted, sizes, strict=True):
        if float((other - one).abs().max()) > _AGREES * size + 1e-6 * max(sizes):
            raise RuntimeError("A user's loss depends on rows of others. Give each its own.")


def _check_users(values: Tensor, parameters: list[nn.Parameter], norms: Tensor, clip: float) -> None:
    # The longest gradient, which clipping matters most for, and a random other; all would need a backward pass each.
    places = [int(norms.argmax())]
    if len(values) > 1:
        places.append((places[0] + 1 + secrets.randbelow(len(values) - 1)) % len(values))
    for place in places:
        own = torch.autograd.grad(values[place], parameters, retain_graph=True)
        _check_length(own, max(float(norms[place]), clip), clip)  # up to the clip a user's weight is 1


def _check_length(parts: Sequence[Tensor], bound: float, clip: float) -> None:
    exact = math.hypot(*(float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in parts))
    if exact > bound * (1 + _AGREES) + 1e-6 * clip:
        raise RuntimeError("A user's gradient exceeds its computed norm. Check user_norms.")


class _Call(NamedTuple):
    """A trained layer's call: its inputs without gradients, and its output, ``(batch, ...)``; nodes that the inputs came from."""

    layer: nn.Module
    inputs: list[Tensor]
    output: Tensor
    origins: list[Any]


@contextlib.contextmanager
def _recorded(module: nn.Module) -> Iterator[list[_Call]]:
    """Record the calls of a module's trained layers within the block, which may compute no gradient itself."""
    calls: list[_Call] = []
    early: list[bool] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            raise RuntimeError("A trained layer was called without gradients inside a private pass.")
        if torch.is_autocast_enabled(output.device.type):
            raise RuntimeError("A trained layer was called under autocast. Remove it.")
        if any(call.layer is layer for call in calls):
            raise RuntimeError("A layer was called twice. A private step is one forward pass.")
        watched: Tensor = _Watch.apply(output, early)  # type: ignore[no-untyped-call]
        origins = [get_gradient_edge(given).node for given in inputs if given.requires_grad]
        calls.append(_Call(layer, [given.detach() for given in inputs], watched, origins))
        return watched

    handles = [layer.register_forward_hook(note) for layer in module.modules() if _trained(layer)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
    if early:
        raise RuntimeError("The loss computes gradients itself. Compute penalties outside.")


class _Watch(torch.autograd.Function):
    """Identity that records when a gradient comes back; torch refuses to change its output in place."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, back: list[bool]) -> Tensor:  # noqa: ANN401  torch's own
        ctx.back = back
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        ctx.back.append(True)
        return gradient, None
