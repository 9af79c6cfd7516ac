import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest, laplace, norm

from zoo.privacy.accounting.accountant import Accountant, epsilon_of, mu_of
from zoo.privacy.accounting.events import GaussianEvent, LaplaceEvent, PureEvent, SelfComposedEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms import one_bit
from zoo.privacy.mechanisms.base import Mechanism
from zoo.privacy.one_bit.link_functions import Flipped, Logistic, Probit
from zoo.privacy.one_bit.stability import general_sensitivity, output_sensitivity
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.record.record import PrivacyRecord

Floats = npt.NDArray[np.float64]

# A test of a sampled law fails with this probability for a fresh seed; the seeds are fixed.
LEVEL = 1e-6


def signs(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).choice([-1.0, 1.0], count)


def all_plans(epsilon: float = 1.0, delta: float = 1e-5) -> list[Mechanism]:
    return [
        one_bit.plan_objective(Logistic(), epsilon),
        one_bit.plan_objective(Logistic(), epsilon, noise="gaussian", delta=delta),
        one_bit.plan_objective(Probit(), epsilon + 1, alpha=1.0),
        one_bit.plan_gradient(epsilon, steps=100, delta=delta),
        one_bit.plan_gradient(epsilon, steps=100, noise="laplace"),
        one_bit.plan_output(Logistic(), epsilon, delta, alpha=1.0, ridge=0.2, steps=200, step_size=2 / 0.65),
    ]


# Calibration: vectors computed apart from this project.


def test_gradient_scales() -> None:
    plan = one_bit.plan_gradient(1.0, steps=100, clamp=0.5, delta=1e-5)
    assert plan.scale == pytest.approx(37.30631634815939, rel=1e-9)
    assert one_bit.plan_gradient(1.0, steps=100, clamp=0.5, noise="laplace").scale == pytest.approx(100.0, rel=1e-9)


@pytest.mark.parametrize(
    ("steps", "epsilon", "laplacian", "gaussian"),
    [
        (50, 1, 70.71, 26.38), (50, 10, 7.07, 3.535), (100, 2, 70.71, 19.94), (200, 4, 70.71, 15.29),
        (500, 1, 707.11, 83.42), (500, 10, 70.71, 11.18),
    ],
)  # fmt: skip
def test_the_table_of_gradient_noise(steps: int, epsilon: float, laplacian: float, gaussian: float) -> None:
    assert math.sqrt(2) * one_bit.plan_gradient(epsilon, steps=steps, noise="laplace").scale == pytest.approx(
        laplacian, abs=6e-3
    )
    assert one_bit.plan_gradient(epsilon, steps=steps, delta=1e-5).scale == pytest.approx(gaussian, rel=5e-4)


@pytest.mark.parametrize(("steps", "epsilon"), [(50, 0.483), (100, 0.337), (200, 0.232), (500, 0.141)])
def test_laplace_steps_cost_less_with_a_delta(steps: int, epsilon: float) -> None:
    event = one_bit.plan_gradient(1.0, steps=steps, noise="laplace").event
    assert epsilon_of([event], 1e-5) == pytest.approx(epsilon, rel=0.01)


def test_output_sensitivities_and_their_limit_without_a_ridge() -> None:
    fixed = general_sensitivity(Logistic(), alpha=1.0, ridge=0.2, steps=200, step_size=2 / 0.65)
    assert fixed == pytest.approx(5.0, rel=1e-9)
    assert fixed >= 5.0 * (1 - 1e-12)

    def bound(ridge: float) -> float:
        return general_sensitivity(Probit(), alpha=1.0, ridge=ridge, steps=7, step_size=0.5)

    assert bound(0.0) == pytest.approx(Probit().sensitivity(1.0) * 3.5)
    assert bound(1e-12) == pytest.approx(bound(0.0))


def test_objective_scales() -> None:
    # In the paper's form H is twice the noise on the bits: Laplace of scale 2/epsilon.
    assert 2 * one_bit.plan_objective(Logistic(), 0.5).scale == pytest.approx(4.0)
    gaussian = one_bit.plan_objective(Logistic(), 1.0, noise="gaussian", delta=1e-5)
    assert gaussian.scale == pytest.approx(3.7306316348)
    probit = one_bit.plan_objective(Probit(), 2.0, alpha=1.0)
    # epsilon = 2 Delta/b + the curvature's part, b the scale of H.
    assert 2 * 1.81274 / (2 * probit.scale) + 0.77139 == pytest.approx(2.0, abs=1e-5)
    assert probit.exact_minimiser
    assert one_bit.plan_objective(Probit(), 2.0, alpha=1.0, ridge=1.0).scale < probit.scale


@pytest.mark.parametrize(
    "plan", all_plans(), ids=lambda plan: f"{plan.noise}-{plan.compositions}-{plan.sensitivity:.3g}"
)
def test_the_event_costs_no_more_than_was_asked_for(plan: Mechanism) -> None:
    found = Accountant(plan.relation).compose(plan.event).epsilon(plan.delta)
    assert 0.999 * plan.epsilon <= found <= plan.epsilon
    if plan.mu is not None:
        assert mu_of([plan.event]) <= plan.mu * (1 + 1e-12)
    assert plan.relation is Relation.CHANGE_ONE_RATING_VALUE
    PrivacyRecord.of(plan, NoiseSource.os()).check_against([plan.event])


def test_events() -> None:
    laplacian, gaussian, probit, steps, pure_steps, output = all_plans()
    assert isinstance(laplacian.event, LaplaceEvent)
    assert isinstance(gaussian.event, GaussianEvent)
    assert probit.event == PureEvent(2.0)
    for plan, kind in ((steps, GaussianEvent), (pure_steps, LaplaceEvent)):
        assert isinstance(plan.event, SelfComposedEvent)
        assert isinstance(plan.event.event, kind)
        assert plan.event.count == plan.compositions == 100
    assert isinstance(output.event, GaussianEvent)
    assert output.sensitivity == pytest.approx(4.08248, rel=2e-5)


@given(epsilon=st.floats(0.1, 20), steps=st.integers(1, 500), clamp=st.floats(0.01, 3), delta=st.floats(1e-9, 1e-2))
def test_gaussian_steps_are_one_gaussian_release(epsilon: float, steps: int, clamp: float, delta: float) -> None:
    plan = one_bit.plan_gradient(epsilon, steps=steps, clamp=clamp, delta=delta)
    mu = 2 * clamp * math.sqrt(steps) / plan.scale
    assert gauss_epsilon(delta, mu) <= epsilon
    assert mu == pytest.approx(gauss_mu(epsilon, delta), rel=1e-9)


def test_against_dp_accounting() -> None:
    from dp_accounting import GaussianDpEvent, LaplaceDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    def theirs(event: object) -> float:
        return float(PLDAccountant(value_discretization_interval=1e-3).compose(event).get_epsilon(1e-5))

    gaussian = one_bit.plan_gradient(1.0, steps=100, delta=1e-5)
    assert theirs(SelfComposedDpEvent(GaussianDpEvent(gaussian.scale), 100)) == pytest.approx(1.0, rel=5e-3)
    laplacian = one_bit.plan_gradient(4.0, steps=20, noise="laplace")
    other = theirs(SelfComposedDpEvent(LaplaceDpEvent(laplacian.scale), 20))
    assert epsilon_of([laplacian.event], 1e-5) == pytest.approx(other, rel=5e-3)


def test_noisy_bits_have_the_noise_of_the_plan() -> None:
    truth = signs(1, 50_000)
    for plan in all_plans()[:2]:
        noisy = one_bit.noisy_bits(truth, plan, NoiseSource.seeded(2))
        law = laplace(scale=plan.scale) if plan.noise == "laplace" else norm(scale=plan.scale)
        assert kstest(noisy - (1 + truth) / 2, law.cdf).pvalue > LEVEL
        spacing = lattice_spacing(plan.scale * (math.sqrt(2) if plan.noise == "laplace" else 1))
        assert (noisy == np.rint(noisy / spacing) * spacing).all()
        assert noisy.dtype == np.float64
    small = one_bit.noisy_bits(truth.astype(np.int8), all_plans()[0], NoiseSource.seeded(2))
    assert (small == one_bit.noisy_bits(truth, all_plans()[0], NoiseSource.seeded(2))).all()


def test_objective_noise_is_laplacian() -> None:
    plan = one_bit.plan_objective(Probit(), 3.0, alpha=2.0)
    values = one_bit.objective_noise(50_000, plan, NoiseSource.seeded(3))
    assert kstest(values, laplace(scale=plan.scale).cdf).pvalue > LEVEL


def test_gradients_are_clamped_before_the_noise() -> None:
    for plan in all_plans()[3:5]:
        for value, clean in ((7.0, 0.5), (-math.inf, -0.5), (0.2, 0.2)):
            noisy = one_bit.noisy_gradient(np.full(20_000, value), plan, NoiseSource.seeded(4))
            law = laplace(scale=plan.scale) if plan.noise == "laplace" else norm(scale=plan.scale)
            assert kstest(noisy - clean, law.cdf).pvalue > LEVEL


@given(x=st.floats(-30, 30), clamp=st.floats(0.01, 2))
def test_clamped_gradients_are_no_further_apart_than_the_sensitivity(x: float, clamp: float) -> None:
    plan = one_bit.plan_gradient(1.0, steps=1, clamp=clamp, noise="laplace")
    for link in (Logistic(), Probit(0.7)):
        above, below = (float(slope) for slope in link.slopes(x))
        assert min(above, clamp) + min(below, clamp) <= plan.sensitivity


def test_noisy_output_has_the_noise_of_the_plan() -> None:
    plan = all_plans()[-1]
    noisy = one_bit.noisy_output(np.full((100, 200), 0.3), plan, NoiseSource.seeded(5))
    assert noisy.shape == (100, 200)
    assert kstest((noisy - 0.3).ravel(), norm(scale=plan.scale).cdf).pvalue > LEVEL


def test_probit_objectives_out_of_reach_are_refused() -> None:
    with pytest.raises(ValueError, match=r"epsilon is 0\.5.*needs more than 0\.771388"):
        one_bit.plan_objective(Probit(), 0.5, alpha=1.0)
    with pytest.raises(ValueError, match=r"alpha is missing. Give the probit link"):
        one_bit.plan_objective(Probit(), 2.0)
    with pytest.raises(ValueError, match=r"noise is 'gaussian' with the probit link. Use 'laplace'"):
        one_bit.plan_objective(Probit(), 2.0, alpha=1.0, noise="gaussian", delta=1e-5)
    with pytest.raises(ValueError, match=r"link is 'logistic, flipped'. It is not convex"):
        one_bit.plan_objective(Flipped(Logistic(), 0.1, 0.1), 2.0)


@pytest.mark.parametrize(
    "plan",
    [
        lambda epsilon: one_bit.plan_objective(Logistic(), epsilon),
        lambda epsilon: one_bit.plan_objective(Probit(), epsilon, alpha=1.0),
        lambda epsilon: one_bit.plan_gradient(epsilon, steps=3, delta=1e-5),
        lambda epsilon: one_bit.plan_gradient(epsilon, steps=3, noise="laplace"),
        lambda epsilon: one_bit.plan_output(Logistic(), epsilon, 1e-5, alpha=1.0, ridge=1.0, steps=3, step_size=0.1),
    ],
)
def test_an_epsilon_out_of_range_is_refused(plan: Callable[[float], Mechanism]) -> None:
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"epsilon is .*Allowed: finite"):
            plan(bad)


def test_deltas_go_with_gaussian_noise() -> None:
    for laplacian in (
        lambda: one_bit.plan_objective(Logistic(), 1.0, delta=1e-5),
        lambda: one_bit.plan_gradient(1.0, steps=3, noise="laplace", delta=1e-5),
    ):
        with pytest.raises(ValueError, match=r"delta is 1e-05. Omit it for Laplace noise"):
            laplacian()
    for gaussian in (
        lambda: one_bit.plan_objective(Logistic(), 1.0, noise="gaussian"),
        lambda: one_bit.plan_gradient(1.0, steps=3),
        lambda: one_bit.plan_output(Logistic(), 1.0, 0.0, alpha=1.0, ridge=1.0, steps=3, step_size=0.1),
    ):
        with pytest.raises(ValueError, match=r"delta is .*Allowed: \[1e-300, 1\)"):
            gaussian()
    with pytest.raises(ValueError, match=r"noise is 'uniform'. Allowed: 'laplace', 'gaussian'"):
        one_bit.plan_gradient(1.0, steps=3, noise="uniform")  # type: ignore[arg-type]


def test_steps_out_of_range_are_refused() -> None:
    for bad in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="steps must be an integer >= 1, got"):
            one_bit.plan_gradient(1.0, steps=bad, delta=1e-5)  # type: ignore[arg-type]
    for clamp in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"clamp is .*Allowed: finite, > 0"):
            one_bit.plan_gradient(1.0, steps=3, clamp=clamp, delta=1e-5)
    for size in (0.0, -1.0, 0.9, math.nan):
        with pytest.raises(ValueError, match=r"step_size must lie in \(0, 0\.888889\], which is 2/\(2 ridge"):
            output_sensitivity(Logistic(), alpha=1.0, ridge=1.0, steps=3, step_size=size)
    with pytest.raises(ValueError, match="ridge must be finite and >= 0, got -1"):
        output_sensitivity(Logistic(), alpha=1.0, ridge=-1.0, steps=3, step_size=0.1)
    with pytest.raises(ValueError, match="The link must be convex, got 'probit, flipped'"):
        output_sensitivity(Flipped(Probit(), 0.1, 0.1), alpha=1.0, ridge=1.0, steps=3, step_size=0.1)


def test_plans_of_other_mechanisms_are_refused() -> None:
    bits, _, probit, gradient, pure_gradient, output = all_plans()
    noise = NoiseSource.seeded(1)
    for plan in (probit, gradient, output):
        with pytest.raises(ValueError, match="not plan_objective's with the logistic link"):
            one_bit.noisy_bits(np.ones(3), plan, noise)
    with pytest.raises(ValueError, match="not plan_objective's with the probit link"):
        one_bit.objective_noise(3, bits, noise)
    with pytest.raises(ValueError, match=r"has no clamp. Use plan_gradient"):
        one_bit.noisy_gradient(np.ones(3), bits, noise)
    for plan in (gradient, pure_gradient, bits):
        with pytest.raises(ValueError, match="Use plan_output"):
            one_bit.noisy_output(np.ones(3), plan, noise)


def test_values_that_are_no_signs_or_gradients_are_refused() -> None:
    noise = NoiseSource.seeded(1)
    for bad in (np.array([0.0, 1.0]), np.ones((2, 2)), np.array([math.nan])):
        with pytest.raises(ValueError, match=r"Signs have shape .*Allowed: \+1 or -1, shape \(n,\)"):
            one_bit.noisy_bits(bad, all_plans()[0], noise)
    with pytest.raises(ValueError, match="The gradient holds NaN"):
        one_bit.noisy_gradient(np.array([math.nan]), all_plans()[3], noise)
