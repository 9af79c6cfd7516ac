"""Check that each user's loss depends on that user alone, as clipping requires."""

import secrets
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Losses = Callable[[Tensor], Tensor]
"""Map users ``(batch,)`` to the loss of each ``(batch,)``, through one forward pass."""

# Tolerances of rounding between batches of the same shape.
_VALUES, _GRADIENTS = 1e-5, 1e-4


def check_alone(
    losses: Losses, users: Tensor, values: Tensor, factors: Tensor, parameters: Sequence[Tensor], random_state: Tensor
) -> None:
    """Check that no user's data reach another user's loss, not even as a number without a gradient.

    Half of the users, chosen by system entropy, are replaced by copies of the others, and the losses are computed again. The
    others' losses and gradients must stay the same. This detects losses that depend on a batch mean, a rank, another user's
    detached score, or earlier calls. Each user counts as after clipping, so large losses do not hide others.

    A dependence between two users is detected with a probability of at least a quarter, independently in each call, if the
    replacement changes the sum of the others' clipped gradients by a thousandth of some parameter's largest entry. Data from
    outside of the batch, such as a mean over all ratings, are not detected. Costs one further forward pass and two backward
    passes. Its results must not be shown.

    Args:
        losses: Function of `clipped_sum`; called with users in any order, some several times.
        users: At least two different users, ``(batch,)``.
        values: Their losses, finite, whose graph is retained, ``(batch,)``.
        factors: By how much clipping shortens each user's gradient, in [0, 1], ``(batch,)``.
        parameters: The trained parameters.
        random_state: Torch's CPU random state before the values were computed; it is restored.

    Raises:
        RuntimeError: If a loss or its gradient changes with the other users.
    """
    # A predictable seed would reveal which calls are checked.
    chance = torch.Generator().manual_seed(secrets.randbits(63))
    order = torch.randperm(len(users), generator=chance).to(users.device)
    gone, kept = order[: len(users) // 2], order[len(users) // 2 :]
    others = users.clone()
    others[gone] = users[kept[: len(gone)]]
    with torch.random.fork_rng(devices=[]):  # random dropout is no dependence
        torch.set_rng_state(random_state)
        again = losses(others)
    weights = torch.zeros_like(values)
    weights[kept] = (0.5 + torch.rand(len(kept), generator=chance)).to(weights) * factors[kept]
    found = [
        torch.autograd.grad(each, parameters, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
        for each in (values, again)
    ]
    apart = False
    for scale in (torch.ones_like(factors), factors):
        before, after = values.detach() * scale, again.detach() * scale
        apart |= not float((after - before)[kept].abs().max()) <= _VALUES * float(before.abs().max())  # nor NaN
    for one, other in zip(*found, strict=True):
        apart |= float((other - one).abs().max()) > _GRADIENTS * float(torch.maximum(one.abs(), other.abs()).max())
    if apart:
        raise RuntimeError("A user's loss changes with the batch's other users. Use its own data.")
