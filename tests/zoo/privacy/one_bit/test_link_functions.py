import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.privacy.one_bit.link_functions import ConvexLink, Flipped, Link, Logistic, Probit

ALPHAS = (0.5, 1.0, 2.0, 3.0)

scales = st.floats(0.2, 5.0)
rates = st.floats(0.0, 0.49)
plain_links = st.one_of(st.just(Logistic()), scales.map(Probit))
links = st.one_of(plain_links, st.builds(Flipped, plain_links, rates, rates))


def curvatures(link: Link, x: float) -> tuple[float, float]:
    """Of ``-log h`` and ``-log(1 - h)``, in 40 digits."""
    with mpmath.workdps(40):
        inner = link.link if isinstance(link, Flipped) else link

        def curvature(side: int) -> float:
            def log_probability(t: mpmath.mpf) -> mpmath.mpf:
                z = side * t
                plain = mpmath.ncdf(z / inner.scale) if isinstance(inner, Probit) else 1 / (1 + mpmath.exp(-z))
                if isinstance(link, Flipped):
                    false = link.p2 if side > 0 else link.p1
                    plain = false + (1 - mpmath.mpf(link.p1) - link.p2) * plain
                return mpmath.log(plain)

            return float(-mpmath.diff(log_probability, x, 2))

        return curvature(1), curvature(-1)


def test_sensitivities_and_curvatures_of_the_specification() -> None:
    assert [Probit().sensitivity(alpha) for alpha in ALPHAS] == pytest.approx(
        [1.65024, 1.81274, 2.42846, 3.28754], abs=1e-5
    )
    assert [Logistic().sensitivity(alpha) for alpha in (*ALPHAS, math.inf)] == [1.0] * 5
    found = [Probit().log_curvature_ratio(alpha) for alpha in ALPHAS]
    assert found == pytest.approx([0.35324, 0.77139, 2.05418, 4.24433], abs=1e-5)
    assert Logistic().log_curvature_ratio(math.inf, 0.1) == 0.0


def test_the_link_of_flipped_signs() -> None:
    p = 1 / (1 + math.e)
    assert Flipped(Logistic(), p, p).probability(0.5) == pytest.approx(0.556590558014963, rel=1e-14)
    uneven = Flipped(Probit(), 0.1, 0.3)
    assert uneven.probability([-math.inf, math.inf]) == pytest.approx([0.3, 0.9])


@given(link=links, x=st.lists(st.floats(-6, 6), min_size=1, max_size=5))
def test_slopes_are_the_derivatives_of_the_likelihood(link: Link, x: list[float]) -> None:
    at, step = np.array(x), 1e-5
    (above_up, below_up), (above_down, below_down) = (link.log_likelihood(at + side * step) for side in (1, -1))
    above, below = link.slopes(at)
    # Differences lose digits with the size of the values: a likelihood can be e^-450 here.
    tolerance = 1e-5 * (1 + np.abs(above_up) + np.abs(below_up))
    assert (np.abs((above_up - above_down) / (2 * step) - above) <= tolerance).all()
    assert (np.abs((below_up - below_down) / (2 * step) + below) <= tolerance).all()
    assert (above >= 0).all()
    assert (below >= 0).all()


@given(link=links, x=st.floats(-8, 8))
def test_the_likelihood_is_the_logarithm_of_the_probability(link: Link, x: float) -> None:
    above, below = link.log_likelihood(x)
    assert np.exp(above) == pytest.approx(link.probability(x), rel=1e-12, abs=1e-300)
    assert np.exp(above) + np.exp(below) == pytest.approx(1.0)


@given(link=plain_links, alpha=st.floats(0.05, 6))
def test_a_sensitivity_is_never_too_low(link: ConvexLink, alpha: float) -> None:
    above, below = link.slopes(np.linspace(-alpha, alpha, 2001))
    largest = float((above + below).max())
    bound = link.sensitivity(alpha)
    assert largest <= bound * (1 + 1e-15)
    assert bound <= largest * (1 + 1e-9)


@given(scale=scales, alpha=st.floats(0.05, 6))
def test_sensitivity_scales(scale: float, alpha: float) -> None:
    assert Probit(scale).sensitivity(alpha) == pytest.approx(Probit().sensitivity(alpha / scale) / scale, rel=1e-12)


@given(link=plain_links, alpha=st.floats(0.1, 3), ridge=st.floats(0, 2), share=st.floats(-1, 1))
def test_a_curvature_ratio_is_never_too_low(link: ConvexLink, alpha: float, ridge: float, share: float) -> None:
    def ratio(x: float) -> float:
        one, other = curvatures(link, x)
        return abs(math.log((one + ridge) / (other + ridge)))

    bound = link.log_curvature_ratio(alpha, ridge)
    assert ratio(share * alpha) <= bound + 1e-12
    assert ratio(alpha) == pytest.approx(bound, rel=1e-6, abs=1e-9)


@given(link=links, x=st.floats(-12, 12))
def test_smoothness_bounds_the_second_derivatives(link: Link, x: float) -> None:
    assert max(abs(curvature) for curvature in curvatures(link, x)) <= link.smoothness * (1 + 1e-9)


@pytest.mark.parametrize("p", [0.25, 0.01, 1e-6, 1e-12])
def test_the_smoothness_of_flipped_probit_signs_is_near_the_largest_second_derivative(p: float) -> None:
    link = Flipped(Probit(), p, p)
    step = 1e-4
    above, _ = link.slopes(np.arange(-12, 4, step))
    largest = float(np.abs(np.diff(above) / step).max())
    assert 0.98 * link.smoothness <= max(largest, 1.0) <= link.smoothness


def test_nothing_is_lost_far_out() -> None:
    for link, far in ((Logistic(), 1e8), (Probit(), 1e8), (Probit(3.0), 30.0)):
        (sure, hopeless), (flat, steep) = link.log_likelihood(far), link.slopes(far)
        assert sure == pytest.approx(0, abs=1e-3)
        assert flat == pytest.approx(0, abs=1e-3)
        if isinstance(link, Logistic):
            assert hopeless == -far
            assert steep == 1.0
        else:
            z = far / link.scale
            with mpmath.workdps(60):
                mills = mpmath.npdf(z) / mpmath.ncdf(-z) if z < 1e4 else mpmath.mpf(z)
            assert hopeless == pytest.approx(-z * z / 2, rel=0.1)
            assert steep == pytest.approx(float(mills) / link.scale, rel=1e-12)
    assert Probit().log_curvature_ratio(60.0) == math.inf
    assert Probit().log_curvature_ratio(1e6, 1.0) == pytest.approx(math.log(2))


def test_flips_explain_what_is_far_out() -> None:
    for link in (Flipped(Logistic(), 0.1, 0.2), Flipped(Probit(), 0.1, 0.2)):
        above, below = link.log_likelihood([-1e6, 1e6])
        assert above == pytest.approx([math.log(0.2), math.log(0.9)])
        assert below == pytest.approx([math.log(0.8), math.log(0.1)])
        for slope in link.slopes([-1e6, 1e6]):
            assert slope == pytest.approx([0.0, 0.0])
    certain = Flipped(Probit(), 0.0, 0.0)
    assert certain.slopes(-50.0)[0] == pytest.approx(Probit().slopes(-50.0)[0])


def test_shapes_are_kept() -> None:
    x = np.zeros((2, 3, 4))
    for link in (Logistic(), Probit(), Flipped(Logistic(), 0.1, 0.1)):
        for values in (link.probability(x), *link.log_likelihood(x), *link.slopes(x)):
            assert values.shape == x.shape
            assert values.dtype == np.float64


def test_noise_is_calibrated_for_convex_links_alone() -> None:
    flipped = Flipped(Logistic(), 0.1, 0.0)
    assert [isinstance(link, ConvexLink) for link in (Logistic(), Probit(), flipped)] == [True, True, False]
    # Where the entry speaks against a sign, its flip explains it: the curvature is negative.
    assert min(curvatures(Flipped(Logistic(), 0.0, 0.1), -3.0)) < 0 < min(curvatures(Logistic(), -3.0))
    assert [link.name for link in (Logistic(), Probit(), flipped)] == ["logistic", "probit", "logistic, flipped"]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_an_alpha_out_of_range_is_refused(bad: float) -> None:
    for use in (Logistic().sensitivity, Logistic().log_curvature_ratio):
        with pytest.raises(ValueError, match=r"alpha must be a positive number, got"):
            use(bad)
    for use in (Probit().sensitivity, Probit().log_curvature_ratio):
        for value in (bad, math.inf):
            with pytest.raises(ValueError, match=r"alpha must be a positive finite number, got .* public number"):
                use(value)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="scale must be finite and positive, got"):
        Probit(bad)


@pytest.mark.parametrize("bad", [-0.1, 0.5, 1.0, math.nan])
def test_flips_out_of_range_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"p1 must lie in \[0, 1/2\), got"):
        Flipped(Logistic(), bad, 0.1)
    with pytest.raises(ValueError, match=r"p2 must lie in \[0, 1/2\), got"):
        Flipped(Logistic(), 0.1, bad)


def test_other_arguments_out_of_range_are_refused() -> None:
    with pytest.raises(TypeError, match="Pass the link without flips"):
        Flipped(Flipped(Logistic(), 0.1, 0.1), 0.1, 0.1)
    for link in (Logistic(), Probit()):
        with pytest.raises(ValueError, match=r"ridge must be finite and >= 0, got -1"):
            link.log_curvature_ratio(1.0, -1.0)
