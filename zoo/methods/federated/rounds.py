"""Rounds that several processes play together: what the clients of all of them would send, known to each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.methods.federated.updates import ClientUpdates


class Played(NamedTuple):
    """What came of the clients of a round, or of those that one process has played."""

    users: Tensor  # (clients,)
    updates: ClientUpdates
    vectors: Tensor  # of their own, afterwards, (clients, dim)
    losses: Tensor  # before, (clients,)

    def to(self, device: torch.device) -> Played:
        """The same on a device."""
        own = self.updates
        moved = ClientUpdates(
            own.clients.to(device),
            own.rows.to(device),
            own.differences.to(device),
            {name: part.to(device) for name, part in own.shared.items()},
            own.weights.to(device),
        )
        return Played(self.users.to(device), moved, self.vectors.to(device), self.losses.to(device))

    def among(self, wanted: Tensor) -> Played:
        """Those of a mask (clients,) alone."""
        updates, rows = self.updates, wanted[self.updates.clients]
        places = wanted.cumsum(0) - 1
        left = ClientUpdates(
            places[updates.clients[rows]],
            updates.rows[rows],
            updates.differences[rows],
            {name: part[wanted] for name, part in updates.shared.items()},
            updates.weights[wanted],
        )
        return Played(self.users[wanted], left, self.vectors[wanted], self.losses[wanted])


def gathered(own: Played) -> Played:
    """The round of all processes, the same in each; every process has to call it. Alone it is its own."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size() == 1:
        return own
    parts: list[Played] = [own] * distributed.get_world_size()
    distributed.all_gather_object(parts, own.to(torch.device("cpu")))
    return joined(parts).to(own.users.device)


def joined(parts: Sequence[Played]) -> Played:
    """One round of several parts. A client in several, as where an epoch is filled up, counts once, as the first has played it.

    Of what all have in common, a part names what its clients have changed; the clients of others have not.
    """
    seen, apart = torch.zeros(0, dtype=torch.int64), []
    for part in parts:
        apart.append(part.among(~torch.isin(part.users, seen)))
        seen = torch.cat([seen, part.users])
    shapes = {name: value.shape[1:] for part in apart for name, value in part.updates.shared.items()}
    updates = [part.updates for part in apart]
    starts = torch.tensor([0, *(len(part.users) for part in apart)]).cumsum(0).tolist()
    shared = {
        name: torch.cat([one.shared.get(name, one.differences.new_zeros(len(one.weights), *shape)) for one in updates])
        for name, shape in shapes.items()
    }
    together = ClientUpdates(
        torch.cat([one.clients + start for one, start in zip(updates, starts, strict=False)]),
        torch.cat([one.rows for one in updates]),
        torch.cat([one.differences for one in updates]),
        shared,
        torch.cat([one.weights for one in updates]),
    )
    users, vectors, losses = (
        torch.cat(column) for column in zip(*((p.users, p.vectors, p.losses) for p in apart), strict=True)
    )
    return Played(users, together, vectors, losses)
