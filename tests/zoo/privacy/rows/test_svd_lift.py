"""The forms that the paper prints: what the lift adds, where it has the law of noise, and where it gives away the data."""

from dataclasses import replace
from math import sqrt

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from scipy.stats import binom

from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.rows.svd_lift import lifted_ratings, lifted_release, sparse_lifted_release, svd_lift

Floats = npt.NDArray[np.float64]


def plan_with(w: float, dim: int) -> JLT:
    plan = JLT.calibrate(epsilon=1.0, delta=1e-5, dim=4, calibration="paper")
    return replace(plan, w=w, dim=dim)


def some(items: int, users: int = 12) -> Floats:
    """Binary ratings, items x users."""
    return np.random.default_rng(items).integers(0, 2, (items, users)).astype(float)


@pytest.mark.parametrize("items", [30, 12])
def test_the_lift_adds_noise_in_every_direction_of_tall_data(items: int) -> None:
    ratings = some(items)
    lifted = svd_lift(ratings, 3.0)
    assert lifted.shape == ratings.shape
    assert abs(lifted.T @ lifted - (ratings.T @ ratings + 9.0 * np.eye(12))).max() < 1e-10


def test_the_lift_misses_directions_where_users_outnumber_items() -> None:
    ratings = some(8)
    lifted = svd_lift(ratings, 3.0)
    assert abs(lifted.T @ lifted - (ratings.T @ ratings + 9.0 * np.eye(12))).max() > 1


@pytest.mark.parametrize("w", [3.0, 641.0])
def test_what_is_published_lies_in_the_row_space_of_wide_data(w: float) -> None:
    """A neighbour has another row space, so delta is 1 whatever w is."""
    ratings, plan = some(8), plan_with(w, 40)
    other = ratings.copy()
    other[3, 5] = 1 - other[3, 5]
    published = sqrt(40) * lifted_release(svd_lift(ratings, w), plan, NoiseSource.seeded(0)).T
    for data, inside in ((ratings, True), (other, False)):
        space = np.linalg.svd(data, full_matrices=False)[2]
        outside = np.linalg.norm(published - published @ space.T @ space, axis=1) / np.linalg.norm(published, axis=1)
        # Inside up to the rounding to the lattice of w.
        assert outside.max() < 1e-2 if inside else np.median(outside) > 5e-2


def test_the_lift_has_the_law_of_noise_where_it_holds() -> None:
    # 400 000 published coordinates of 6 users, centred. Every entry of the mean of x x^T within 6 standard errors, where
    # the variance of an entry is C_ii C_jj + C_ij^2: fails with probability below 1e-7 for a fresh seed.
    dim, w = 400_000, 1.5
    rows = csr_array(some(9, 6).T)
    centred = rows.toarray() - rows.toarray().mean(axis=0)
    published = sqrt(dim) * lifted_release(
        lifted_ratings(rows, plan_with(w, dim), centre=True), plan_with(w, dim), NoiseSource.seeded(1)
    )
    expected = centred @ centred.T + w * w * np.eye(6)
    variance = np.outer(np.diag(expected), np.diag(expected)) + expected**2
    assert (abs(published @ published.T / dim - expected) < 6 * np.sqrt(variance / dim)).all()


def test_what_is_published_lies_on_the_grid_of_its_noise() -> None:
    plan = JLT.calibrate(epsilon=1.0, delta=1e-5, dim=20, calibration="paper")
    rows = lifted_release(lifted_ratings(csr_array(some(15).T), plan, centre=True), plan, NoiseSource.os())
    spacing = lattice_spacing(plan.noise_std)
    assert rows.shape == (12, 20)
    assert (np.rint(rows / spacing) * spacing == rows).all()


def test_the_sparse_form_shows_which_data_it_came_from() -> None:
    """The exact example: R = I and R' = [[1, 1], [0, 1]] (items x users), w = 10, density 1/2.

    A component with one non-zero (probability 1/2) lies on one of R's two lines under R, and under R' never. The count
    under R leaves its interval with probability 2e-9 for a fresh seed.
    """
    plan, found = plan_with(10.0, 4000), []
    for ratings in (np.eye(2), np.array([[1.0, 1.0], [0.0, 1.0]])):
        lifted = lifted_ratings(csr_array(ratings.T), plan, centre=False)
        np.testing.assert_allclose(lifted.T @ lifted, ratings.T @ ratings + 100 * np.eye(2), atol=1e-10)
        components = abs(sparse_lifted_release(lifted, plan, 0.5, NoiseSource.seeded(2))).T
        # R's lines are those of H D times a multiple of the identity: both coordinates of one size.
        on_a_line = abs(components[:, 0] - components[:, 1]) <= 1e-9 * components.max()
        found.append(int((on_a_line & (components.max(axis=1) > 0)).sum()))
    low, high = binom.ppf([1e-9, 1 - 1e-9], 4000, 0.5)
    assert low <= found[0] <= high
    assert found[1] == 0


def test_the_sparse_form_keeps_norms_on_average() -> None:
    # The mean of 4000 squared components of each of 5 users, padded from 6 items to 8; 0.1 is beyond 4 of its deviations.
    lifted = svd_lift(some(6, 5), 2.0)
    rows = sparse_lifted_release(lifted, plan_with(2.0, 4000), 0.5, NoiseSource.seeded(3))
    np.testing.assert_allclose((rows**2).sum(axis=1), (lifted**2).sum(axis=0), rtol=0.1)


def test_ratings_too_large_to_decompose_are_refused() -> None:
    with pytest.raises(ValueError, match=r"100,000 x 1,000,000 ratings takes 745\.1 GiB.* Omit paper_faithful"):
        lifted_ratings(csr_array((1_000_000, 100_000)), plan_with(1.0, 4), centre=True)
