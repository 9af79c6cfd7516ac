"""Check that each user's loss depends on that user alone, as clipping requires."""

import contextlib
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from zoo.privacy.training.random_draws import RandomDraws, UnknownDrawError

Losses = Callable[[Tensor], Tensor]
"""Map users ``(batch,)``, in any order, some several times, to the loss of each ``(batch,)``, through one forward pass."""

# Tolerances of rounding: between batches of the same shape, and between gradients of batches of different shapes.
_VALUES, _GRADIENTS, _SHAPES = 1e-5, 1e-4, 1e-2


def check_alone(
    losses: Losses,
    users: Tensor,
    values: Tensor,
    factors: Tensor,
    parameters: Sequence[Tensor],
    draws: RandomDraws,
    clip: float,
    *,
    resized: bool = True,
) -> None:
    """Check that no user's data reach another user's loss, nor the number of users, nor a place among them.

    Half of the users, chosen by system entropy, are replaced by copies of the others, and the losses are computed again. The
    others' losses and gradients must stay the same. This detects losses that depend on a batch mean, a rank, another user's
    detached score, or earlier calls. If ``resized``, a third to a half of all are computed alone, in another order (a single user:
    twice). Their number is random. Their summed gradient must stay the same. This detects losses that depend on size or place.
    Each user counts as after clipping, so large losses do not hide others.

    A dependence between two users is detected with a probability of at least a quarter, independently in each call, if the
    replacement changes the sum of the others' clipped gradients by a thousandth of some parameter's largest entry. One on size
    or place is detected if it changes the sum of those computed alone by a hundredth of its L2 norm. Not detected are data from
    outside of the batch, such as a mean over all ratings, and numbers computed from the batch before the call. If a random draw
    has not one row per user, size and place are not checked, with a warning. Costs one further forward pass and two backward
    passes; if ``resized``, half a pass more of each, and a third backward pass. Its results must not be shown.

    Args:
        losses: Function of `clipped_sum`. It may read ``users`` itself instead of its argument.
        users: Different users, ``(batch,)``.
        values: Their losses, finite, whose graph is retained, ``(batch,)``.
        factors: By how much clipping shortens each user's gradient, in [0, 1], ``(batch,)``.
        parameters: The trained parameters.
        draws: Random numbers with which the values were computed.
        clip: L2 norm; a change of a millionth of it is rounding.
        resized: Whether to check for size and place.

    Raises:
        RuntimeError: If a loss or its gradient changes with the other users, or with their number or order.
        ValueError: If other users do not get one loss each.
    """
    # A predictable seed would reveal which calls are checked.
    chance = torch.Generator().manual_seed(secrets.randbits(63))
    order = torch.randperm(len(users), generator=chance).to(users.device)
    gone, kept = order[: len(users) // 2], order[len(users) // 2 :]
    others = users.clone()
    others[gone] = users[kept[: len(gone)]]
    weights = torch.zeros_like(values)
    weights[kept] = (0.5 + torch.rand(len(kept), generator=chance)).to(weights) * factors[kept]
    before = _gradients(values, parameters, weights)
    fewest = -(-2 * len(kept) // 3)
    some = kept[: int(torch.randint(fewest, len(kept) + 1, (), generator=chance))]
    chosen = torch.zeros_like(weights)
    chosen[some] = weights[some]
    alone = _gradients(values, parameters, chosen) if resized else before  # now: losses may reuse a buffer
    with _replaced(users, others):
        with draws.again():
            again = _one_each(losses, others)
        after = _gradients(again, parameters, weights)
    apart = False
    for scale in (torch.ones_like(factors), factors):
        one, other = values.detach() * scale, again.detach() * scale
        apart |= not float((other - one)[kept].abs().max()) <= _VALUES * float(one.abs().max())  # nor NaN
    for one, other in zip(before, after, strict=True):
        apart |= float((other - one).abs().max()) > _GRADIENTS * float(torch.maximum(one.abs(), other.abs()).max())
    if apart:
        raise RuntimeError("A user's loss changes with the batch's other users. Use its own data.")
    if not resized:
        return
    places = some if len(users) > 1 else some.repeat(2)
    part = users[places]
    with _replaced(users, part):
        try:
            with draws.again(places, len(values)):
                fewer = _one_each(losses, part)
        except UnknownDrawError:
            warnings.warn("Random draws are not per user. Size and order are not checked.", stacklevel=2)
            return
        after = _gradients(fewer, parameters, weights[places] * (len(some) / len(places)))
    differences = [other - one for one, other in zip(alone, after, strict=True)]
    if not _length(differences) <= _SHAPES * max(_length(alone), _length(after)) + 1e-6 * clip:
        raise RuntimeError("A user's loss changes with the sample's size or order. Return undivided losses.")


@contextlib.contextmanager
def _replaced(users: Tensor, others: Tensor) -> Iterator[None]:
    """Let a tensor hold other users for the moment, for losses that read it instead of their argument."""
    own = users.data
    users.data = others
    try:
        yield
    finally:
        users.data = own


def _one_each(losses: Losses, users: Tensor) -> Tensor:
    values = losses(users)
    if values.shape != users.shape:
        raise ValueError(f"The loss has shape {tuple(values.shape)} for {len(users)} users. Use its argument.")
    return values


def _gradients(values: Tensor, parameters: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(
        values, parameters, weights, retain_graph=True, allow_unused=True, materialize_grads=True
    )


def _length(parts: Sequence[Tensor]) -> float:
    return float(torch.stack([torch.linalg.vector_norm(part, dtype=torch.float64) for part in parts]).norm())
