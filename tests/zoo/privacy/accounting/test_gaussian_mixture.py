from math import inf, nan, sqrt

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from tests.zoo.privacy.accounting.renyi import mix_rdp, rdp_to_epsilon
from zoo.privacy.accounting.gaussian import gauss_curve, gauss_delta, gauss_epsilon
from zoo.privacy.accounting.gaussian_mixture import (
    convex_curve,
    max_w,
    mix_delta,
    mix_epsilon,
    mix_w,
    mixture_epsilon,
    paper_w,
)

epsilons = st.floats(0.01, 50)

# (dim, epsilon, delta): w with unit columns, with Gaussian columns, as the paper has it
WIDTHS = [
    ((400, 1, 1e-5), 74.61263269631878, 75.20573473916025, 7466.905446209314),
    ((400, 8, 1e-5), 12.004581443979031, 12.161070370790775, 933.3631807761642),
    ((100, 1, 1e-5), 37.30631634815939, 38.44719744089678, 3459.473000861726),
    ((500, 2, 1e-6), 49.87496564573086, 50.3372944270971, 5159.294838215138),
]


def unit_w(dim: int, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Of a matrix whose columns are rescaled to norm ``sqrt(dim)``."""
    return max_w(sqrt(dim), epsilon, delta, sensitivity)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "setting",
    [(1, 1000.0, 0.1), (2, 1e4, 1e-3), (16, 1e6, 1e-7), (1, 255.0, 0.944), (1, 50.0, 0.997), (2, 255.0, 0.996)],
)
def test_no_delta_is_too_small_where_the_curve_is_a_step(setting: tuple[int, float, float]) -> None:
    """Compared with the probability that mu^2 is beyond the step, and the curve's own sum over many points."""
    dim, epsilon, delta = setting
    s = 1 / mix_w(*setting)
    z = np.linspace(-8, 8, 1_000_001)
    squares = chi2.isf(norm.sf(z), dim) * s * s
    summed = np.trapezoid(gauss_curve(epsilon, np.sqrt(squares)) * norm.pdf(z), z)
    assert 0.999 * delta < summed <= delta


@pytest.mark.parametrize(("setting", "unit", "mix", "paper"), WIDTHS)
def test_widths_of_noise(setting: tuple[int, float, float], unit: float, mix: float, paper: float) -> None:
    assert unit_w(*setting) == pytest.approx(unit, rel=1e-9)
    assert mix_w(*setting) == pytest.approx(mix, rel=1e-8)
    assert paper_w(*setting) == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "paper", "unit", "mix", "true"),
    [(0.5, 14934, 140.64, 141.62, 0.00275), (8, 933.36, 12.005, 12.161, 0.0636), (64, 116.67, 2.5343, 2.6072, 0.618)],
)
def test_the_papers_noise_gives_far_less_epsilon_than_it_is_asked_for(
    epsilon: float, paper: float, unit: float, mix: float, true: float
) -> None:
    w = paper_w(400, epsilon, 1e-5)
    assert w == pytest.approx(paper, rel=1e-4)
    assert unit_w(400, epsilon, 1e-5) == pytest.approx(unit, rel=1e-4)
    assert mix_w(400, epsilon, 1e-5) == pytest.approx(mix, rel=1e-4)
    assert mix_epsilon(1e-5, 1 / w, 400) == pytest.approx(true, rel=5e-3)


def test_user_level_noise() -> None:
    assert mix_w(400, 8, 1e-5, sensitivity=3.0) == pytest.approx(3 * 12.161070370790775, rel=1e-8)


@given(sensitivity=st.floats(1e-3, 1e3), epsilon=epsilons)
def test_noise_scales_with_sensitivity(sensitivity: float, epsilon: float) -> None:
    assert unit_w(50, epsilon, 1e-5, sensitivity) == pytest.approx(sensitivity * unit_w(50, epsilon, 1e-5), rel=1e-12)
    assert paper_w(50, epsilon, 1e-5, sensitivity) == pytest.approx(sensitivity * paper_w(50, epsilon, 1e-5), rel=1e-12)


def test_mixture_against_sampling() -> None:
    # 1e6 losses of the mechanism itself; the bound of 5 standard errors fails with probability 6e-7, the seed is fixed.
    generator = np.random.default_rng(7)
    epsilon, s, dim = 1.0, 0.1, 30
    mu = s * np.sqrt(generator.chisquare(dim, 1_000_000))
    loss = mu * mu / 2 + mu * generator.standard_normal(len(mu))
    gains = -np.expm1(np.minimum(epsilon - loss, 0))
    error = gains.std() / sqrt(len(gains))
    assert abs(gains.mean() - mix_delta(epsilon, s, dim)) < 5 * error


def test_mixture_vectors() -> None:
    assert mix_epsilon(1e-5, 0.02, 400) == pytest.approx(1.569947, rel=1e-6)
    assert gauss_epsilon(1e-5, 0.4) == pytest.approx(1.554982, rel=1e-6)
    assert [mix_rdp(a, 0.02, 400) for a in (2, 8, 32)] == pytest.approx([0.16006403, 0.64727687, 3.26133201], rel=1e-7)
    assert mix_rdp(51, 0.02, 400) == inf


@pytest.mark.thorough
@settings(max_examples=30)
@given(epsilon=st.floats(0.05, 30), dim=st.integers(1, 2000), delta=st.floats(1e-10, 1e-2))
def test_mixture_noise_and_accounting_are_inverse_from_the_safe_side(epsilon: float, dim: int, delta: float) -> None:
    s = 1 / mix_w(dim, epsilon, delta)
    assert mix_delta(epsilon, s, dim) <= delta
    assert epsilon * (1 - 1e-7) <= mix_epsilon(delta, s, dim) <= epsilon


@settings(max_examples=30)
@given(s=st.floats(0.001, 1), dim=st.integers(1, 500))
def test_renyi_bound_is_above_the_exact_mixture(s: float, dim: int) -> None:
    assert mix_epsilon(1e-5, s, dim) <= rdp_to_epsilon(
        lambda a: mix_rdp(a, s, dim), 1e-5, 1 + np.geomspace(0.01, 1e4, 200)
    )


def test_a_reused_matrix_costs_more_than_a_sum_of_renyi_divergences_says() -> None:
    # Two releases through one matrix are one release with s sqrt 2; with independent matrices the tail is lighter.
    reused = mix_delta(3.0, 0.3 * sqrt(2), 3)
    independent = mix_delta(3.0, 0.3, 6)
    assert reused > 1.3 * independent


@pytest.mark.thorough
@settings(max_examples=30)
@given(s=st.floats(0.005, 0.5), t=st.floats(0.005, 0.5), dim=st.integers(1, 400), other=st.integers(1, 400))
def test_several_matrices_cost_at_least_what_any_dependence_gives(s: float, t: float, dim: int, other: int) -> None:
    reused = mix_epsilon(1e-5, sqrt(s * s + t * t), dim)
    assert reused <= mixture_epsilon(1e-5, 0.0, {dim: s * s + t * t}, coupled=True) * (1 + 1e-9)
    # Independent matrices and one s: the squares add up to a chi-square variable of the sum of the widths.
    independent = mix_epsilon(1e-5, s, dim + other)
    both = {dim: s * s, other: s * s} if dim != other else {dim: 2 * s * s}
    assert independent <= mixture_epsilon(1e-5, 0.0, both, coupled=True)


def test_the_price_of_any_dependence_is_small_at_usual_widths() -> None:
    bound = mixture_epsilon(1e-5, 0.0, {400: 2 * 0.02**2}, coupled=True)
    assert bound == pytest.approx(mix_epsilon(1e-5, 0.02 * sqrt(2), 400), rel=1e-9)


@settings(max_examples=40)
@given(x=st.floats(0.01, 30), y=st.floats(0.01, 30), epsilon=st.floats(0.1, 10))
def test_what_replaces_the_curve_is_convex_and_above_it(x: float, y: float, epsilon: float) -> None:
    def majorant(square: float) -> float:
        return float(convex_curve(epsilon, np.array([square]))[0][0])

    assert majorant(x) >= gauss_delta(epsilon, sqrt(x)) * (1 - 1e-12)
    assert majorant((x + y) / 2) <= (majorant(x) + majorant(y)) / 2 * (1 + 1e-9) + 1e-15


def test_other_arguments_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"s is nan.*Allowed: >= 0"):
        mix_epsilon(1e-5, nan, 3)
    with pytest.raises(ValueError, match=r"dim is 0.*Allowed: integers >= 1"):
        mix_w(0, 1.0, 1e-5)
    assert mix_w(1, 1.0, 1e-5) > 0  # what is remembered of 1 is not said of True
    with pytest.raises(ValueError, match="At width 1 the epsilon of this target cannot be computed"):
        mix_w(1, None, 1e-5, attack_success=1 - 1e-7)  # Q of one row is often near 0
    assert mix_epsilon(1e-5, 1 / mix_w(2, None, 1e-5, attack_success=1 - 1e-7), 2) < float("inf")
    with pytest.raises(ValueError, match=r"dim is True.*Allowed: integers >= 1"):
        mix_w(True, 1.0, 1e-5)
    with pytest.raises(ValueError, match=r"dim is 2\.5.*Allowed: integers >= 1"):
        mix_w(2.5, 1.0, 1e-5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"sensitivity is 0\.0.*Allowed: finite, > 0"):
        unit_w(4, 1.0, 1e-5, 0.0)
    with pytest.raises(ValueError, match=r"largest_norm is inf.*Allowed: finite, > 0"):
        max_w(inf, 1.0, 1e-5)
    with pytest.raises(ValueError, match=r"delta is 1e-16. Allowed: >= 1e-15"):
        mix_epsilon(1e-16, 0.1, 3)
    with pytest.raises(ValueError, match=r"epsilon is -1.*Allowed: finite, >= 0"):
        mix_delta(-1, 0.1, 3)


def precise_mixture(epsilon: float, s: float, dim: int) -> mpmath.mpf:
    """The mean of the curve over a chi-square variable, in 25 digits, over its logarithm."""
    with mpmath.workdps(25):
        half, epsilon, s = mpmath.mpf(dim) / 2, mpmath.mpf(epsilon), mpmath.mpf(s)
        scale = mpmath.loggamma(half) + half * mpmath.log(2)

        def mean(y: mpmath.mpf) -> mpmath.mpf:
            q = mpmath.exp(y)
            mu = s * mpmath.sqrt(q)
            one, other = (mpmath.erfc((epsilon / mu + side * mu / 2) / mpmath.sqrt(2)) / 2 for side in (-1, 1))
            return mpmath.exp(half * y - q / 2 - scale) * (one - mpmath.exp(epsilon) * other)

        centre, width = mpmath.log(dim), mpmath.sqrt(mpmath.mpf(2) / dim)
        points = [centre + width * x for x in range(-14, 11)] if dim > 3 else [-90, *range(-60, 6, 3), 5.5]
        # Of mpmath's rules the one that has these digits in a third of the time.
        return mpmath.quad(mean, points, method="gauss-legendre")


@pytest.mark.thorough
@pytest.mark.parametrize("dim", [1, 2, 30, 400])
def test_the_mean_over_matrices_is_never_below_its_precise_value(dim: int) -> None:
    for width, epsilon in ((0.15, 1e-9), (0.15, 0.1), (0.9, 1.0), (3e-6, 1e-7), (3.0, 5.0)):
        s = width / sqrt(dim)
        precise, found = precise_mixture(epsilon, s, dim), mix_delta(epsilon, s, dim)
        assert precise <= found <= precise * (1 + mpmath.mpf(1e-11)) + 2e-18
        assert precise_mixture(mix_epsilon(float(precise) / 2, s, dim), s, dim) <= precise / 2


def test_the_bend_keeps_its_digits_at_small_epsilons() -> None:
    """The convex function touches the curve at its bend, with one slope on both sides."""
    for epsilon in (1e-9, 1e-6, 1e-3, 1.0):
        bend = float(2 * mpmath.mpf(epsilon) ** 2 / (mpmath.sqrt(1 + mpmath.mpf(epsilon) ** 2) + 1))
        values, slope = convex_curve(epsilon, bend * np.array([1 - 1e-4, 1.0, 1.0 + 1e-4]))
        assert np.diff(values) == pytest.approx(slope * bend * 1e-4, rel=1e-5)
