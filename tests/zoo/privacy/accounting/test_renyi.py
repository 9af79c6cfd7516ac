"""Renyi bounds of composed losses, against closed forms and other accountants."""

import warnings
from math import comb, exp, log

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.privacy.accounting.accountant import Accountant, epsilon_of
from zoo.privacy.accounting.events import (
    LaplaceEvent,
    PoissonSampledGaussianEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
)
from zoo.privacy.accounting.losses import convolved_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.accounting.renyi import (
    ORDERS,
    bit_divergences,
    divergences_of,
    laplace_divergences,
    renyi_epsilon,
    sampled_divergences,
)
from zoo.privacy.training.dp_sgd import plan_training

ZERO_OUT, REPLACE = Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER


def binomial_divergence(order: int, sigma: float, rate: float) -> float:
    """Mironov, Talwar & Zhang 2019, equation for integer orders."""
    terms = (
        comb(order, k) * (1 - rate) ** (order - k) * rate**k * exp((k * k - k) / (2 * sigma**2))
        for k in range(order + 1)
    )
    return log(sum(terms)) / (order - 1)


@pytest.mark.parametrize(("sigma", "rate"), [(0.5, 0.3), (1.0, 0.08), (2.0, 0.001), (30.0, 0.3)])
def test_sampled_steps_against_closed_form_and_opacus(sigma: float, rate: float) -> None:
    from opacus.accountants.analysis.rdp import compute_rdp

    ours = sampled_divergences(sigma, rate, True)
    finite = np.flatnonzero((ORDERS > 2) & (ORDERS < 60))
    theirs = compute_rdp(q=rate, noise_multiplier=sigma, steps=1, orders=ORDERS[finite])
    assert ours[finite] == pytest.approx(theirs, rel=1e-5)
    for order in (2, 3, 12):  # between neighbouring orders, because the divergence rises with the order
        above = int(np.searchsorted(ORDERS, order))
        assert ours[above - 1] <= binomial_divergence(order, sigma, rate) * (1 + 1e-8) <= ours[above] * (1 + 1e-7)


def test_replacement_of_all_users_has_twice_the_sensitivity() -> None:
    finite = np.isfinite(sampled_divergences(2.0, 1.0, False))
    assert sampled_divergences(2.0, 1.0, False)[finite] == pytest.approx(ORDERS[finite] * 4 / (2 * 4), rel=1e-6)
    # Rare samples: the chi-square divergence of both mixtures is rate^2 4 sinh(1/s^2), four times that of zeroing out for large s.
    rare = sampled_divergences(2.0, 1e-6, False)[0]
    assert rare == pytest.approx(ORDERS[0] * 1e-12 * 4 * np.sinh(0.25) / 2, rel=1e-4)


def test_randomised_response_and_laplace_noise_against_sums() -> None:
    order, stay = ORDERS[60], 1 / (1 + exp(-0.7))
    both = stay**order * (1 - stay) ** (1 - order) + (1 - stay) ** order * stay ** (1 - order)
    assert bit_divergences(0.7)[60] == pytest.approx(log(both) / (order - 1), rel=1e-7)
    x = np.linspace(-60, 60, 2_000_001)
    density, moved = (np.exp(-np.abs(x - shift) / 2) / 4 for shift in (0, 1))
    mean = float(np.trapezoid(moved**order * density ** (1 - order), x))
    assert laplace_divergences(2.0)[60] == pytest.approx(log(mean) / (order - 1), rel=1e-5)


@pytest.mark.parametrize(("delta", "most"), [(1e-9, 1.97), (1e-10, 2.08)])
def test_noise_for_a_tiny_delta_after_many_steps(delta: float, most: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = plan_training(epsilon=1.0, delta=delta, rate=0.001, steps=100_000, clip=1.0)
    assert plan.falls_back
    theirs = RdpAccountant(list(np.linspace(10, 100, 91)), dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    step = dp_accounting.PoissonSampledDpEvent(0.001, dp_accounting.GaussianDpEvent(plan.noise_multiplier))
    theirs.compose(step, 100_000)
    assert plan.epsilon == pytest.approx(theirs.get_epsilon(delta), rel=2e-3)
    assert 0.99 * most < plan.noise_multiplier <= most


def test_a_fallback_that_costs_more_than_a_tenth_is_reported() -> None:
    with pytest.warns(UserWarning, match=r"delta is 1e-30, too small to compose 2 steps exactly.*above what is needed"):
        assert plan_training(epsilon=1.0, delta=1e-30, rate=0.001, steps=2, clip=1.0).falls_back
    assert not plan_training(epsilon=1.0, delta=1e-5, rate=0.1, steps=10, clip=1.0).falls_back


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_renyi_bounds_are_above_loss_distributions(relation: Relation) -> None:
    accountant = Accountant(relation, [SelfComposedEvent(PoissonSampledGaussianEvent(2.0, 0.05), 500)])
    exact = convolved_epsilon(accountant._losses(), 1e-6)
    assert exact < renyi_epsilon(divergences_of(accountant._losses()), 1e-6) < 1.15 * exact
    assert accountant.epsilon(1e-6) == exact


@pytest.mark.thorough
@settings(max_examples=15, deadline=None)
@given(
    sigma=st.floats(0.5, 20), rate=st.floats(1e-4, 0.5), count=st.integers(1, 10**6), delta=st.floats(1e-14, 1e-11),
    relation=st.sampled_from([ZERO_OUT, REPLACE]),
)  # fmt: skip
def test_epsilon_rises_with_steps_and_rate_and_falls_with_noise_and_delta(
    sigma: float, rate: float, count: int, delta: float, relation: Relation
) -> None:
    def epsilon(sigma: float, rate: float, count: int, delta: float) -> float:
        return epsilon_of([SelfComposedEvent(PoissonSampledGaussianEvent(sigma, rate), count)], delta, relation)

    first = epsilon(sigma, rate, count, delta) * (1 + 1e-6)
    assert epsilon(sigma * 1.2, rate, count, delta) <= first
    assert epsilon(sigma, rate * 0.8, count, delta) <= first
    assert epsilon(sigma, rate, count, delta * 2) <= first
    assert first <= epsilon(sigma, rate, 2 * count, delta) * (1 + 2e-6)


def test_many_rare_events_of_several_kinds_do_not_add_up() -> None:
    many = [SelfComposedEvent(RandomisedResponseEvent(0.499), 10**8), SelfComposedEvent(LaplaceEvent(1e3), 10**8)]
    assert epsilon_of(many, 1e-6) < 0.02 * epsilon_of(many, 0.0)
