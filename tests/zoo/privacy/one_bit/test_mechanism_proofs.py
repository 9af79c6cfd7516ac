"""The proofs of the mechanisms, against brute force: laws of one entry, and how far one sign moves what is released."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import laplace

from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.audits.one_bit import completed
from zoo.privacy.mechanisms.one_bit import plan_objective
from zoo.privacy.one_bit.link_functions import Link, Logistic, Probit
from zoo.privacy.one_bit.stability import output_sensitivity

Floats = npt.NDArray[np.float64]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_one_logistic_entry_loses_no_more_than_epsilon(epsilon: float) -> None:
    scale = plan_objective(Logistic(), epsilon).scale
    laws = [laplace(loc=bit, scale=scale) for bit in (0.0, 1.0)]
    for alpha in (0.1, 0.5, 1.0, 4.0, 20.0):
        low, high = expit(-alpha), expit(alpha)
        noisy = np.linspace(low, high, 2001)
        # The bound -alpha, the bound alpha, and densities between.
        ratios = [
            laws[1].logcdf(low) - laws[0].logcdf(low),
            laws[1].logsf(high) - laws[0].logsf(high),
            *(laws[1].logpdf(noisy) - laws[0].logpdf(noisy)),
        ]
        assert max(abs(ratio) for ratio in ratios) <= epsilon * (1 + 1e-12), alpha


@given(
    alpha=st.floats(0.2, 3),
    scale=st.floats(0.5, 2),
    ridge=st.sampled_from([0.0, 0.1, 1.0]),
    more=st.floats(0.05, 4),
    pull=st.floats(-2, 2),
)
def test_one_probit_entry_loses_no_more_than_epsilon(
    alpha: float, scale: float, ridge: float, more: float, pull: float
) -> None:
    link = Probit(scale)
    epsilon = link.log_curvature_ratio(alpha, ridge) + more
    plan = plan_objective(link, epsilon, alpha=alpha, ridge=ridge)
    x = np.linspace(-alpha, alpha, 1001)
    above, below = link.slopes(x)
    law = laplace(scale=plan.scale)
    # The noise at which x is the minimiser, given a convex rest of slope ridge x + pull; and how fast it moves with x.
    thresholds = [-above + ridge * x + pull, below + ridge * x + pull]
    densities = [law.logpdf(t) + np.log(np.gradient(t, x, edge_order=2)) for t in thresholds]
    atoms = [(law.logcdf(t[0]), law.logsf(t[-1])) for t in thresholds]
    losses = [*(densities[0] - densities[1]), *(one - other for one, other in zip(*atoms, strict=True))]
    assert np.abs(losses).max() <= epsilon + 2e-3  # differences of a thousandth


def flipped_pair(seed: int) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    random = np.random.default_rng(seed)
    observed = random.random((3, 3)) < 0.7
    observed[0, 0] = True
    one = random.choice([-1.0, 1.0], (3, 3))
    other = one.copy()
    other[0, 0] *= -1
    return one, other, observed


@pytest.mark.thorough
@settings(max_examples=150)
@given(
    seed=st.integers(0, 10_000),
    link=st.sampled_from([Logistic(), Probit(), Probit(0.6)]),
    ridge=st.sampled_from([0.0, 0.05, 0.5, 3.0]),
    steps=st.sampled_from([1, 2, 10, 60]),
    pace=st.sampled_from([0.05, 0.5, 1.0]),
    radius=st.sampled_from([0.5, 1.5, 3.0, 100.0]),
)
def test_steps_stay_as_near_as_they_must(
    seed: int, link: Link, ridge: float, steps: int, pace: float, radius: float
) -> None:
    one, other, observed = flipped_pair(seed)
    step_size = pace * 2 / (2 * ridge + link.smoothness)
    ends = [
        completed(data, observed, link, radius=radius, alpha=1.0, ridge=ridge, steps=steps, step_size=step_size)
        for data in (one, other)
    ]
    bound = output_sensitivity(link, alpha=1.0, ridge=ridge, steps=steps, step_size=step_size)
    assert np.linalg.norm(ends[0] - ends[1]) <= bound


def test_one_step_moves_as_far_as_the_bound() -> None:
    one, other, observed = flipped_pair(1)
    settings = {"alpha": 1.0, "ridge": 1.0, "steps": 1, "step_size": 0.5}
    ends = [completed(data, observed, Logistic(), radius=100.0, **settings) for data in (one, other)]  # type: ignore[arg-type]
    bound = output_sensitivity(Logistic(), **settings)  # type: ignore[arg-type]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(bound)


def exact_sensitivity(alpha: float, ridge: float) -> float:
    """How far one flipped sign moves the exact minimiser of a logistic objective whose entries are within alpha (L2).

    The objective is curved by ridge everywhere and by at least c more at the entry that differs. With a change of x there
    and r elsewhere, ``(ridge + c) x^2 + ridge r^2 <= |x|``; x^2 + r^2 is as large as that lets it be.
    """
    c = float(expit(alpha) * expit(-alpha))
    return 1 / (2 * math.sqrt(ridge * c)) if ridge <= c else 1 / (ridge + c)


def test_what_minimisers_would_need() -> None:
    found = [exact_sensitivity(1.0, ridge) for ridge in (0.05, 0.2, 1.0)]
    assert found == pytest.approx([5.0429, 2.521356, 0.835693], rel=1e-5)
    sigmas = [
        [exact_sensitivity(1.0, ridge) / gauss_mu(epsilon, 1e-5) for epsilon in (1, 4, 8)] for ridge in (0.2, 1.0)
    ]
    assert sigmas == [pytest.approx([9.41, 2.73, 1.51], abs=6e-3), pytest.approx([3.12, 0.904, 0.502], abs=3e-3)]


@pytest.mark.thorough
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), ridge=st.sampled_from([0.05, 0.2, 1.0]), radius=st.sampled_from([1.0, 3.0, 100.0]))
def test_minimisers_stay_as_near_as_they_must(seed: int, ridge: float, radius: float) -> None:
    one, other, observed = flipped_pair(seed)
    # No entry comes near 100, so every step projects exactly, and many of them end at the minimiser.
    ends = [
        completed(
            data,
            observed,
            Logistic(),
            radius=radius,
            alpha=100.0,
            ridge=ridge,
            steps=600,
            step_size=2 / (2 * ridge + 0.25),
        )
        for data in (one, other)
    ]
    alpha = max(float(np.abs(end).max()) for end in ends)
    assert np.linalg.norm(ends[0] - ends[1]) <= exact_sensitivity(alpha, ridge) + 1e-6
