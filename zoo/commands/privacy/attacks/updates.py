"""What a server reads of a client's items in the client's update: which rows it names, and in which direction they move."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.methods.federated.updates import ClientUpdates


def rows_named(updates: ClientUpdates) -> Tensor:
    """The simplest guess, a mask (rows,): every row that a client names is an item of the client's.

    With n negatives to each own item it is right once in 1 + n at least, and it misses nothing.
    """
    return torch.ones_like(updates.rows, dtype=torch.bool)


def rows_moved_alike(updates: ClientUpdates, num_steps: int = 50) -> Tensor:
    """A better guess, a mask (rows,): the rows on one side of the main direction of the client's changes.

    A client's changes of items lie along its own vector, forward for items that it has and backward for those that it drew. Of the
    two sides that one is guessed whose size is nearer to the client's weight, which tells how many items it has. Directions are
    found by power iteration, of all clients at once.
    """
    changes, clients, count = updates.differences.double(), updates.clients, len(updates.weights)
    nothing = changes.new_zeros(count, changes.shape[1])
    # The longest change of each client is a start that lies along its direction.
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
    """Precision and recall of a guess (rows,) for each client, (clients,) each.

    Args:
        guess: The rows that are said to be of the client's items.
        updates: What the clients sent.
        owned: Whether each row is of an item that its client has, (rows,). The client's items are all among its rows.
    """

    def of_client(mask: Tensor) -> Tensor:
        return torch.bincount(updates.clients[mask], minlength=len(updates.weights)).double()

    right = of_client(guess & owned)
    return right / of_client(guess).clamp(min=1), right / of_client(owned).clamp(min=1)
