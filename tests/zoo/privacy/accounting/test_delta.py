"""Delta of a ledger at an epsilon, and the guesses that it allows: exact sums, sampling, and the other way round."""

from itertools import product
from math import erf, exp, prod, sqrt, tanh

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from zoo.privacy.accounting.accountant import Accountant, attack_success_of
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    LaplaceEvent,
    NonPrivateEvent,
    NoOpEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    PureEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
)
from zoo.privacy.accounting.gaussian import gauss_delta, gauss_mu
from zoo.privacy.accounting.pure import flip_probability, repeated_delta, repeated_epsilon
from zoo.privacy.accounting.relation import Relation

ZERO_OUT = Relation.ZERO_OUT_ONE_USER


def delta_of(events: list[PrivacyEvent], epsilon: float, relation: Relation | None = None) -> float:
    return Accountant(relation, events).delta(epsilon)


@pytest.mark.parametrize(
    ("epsilon", "guess"), [(1, 0.553309), (2, 0.599006), (4, 0.678126), (8, 0.797582), (16, 0.926852)]
)
def test_gaussian_noise_is_guessed_as_often_as_the_shift_of_a_normal_number(epsilon: float, guess: float) -> None:
    mu = gauss_mu(epsilon, 1e-5)
    found = attack_success_of([GaussianEvent(1 / mu)])
    assert found == pytest.approx(guess, abs=1e-6)
    assert norm.cdf(mu / 2) * (1 - 1e-15) <= found <= norm.cdf(mu / 2) * (1 + 1e-11)


@pytest.mark.parametrize(("epsilon", "guess"), [(1, 0.731059), (2, 0.880797), (4, 0.982014)])
def test_a_flipped_bit_is_guessed_as_often_as_it_is_told(epsilon: float, guess: float) -> None:
    assert attack_success_of([RandomisedResponseEvent(flip_probability(epsilon))]) == pytest.approx(guess, abs=1e-6)


def test_nothing_shows_nothing_and_ratings_as_they_are_show_all() -> None:
    assert delta_of([NoOpEvent()], 0.0) == 0.0
    assert attack_success_of([]) == 0.5
    assert delta_of([GaussianEvent(9.0), NonPrivateEvent()], 5.0) == 1.0
    assert attack_success_of([PureEvent(800.0), GaussianEvent(1e-3)]) == 1.0


@given(epsilons=st.lists(st.floats(1e-3, 6), min_size=1, max_size=7), at=st.floats(0, 8))
@settings(max_examples=30, deadline=None)
def test_flipped_bits_against_all_their_reports(epsilons: list[float], at: float) -> None:
    exact = 0.0
    for report in product((True, False), repeat=len(epsilons)):
        truth = prod((1 if said else exp(-e)) / (1 + exp(-e)) for said, e in zip(report, epsilons, strict=True))
        lie = prod((exp(-e) if said else 1) / (1 + exp(-e)) for said, e in zip(report, epsilons, strict=True))
        exact += max(0.0, truth - exp(at) * lie)
    found = delta_of([PureEvent(e) for e in epsilons], at)
    assert exact - 1e-14 <= found <= exact + 0.02 * exact + 1e-3


@pytest.mark.parametrize(("epsilon", "count"), [(0.5, 1), (0.3, 2), (1.0, 9), (0.01, 5000), (0.2, 200_000)])
def test_equal_flips_against_their_binomial_sum(epsilon: float, count: int) -> None:
    from scipy.stats import binom

    found = repeated_delta(epsilon, count, 0.0)
    flips = 1 / (1 + exp(epsilon))
    exact = binom.cdf((count - 1) // 2, count, flips) - binom.cdf((count - 1) // 2, count, 1 - flips)
    if count > 100_000:  # one mechanism with the sum of their epsilons
        assert found == pytest.approx(tanh(epsilon * count / 2))
    else:
        assert exact * (1 - 1e-12) <= found == pytest.approx(exact, rel=1e-8)
    assert repeated_delta(epsilon, count, epsilon * count * 1.001) == 0.0


@given(epsilon=st.floats(0.01, 3), count=st.integers(1, 60), delta=st.floats(1e-9, 0.5))
def test_repeated_flips_read_both_ways(epsilon: float, count: int, delta: float) -> None:
    at = repeated_epsilon(epsilon, count, delta)
    assert repeated_delta(epsilon, count, at) <= delta * (1 + 1e-9)
    assert repeated_delta(epsilon, count, at * (1 - 1e-6) - 1e-7) >= delta * (1 - 1e-9) or at == 0


def test_laplace_noise_shows_as_much_as_two_exponential_tails_differ() -> None:
    exact = 1 - exp(-0.5)  # of Laplace noise of scale 1 with its mean moved by 1
    assert exact <= delta_of([LaplaceEvent(1.0)], 0.0) <= exact + 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize(("sigma", "count", "epsilon"), [(2.436, 1000, 0.0), (2.436, 1000, 2.0), (1.0, 50, 0.0)])
def test_steps_on_a_sample_against_the_accountant_of_the_library(sigma: float, count: int, epsilon: float) -> None:
    rate = 128 / 1574
    library = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
    library.compose(SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), count))
    theirs = library.get_delta(epsilon)
    ours = delta_of([SelfComposedEvent(PoissonSampledGaussianEvent(sigma, rate), count)], epsilon, ZERO_OUT)
    assert ours == pytest.approx(theirs, rel=0.02)


def test_one_matrix_is_the_mean_over_its_stretches() -> None:
    mean = chi2(20).expect(lambda q: erf(0.3 * sqrt(q) / 2 / sqrt(2)), lb=0, ub=200)
    assert delta_of([GaussianProjectionEvent(1 / 0.3, 20)], 0.0) == pytest.approx(mean, rel=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.01, 0.5, 3.0])
def test_several_matrices_against_a_shared_and_an_independent_pair(epsilon: float) -> None:
    # 1e6 stretches of each; the bound must not be beaten by more than 5 standard errors (6e-7 for a fresh seed; fixed).
    generator = np.random.default_rng(7)
    shared, fresh, extra = (generator.chisquare(dim, 1_000_000) for dim in (10, 15, 5))
    bound = delta_of([GaussianProjectionEvent(10.0, 10), GaussianProjectionEvent(8.0, 15)], epsilon)
    for second in (fresh, shared + extra):
        mu = np.sqrt(shared / 100 + second / 64)
        deltas = norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert deltas.mean() <= bound + 5 * deltas.std() / 1000
    assert bound <= erf(sqrt(10 / 100 + 15 / 64) / 2 / sqrt(2)) * (1 + 1e-11)


def test_noise_and_flips_together_against_their_exact_law() -> None:
    # Both worlds' densities over the noisy number x and the report; the worlds differ by mu in x and by the bit.
    mu, epsilon, x = 0.7, 0.9, np.linspace(-12, 12, 200_001)
    one, other = norm.pdf(x - mu), norm.pdf(x)
    stay = 1 / (1 + exp(-epsilon))
    for at in (0.0, 0.4, 0.9, 1.5):
        gains = [np.maximum(p * one - exp(at) * (1 - p) * other, 0).sum() for p in (stay, 1 - stay)]
        exact = sum(gains) * (x[1] - x[0])
        found = delta_of([GaussianEvent(1 / mu), PureEvent(epsilon)], at)
        assert exact - 1e-9 <= found <= exact + 1e-3


def test_too_many_kinds_of_losses_cost_at_most_their_sum() -> None:
    # 65 kinds of bits and noise: not convolved. At most a bit of their sum, and what the noise shows; at least the noise.
    bits: list[PrivacyEvent] = [PureEvent(0.01 + 1e-6 * i) for i in range(65)]
    total, shown = sum(0.01 + 1e-6 * i for i in range(65)), erf(0.5 / 2 / sqrt(2))
    found = delta_of([*bits, GaussianEvent(2.0)], 0.0)
    assert shown < found <= (1 - (1 - tanh(total / 2)) * (1 - shown)) * (1 + 1e-9)
    assert delta_of([*bits, GaussianEvent(2.0)], total + 0.3) < gauss_delta(0.3, 0.5)  # Renyi divergences do not add up
    assert delta_of([GaussianProjectionEvent(1e-7, 3)], 1.0) == 1.0


singles = st.one_of(
    st.builds(GaussianEvent, st.floats(0.5, 20)),
    st.builds(GaussianProjectionEvent, st.floats(5, 200), st.integers(1, 50)),
    st.builds(PoissonSampledGaussianEvent, st.floats(1, 20), st.just(0.05)),
    st.builds(PureEvent, st.floats(0.05, 3)),
    st.builds(LaplaceEvent, st.floats(0.5, 20)),
)


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(
    ledger=st.lists(singles, min_size=1, max_size=3),
    delta=st.sampled_from([1e-9, 1e-5, 1e-2, 0.3]),
    epsilon=st.floats(0.01, 6),
)
@example(ledger=[GaussianProjectionEvent(20.0, 30), PureEvent(1.0)], delta=1e-5, epsilon=0.5)
@example(ledger=[GaussianProjectionEvent(20.0, 30), PureEvent(1.0), GaussianEvent(2.0)], delta=1e-2, epsilon=1.0)
@example(ledger=[GaussianProjectionEvent(5.0, 30), GaussianProjectionEvent(5.0, 4)], delta=0.3, epsilon=0.01)
def test_the_curve_is_the_same_read_both_ways(ledger: list[PrivacyEvent], delta: float, epsilon: float) -> None:
    accountant = Accountant(Relation.REPLACE_ONE_USER, ledger)
    at = accountant.epsilon(delta)
    assert accountant.delta(at) <= delta * (1 + 1e-6) + 1e-14
    found = accountant.delta(epsilon)
    # With other kinds delta may be the better of the two: it knows that what is pure shows no more than a bit.
    if 1e-10 < found < 1 and all(isinstance(event, GaussianEvent | GaussianProjectionEvent) for event in ledger):
        assert accountant.epsilon(found * (1 + 1e-6) + 1e-14) <= epsilon * (1 + 1e-6)
    # What epsilon and delta alone allow is never less; and delta falls.
    assert accountant.max_attack_success <= (exp(at) + delta) / (1 + exp(at)) * (1 + 1e-9) + 1e-14
    assert found <= accountant.delta(0.0)
    assert all(accountant.delta(0.0) >= Accountant(accountant.relation, [e]).delta(0.0) * (1 - 1e-6) for e in ledger)


@pytest.mark.parametrize("epsilon", [-1.0, float("nan"), float("inf")])
def test_epsilon_out_of_range(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"epsilon is .*finite, >= 0"):
        delta_of([], epsilon)
