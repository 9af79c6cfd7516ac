"""Private rounds: the noisy means of clients' updates in federated training, and the count of such rounds."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.noisy_steps import NoisySteps, fresh_generator, with_noise
from zoo.privacy.training.poisson import PoissonSampler

# Taken off the clip, so that rounding, even of sums of 2**30 squares, makes no update longer than it.
_MARGIN = 1e-9


class Updates(Protocol):
    """Changes of clients (clients,), as `zoo.methods.federated.updates.ClientUpdates`; weights are not read."""

    @property
    def clients(self) -> Tensor:
        """Index of each row's client, ascending, ``(rows,)``."""

    @property
    def rows(self) -> Tensor:
        """Row of the server's table, ascending within a client, none twice, ``(rows,)``."""

    @property
    def differences(self) -> Tensor:
        """Change of each row, ``(rows, dim)``."""

    @property
    def shared(self) -> Mapping[str, Tensor]:
        """Changes of the shared parts, by name, each ``(clients, *its shape)``."""


Changes = Callable[[Tensor, np.random.Generator], Updates]
"""Map the users of a round ``(sampled,)`` and a generator for their draws to their updates."""


class PrivateRounds(NoisySteps[TrainingPlan]):
    """Compute means of clients' changes that hide each client's part: DP-FedAvg with a fixed denominator.

    A call draws a Poisson sample of all users, computes their updates, clips each whole update (rows of the table and shared
    parts together) to an L2 norm of ``plan.clip``, adds Gaussian noise of standard deviation ``plan.noise_std`` to every number
    of the sum, unchanged rows included, and divides by the expected number of clients, a public constant (McMahan et al.,
    *Learning Differentially Private Recurrent Language Models*, ICLR 2018, algorithm 1, with flat clipping). All clients have
    equal weight, because a count of ratings would be data. A client without data or with an update that is not finite adds
    nothing, undetectably. A round without clients is noise alone.

    - Privacy unit: one user, all data that an update may read: ratings and the client's own earlier results.
    - Relation: ``plan.relation``. The caller makes sure that a user without data changes nothing.
    - Sensitivity of the sum, L2: ``plan.clip`` under ``zero_out_one_user``, twice that under ``replace_one_user``.
    - Allowed use of the means: any, such as the server's optimiser and everything computed from its result. The sample, its
      size, an update, a loss or a norm must not be logged or stored. Local parts of a client, such as its own vector, have no
      noise: they are for that client alone (joint privacy; the billboard lemma of Hsu et al., STOC 2014).

    **The server is trusted**: it sees the participants and each update before the noise, unless it uses secure aggregation.

    Clients may remember their earlier rounds. Assume that all others' samples and draws are known. Given earlier rounds, a round
    is then with probability 1 - rate the noisy sum of the others, else this sum and a change of at most the clip, whatever the
    client remembers. That is no worse than one fixed change, so each round has its own privacy loss and they compose.

    Draws of clients must be independent and secret: they come from the generator that clients receive, whose key comes from
    system entropy. A known stream that one client advances would change the updates of all others. An update must depend only
    on the client's own data and the server's parts; this is not checked here.

    The guarantee is proved for exact real arithmetic, not against floating-point or timing attacks. ``num_users`` counts users
    with or without data, and is public.
    """

    def __init__(self, plan: TrainingPlan, num_users: int, noise: NoiseSource) -> None:
        super().__init__(plan, noise)
        self._sampler = PoissonSampler(num_users, plan.rate, noise)

    @property
    def expected_clients(self) -> float:
        """Mean number of clients in a round; public."""
        return self._sampler.expected_size

    def __call__(
        self, table: Tensor, shared: Mapping[str, Tensor], changes: Changes
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Play a round; return the noisy mean of changes of the table (num_rows, dim) and of each shared part, in their shapes.

        The round counts even if clients fail. Only shape, type and device of the table and the shared parts are read; the names of
        shared parts must be public. A shared part that clients do not change is noise alone.

        Raises:
            BudgetSpentError: If all planned rounds were taken, or as many as `limit` allows.
            ValueError: If the updates do not have this form.
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
        """Return the plan's settings and the number of users."""
        return {**self.plan.settings(), "num_users": self._sampler.num_users}


def _check_precision(parts: Iterable[Tensor]) -> None:
    if half := {part.dtype for part in parts} - {torch.float32, torch.float64}:
        raise RuntimeError(f"Weights are {', '.join(map(str, half))}. Train with precision 32-true.")


def clipped_updates(updates: Updates, num_clients: int, num_rows: int, clip: float) -> dict[str, Tensor]:
    """Return the sum of clients' updates, each clipped as a whole to an L2 norm of ``clip``, in double precision.

    An update without a finite norm counts as none. Not private: the sums must not leave without noise.

    Returns:
        ``table``, ``(num_rows, dim)``, and ``shared.<name>`` for each shared part that clients changed.
    """
    clients, differences = updates.clients, updates.differences.double()
    squares = differences.new_zeros(num_clients).index_add_(0, clients, differences.square().sum(1))
    for part in updates.shared.values():
        squares += part.double().square().reshape(num_clients, -1).sum(1)
    factors = clip / (squares.sqrt() * (1 + _MARGIN)).clamp(min=clip)
    factors = factors.where(squares.isfinite(), 0.0)

    def weighed(parts: Tensor, weights: Tensor) -> Tensor:
        weights = weights.reshape(-1, *[1] * (parts.ndim - 1))
        return (parts * weights).where(weights > 0, 0.0)  # 0 times infinity is NaN

    table = differences.new_zeros(num_rows, differences.shape[1])
    sums = {"table": table.index_add_(0, updates.rows, weighed(differences, factors[clients]))}
    for name, part in updates.shared.items():
        sums[f"shared.{name}"] = weighed(part.double(), factors).sum(0)
    return sums


def _check(updates: Updates, num_clients: int, table: Tensor, shared: Mapping[str, Tensor]) -> None:
    """Refuse inconsistent updates: a repeated row would be clipped as two."""
    clients, rows = updates.clients, updates.rows
    form = (
        clients.shape == rows.shape == updates.differences.shape[:1]
        and updates.differences.shape[1:] == table.shape[1:]
    )
    for name, part in updates.shared.items():
        form &= name in shared and part.shape == (num_clients, *shared[name].shape)
    if not form:
        raise ValueError(
            f"Updates have {tuple(updates.differences.shape)} differences for {tuple(clients.shape)} clients and "
            f"{tuple(rows.shape)} rows, and shared parts "
            f"{ ({n: tuple(p.shape) for n, p in updates.shared.items()}) }. Needed: one difference per row, "
            f"{num_clients} of each shared part {sorted(shared)}."
        )
    keys = clients * len(table) + rows
    inside = bool(((clients >= 0) & (clients < num_clients) & (rows >= 0) & (rows < len(table))).all())
    if not (inside and bool((keys[1:] > keys[:-1]).all())):
        raise ValueError("Rows of updates must exist in the table, strictly rising by client and row.")
