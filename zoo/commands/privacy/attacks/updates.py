"""Attacks of a server on client updates: the named rows, and the directions in which rows change."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.methods.federated.updates import ClientUpdates


def rows_named(updates: ClientUpdates) -> Tensor:
    """Guess that every row that a client names is an item of the client; return a mask (rows,).

    With n negatives for each item at least 1 of 1 + n guesses is correct, and recall is 1.

    Examples:
        >>> one_client, changes = torch.tensor([0, 0]), torch.tensor([[1.0], [-1.0]])
        >>> updates = ClientUpdates(one_client, torch.tensor([5, 8]), changes, {}, torch.tensor([1.0]))
        >>> rows_named(updates)
        tensor([True, True])
    """
    return torch.ones_like(updates.rows, dtype=torch.bool)


def rows_moved_alike(updates: ClientUpdates, num_steps: int = 50) -> Tensor:
    """Guess the rows on one side of the main direction of a client's changes; return a mask (rows,).

    A client moves rows along its own vector: forward for its items and backward for negatives. The side whose size is closer to
    the weight of the client, its number of items, is guessed. Directions come from power iteration for all clients at once.

    Examples:
        >>> client, changes = torch.tensor([0, 0, 0]), torch.tensor([[1.0], [1.0], [-1.0]])
        >>> updates = ClientUpdates(client, torch.tensor([5, 8, 9]), changes, {}, torch.tensor([2.0]))
        >>> rows_moved_alike(updates)
        tensor([ True,  True, False])
    """
    changes, clients, count = updates.differences.double(), updates.clients, len(updates.weights)
    nothing = changes.new_zeros(count, changes.shape[1])
    # Start with the longest change of each client.
    order = changes.norm(dim=1).argsort()
    order = order[clients[order].argsort(stable=True)]
    last_of = torch.bincount(clients, minlength=count).cumsum(0) - 1
    present = torch.unique(clients)
    directions = nothing.index_copy(0, present, changes[order[last_of[present]]])
    for _ in range(num_steps):
        along = (changes * directions[clients]).sum(1, keepdim=True)
        directions = F.normalize(nothing.index_add(0, clients, along * changes), dim=1)
    forward = (changes * directions[clients]).sum(1) > 0
    of_side = torch.stack([torch.bincount(clients[side], minlength=count) for side in (forward, ~forward)])
    nearer = (of_side - updates.weights).abs().argmin(0)  # 0: forward
    return forward == (nearer[clients] == 0)


def guessed_right(guess: Tensor, updates: ClientUpdates, owned: Tensor) -> tuple[Tensor, Tensor]:
    """Return precision and recall of a guess for each client, (clients,) each.

    Args:
        guess: Guessed rows, (rows,).
        updates: Updates of the clients.
        owned: Whether each row is an item of its client, (rows,). All items of a client are among its rows.

    Examples:
        >>> one_client, changes = torch.tensor([0, 0]), torch.tensor([[1.0], [-1.0]])
        >>> updates = ClientUpdates(one_client, torch.tensor([5, 8]), changes, {}, torch.tensor([1.0]))
        >>> guessed_right(rows_named(updates), updates, owned=torch.tensor([True, False]))
        (tensor([0.5000], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """

    def of_client(mask: Tensor) -> Tensor:
        return torch.bincount(updates.clients[mask], minlength=len(updates.weights)).double()

    right = of_client(guess & owned)
    return right / of_client(guess).clamp(min=1), right / of_client(owned).clamp(min=1)
