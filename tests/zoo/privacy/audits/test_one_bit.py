import numpy as np
import numpy.typing as npt
import pytest

import zoo.privacy.audits.one_bit as audits
import zoo.privacy.mechanisms.one_bit as mechanisms
import zoo.privacy.mechanisms.sign_response as randomised_response
from tests.zoo.privacy.audits.lying import lying
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits import one_bit
from zoo.privacy.audits.two_world import Audit, Result, run_audit, two_world
from zoo.privacy.mechanisms.base import Mechanism
from zoo.privacy.mechanisms.one_bit import plan_gradient, plan_objective
from zoo.privacy.mechanisms.sign_response import flipped_signs, plan_input, plan_ternary, plan_uneven_input
from zoo.privacy.one_bit.link_functions import Logistic, Probit
from zoo.privacy.one_bit.published import PublishedScale
from zoo.privacy.randomness.noise import NoiseSource, laplace_noise

Floats = npt.NDArray[np.float64]
BETA = 1e-4  # a fresh seed fails a sound mechanism with at most this probability; the seeds here are fixed


def audited(audit: Audit, seed: int) -> Result:
    return run_audit(audit, beta=BETA, noise=NoiseSource.seeded(seed))


def louder(plan: Mechanism, factor: float) -> Mechanism:
    return lying(plan, scale=plan.scale * factor)


BITS = plan_objective(Logistic(), 2.0)
GAUSSIAN_BITS = plan_objective(Logistic(), 2.0, noise="gaussian", delta=1e-5)
GRADIENT = plan_gradient(2.0, steps=2, noise="laplace")
GAUSSIAN_GRADIENT = plan_gradient(2.0, steps=20, delta=1e-5)
PROBIT = plan_objective(Probit(), 2.8, alpha=1.0)


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [1.0, *(pytest.param(epsilon, marks=pytest.mark.slow) for epsilon in (0.5, 4.0))])
def test_what_holds_passes_and_what_does_not_is_caught(epsilon: float) -> None:
    found = {audit.name: audited(audit, 1) for audit in one_bit.one_bit_audits(epsilon)}
    assert all(result.as_expected for result in found.values()), found
    tight = ("InP", "InP, three symbols", "InP, three symbols, presence", "ObjP Laplace", "GraP Laplace, 2 steps")
    for name in tight:
        assert found[name].two_world.eps_lower > 0.7 * epsilon
    for name in ("published ObjP", "published OutP, d = 2", "published OutP, d = 10"):
        assert found[name].two_world.eps_lower > 1.5 * epsilon


def test_only_the_ternary_audits_are_about_presence() -> None:
    relations = {audit.name: audit.relation for audit in one_bit.one_bit_audits()}
    for name, relation in relations.items():
        hidden = name.startswith("InP, three symbols")
        assert relation is (Relation.CHANGE_ONE_RATING if hidden else Relation.CHANGE_ONE_RATING_VALUE)


def test_claims_of_published_scales_stay_within_what_runs_can_show() -> None:
    assert {audit.epsilon for audit in one_bit.one_bit_audits(16.0) if not audit.holds} == {4.0}


@pytest.mark.parametrize(
    "audit",
    [
        one_bit.bits_audit("bits", louder(BITS, 0.5)),
        one_bit.bits_audit("Gaussian bits", louder(GAUSSIAN_BITS, 0.5)),
        one_bit.gradient_audit("gradient", louder(GRADIENT, 0.5)),
        one_bit.gradient_audit("Gaussian gradient", louder(GAUSSIAN_GRADIENT, 0.5)),
        one_bit.probit_audit("probit", louder(PROBIT, 0.5), Probit()),
        one_bit.flips_audit("flips", lying(plan_input(2.0), p1=plan_input(2.5).p1, p2=plan_input(2.5).p1)),
        one_bit.flips_audit("one-sided flips", lying(plan_uneven_input(0.01, 0.4), epsilon=1.0)),
        one_bit.ternary_audit("sign", lying(plan_ternary(2.0), keep=plan_ternary(2.5).keep), presence=False),
        one_bit.ternary_audit("presence", lying(plan_ternary(2.0), keep=plan_ternary(2.5).keep), presence=True),
    ],
    ids=lambda audit: audit.name,
)
def test_too_little_noise_is_caught(audit: Audit) -> None:
    assert audited(audit, 3).verdict == "violation"


def test_noise_before_the_clamp_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclamped(gradient: Floats, plan: Mechanism, noise: NoiseSource) -> Floats:
        return gradient + laplace_noise(noise, plan.scale, gradient.shape)

    audit = one_bit.gradient_audit("unclamped", GRADIENT)
    assert audited(audit, 4).verdict == "pass"
    monkeypatch.setattr(mechanisms, "noisy_gradient", unclamped)
    assert audited(audit, 4).verdict == "violation"


def test_steps_that_are_not_counted_are_caught() -> None:
    # Noise for one step, and two of them.
    once = plan_gradient(2.0, steps=1, noise="laplace")
    assert audited(one_bit.gradient_audit("twice", lying(once, compositions=2)), 5).verdict == "violation"


def test_gaussian_noise_on_the_output_for_one_entry_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = mechanisms.plan_output

    def for_one_entry(*arguments: object, **settings: object) -> Mechanism:
        plan = honest(*arguments, **settings)  # type: ignore[arg-type]
        return louder(plan, 0.25)

    assert audited(one_bit.output_audit("sound", 2.0, 1e-5), 6).verdict == "pass"
    monkeypatch.setattr(mechanisms, "plan_output", for_one_entry)
    assert audited(one_bit.output_audit("quarter", 2.0, 1e-5), 6).verdict == "violation"


def test_presence_that_shows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_ternary(2.0)

    def few(num_cells: int, probability: object, noise: NoiseSource) -> npt.NDArray[np.int64]:
        return np.zeros(0, dtype=np.int64)

    monkeypatch.setattr(randomised_response, "sample_entries", few)
    assert audited(one_bit.ternary_audit("no made-up ratings", plan, presence=True), 7).verdict == "violation"
    assert audited(one_bit.ternary_audit("its sign", plan, presence=False), 7).verdict == "pass"


@pytest.mark.thorough
def test_an_audit_of_equal_data_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        audits,
        "_sign_worlds",
        lambda mechanism: lambda runs, noise: (mechanism(np.ones(runs), noise), mechanism(np.ones(runs), noise)),
    )
    for audit in (
        one_bit.flips_audit("flips", plan_input(2.0)),
        one_bit.bits_audit("bits", BITS),
        one_bit.bits_audit("Gaussian bits", GAUSSIAN_BITS),
        one_bit.gradient_audit("gradient", GRADIENT),
        one_bit.probit_audit("probit", PROBIT, Probit()),
    ):
        assert audited(audit, 8).two_world.verdict == "blind"


def test_a_bit_of_the_objective_is_never_told_better_than_by_a_flip() -> None:
    # At epsilon 1: the share of ones that a threshold of Laplace bits tells, at as many false ones as flips make.
    plan = plan_input(1.0)
    runs, noise = 200_000, NoiseSource.seeded(9)
    bits = [mechanisms.noisy_bits(np.full(runs, sign), plan_objective(Logistic(), 1.0), noise) for sign in (-1.0, 1.0)]
    threshold = float(np.quantile(bits[0], 1 - plan.p1))
    flips = flipped_signs(np.ones(runs), plan.p1, plan.p2, noise)
    told, flipped = float((bits[1] > threshold).mean()), float((flips > 0).mean())
    assert flipped == pytest.approx(0.731, abs=0.005)
    assert told == pytest.approx(0.658, abs=0.005)


def test_plain_steps_reach_the_minimum_within_both_bounds() -> None:
    signs = np.array([[1.0, 1.0], [1.0, -1.0]])
    observed = np.ones((2, 2), dtype=bool)
    settings = {"ridge": 0.1, "steps": 500, "step_size": 2.0}
    free = one_bit.completed(signs, observed, Logistic(), radius=100.0, alpha=100.0, **settings)  # type: ignore[arg-type]
    above, below = Logistic().slopes(free)
    assert np.where(signs > 0, -above, below) + 0.1 * free == pytest.approx(np.zeros((2, 2)), abs=1e-9)
    bounded = one_bit.completed(signs, observed, Logistic(), radius=1.0, alpha=0.3, **settings)  # type: ignore[arg-type]
    assert np.linalg.svd(bounded, compute_uv=False).sum() <= 1.0 + 1e-9
    assert np.abs(bounded).max() <= 0.3


def test_a_published_scale_has_no_claim_to_pass() -> None:
    # The same score, with the noise that the example needs, passes at the same claim.
    enough = PublishedScale(scale=4.0, claimed_epsilon=1.0, reason="-")
    audit = audits.published_output_audit("enough", enough, 2)
    scores = audit.worlds(40_000, NoiseSource.seeded(10))
    assert two_world(*scores, 1.0, 0.0, beta=BETA, attained=1.0).verdict == "pass"
