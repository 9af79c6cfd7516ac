"""The audit of private training: it passes what is sound and catches what is not. Seeds are fixed."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.training import Training, training_audit, training_audits
from zoo.privacy.audits.two_world import Audit, Result, run_audit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import Losses
from zoo.privacy.training.dp_sgd import TrainingPlan, plan_training
from zoo.privacy.training.private_gradient import PrivateGradient

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
