"""Worst pairs of private training, by its noisy gradients, which are all that it releases: white-box audits.

Gradients are far beyond the clip. The score is their noisy sum along the unit vector of one world's, added up over steps.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zoo.privacy.accounting.accountant import Accountant, epsilon_of
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.two_world import Audit, Floats, worlds_of
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.critic_steps import CriticStep
from zoo.privacy.training.dp_sgd import TrainingPlan, plan_training
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.poisson import PoissonSampler
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.private_rounds import PrivateRounds, Updates
from zoo.privacy.training.round_privacy import RoundPrivacy
from zoo.privacy.training.sanitisation import SanitisationPlan, plan_sanitisation
from zoo.privacy.training.sanitised_gradient import SanitisedGradient

Training = Callable[[nn.Module, TrainingPlan, float, NoiseSource], CriticStep]
"""Makes the steps of a training of a module, as `PrivateGradient` does; others show that an audit catches them."""
Sanitiser = Callable[[SanitisationPlan, NoiseSource], Callable[[Tensor], Tensor]]
"""Makes what lets the rows of each step pass and sanitises their gradient, as `SanitisedGradient` does."""

_USERS = 10_000  # of a training, each of them a run
_ROWS = 100_000  # sanitised at once; the noise on a row does not depend on how many there are
_DELTA = 0.01
_BEYOND = 3.0  # length of a gradient in clips
_FEW_STEPS, _FEW_USERS = 2, 40  # of a generator


def training_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of private training on samples and on all users, under both relations, and of sanitised gradients."""
    plan = partial(plan_training, epsilon=epsilon, delta=delta, clip=0.5)
    sanitised = plan_sanitisation(epsilon=epsilon, delta=delta, rows=4, steps=3, clip=0.5)
    return [
        training_audit("DP-SGD", plan(rate=0.25, steps=4)),
        training_audit("DP-SGD, all users", plan(rate=1.0, steps=2)),
        training_audit("DP-SGD, replace one user", plan(rate=0.25, steps=2, relation=Relation.REPLACE_ONE_USER)),
        rounds_audit("DP-FedAvg", plan(rate=0.25, steps=4)),
        rounds_audit("DP-FedAvg, all users", plan(rate=1.0, steps=2)),
        sanitised_audit("GS-WGAN", sanitised),
    ]


def generator_audits(privacy: GeneratorPrivacy) -> list[Audit]:
    """Audits of the steps that a generator's claim rests on, fewer of them; none where nothing is claimed."""
    if not privacy.sound:
        return []
    few = replace(privacy, steps=_FEW_STEPS, n_critic=1, sample_size=_FEW_USERS // 4)
    name = f"SPPG, {privacy.mechanism}, {_FEW_STEPS} steps"
    if privacy.mechanism == "gs_wgan":
        return [sanitised_audit(name, few.sanitisation_plan(_FEW_USERS))]
    return [training_audit(name, few.training_plan(_FEW_USERS))]


def rounds_audits(privacy: RoundPrivacy) -> list[Audit]:
    """Audits of the rounds that federated training's claim rests on, fewer of them."""
    few = replace(privacy, num_rounds=_FEW_STEPS)
    return [rounds_audit(f"DP-FedAvg, {_FEW_STEPS} rounds", few.plan(_FEW_USERS))]


class _Critic(nn.Module):
    """Two layers in which each user has a number of its own: clipping one by one would let twice the square through."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Embedding(_USERS, 1)
        self.second = nn.Embedding(_USERS, 1)

    def forward(self, users: Tensor) -> Tensor:
        """Of each user the sum of both numbers, shape ``(batch,)``."""
        out: Tensor = self.first(users) + self.second(users)
        return out.squeeze(1)


def training_audit(name: str, plan: TrainingPlan, training: Training = PrivateGradient) -> Audit:
    """Audit of private training; the plan is of few steps.

    Every user's gradient has coordinates of its own, so that one training is a run for each of its users, and the others
    are there besides. In one world users have gradients; in the other they have none, or under ``replace_one_user`` the
    opposite ones. They turn from step to step, so that noise which stays the same takes itself away.

    What is audited is the plan's epsilon at a delta of 0.01, or else at its own: at a very small delta no number of runs
    comes near it. Mu is claimed, and the power of the audit checked, where all users are in every step; nothing says how much
    of a sampled training's epsilon an audit of this size can see.
    """
    ways = np.resize([1.0, -1.0], plan.steps)  # of the gradients of each step

    def noisy_sums(length: float, noise: NoiseSource) -> Floats:
        """A training of users whose gradients have a length, in units beyond the clip; shape ``(steps, 2, users)``."""
        critic, sampler = _Critic(), PoissonSampler(_USERS, plan.rate, noise)
        step = training(critic, plan, sampler.expected_size, noise)
        found = []

        def losses(users: Tensor, way: float) -> Tensor:
            scores: Tensor = critic(users)
            return way * length * _BEYOND * plan.clip * scores

        for way in ways:
            step(sampler.sample(), partial(losses, way=float(way)))
            layers = [np.asarray(layer.grad, dtype=np.float64)[:, 0] for layer in critic.parameters()]
            found.append(np.stack(layers) * sampler.expected_size)
        return np.stack(found)

    return _audit_of(name, plan, noisy_sums)


class _Changes(NamedTuple):
    """What each client changes of a row of its own, and of what all share, in which there is one number."""

    clients: Tensor
    rows: Tensor
    differences: Tensor
    shared: dict[str, Tensor]


Rounds = Callable[[TrainingPlan, int, NoiseSource], PrivateRounds]
"""Makes the rounds of so many users; others than `PrivateRounds` show that an audit catches them."""


def rounds_audit(name: str, plan: TrainingPlan, rounds: Rounds = PrivateRounds) -> Audit:
    """Audit of private rounds; the plan is of few. As `training_audit`, a client having a row of two numbers of its own.

    Clipping these one by one would let twice the square through. Updates are of any length, as those of a hostile client are.
    """
    ways = np.resize([1.0, -1.0], plan.steps)
    table, shared = torch.zeros(_USERS, 2), {"bias": torch.zeros(1)}

    def noisy_sums(length: float, noise: NoiseSource) -> Floats:
        """Rounds of clients whose updates have a length, in units beyond the clip; shape ``(rounds, 2, users)``."""
        played, found = rounds(plan, _USERS, noise), []
        for way in ways:

            def changes(users: Tensor, _: np.random.Generator, way: float = float(way)) -> Updates:
                differences = torch.full((len(users), 2), way * length * _BEYOND * plan.clip)
                return _Changes(torch.arange(len(users)), users, differences, {"bias": torch.zeros(len(users), 1)})

            mean, _ = played(table, shared, changes)
            found.append(np.asarray(mean, dtype=np.float64).T * plan.rate * _USERS)
        return np.stack(found)

    return _audit_of(name, plan, noisy_sums)


def _audit_of(name: str, plan: TrainingPlan, noisy_sums: Callable[[float, NoiseSource], Floats]) -> Audit:
    """Of noisy sums (steps, 2, users) of users with parts of a length, alike in both numbers, which turn from step to step."""
    delta = max(plan.delta, _DELTA)
    epsilon = epsilon_of([plan.event], delta, plan.relation)
    if epsilon == 0:
        epsilon, delta = plan.epsilon, plan.delta
    opposite = -1.0 if plan.relation is Relation.REPLACE_ONE_USER else 0.0
    ways = np.resize([1.0, -1.0], plan.steps)

    def scores(length: float, runs: int, noise: NoiseSource) -> Floats:
        return np.asarray(ways @ noisy_sums(length, noise).sum(axis=1) / math.sqrt(2))[:runs]

    def residuals(count: int, noise: NoiseSource) -> Floats:
        trainings = -(-count // (2 * _USERS * plan.steps))
        return np.concatenate([noisy_sums(0.0, noise) for _ in range(trainings)])

    return Audit(
        name,
        epsilon,
        delta,
        worlds_of(scores, opposite, 1.0, at_once=_USERS),
        mu=Accountant(plan.relation).compose(plan.event).mu if plan.rate == 1 else None,
        residuals=residuals,
        sigma=plan.noise_std,
        relation=plan.relation,
    )


def sanitised_audit(name: str, plan: SanitisationPlan, sanitiser: Sanitiser = SanitisedGradient) -> Audit:
    """Audit of a generator's gradients, sanitised; the plan is of few rows and steps.

    In one world all rows' gradients point one way and in the other the opposite way, as if one user had turned the critic
    around; and both turn from step to step, so that noise which stays the same takes itself away. A row has two numbers:
    clipping them one by one would let twice the square through.
    """
    ways = np.resize([1.0, -1.0], plan.steps)  # of the gradients of each step

    def noisy_sums(length: float, runs: int, noise: NoiseSource) -> Floats:
        """Sanitised gradients of rows of two numbers each; shape ``(steps, runs, rows, 2)``."""
        passing = sanitiser(replace(plan, rows=runs * plan.rows), noise)
        found = []
        for way in ways:
            rows = torch.zeros(runs * plan.rows, 2, requires_grad=True)
            (way * length * _BEYOND * plan.clip * passing(rows).sum(dim=1)).mean().backward()
            found.append(np.asarray(rows.grad, dtype=np.float64).reshape(runs, plan.rows, 2) * runs * plan.rows)
        return np.stack(found)

    def scores(length: float, runs: int, noise: NoiseSource) -> Floats:
        # The two numbers of a gradient are alike.
        sums = noisy_sums(length, runs, noise).sum(axis=(2, 3))
        return np.asarray(ways @ sums / math.sqrt(2 * plan.rows * plan.steps))

    return Audit(
        name,
        plan.epsilon,
        plan.delta,
        worlds_of(scores, -1.0, 1.0, at_once=max(1, _ROWS // plan.rows)),
        mu=plan.mu_after(plan.steps),
        residuals=lambda count, noise: noisy_sums(0.0, -(-count // (2 * plan.rows * plan.steps)), noise).ravel(),
        sigma=plan.noise_std,
        relation=plan.relation,
    )
