"""Worst pairs of private training by its noisy gradients, and of rounds by the table without the shared parts: white-box audits.

Gradients are far beyond the clip. The score is their noisy sum over steps along the unit vector of one world's gradient.
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
from zoo.privacy.training.sanitised_gradient import SanitisationPlan, SanitisedGradient, plan_sanitisation
from zoo.privacy.training.step_plan import StepPlan

Training = Callable[[nn.Module, TrainingPlan, float, NoiseSource], CriticStep]
"""Make the steps of a training of a module, as `PrivateGradient` does."""
Sanitiser = Callable[[SanitisationPlan, NoiseSource], Callable[[Tensor], Tensor]]
"""Make the layer that sanitises the gradient of each step's rows, as `SanitisedGradient` does."""
Rounds = Callable[[TrainingPlan, int, NoiseSource], PrivateRounds]
"""Make the rounds of a number of users, as `PrivateRounds` does."""
Step = Callable[[float], Floats]
"""Take a step with gradients of a length; return its noisy sum without the denominator."""

_USERS = 10_000  # of a training, each of them a run
_ROWS = 100_000  # sanitised at once
_DELTA = 0.01
_BEYOND = 3.0  # length of a gradient in clips
_FEW_STEPS, _FEW_USERS = 2, 40  # of a generator


def training_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Return audits of private training on samples and on all users, under both relations, and of sanitised gradients."""
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
    """Return audits of a generator's private steps, fewer of them; none without a claim."""
    if not privacy.sound:
        return []
    few = replace(privacy, steps=_FEW_STEPS, n_critic=1, sample_size=_FEW_USERS // 4)
    name = f"SPPG, {privacy.mechanism}, {_FEW_STEPS} steps"
    if privacy.mechanism == "gs_wgan":
        return [sanitised_audit(name, few.sanitisation_plan(_FEW_USERS))]
    return [training_audit(name, few.training_plan(_FEW_USERS))]


def rounds_audits(privacy: RoundPrivacy) -> list[Audit]:
    """Return audits of the rounds of federated training, fewer of them."""
    few = replace(privacy, num_rounds=_FEW_STEPS)
    return [rounds_audit(f"DP-FedAvg, {_FEW_STEPS} rounds", few.plan(_FEW_USERS))]


class _Critic(nn.Module):
    """Two layers in which each user has a number of its own: clipping each layer alone would allow twice the square."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Embedding(_USERS, 1)
        self.second = nn.Embedding(_USERS, 1)

    def forward(self, users: Tensor) -> Tensor:
        out: Tensor = self.first(users) + self.second(users)
        return out.squeeze(1)


def training_audit(name: str, plan: TrainingPlan, training: Training = PrivateGradient) -> Audit:
    """Return the audit of private training; the plan has few steps.

    Each user's gradient has its own coordinates, so a training is a run for each of its users. In one world users have
    gradients; in the other none, or under ``replace_one_user`` the opposite ones. Gradients alternate in sign from step to
    step, so noise that stays the same cancels.

    The audited claim is the plan's epsilon at a delta of 0.01, or at its own; no number of runs reaches a very small delta.
    Mu is claimed, and the power checked, only if all users are in every step. The visible share of a sampled training's
    epsilon is unknown.
    """

    def begin(noise: NoiseSource) -> Step:
        critic, sampler = _Critic(), PoissonSampler(_USERS, plan.rate, noise)
        step = training(critic, plan, sampler.expected_size, noise)

        def released(length: float) -> Floats:
            step(sampler.sample(), lambda users: length * critic(users))
            layers = [np.asarray(layer.grad, dtype=np.float64)[:, 0] for layer in critic.parameters()]
            return np.stack(layers) * sampler.expected_size

        return released

    return _audit_of(name, plan, begin)


class _Changes(NamedTuple):
    """What each client changes of its own row, and of the one shared number."""

    clients: Tensor
    rows: Tensor
    differences: Tensor
    shared: dict[str, Tensor]


def rounds_audit(name: str, plan: TrainingPlan, rounds: Rounds = PrivateRounds) -> Audit:
    """Return the audit of few private rounds, as `training_audit`; a client has a row of two numbers of its own.

    Clipping the numbers one by one would allow twice the square. Updates may have any length, like those of a hostile client.
    """
    table, shared = torch.zeros(_USERS, 2), {"bias": torch.zeros(1)}

    def begin(noise: NoiseSource) -> Step:
        played = rounds(plan, _USERS, noise)

        def released(length: float) -> Floats:
            def changes(users: Tensor, _: np.random.Generator) -> Updates:
                differences, bias = torch.full((len(users), 2), length), torch.zeros(len(users), 1)
                return _Changes(torch.arange(len(users)), users, differences, {"bias": bias})

            mean, _ = played(table, shared, changes)
            return np.asarray(mean, dtype=np.float64).T * plan.rate * _USERS

        return released

    return _audit_of(name, plan, begin)


def _steps_of(step: Step, plan: StepPlan, length: float) -> Floats:
    """Return all noisy sums of gradients of a length in units beyond the clip, (steps, ...); signs alternate."""
    return np.stack([step(float(sign) * length * _BEYOND * plan.clip) for sign in _signs(plan)])


def _signs(plan: StepPlan) -> Floats:
    return np.resize([1.0, -1.0], plan.steps)


def _audit_of(name: str, plan: TrainingPlan, begin: Callable[[NoiseSource], Step]) -> Audit:
    """Return the audit of trainings whose steps release sums (2, users), equal in both numbers."""
    delta = max(plan.delta, _DELTA)
    epsilon = epsilon_of([plan.event], delta, plan.relation)
    if epsilon == 0:
        epsilon, delta = plan.epsilon, plan.delta
    opposite = -1.0 if plan.relation is Relation.REPLACE_ONE_USER else 0.0

    def scores(length: float, runs: int, noise: NoiseSource) -> Floats:
        return np.asarray(_signs(plan) @ _steps_of(begin(noise), plan, length).sum(axis=1) / math.sqrt(2))[:runs]

    def residuals(count: int, noise: NoiseSource) -> Floats:
        trainings = -(-count // (2 * _USERS * plan.steps))
        return np.concatenate([_steps_of(begin(noise), plan, 0.0) for _ in range(trainings)])

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
    """Return the audit of a generator's sanitised gradients; the plan has few rows and steps.

    The worlds have opposite gradients of all rows, as if one user reversed the critic. Both alternate from step to step, so
    noise that stays the same cancels. A row has two numbers: clipping them one by one would allow twice the square.
    """

    def noisy_sums(length: float, runs: int, noise: NoiseSource) -> Floats:
        """Return sanitised gradients of rows of two equal numbers, ``(steps, runs, rows, 2)``."""
        passing = sanitiser(replace(plan, rows=runs * plan.rows), noise)

        def step(length: float) -> Floats:
            rows = torch.zeros(runs * plan.rows, 2, requires_grad=True)
            (length * passing(rows).sum(dim=1)).mean().backward()  # type: ignore[no-untyped-call]
            return np.asarray(rows.grad, dtype=np.float64).reshape(runs, plan.rows, 2) * runs * plan.rows

        return _steps_of(step, plan, length)

    def scores(length: float, runs: int, noise: NoiseSource) -> Floats:
        sums = noisy_sums(length, runs, noise).sum(axis=(2, 3))
        return np.asarray(_signs(plan) @ sums / math.sqrt(2 * plan.rows * plan.steps))

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
