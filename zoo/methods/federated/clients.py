"""What clients do at home: copies of the rows they touch, items they have not, steps on their own losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

Copies = dict[str, Tensor]
Uniform = Callable[[tuple[int, ...]], Tensor]
"""From a shape to independent numbers in [0, 1), in double precision."""


class TouchedRows(NamedTuple):
    """Which rows of a server's table the clients of a round copy: each client its own, each row once."""

    clients: Tensor  # which client each copy is of, rising, (copies,)
    rows: Tensor  # of which row, (copies,)
    places: Tensor  # the copy that each row asked for is in, (asked,)


def touched_rows(clients: Tensor, rows: Tensor, num_rows: int) -> TouchedRows:
    """The copies needed where clients (asked,) ask for rows (asked,), any pair as often as wanted."""
    keys, places = torch.unique(clients * num_rows + rows, return_inverse=True)
    return TouchedRows(keys // num_rows, keys % num_rows, places)


def unowned_items(
    items: Tensor, counts: Tensor, num_items: int, num_each: int, uniform: Uniform | None = None
) -> Tensor:
    """``num_each`` items for each of a client's own, uniform over those that the client has not, with replacement.

    Item number ``r`` of those a client has not is ``r + k`` if ``k`` of its own come before it, which is found by one search in
    all clients' items at once, so nothing is drawn twice.

    Args:
        items: Items of the clients, one client's after another's, rising within each, shape ``(entries,)``.
        counts: How many each has, shape ``(clients,)``.
        num_items: How many there are.
        num_each: How many to draw.
        uniform: What is drawn with; None: torch's global random state.

    Returns:
        Items, shape ``(entries, num_each)``; a row is for the client whose entry it is.
    """
    if full := int((counts >= num_items).sum()):
        raise ValueError(
            f"{full} clients have all {num_items} items, and no other to be drawn. Leave such clients out."
        )
    owners = torch.repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    # Before the j-th own item of a client lie as many of the others as its number less j.
    before = items - (torch.arange(len(items), device=items.device) - starts[owners])
    others = (num_items - counts)[owners, None].expand(-1, num_each)
    if uniform is None:
        uniform = partial(torch.rand, device=items.device, dtype=torch.float64)
    drawn = (uniform(tuple(others.shape)) * others).long()
    keys = owners * (num_items + 1) + before
    smaller = torch.searchsorted(keys, owners[:, None] * (num_items + 1) + drawn, right=True)
    return drawn + smaller - starts[owners, None]


def local_moves(
    losses: Callable[[Copies], Tensor], start: Mapping[str, Tensor], num_steps: int, lr: float
) -> tuple[Copies, Tensor]:
    """How far steps of gradient descent take all clients at once, each on copies of its own.

    What is in ``start`` is of one client each, so the gradient of the sum of all losses is every client's own.

    Args:
        losses: From the copies to the loss of each client, shape ``(clients,)``.
        start: The copies that they begin from, by name.
        num_steps: How many steps each takes, at least 1.
        lr: Size of a step.

    Returns:
        The steps added up, by name, in the shapes of ``start``, and the losses (clients,) before the first step; no gradient
        passes through either.
    """
    moves = {name: torch.zeros_like(part) for name, part in start.items()}
    before: list[Tensor] = []
    for _ in range(num_steps):
        copies = {name: (part.detach() + moves[name]).requires_grad_() for name, part in start.items()}
        with torch.enable_grad():
            each = losses(copies)
            gradients = torch.autograd.grad(each.sum(), list(copies.values()))
        before.append(each.detach())
        moves = {name: move - lr * gradient for (name, move), gradient in zip(moves.items(), gradients, strict=True)}
    return moves, before[0]
