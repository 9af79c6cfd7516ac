"""Audits of private training: they pass what is sound and catch what is not. Seeds are fixed."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.training import (
    Sanitiser,
    Training,
    generator_audits,
    sanitised_audit,
    training_audit,
    training_audits,
)
from zoo.privacy.audits.two_world import Audit, Result, run_audit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import Losses
from zoo.privacy.training.dp_sgd import TrainingPlan, plan_training
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.sanitised_gradient import SanitisationPlan, SanitisedGradient, plan_sanitisation

BETA = 1e-4  # a fresh seed fails a sound training with at most this probability, and 1e-3 more for its noise


def audited(audit: Audit) -> Result:
    return run_audit(audit, beta=BETA, noise=NoiseSource.seeded(1))


def planned(rate: float, relation: Relation = Relation.ZERO_OUT_ONE_USER) -> TrainingPlan:
    return plan_training(epsilon=2.0, delta=1e-5, clip=0.5, steps=2, rate=rate, relation=relation)


class Broken:
    """A training that differs from its plan."""

    def __init__(self, module: nn.Module, plan: TrainingPlan, expected_size: float, noise: NoiseSource) -> None:
        self.module = module
        self.honest = PrivateGradient(module, plan, expected_size, noise)
        self.bare = PrivateGradient(module, replace(plan, noise_multiplier=0.0), expected_size, noise)

    def added(self, before: list[Tensor | None]) -> None:
        with torch.no_grad():
            for parameter, gradient in zip(self.module.parameters(), before, strict=True):
                assert parameter.grad is not None
                assert gradient is not None
                parameter.grad += gradient


class ClippedByTerm(Broken):
    """Each of two terms of a user's loss is clipped by itself: a user moves the sum by twice the clip."""

    def __call__(self, users: Tensor, losses: Losses) -> None:
        self.bare(users, losses)
        before = [parameter.grad for parameter in self.module.parameters()]
        self.honest(users, losses)
        self.added(before)


class Unclipped(Broken):
    """Nobody's part is clipped."""

    def __init__(self, module: nn.Module, plan: TrainingPlan, expected_size: float, noise: NoiseSource) -> None:
        super().__init__(module, plan, expected_size, noise)
        loose = replace(plan, noise_multiplier=0.0, clip=100 * plan.clip)
        self.loose = PrivateGradient(module, loose, expected_size, noise)

    def __call__(self, users: Tensor, losses: Losses) -> None:
        self.loose(users, losses)
        before = [parameter.grad for parameter in self.module.parameters()]
        self.honest(torch.arange(0), losses)
        self.added(before)


def quarter_noise(module: nn.Module, plan: TrainingPlan, size: float, noise: NoiseSource) -> PrivateGradient:
    return PrivateGradient(module, replace(plan, noise_multiplier=plan.noise_multiplier / 4), size, noise)


def all_users(module: nn.Module, plan: TrainingPlan, size: float, noise: NoiseSource) -> partial[None]:
    """Whoever is sampled, everybody is read."""
    return partial(_everybody, PrivateGradient(module, plan, size, noise))


def _everybody(step: PrivateGradient, users: Tensor, losses: Losses) -> None:
    count = len(next(step.module.parameters()))
    step(torch.arange(count), losses)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("training", "rate"),
    [
        (ClippedByTerm, 0.25),
        pytest.param(ClippedByTerm, 1.0, marks=pytest.mark.slow),
        pytest.param(Unclipped, 0.25, marks=pytest.mark.slow),
        pytest.param(Unclipped, 1.0, marks=pytest.mark.slow),
        (quarter_noise, 0.25),
        pytest.param(quarter_noise, 1.0, marks=pytest.mark.slow),
    ],
)
def test_trainings_that_differ_from_their_plan_are_caught(training: Training, rate: float) -> None:
    result = audited(training_audit("broken", planned(rate), training))
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == ("violation" if training is quarter_noise else "pass")


class StandingNoise(Broken):
    """Draws its noise once and adds the same in every step, as from a key that stays."""

    kept: list[Tensor] | None = None

    def __call__(self, users: Tensor, losses: Losses) -> None:
        if self.kept is None:
            self.honest(torch.arange(0), losses)
            self.kept = [parameter.grad.clone() for parameter in self.module.parameters() if parameter.grad is not None]
        self.bare(users, losses)
        self.added([*self.kept])


@pytest.mark.parametrize("rate", [0.25, pytest.param(1.0, marks=pytest.mark.slow)])
def test_noise_that_stays_from_step_to_step_is_caught(rate: float) -> None:
    result = audited(training_audit("standing", planned(rate), StandingNoise))
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == "pass", "there is as much of it as there should be"


@pytest.mark.slow
def test_a_sample_that_is_none_is_caught() -> None:
    assert audited(training_audit("all users", planned(0.25), all_users)).two_world.verdict == "violation"


@pytest.mark.slow
def test_too_little_noise_for_a_replacement_is_caught() -> None:
    zeroed = planned(0.5)
    assert audited(training_audit("zero out", zeroed)).verdict == "pass"
    honest = planned(0.5, Relation.REPLACE_ONE_USER)
    broken = replace(honest, noise_multiplier=zeroed.noise_multiplier)

    def halved(module: nn.Module, plan: TrainingPlan, size: float, noise: NoiseSource) -> PrivateGradient:
        return PrivateGradient(module, broken, size, noise)

    assert audited(training_audit("replace", honest)).verdict == "pass"
    assert audited(training_audit("replace", honest, halved)).two_world.verdict == "violation"


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 16.0])  # 2 is in the catalogue's tests
def test_sound_trainings_pass(epsilon: float) -> None:
    for audit in training_audits(epsilon):
        result = audited(audit)
        assert result.verdict == "pass"
        if audit.mu is not None and epsilon > 1:
            assert result.two_world.power is not None


def test_a_replaced_user_moves_the_sums_both_ways() -> None:
    """One world has the user, the other the user's opposite, or nobody; the mean of 4,000 runs, to 6 standard errors."""
    for relation, opposite in ((Relation.REPLACE_ONE_USER, -1.0), (Relation.ZERO_OUT_ONE_USER, 0.0)):
        plan = planned(1.0, relation)
        without, with_them = training_audit("all users", plan).worlds(4000, NoiseSource.seeded(2))
        moved = plan.steps * plan.clip  # of two layers at right angles, in the direction of both
        error = 6 * plan.noise_multiplier * plan.clip * (plan.steps / 4000) ** 0.5
        assert with_them.mean() == pytest.approx(moved, abs=error + 1e-4)
        assert without.mean() == pytest.approx(opposite * moved, abs=error + 1e-4)


# Sanitised gradients.

ROWS_PLAN = plan_sanitisation(epsilon=2.0, delta=1e-5, rows=4, steps=3, clip=0.5)


def calibrated_to_half(plan: SanitisationPlan, noise: NoiseSource) -> SanitisedGradient:
    """As if a user moved a row's gradient by the clip, and not by twice that: from nothing, not from the opposite."""
    return SanitisedGradient(replace(plan, noise_multiplier=plan.noise_multiplier / 2), noise)


def calibrated_to_one_row(plan: SanitisationPlan, noise: NoiseSource) -> SanitisedGradient:
    """As if a user moved the gradient of one row alone: the critic has seen everybody, so it is all of them."""
    return SanitisedGradient(replace(plan, noise_multiplier=plan.noise_multiplier / math.sqrt(ROWS_PLAN.rows)), noise)


def calibrated_to_one_step(plan: SanitisationPlan, noise: NoiseSource) -> SanitisedGradient:
    """As if steps cost nothing."""
    return SanitisedGradient(replace(plan, noise_multiplier=plan.noise_multiplier / math.sqrt(plan.steps)), noise)


class Standing(SanitisedGradient):
    """Draws its noise once and adds the same in every step."""

    kept: Tensor | None = None

    def sanitise(self, gradient: Tensor, step: int) -> Tensor:
        noise = super().sanitise(torch.zeros_like(gradient), step)
        self.kept = noise if self.kept is None else self.kept
        each = gradient * self.plan.rows
        clipped = each * (self.plan.clip / each.norm(dim=1, keepdim=True).clamp(min=self.plan.clip))
        return clipped / self.plan.rows + self.kept


class ByNumber(SanitisedGradient):
    """Clips each number of a row by itself."""

    def sanitise(self, gradient: Tensor, step: int) -> Tensor:
        noise = super().sanitise(torch.zeros_like(gradient), step)
        bound = self.plan.clip / self.plan.rows
        return gradient.clamp(-bound, bound) + noise


class UnclippedRows(SanitisedGradient):
    """Clips nothing."""

    def sanitise(self, gradient: Tensor, step: int) -> Tensor:
        return gradient + super().sanitise(torch.zeros_like(gradient), step)


def test_sanitised_gradients_pass_and_the_audit_sees_most_of_them() -> None:
    result = audited(sanitised_audit("GS-WGAN", ROWS_PLAN))
    assert result.verdict == "pass"
    assert result.two_world.power is not None
    assert result.two_world.power > 0.6
    stated = result.audit.epsilon, result.audit.delta, result.audit.relation
    assert stated == (ROWS_PLAN.epsilon, 1e-5, ROWS_PLAN.relation)
    assert result.audit.mu == pytest.approx(gauss_mu(2.0, 1e-5), rel=1e-9)


@pytest.mark.parametrize("relation", [Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_sanitised_gradients_pass_at_other_claims_and_for_either_relation(epsilon: float, relation: Relation) -> None:
    plan = plan_sanitisation(epsilon=epsilon, delta=1e-5, rows=1, steps=2, clip=2.0, relation=relation)
    assert audited(sanitised_audit("GS-WGAN", plan)).verdict == "pass"


@pytest.mark.parametrize(
    ("sanitiser", "scale"),
    [
        (calibrated_to_half, "violation"),
        (calibrated_to_one_row, "violation"),
        (calibrated_to_one_step, "violation"),
        (Standing, "pass"),
        (ByNumber, "pass"),
        (UnclippedRows, "pass"),
    ],
)
def test_sanitisers_that_differ_from_their_plan_are_caught(sanitiser: Sanitiser, scale: str) -> None:
    """By the two worlds, and by the size of the noise where that is what is wrong."""
    result = audited(sanitised_audit("broken", ROWS_PLAN, sanitiser))
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == scale


def test_the_score_is_the_likelihood_ratio() -> None:
    """Without noise to speak of both worlds are ``clip sqrt(rows steps)`` on either side of nothing, as mu says."""
    plan = replace(ROWS_PLAN, noise_multiplier=1e-6)
    worlds = sanitised_audit("GS-WGAN", plan).worlds(50, NoiseSource.seeded(0))
    for scores, sign in zip(worlds, (-1, 1), strict=True):
        assert np.allclose(scores, sign * plan.clip * math.sqrt(plan.rows * plan.steps), atol=1e-4)


def test_more_runs_than_fit_at_once_are_all_run() -> None:
    audit = sanitised_audit("GS-WGAN", replace(ROWS_PLAN, steps=1))
    worlds = audit.worlds(60_000, NoiseSource.seeded(0))
    assert [len(scores) for scores in worlds] == [60_000, 60_000]
    assert len(np.unique(worlds[0])) > 1000
    assert audit.residuals is not None
    assert len(audit.residuals(1001, NoiseSource.seeded(0))) >= 1001


def made(mechanism: Any) -> GeneratorPrivacy:  # noqa: ANN401
    return GeneratorPrivacy(
        mechanism, 2.0, None, Relation.ZERO_OUT_ONE_USER, 1.0, steps=300, sample_size=128, n_critic=5,
        paper_faithful=mechanism in ("first_layer_noise", "upstream_noise"),
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", ["private_d", "first_layer_only", "gs_wgan"])
def test_a_generators_claim_is_audited_by_its_mechanism(mechanism: str) -> None:
    (audit,) = generator_audits(made(mechanism))
    assert audit.name == f"SPPG, {mechanism}, 2 steps"
    assert audit.holds
    assert (audit.mu is not None) == (mechanism == "gs_wgan")
