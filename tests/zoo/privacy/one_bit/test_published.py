import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import kstest, laplace

from zoo.privacy.mechanisms.one_bit import plan_objective
from zoo.privacy.one_bit.link_functions import Flipped, Link, Logistic, Probit
from zoo.privacy.one_bit.published import (
    PublishedScale,
    cross_solutions,
    paper_sensitivity,
    published_noise,
    published_objective,
    published_output,
)
from zoo.privacy.randomness.noise import NoiseSource

Floats = npt.NDArray[np.float64]


def nuclear_norm(matrix: Floats) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


def least_loss(link: Link, published: PublishedScale, alpha: float) -> float:
    """What one entry bounded by alpha loses at least, with so much Laplace noise in its objective.

    Its minimiser is alpha where the noise makes up for the slope that is left there; just below there is a density.
    """
    law = laplace(scale=published.scale)
    above, below = link.slopes(alpha)
    atom = law.logsf(-above) - law.logsf(below)
    density = law.logpdf(-above) - law.logpdf(below) - link.log_curvature_ratio(alpha)
    return float(max(atom, abs(density)))


@pytest.mark.parametrize(("epsilon", "from_plus", "from_minus"), [(1.0, 0.517667, 0.070146), (2.0, 0.534709, 0.009841)])
def test_how_often_the_printed_objective_puts_an_entry_at_its_bound(
    epsilon: float, from_plus: float, from_minus: float
) -> None:
    # One logistic entry, bounded by 4; the density of H as printed, integrated.
    def density(h: float) -> float:
        return epsilon / 2 * math.exp(-epsilon * abs(h))

    slope = float(expit(4.0))
    for least, expected in ((-2 * (1 - slope), from_plus), (2 * slope, from_minus)):
        assert quad(density, least, 60, points=[0.0])[0] == pytest.approx(expected, abs=1e-6)
    loss = least_loss(Logistic(), published_objective(Logistic(), epsilon, 4.0), 4.0)
    assert loss == pytest.approx(math.log(from_plus / from_minus), abs=1e-4)


def test_the_printed_objective_loses_twice_its_claim() -> None:
    for alpha, loss, within in ((1.0, 1.80996, 1e-5), (4.0, 1.99875, 1e-5), (20.0, 2.0, 1e-6)):
        found = least_loss(Logistic(), published_objective(Logistic(), 1.0, alpha), alpha)
        assert found == pytest.approx(loss, abs=within)
    for epsilon in (0.1, 1.0, 3.0):
        published = published_objective(Logistic(), epsilon, 4.0)
        assert epsilon < least_loss(Logistic(), published, 4.0) <= 2 * epsilon
        assert published.claimed_epsilon == epsilon
        # Its noise is that of a sound objective of twice the epsilon.
        assert published.scale == pytest.approx(plan_objective(Logistic(), 2 * epsilon).scale)


def test_the_paper_bounds_the_probit_gradient_loosely() -> None:
    found = [paper_sensitivity(Probit(), alpha) for alpha in (0.5, 1.0, 2.0, 3.0)]
    assert found == pytest.approx([2.586, 5.029, 35.07, 591], rel=3e-4)
    assert paper_sensitivity(Logistic(), 7.0) == 1.0
    assert paper_sensitivity(Probit(2.0), 2.0) == pytest.approx(5.029 / 2, rel=1e-4)
    for alpha in (0.5, 1.0, 2.0):
        assert paper_sensitivity(Probit(), alpha) > Probit().sensitivity(alpha)


@pytest.mark.parametrize(("epsilon", "loss"), [(0.1, 0.722), (0.5, 0.525)])
def test_the_printed_probit_objective_tells_signs_by_its_curvature(epsilon: float, loss: float) -> None:
    published = published_objective(Probit(), epsilon, 1.0)
    assert least_loss(Probit(), published, 1.0) == pytest.approx(loss, abs=6e-4)
    assert least_loss(Probit(), published, 1.0) > epsilon
    assert "curvature" in published.reason


def test_the_printed_probit_noise_is_enough_from_2_764_on() -> None:
    # Where the proved loss of this noise, 2 Delta/b and the curvature's part, meets the claim.
    link = Probit()
    share = link.sensitivity(1.0) / paper_sensitivity(link, 1.0)
    assert link.log_curvature_ratio(1.0) / (1 - 2 * share) == pytest.approx(2.764, abs=1e-3)


def test_the_two_completions_of_two_by_two() -> None:
    positive, negative = cross_solutions(2, 1.0)
    assert positive.tolist() == [[1, 1], [1, 1]]
    assert negative.tolist() == [[-1, 1], [1, -1]]


@pytest.mark.parametrize("size", [2, 3, 5, 10])
@pytest.mark.parametrize("alpha", [1.0, 2.5])
def test_completions_of_the_cross(size: int, alpha: float) -> None:
    solutions = cross_solutions(size, alpha)
    radius = 2 * alpha * math.sqrt(size - 1)
    for matrix, corner in zip(solutions, (1, -1), strict=True):
        # No observed sign can be more likely, within both bounds.
        signs = np.ones((size, size))
        signs[0, 0] = corner
        assert (matrix[0] == alpha * signs[0]).all()
        assert (matrix[:, 0] == alpha * signs[:, 0]).all()
        assert np.abs(matrix).max() == alpha
        assert nuclear_norm(matrix) == pytest.approx(radius)
        # The nuclear norm is convex and rises whichever way the others go, so no other matrix will do.
        random = np.random.default_rng(size)
        for _ in range(200):
            other = matrix.copy()
            other[1:, 1:] += 1e-3 * alpha * random.normal(size=(size - 1, size - 1))
            assert nuclear_norm(other) > radius
    moved = np.abs(solutions[0] - solutions[1])
    assert moved.max() == pytest.approx(2 * alpha)
    assert moved.sum() == pytest.approx(2 * alpha * size)
    assert moved.sum() / published_output(1.0, alpha).scale == pytest.approx(size)


def test_published_noise_is_laplacian() -> None:
    # Fails with probability 1e-6 for a fresh seed.
    published = published_output(2.0, 1.0)
    assert published.scale == 1.0
    values = published_noise(np.full((100, 300), 0.7), published, NoiseSource.seeded(1))
    assert kstest((values - 0.7).ravel(), laplace(scale=1.0).cdf).pvalue > 1e-6


@pytest.mark.parametrize("link", [Logistic(), Probit()])
def test_arguments_out_of_range_are_refused(link: Link) -> None:
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="alpha must be finite and positive, got"):
            published_objective(link, 1.0, bad)
        with pytest.raises(ValueError, match="alpha must be finite and positive, got"):
            published_output(1.0, bad)
        with pytest.raises(ValueError, match=r"epsilon is .*Allowed: finite"):
            published_objective(link, bad, 1.0)
        with pytest.raises(ValueError, match=r"epsilon is .*Allowed: finite"):
            published_output(bad, 1.0)
    with pytest.raises(ValueError, match=r"alpha must be at most 37 scales of a probit link, got 50\.0"):
        published_objective(Probit(), 1.0, 50.0)
    with pytest.raises(ValueError, match=r"link is 'logistic, flipped'. Allowed: 'logistic', 'probit'"):
        paper_sensitivity(Flipped(Logistic(), 0.1, 0.1), 1.0)
