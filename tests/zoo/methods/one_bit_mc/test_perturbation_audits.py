"""Audits of a run's own settings: they pass what is sound, and catch a solver that does something else than its proof."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import zoo
from zoo.methods.one_bit_mc import output_perturbation
from zoo.methods.one_bit_mc.norm_balls import Floats, NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood
from zoo.methods.one_bit_mc.solvers import FixedSteps
from zoo.privacy.audits.two_world import Result, run_audit
from zoo.privacy.randomness.noise import NoiseSource

SOUND: dict[str, tuple[Callable[..., zoo.Perturbation], dict[str, Any], int]] = {
    "InP": (zoo.InputPerturbation, {}, 1),
    "InP, pairs hidden": (zoo.InputPerturbation, {"hide_pairs": True}, 2),
    "ObjP": (zoo.ObjectivePerturbation, {}, 1),
    "ObjP, Gaussian": (zoo.ObjectivePerturbation, {"noise": "gaussian"}, 1),
    "GraP": (zoo.GradientPerturbation, {"steps": 20}, 1),
    "GraP, Laplace": (zoo.GradientPerturbation, {"steps": 20, "noise": "laplace"}, 1),
    "OutP": (zoo.OutputPerturbation, {}, 1),
}
RIDGE = zoo.OutputPerturbation(2.0, ridge=1.0)


def audited(perturbation: zoo.Perturbation) -> list[Result]:
    method = zoo.OneBitMC(tau=5.0, perturbation=perturbation, alpha=1.0, bounded=True)
    return [run_audit(audit, beta=1e-4, noise=NoiseSource.seeded(1)) for audit in method.audits()]


@pytest.mark.parametrize("name", SOUND)
def test_a_claim_is_audited_with_the_settings_at_hand(name: str) -> None:
    kind, settings, count = SOUND[name]
    results = audited(kind(2.0, **settings))
    record = zoo.OneBitMC(tau=5.0, perturbation=kind(2.0, **settings)).forecast(9, 9)
    assert len(results) == count
    for result in results:
        assert (result.audit.epsilon, result.audit.delta, result.audit.relation) == (2.0, record.delta, record.relation)
        assert result.verdict == "pass"
        assert result.two_world.power is not None  # it has shown that it sees


def test_uneven_flips_cost_what_their_audit_sees() -> None:
    """The report -1 has the largest ratio, .6/.1; the report +1 has 2.25, which is all that one side would count."""
    (result,) = audited(zoo.InputPerturbation(p1=0.1, p2=0.4))
    assert result.audit.epsilon == pytest.approx(math.log(6), rel=1e-8)
    assert result.verdict == "pass"
    assert math.log(2.25) < math.log(5) < result.two_world.eps_lower <= math.log(6)


@pytest.mark.parametrize(
    "perturbation",
    [
        zoo.Clear(),
        zoo.InputPerturbation(2.0, noise_seed=1),
        zoo.ObjectivePerturbation(2.0, paper_faithful=True),
        zoo.OutputPerturbation(2.0, paper_faithful=True),
    ],
    ids=lambda perturbation: type(perturbation).__name__,
)
def test_where_nothing_is_claimed_nothing_is_audited(perturbation: zoo.Perturbation) -> None:
    assert audited(perturbation) == []


def test_steps_without_their_ridge_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [result.verdict for result in audited(RIDGE)] == ["pass"]
    of = Likelihood.of
    monkeypatch.setattr(output_perturbation.Likelihood, "of", lambda seen, link, ridge: of(seen, link))
    assert [result.two_world.verdict for result in audited(RIDGE)] == ["violation"]


def test_steps_that_are_longer_than_planned_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """So long that two matrices are brought apart."""
    descend = FixedSteps._descend

    def longer(self: FixedSteps, gradient: Floats, size: float) -> Floats:
        return descend(self, gradient, 8 * size)

    monkeypatch.setattr(FixedSteps, "_descend", longer)
    assert [result.two_world.verdict for result in audited(RIDGE)] == ["violation"]


def test_a_projection_that_brings_apart_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    project = NuclearBall.__call__
    monkeypatch.setattr(NuclearBall, "__call__", lambda self, matrix: 1.5 * project(self, matrix))
    assert [result.two_world.verdict for result in audited(RIDGE)] == ["violation"]
