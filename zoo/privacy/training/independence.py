"""Whether each user's loss looks at that user alone, which clipping rests on: found out by asking twice."""

import secrets
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Losses = Callable[[Tensor], Tensor]
"""Users ``(batch,)`` in, the loss of each ``(batch,)`` out, through one forward pass."""

# How far numbers of the same user may lie apart that were computed in batches of the same shape: rounding, and no more.
_VALUES, _GRADIENTS = 1e-5, 1e-4


def check_alone(
    losses: Losses, users: Tensor, values: Tensor, parameters: Sequence[Tensor], random_state: Tensor
) -> None:
    """Refuse losses in which a user's data reach another user's loss, be it as a number that no gradient goes through.

    Half of the users, chosen anew by entropy of the system, are replaced by copies of the others, and losses are asked again.
    The others' losses and their gradients must be what they were: so a loss that is compared with a mean of the batch, a
    rank or another user's detached score is found, and one that remembers earlier calls. That one user's loss depends on
    another's is found with a probability of a quarter at least, independently in each call; what comes from outside of the
    batch, such as a mean over all ratings, is not. Takes one further pass forward and two back. Nothing of it may be shown.

    Args:
        losses: As of `clipped_sum`; called with users in any order, some several times.
        users: At least two, none twice, shape ``(batch,)``.
        values: Their losses, whose graph is kept, shape ``(batch,)``.
        parameters: What is trained.
        random_state: Torch's, of the processor, as it was before values were computed; it is left as it is found.

    Raises:
        RuntimeError: If a loss or its gradient is another one beside other users.
    """
    # A seed that somebody knows would tell when to behave.
    chance = torch.Generator().manual_seed(secrets.randbits(63))
    order = torch.randperm(len(users), generator=chance).to(users.device)
    gone, kept = order[: len(users) // 2], order[len(users) // 2 :]
    others = users.clone()
    others[gone] = users[kept[: len(gone)]]
    with torch.random.fork_rng(devices=[]):  # leaving out numbers at random is no dependence
        torch.set_rng_state(random_state)
        again = losses(others)
    weights = torch.zeros_like(values)
    weights[kept] = 0.5 + torch.rand(len(kept), generator=chance).to(weights)
    found = [
        torch.autograd.grad(each, parameters, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
        for each in (values, again)
    ]
    told = values.detach()
    apart = float((again.detach() - told)[kept].abs().max()) > _VALUES * float(told.abs().max())
    for one, other in zip(*found, strict=True):
        apart |= float((other - one).abs().max()) > _GRADIENTS * float(torch.maximum(one.abs(), other.abs()).max())
    if apart:
        raise RuntimeError(
            "The loss of a user is another one when other users are beside it, as with a mean over the batch or a score that "
            "is only detached, or when it is asked for twice: clipping it would bound nothing. Give each user a loss of its own "
            "data alone, which remembers no call."
        )
