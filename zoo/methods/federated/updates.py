"""Client updates of a round, their mean at the server, and the round of several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from lightning_fabric.utilities import move_data_to_device
from torch import Tensor


class ClientUpdate(NamedTuple):
    """The unprotected update of one client: it names changed rows, and its weight is its number of examples."""

    rows: Tensor  # rows of the server's table that it changed, (rows,)
    differences: Tensor  # by how much, (rows, dim)
    shared: dict[str, Tensor]  # and what all clients have in common, by name, in its shape
    weight: float  # how much it counts for: its number of examples

    @property
    def bytes(self) -> int:
        """Size of the update, with the weight as one number of double precision."""
        return sum(part.nbytes for part in (self.rows, self.differences, *self.shared.values())) + 8


class ClientUpdates(NamedTuple):
    """The updates of all clients of a round, row after row."""

    clients: Tensor  # which client of the round each row is of, (rows,)
    rows: Tensor  # row of the server's table, once for each client that changed it, (rows,)
    differences: Tensor  # by how much, (rows, dim)
    shared: dict[str, Tensor]  # what all have in common, by name, each (clients, *its shape)
    weights: Tensor  # (clients,)

    def of(self, client: int) -> ClientUpdate:
        """Return the update of a client of the round, by its index."""
        own = self.clients == client
        shared = {name: part[client] for name, part in self.shared.items()}
        return ClientUpdate(self.rows[own], self.differences[own], shared, float(self.weights[client]))

    @property
    def bytes(self) -> int:
        """Size of all updates."""
        return sum(part.nbytes for part in (self.rows, self.differences, *self.shared.values())) + 8 * len(self.weights)

    def finite(self) -> Tensor:
        """Return a mask of clients (clients,) with finite updates."""
        broken = torch.zeros_like(self.weights, dtype=torch.bool)
        broken[self.clients[~self.differences.isfinite().all(1)]] = True
        for part in self.shared.values():
            broken |= ~part.isfinite().reshape(len(part), -1).all(1)
        return ~broken

    def without(self, left_out: Tensor) -> ClientUpdates:
        """Return the updates with no change and weight 0 for the clients of a mask (clients,)."""
        gone = left_out[self.clients]
        return ClientUpdates(
            self.clients[~gone],
            self.rows[~gone],
            self.differences[~gone],
            {name: part.where(~_like(left_out, part), 0.0) for name, part in self.shared.items()},
            self.weights.where(~left_out, 0.0),
        )

    def among(self, places: Tensor, num_clients: int) -> ClientUpdates:
        """Return the updates among ``num_clients``, at ascending ``places`` (clients,); others have no change and weight 0."""

        def spread(part: Tensor) -> Tensor:
            return part.new_zeros(num_clients, *part.shape[1:]).index_copy(0, places, part)

        shared = {name: spread(part) for name, part in self.shared.items()}
        return self._replace(clients=places[self.clients], shared=shared, weights=spread(self.weights))


def with_pseudo_rows(updates: ClientUpdates, clients: Tensor, rows: Tensor) -> ClientUpdates:
    """Add random changes of further rows (pseudo,) of clients (pseudo,); rows that a client changed are unaffected.

    A change is normal, with the mean and spread, number by number, of the client's own changes. **A heuristic without any
    guarantee**: it disguises a client's items, is not calibrated, and disturbs the mean.

    Reference: Wu et al., *FedGNN* (2021), pseudo interacted items; there with the whole covariance.
    """
    span = 1 + max(int(part.max()) if len(part) else 0 for part in (rows, updates.rows))
    keys = updates.clients * span + updates.rows
    added = torch.unique(clients * span + rows)
    added = added[~torch.isin(added, keys)]
    owners = added // span
    counts = torch.bincount(updates.clients, minlength=len(updates.weights)).clamp(min=1)[:, None]
    nothing = updates.differences.new_zeros(len(updates.weights), updates.differences.shape[1])
    mean = nothing.index_add(0, updates.clients, updates.differences) / counts
    deviation = (updates.differences - mean[updates.clients]).square()
    spread = (nothing.index_add(0, updates.clients, deviation) / counts).sqrt()
    changes = mean[owners] + spread[owners] * torch.randn_like(mean[owners])
    every = torch.cat([keys, added])
    order = every.argsort()  # by client and row: what stands last would tell what was added
    return updates._replace(
        clients=every[order] // span,
        rows=every[order] % span,
        differences=torch.cat([updates.differences, changes])[order],
    )


class Mean(NamedTuple):
    """The weighted mean of the clients' changes in a round."""

    table: Tensor  # of the server's table, 0 in unchanged rows, (num_rows, dim)
    shared: dict[str, Tensor]  # of what all have in common, by name


def weighted_mean(updates: ClientUpdates, num_rows: int) -> Mean:
    """Return the weighted mean over all clients of the round; an unchanged row counts as 0.

    Reference: McMahan et al., AISTATS 2017, algorithm 1. Raises a ValueError if all weights are 0.
    """
    total = updates.weights.sum()
    if not total > 0:
        raise ValueError("No client of the round counts: all weights are 0.")
    shares = (updates.weights / total).to(updates.differences.dtype)
    table = updates.differences.new_zeros(num_rows, updates.differences.shape[1])
    table.index_add_(0, updates.rows, updates.differences * shares[updates.clients, None])
    return Mean(table, {name: (part * _like(shares, part)).sum(0) for name, part in updates.shared.items()})


def surrogate_loss(value: Tensor, parameters: Mapping[str, Tensor], directions: Mapping[str, Tensor]) -> Tensor:
    """Return a scalar that equals ``value`` and has minus the direction as gradient of each parameter.

    So a server's optimiser can step along the clients' mean difference (Reddi et al., ICLR 2021).
    """
    loss = value.detach()
    for name, direction in directions.items():
        loss = loss - ((parameters[name] - parameters[name].detach()) * direction).sum()
    return loss


def _like(values: Tensor, part: Tensor) -> Tensor:
    """Values of clients (clients,) with as many axes as ``part``, for multiplication."""
    return values.reshape(-1, *[1] * (part.ndim - 1))


class Played(NamedTuple):
    """Result of the clients of a round, or of those of one process."""

    users: Tensor  # (clients,)
    updates: ClientUpdates
    vectors: Tensor  # of their own, afterwards, (clients, dim)
    losses: Tensor  # before, (clients,)

    def among(self, wanted: Tensor) -> Played:
        """Return the results of the clients of a mask (clients,)."""
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
    """Return the round of all processes, the same in each; every process must call it."""
    distributed = torch.distributed
    size = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
    if size == 1:
        return own
    parts: list[Played] = [own] * size
    distributed.all_gather_object(parts, move_data_to_device(own, torch.device("cpu")))
    found: Played = move_data_to_device(joined(parts), own.users.device)
    return found


def joined(parts: Sequence[Played]) -> Played:
    """Join the parts of a round. A client in several parts counts once, as in the first; missing shared parts are 0."""
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
    users, vectors, losses = (torch.cat([getattr(p, name) for p in apart]) for name in ("users", "vectors", "losses"))
    return Played(users, together, vectors, losses)
