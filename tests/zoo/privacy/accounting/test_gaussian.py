import re
from math import inf, log, nan, sqrt
from pathlib import Path

import dp_accounting
import mpmath
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tests.zoo.privacy.accounting.renyi import rdp_to_epsilon
from zoo.privacy.accounting.gaussian import gauss_delta, gauss_epsilon, gauss_mu

epsilons = st.floats(0.01, 50)
deltas = st.floats(1e-12, 0.1)
mus = st.floats(0.01, 15)

# epsilon: mu, and the true epsilon and delta at the classical sigma, where they were worked out; delta = 1e-5
CURVE = {
    0.5: (0.1422105587, None, None), 1: (0.2680511232, 0.751, 4.1e-8), 2: (0.5015516892, None, None),
    4: (0.9249308977, 3.511, 6.8e-7), 8: (1.6660305978, 7.914, 8.0e-6), 16: (2.9054781552, 18.90, 3.4e-4),
    32: (4.8796, 49.21, 4.7e-2), 64: (7.8918, 142.73, 0.95),
}  # fmt: skip


def classical_sigma(epsilon: float, delta: float) -> float:
    """The textbook noise, false beyond epsilon 1; kept here alone, as what must not be used."""
    return sqrt(2 * log(5 / 4 / delta)) / epsilon


def precise_delta(epsilon: float, mu: float, digits: int = 60) -> mpmath.mpf:
    with mpmath.workdps(digits):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def test_delta_is_not_the_probability_that_the_loss_exceeds_epsilon() -> None:
    """The figure of docs/privacy.md: the loss is normal, of mean mu^2 / 2 and standard deviation mu."""
    mu = gauss_mu(1.0, 1e-5)
    assert norm.sf(1.0, mu**2 / 2, mu) / 1e-5 == pytest.approx(16, abs=0.5)


@pytest.mark.parametrize("epsilon", CURVE)
def test_mu_at_one_in_hundred_thousand(epsilon: float) -> None:
    expected = CURVE[epsilon][0]
    assert gauss_mu(epsilon, 1e-5) == pytest.approx(expected, rel=1e-9 if epsilon <= 16 else 1e-5)


@pytest.mark.parametrize("epsilon", [epsilon for epsilon, row in CURVE.items() if row[1] is not None])
def test_the_classical_noise_is_too_small_for_large_epsilon(epsilon: float) -> None:
    _, true_epsilon, true_delta = CURVE[epsilon]
    mu = 1 / classical_sigma(epsilon, 1e-5)
    assert gauss_epsilon(1e-5, mu) == pytest.approx(true_epsilon, rel=1e-3)
    assert gauss_delta(epsilon, mu) == pytest.approx(true_delta, rel=2e-2)
    assert (gauss_epsilon(1e-5, mu) > epsilon) == (epsilon > 8)


def test_no_file_uses_the_classical_formula() -> None:
    files = sorted(Path(__file__).parents[4].joinpath("zoo").rglob("*.py"))
    assert files
    assert [
        str(file) for file in files if re.search(r"\b1\.25\b|\b5\s*/\s*4\b", file.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 4, 8])
def test_sigma_agrees_with_the_public_accountant(epsilon: float) -> None:
    for delta in (1e-5, 1e-6, 1e-8):
        assert 1 / gauss_mu(epsilon, delta) == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-9)


def test_the_curve_at_its_ends() -> None:
    assert gauss_delta(1.0, 0.0) == 0.0
    assert gauss_delta(1.0, inf) == 1.0
    assert gauss_delta(1e6, 1e-150) == 0.0
    assert gauss_epsilon(1e-5, 0.0) == 0.0
    assert gauss_epsilon(1e-5, inf) == inf
    assert gauss_epsilon(0.5, 0.1) == 0.0  # total variation is below delta


@given(epsilon=epsilons, mu=mus, factor=st.floats(1.001, 3))
def test_delta_falls_with_epsilon_and_rises_with_mu(epsilon: float, mu: float, factor: float) -> None:
    delta = gauss_delta(epsilon, mu)
    assert gauss_delta(epsilon * factor, mu) <= delta <= gauss_delta(epsilon, mu * factor)


@pytest.mark.thorough
@given(epsilon=epsilons, delta=deltas)
def test_accounting_for_calibrated_noise_never_gives_more_than_was_asked(epsilon: float, delta: float) -> None:
    assert epsilon * (1 - 1e-8) <= gauss_epsilon(delta, gauss_mu(epsilon, delta)) <= epsilon


# Over the whole range that is allowed, down to where nothing but digits in the thousands would show an error.

powers = st.floats(-16, 2.5).map(lambda power: 10.0**power)
small_deltas = st.floats(-15, -0.05).map(lambda power: 10.0**power)


@settings(max_examples=300)
@given(mu=st.floats(-14, 2).map(lambda power: 10.0**power), turned=st.floats(-36, 36), at_0=st.booleans())
def test_the_curve_is_never_below_its_precise_value_and_hardly_above(mu: float, turned: float, at_0: bool) -> None:
    epsilon = 0.0 if at_0 else max(0.0, (turned + mu / 2) * mu)
    precise = precise_delta(epsilon, mu)
    found = gauss_delta(epsilon, mu)
    assert found >= min(precise, 1 - mpmath.mpf(2) ** -53)
    assert found <= precise * (1 + mpmath.mpf(1e-11))


@pytest.mark.thorough
@settings(max_examples=200)
@given(epsilon=powers, delta=small_deltas)
@example(epsilon=1e-9, delta=1e-5)
@example(epsilon=4.8e-6, delta=1e-5)
@example(epsilon=5.1316010624849113e-14, delta=5.975934642293789e-15)
def test_small_epsilons_are_calibrated_for_on_the_safe_side(epsilon: float, delta: float) -> None:
    mu = gauss_mu(epsilon, delta)
    assert precise_delta(epsilon, mu) <= delta < precise_delta(epsilon, mu * (1 + 1e-9))
    assert gauss_epsilon(delta, mu) <= epsilon


@settings(max_examples=200)
@given(mu=st.floats(-14, 1.5).map(lambda power: 10.0**power), delta=small_deltas)
@example(mu=2.5067e-5, delta=1e-5)
@example(mu=8.623312293030932e-14, delta=1.3408125226181372e-15)
def test_small_epsilons_are_reported_on_the_safe_side(mu: float, delta: float) -> None:
    epsilon = gauss_epsilon(delta, mu)
    assert precise_delta(epsilon, mu) <= delta
    assert epsilon == 0 or precise_delta(epsilon * (1 - 1e-6), mu) > delta * (1 - mpmath.mpf(1e-11))


def test_the_ends_of_the_range_are_on_the_safe_side_or_refused() -> None:
    for epsilon, delta in ((1e-300, 1e-300), (1e-300, 0.5), (1e3, 1e-300)):
        mu = gauss_mu(epsilon, delta)
        assert 0.99 * delta < precise_delta(epsilon, mu, 1000) <= delta
    with pytest.raises(ValueError, match=r"epsilon is 1e-301. Allowed: finite, >= 1e-300"):
        gauss_mu(1e-301, 1e-5)
    with pytest.raises(ValueError, match=r"delta is 1e-301. Allowed: \[1e-300, 1\)"):
        gauss_epsilon(1e-301, 1.0)


def test_renyi_conversion_of_one_gaussian() -> None:
    assert gauss_epsilon(1e-5, 1.0) == pytest.approx(4.377178, rel=1e-6)
    assert rdp_to_epsilon(lambda a: a / 2, 1e-5) == pytest.approx(4.728924, abs=1e-3)
    assert rdp_to_epsilon(lambda a: a / 2, 1e-5, [5.5]) == pytest.approx(4.728924, rel=1e-5)
    assert rdp_to_epsilon(lambda a: 0.0, 0.9) == 0.0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, inf, nan])
def test_epsilon_out_of_range(epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"epsilon is .*Allowed: finite.* e\.g\. 1\.0"):
        gauss_mu(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, nan])
def test_delta_out_of_range(delta: float) -> None:
    with pytest.raises(ValueError, match=r"delta is .*Allowed: .* e\.g\. 1e-5"):
        gauss_epsilon(delta, 1.0)


def test_other_arguments_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"mu is -1.*Allowed: >= 0"):
        gauss_delta(1.0, -1.0)
    with pytest.raises(ValueError, match=r"epsilon is -1.*Allowed: finite, >= 0"):
        gauss_delta(-1.0, 1.0)
