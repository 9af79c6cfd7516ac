"""Private rounds: what a server gets to see of its clients' updates in federated training, and the count of such rounds."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.noisy_steps import NoisySteps, fresh_generator, with_noise
from zoo.privacy.training.poisson import PoissonSampler

# Taken off the clip, so that rounding, of sums of 2**30 squares too, makes no update longer than it.
_MARGIN = 1e-9


class Updates(Protocol):
    """What clients (clients,) would change, as `zoo.methods.federated.updates.ClientUpdates` has it; weights are not looked at."""

    @property
    def clients(self) -> Tensor:
        """By place which client each row is of, rising, shape ``(rows,)``."""

    @property
    def rows(self) -> Tensor:
        """Row of the server's table, rising within a client, none twice, shape ``(rows,)``."""

    @property
    def differences(self) -> Tensor:
        """By how much, shape ``(rows, dim)``."""

    @property
    def shared(self) -> Mapping[str, Tensor]:
        """Of what all clients have in common, by name, each of shape ``(clients, *its shape)``."""


Changes = Callable[[Tensor, np.random.Generator], Updates]
"""Users of a round ``(sampled,)`` and numbers for whatever they draw in, what each would change out."""


class PrivateRounds(NoisySteps[TrainingPlan]):
    """Means of what clients change that hide each client's part in them: DP-FedAvg with a fixed denominator.

    A call draws a Poisson sample of all users, asks what each of them would change, clips the whole of each one's update, rows of
    the table and shared parts together, to an L2 norm of ``plan.clip``, adds Gaussian noise of standard deviation
    ``plan.noise_std`` to every number of the sum, rows that nobody changed included, and divides by the number of clients
    expected: a public constant, never how many there were (McMahan et al., *Learning Differentially Private Recurrent
    Language Models*, ICLR 2018, algorithm 1, with flat clipping). All clients weigh alike, as a count of ratings would be data. One
    without data, or whose update is not finite, adds nothing, and nothing tells of it; a round without anybody is noise alone.

    - Protected: one user, all of their data that an update may read, ratings and whatever the client has made of them before.
    - Relation: ``plan.relation``. The caller makes sure that a user without data changes nothing.
    - Sensitivity of the sum, L2: ``plan.clip`` under ``zero_out_one_user``, twice that under ``replace_one_user``.
    - With the means anything may be done, the server's optimiser and whatever is made of what it trains. Not with the sample, its
      size, an update, a loss or a norm: these are not to be logged or kept. What a client keeps for itself, such as a vector of
      its own, is not noised: it is for that client alone (joint privacy; the billboard lemma of Hsu et al., STOC 2014).

    **The server is trusted**: it sees who takes part and each update before the noise, unless it gets sums by secure aggregation.

    Clients may remember rounds that they were in. Let all others' samples and draws be known: then a round is, given those before,
    with probability 1 - rate the sum of the others with noise, else this sum and a change of at most the clip, whatever the client
    remembers. That is no worse than one fixed change, so every round has the privacy loss of one on its own and they compose.

    Whatever clients draw must be independent of each other and secret, for a stream of numbers that is known and that one client
    moves would move the updates of all others: they draw from the generator that they are given, whose key is of the system's
    entropy. An update must be made of the client's own data and the server's parts alone; nothing of that is seen here.

    The guarantee is proved for exact real arithmetic; it is not proved against floating-point or timing attacks. ``num_users`` are
    users with or without data, and public.
    """

    def __init__(self, plan: TrainingPlan, num_users: int, noise: NoiseSource) -> None:
        super().__init__(plan, noise)
        self._sampler = PoissonSampler(num_users, plan.rate, noise)

    @property
    def expected_clients(self) -> float:
        """Clients in a round on average; public."""
        return self._sampler.expected_size

    def __call__(
        self, table: Tensor, shared: Mapping[str, Tensor], changes: Changes
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """A round: the noisy mean of what clients change, of the table (num_rows, dim) and of each shared part, in their shapes.

        It counts from here on, also if the clients fail. Of the table and the shared parts only shape, type and device are read;
        which parts are shared must be public. A shared part that clients do not change is noise alone.

        Raises:
            BudgetSpentError: If all planned rounds were taken, or as many as `limit` allows.
            ValueError: If the updates are not of this form.
            RuntimeError: If autocast is on, weights are of half precision, or several processes train.
        """
        parts = {"table": table, **{f"shared.{name}": part for name, part in shared.items()}}
        self._check_step(*{part.device.type for part in parts.values()})
        _check_precision(parts.values())
        self._taken += 1
        users = self._sampler.sample().to(table.device)
        sums: dict[str, Tensor] = {}
        if len(users):
            updates = changes(users, fresh_generator(self._noise))
            _check(updates, len(users), table, shared)
            sums = clipped_updates(updates, len(users), len(table), self.plan.clip)
        generator, means = fresh_generator(self._noise), {}
        for name, part in parts.items():
            total = sums.get(name, torch.zeros(part.shape, dtype=torch.float64, device=part.device))
            noisy = with_noise(total, self.plan.noise_std, generator)
            means[name] = noisy.div_(self.expected_clients).to(part.dtype)
        return means["table"], {name: means[f"shared.{name}"] for name in shared}

    def settings(self) -> dict[str, float | str]:
        """Those of the plan, and how many users there are."""
        return {**self.plan.settings(), "num_users": self._sampler.num_users}


def _check_precision(parts: Iterable[Tensor]) -> None:
    if half := {part.dtype for part in parts} - {torch.float32, torch.float64}:
        raise RuntimeError(
            f"Weights are {', '.join(map(str, half))}; the updates of a private round are taken in float32. Train with precision "
            "32-true."
        )


def clipped_updates(updates: Updates, num_clients: int, num_rows: int, clip: float) -> dict[str, Tensor]:
    """The sum of clients' updates, each clipped as a whole to an L2 norm of ``clip``, in double precision.

    An update that is not finite, or whose norm is not, counts as none. Not private: the sums must not leave without noise.

    Returns:
        ``table``, shape ``(num_rows, dim)``, and ``shared.<name>`` for each shared part that clients have changed.
    """
    clients, differences = updates.clients, updates.differences.double()
    squares = differences.new_zeros(num_clients).index_add_(0, clients, differences.square().sum(1))
    for part in updates.shared.values():
        squares += part.double().square().reshape(num_clients, -1).sum(1)
    factors = clip / (squares.sqrt() * (1 + _MARGIN)).clamp(min=clip)
    factors = factors.where(squares.isfinite(), 0.0)

    def weighed(parts: Tensor, weights: Tensor) -> Tensor:
        weights = weights.reshape(-1, *[1] * (parts.ndim - 1))
        return (parts * weights).where(weights > 0, 0.0)  # nothing times infinity is no number

    table = differences.new_zeros(num_rows, differences.shape[1])
    sums = {"table": table.index_add_(0, updates.rows, weighed(differences, factors[clients]))}
    for name, part in updates.shared.items():
        sums[f"shared.{name}"] = weighed(part.double(), factors).sum(0)
    return sums


def _check(updates: Updates, num_clients: int, table: Tensor, shared: Mapping[str, Tensor]) -> None:
    """Refuse updates whose parts do not belong together: a row that is there twice would be clipped as two."""
    clients, rows = updates.clients, updates.rows
    form = (
        clients.shape == rows.shape == updates.differences.shape[:1]
        and updates.differences.shape[1:] == table.shape[1:]
    )
    for name, part in updates.shared.items():
        form &= name in shared and part.shape == (num_clients, *shared[name].shape)
    if not form:
        raise ValueError(
            f"Updates of {num_clients} clients must have a row of differences for each client and row, of the width of the table, "
            f"and shared parts (clients, *shape) among {sorted(shared)}; got {tuple(updates.differences.shape)} for "
            f"{tuple(clients.shape)} and {tuple(rows.shape)}, and { ({n: tuple(p.shape) for n, p in updates.shared.items()}) }."
        )
    keys = clients * len(table) + rows
    inside = bool(((clients >= 0) & (clients < num_clients) & (rows >= 0) & (rows < len(table))).all())
    if not (inside and bool((keys[1:] > keys[:-1]).all())):
        raise ValueError(
            "Rows of updates must be those of the table, of clients of the round, rising by client and row and none twice: one "
            "that is there twice would be clipped as two."
        )
