"""The audit of sanitised gradients: it passes what is sound and catches what is not. Seeds are fixed."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.generator import generator_audits
from zoo.privacy.audits.sanitised import Sanitiser, sanitised_audit
from zoo.privacy.audits.two_world import Audit, Result, run_audit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.sanitisation import SanitisationPlan, plan_sanitisation
from zoo.privacy.training.sanitised_gradient import SanitisedGradient

BETA = 1e-4  # a fresh seed fails a sound release with at most this probability, and 1e-3 more for its noise
PLAN = plan_sanitisation(epsilon=2.0, delta=1e-5, rows=4, steps=3, clip=0.5)


def audited(audit: Audit) -> Result:
    return run_audit(audit, beta=BETA, noise=NoiseSource.seeded(1))


def calibrated_to_half(plan: SanitisationPlan, noise: NoiseSource) -> SanitisedGradient:
    """As if a user moved a row's gradient by the clip, and not by twice that: from nothing, not from the opposite."""
    return SanitisedGradient(replace(plan, noise_multiplier=plan.noise_multiplier / 2), noise)


def calibrated_to_one_row(plan: SanitisationPlan, noise: NoiseSource) -> SanitisedGradient:
    """As if a user moved the gradient of one row alone: the critic has seen everybody, so it is all of them."""
    return SanitisedGradient(replace(plan, noise_multiplier=plan.noise_multiplier / math.sqrt(PLAN.rows)), noise)


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


class Unclipped(SanitisedGradient):
    """Clips nothing."""

    def sanitise(self, gradient: Tensor, step: int) -> Tensor:
        return gradient + super().sanitise(torch.zeros_like(gradient), step)


def test_the_true_plan_passes_and_the_audit_sees_most_of_it() -> None:
    result = audited(sanitised_audit("GS-WGAN", PLAN))
    assert result.verdict == "pass"
    assert result.two_world.power is not None
    assert result.two_world.power > 0.6
    assert (result.audit.epsilon, result.audit.delta, result.audit.relation) == (PLAN.epsilon, 1e-5, PLAN.relation)
    assert result.audit.mu == pytest.approx(gauss_mu(2.0, 1e-5), rel=1e-9)


@pytest.mark.parametrize("relation", [Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_it_passes_at_other_claims_and_for_either_relation(epsilon: float, relation: Relation) -> None:
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
        (Unclipped, "pass"),
    ],
)
def test_what_differs_from_its_plan_is_caught(sanitiser: Sanitiser, scale: str) -> None:
    """By the two worlds, and by the size of the noise where that is what is wrong."""
    result = audited(sanitised_audit("broken", PLAN, sanitiser))
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == scale


def test_a_verdict_repeats() -> None:
    first, second = (audited(sanitised_audit("GS-WGAN", PLAN)) for _ in range(2))
    assert first.two_world == second.two_world
    assert first.scale == second.scale


def test_the_score_is_the_likelihood_ratio() -> None:
    """Without noise to speak of both worlds are ``clip sqrt(rows steps)`` on either side of nothing, as mu says."""
    plan = replace(PLAN, noise_multiplier=1e-6)
    worlds = sanitised_audit("GS-WGAN", plan).worlds(50, NoiseSource.seeded(0))
    for scores, sign in zip(worlds, (-1, 1), strict=True):
        assert np.allclose(scores, sign * plan.clip * math.sqrt(plan.rows * plan.steps), atol=1e-4)


def test_more_runs_than_fit_at_once_are_all_run() -> None:
    audit = sanitised_audit("GS-WGAN", replace(PLAN, steps=1))
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


@pytest.mark.parametrize("mechanism", ["none", "first_layer_noise", "upstream_noise"])
def test_where_nothing_is_claimed_nothing_is_audited(mechanism: str) -> None:
    assert generator_audits(made(mechanism)) == []
