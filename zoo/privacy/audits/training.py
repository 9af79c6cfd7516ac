"""Worst pairs of DP-SGD: a user with a large gradient in a private training, or without any data; a white-box audit."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from zoo.privacy.accounting.accountant import Accountant, epsilon_of
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.critic_steps import CriticStep
from zoo.privacy.training.dp_sgd import TrainingPlan, plan_training
from zoo.privacy.training.poisson import PoissonSampler
from zoo.privacy.training.private_gradient import PrivateGradient

Floats = npt.NDArray[np.float64]
Training = Callable[[nn.Module, TrainingPlan, float, NoiseSource], CriticStep]
"""Makes the steps of a training of a module, as `PrivateGradient` does."""

_USERS = 10_000  # of a training, each of them a run
_DELTA = 0.01
_BEYOND = 3.0  # length of a user's gradient in clips


class _Critic(nn.Module):
    """Two layers in which each user has a number of its own: clipping one by one would let twice the square through."""

    def __init__(self, num_users: int) -> None:
        super().__init__()
        self.first = nn.Embedding(num_users, 1)
        self.second = nn.Embedding(num_users, 1)

    def forward(self, users: Tensor) -> Tensor:
        """Of each user the sum of both numbers, shape ``(batch,)``."""
        out: Tensor = self.first(users) + self.second(users)
        return out.squeeze(1)

    def noisy_sums(self, expected_size: float) -> Floats:
        """What was left in ``.grad``, as sums, shape ``(2, users)``."""
        found = [np.asarray(layer.weight.grad, dtype=np.float64)[:, 0] for layer in (self.first, self.second)]
        return np.stack(found) * expected_size


def training_audit(name: str, plan: TrainingPlan, training: Training = PrivateGradient) -> Audit:
    """Audit of private training by its noisy gradients, step by step, which is all that it releases.

    Every user's gradient has coordinates of its own, so that one training is a run for each of its users, and the others
    are there besides. The score is ``<noisy sum, g_u>`` added up over steps, g_u being the unit vector along the user's
    gradient. In one world users have gradients far beyond the clip; in the other they have none, or under
    ``replace_one_user`` the opposite ones.

    What is audited is the plan's epsilon at a delta of 0.01, or else at its own: at a very small delta no number of runs
    comes near it. Mu is claimed, and the power of the audit checked, where all users are in every step; nothing says how much
    of a sampled training's epsilon an audit of this size can see.

    Args:
        name: For a table.
        plan: Of few steps.
        training: Makes what takes the steps; others than `PrivateGradient` show that this audit catches them.
    """
    delta = max(plan.delta, _DELTA)
    epsilon = epsilon_of([plan.event], delta, plan.relation)
    if epsilon == 0:
        epsilon, delta = plan.epsilon, plan.delta
    opposite = -1.0 if plan.relation is Relation.REPLACE_ONE_USER else 0.0

    def world(length: float, runs: int, noise: NoiseSource) -> Floats:
        trainings = range(-(-runs // _USERS))
        return np.concatenate([_scores(_noisy_sums(plan, training, length, noise)) for _ in trainings])[:runs]

    def worlds(runs: int, noise: NoiseSource) -> tuple[Floats, Floats]:
        without = world(opposite, runs, noise)
        return without, world(1.0, runs, noise)

    def residuals(count: int, noise: NoiseSource) -> Floats:
        trainings = -(-count // (2 * _USERS * plan.steps))
        return np.concatenate([_noisy_sums(plan, training, 0.0, noise) for _ in range(trainings)])

    return Audit(
        name,
        epsilon,
        delta,
        worlds,
        mu=Accountant(plan.relation).compose(plan.event).mu if plan.rate == 1 else None,
        residuals=residuals,
        sigma=plan.noise_multiplier * plan.clip,
        relation=plan.relation,
    )


def training_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of private training on samples and on all users, under both relations."""
    plan = partial(plan_training, epsilon=epsilon, delta=delta, clip=0.5)
    replaced = Relation.REPLACE_ONE_USER
    return [
        training_audit("DP-SGD", plan(rate=0.25, steps=4)),
        training_audit("DP-SGD, all users", plan(rate=1.0, steps=2)),
        training_audit("DP-SGD, replace one user", plan(rate=0.25, steps=2, relation=replaced)),
    ]


def _noisy_sums(plan: TrainingPlan, training: Training, length: float, noise: NoiseSource) -> Floats:
    """A training of users whose gradients have a length, in units beyond the clip; shape ``(steps, 2, users)``."""
    critic = _Critic(_USERS)
    sampler = PoissonSampler(_USERS, plan.rate, noise)
    step = training(critic, plan, sampler.expected_size, noise)
    found = []
    for _ in range(plan.steps):
        step(sampler.sample(), lambda users: length * _BEYOND * plan.clip * critic(users))
        found.append(critic.noisy_sums(sampler.expected_size))
    return np.stack(found)


def _scores(sums: Floats) -> Floats:
    """Of each user, shape ``(users,)``: what lies along the gradient, which is as long in one layer as in the other."""
    scores: Floats = sums.sum(axis=(0, 1)) / math.sqrt(2)
    return scores
