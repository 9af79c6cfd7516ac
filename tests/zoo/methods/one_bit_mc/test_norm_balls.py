"""Projections against a general convex solver, against all singular values, and by the properties that proofs rest on."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.zoo.methods.one_bit_mc.problems import nearest
from zoo.methods.one_bit_mc.norm_balls import Composition, InfinityBall, Intersection, NuclearBall, shrinkage, truncated

LARGE = (170, 200)  # above the size up to which all singular values are computed


def nuclear_norm(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


def by_bisection(matrix: np.ndarray, radius: float) -> np.ndarray:
    """All singular values, shrunk by what bisection says."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    low, high = 0.0, float(values[0])
    if values.sum() <= radius:
        return matrix
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > radius else (low, middle)
    return np.asarray((left * np.maximum(values - high, 0)) @ right)


def with_values(values: np.ndarray, shape: tuple[int, int] = LARGE, seed: int = 0) -> np.ndarray:
    """A random matrix with given singular values."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(side, len(values))))[0] for side in shape)
    return np.asarray((left * values) @ right.T)


@pytest.mark.parametrize("shape", [(4, 5), (5, 3), (1, 4)])
@pytest.mark.parametrize("radius", [0.3, 2.0, 5.0])
def test_the_nuclear_ball_against_a_convex_solver(shape: tuple[int, int], radius: float) -> None:
    matrix = np.random.default_rng(1).normal(size=shape)
    assert NuclearBall(radius)(matrix) == pytest.approx(nearest(matrix, radius), abs=1e-5)


def falling(rank: int) -> np.ndarray:
    return np.concatenate([np.linspace(20, 10, rank), np.linspace(1, 0.1, 170 - rank)])


SPECTRA: dict[str, tuple[np.ndarray, float]] = {
    "rank 1": (falling(1), 5.0),
    "rank 3": (falling(3), 20.0),
    "rank 20": (falling(20), 150.0),
    "rank 60": (falling(60), 500.0),
    "rank 120": (falling(120), 1000.0),
    "all equal": (np.ones(170), 10.0),
    "thirty equal": (np.repeat([2.0, 1.0], [30, 140]), 15.0),
    "rank-deficient": (np.array([5.0, 4.0, 3.0]), 2.0),
    "rank-deficient, all kept": (np.array([5.0, 4.0, 3.0]), 11.5),
    "inside": (falling(3), 1e4),
    "almost inside": (np.array([3.0, 2.0, 1.0]), 6.0 - 1e-9),
    "wide range": (np.logspace(6, -6, 170), 1e6),
}


@pytest.mark.thorough
@pytest.mark.parametrize("spectrum", SPECTRA)
def test_what_was_remembered_changes_nothing(spectrum: str) -> None:
    for shape, remembered in product((LARGE, LARGE[::-1]), (0, 2, 16, 70, 500)):
        values, radius = SPECTRA[spectrum]
        matrix = with_values(values, shape)
        ball, expected = NuclearBall(radius), by_bisection(matrix, radius)
        ball.rank = remembered
        projected = ball(matrix)
        assert np.abs(projected - expected).max() < 1e-9 * values[0]
        assert nuclear_norm(projected) <= max(radius, 0) * (1 + 1e-9)
        if remembered == 16:
            assert np.abs(NuclearBall(radius, truncated=False)(matrix) - expected).max() < 1e-12 * values[0]


def test_few_singular_values_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NuclearBall, "_from_all", None)
    ball = NuclearBall(20.0)
    for rank, radius in ((3, 20.0), (40, 300.0), (1, 5.0)):
        ball.radius = radius
        matrix = with_values(falling(rank))
        assert ball(matrix) == pytest.approx(by_bisection(matrix, radius), abs=1e-9)
        assert ball.rank == rank


@pytest.mark.thorough
@pytest.mark.parametrize("remembered", [0, 16, 70, 500])
def test_what_was_remembered_wrongly_is_counted_once(remembered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of too few are not followed by vectors of more and more: all eigenvalues say how many."""
    monkeypatch.setattr(NuclearBall, "_from_all", None)
    asked: list[int] = []
    eigh = scipy.linalg.eigh

    def counted(gram: np.ndarray, **how: Any) -> Any:  # noqa: ANN401  as scipy's
        asked.append(1 + how["subset_by_index"][1] - how["subset_by_index"][0])
        return eigh(gram, **how)

    monkeypatch.setattr(scipy.linalg, "eigh", counted)
    ball = NuclearBall(300.0)
    ball.rank = remembered
    matrix = with_values(falling(40))
    assert ball(matrix) == pytest.approx(by_bisection(matrix, 300.0), abs=1e-9)
    assert ball.rank == 40
    assert asked == {0: [8, 48], 16: [24, 48], 70: [78], 500: [48]}[remembered]


@pytest.mark.parametrize("shape", [(6, 5), LARGE])
def test_a_matrix_of_the_ball_stays_as_it_is(shape: tuple[int, int]) -> None:
    matrix = with_values(np.array([2.0, 1.0, 0.5]), shape)
    for inside in (matrix, np.zeros(shape)):
        kept = inside.copy()
        assert np.array_equal(NuclearBall(4.0)(inside), kept)
    on_boundary = NuclearBall(3.5)(matrix)  # singular values of nothing are roots of rounding errors
    assert on_boundary == pytest.approx(matrix, abs=1e-7)


@pytest.mark.parametrize("shape", [(12, 9), (9, 12), LARGE, LARGE[::-1]])
def test_rows_and_columns_of_zeros_stay_exactly_that(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).normal(size=shape)
    matrix[3], matrix[:, 4] = 0.0, 0.0
    nuclear, infinity = NuclearBall(3.0), InfinityBall(0.2)
    for project in (nuclear, Intersection(nuclear, infinity, max_passes=3), Composition(nuclear, infinity)):
        projected = project(matrix)
        assert projected.any()
        assert not projected[3].any()
        assert not projected[:, 4].any()


def test_a_radius_that_rounding_errors_swallow_gives_next_to_nothing() -> None:
    assert np.abs(NuclearBall(1e-20)(np.ones((3, 3)))).max() < 1e-12


spectra = st.lists(st.floats(0, 100), min_size=1, max_size=12).map(lambda v: np.sort(np.array(v))[::-1])


@settings(max_examples=150, deadline=None)
@given(spectra, st.floats(0.01, 500), st.integers(1, 12))
def test_the_largest_values_never_decide_wrongly(values: np.ndarray, radius: float, length: int) -> None:
    whole, part = shrinkage(np.append(values, 0.0), radius), shrinkage(values[:length], radius)
    if whole is not None:
        assert np.maximum(values - whole, 0).sum() == pytest.approx(radius, rel=1e-9, abs=1e-9)
    else:
        assert values.sum() <= radius * (1 + 1e-12)
    if part is not None:
        assert part == pytest.approx(0.0 if whole is None else whole, abs=1e-12 * values[0])
        assert np.all(values[length:] <= part + 1e-12 * values[0])


def test_values_that_do_not_decide() -> None:
    assert shrinkage(np.array([3.0, 2.0]), 1.0) == pytest.approx(2.0)  # the second is just cut, whatever follows
    assert shrinkage(np.array([3.0, 2.0]), 2.0) is None
    assert shrinkage(np.array([3.0, 2.0, 0.0]), 2.0) == pytest.approx(1.5)
    assert shrinkage(np.array([3.0]), 1.0) is None
    assert shrinkage(np.array([3.0, 2.0, 0.0]), 6.0) is None


PROJECTIONS = {
    "nuclear": NuclearBall(2.0),
    "infinity": InfinityBall(0.4),
    "intersection": Intersection(NuclearBall(2.0), InfinityBall(0.4)),
    "composition": Composition(NuclearBall(2.0), InfinityBall(0.4)),
}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 3), st.floats(-3, 1))
@pytest.mark.parametrize("name", PROJECTIONS)
def test_nothing_is_brought_apart(name: str, seed: int, size: float, apart: float) -> None:
    rng = np.random.default_rng(seed)
    one = size * rng.normal(size=(4, 5))
    other = one + 10**apart * rng.normal(size=(4, 5))
    project = PROJECTIONS[name]
    distance = np.linalg.norm(project(one) - project(other))
    assert distance <= np.linalg.norm(one - other) * (1 + 1e-9) + 1e-6 * (name == "intersection")


@pytest.mark.parametrize("seed", [0, 1])
def test_large_matrices_are_not_brought_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, ball = with_values(falling(5), seed=seed), NuclearBall(30.0)
    for size in (1e-6, 1e-2, 1.0):
        other = one + size * rng.normal(size=LARGE)
        assert np.linalg.norm(ball(one) - ball(other)) <= np.linalg.norm(one - other) * (1 + 1e-6)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_projected_matrix_stays_where_it_is(name: str) -> None:
    project = PROJECTIONS[name]
    projected = project(np.random.default_rng(2).normal(size=(4, 5)))
    assert project(projected) == pytest.approx(projected, abs=1e-6)


CASES = [(radius, bound) for radius in (0.5, 2.0, 4.0) for bound in (0.1, 0.5, 1.0)]


@pytest.mark.parametrize(("radius", "bound"), CASES)
def test_the_intersection_against_a_convex_solver(radius: float, bound: float) -> None:
    matrix = 2 * np.random.default_rng(3).normal(size=(4, 5))
    found = Intersection(NuclearBall(radius), InfinityBall(bound))(matrix)
    assert found == pytest.approx(nearest(matrix, radius, bound), abs=1e-5)
    assert np.abs(found).max() <= bound
    assert nuclear_norm(found) <= radius + 1e-6


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_the_projection_of_what_is_far_away_lies_in_both_balls(size: float) -> None:
    rng = np.random.default_rng(0)
    matrix = size * rng.normal(size=(20, 25))
    nuclear, infinity = NuclearBall(15.0), InfinityBall(0.5)
    found = Intersection(nuclear, infinity)(matrix)
    assert nuclear_norm(found) <= 15.0 * (1 + 1e-7)
    assert np.abs(found).max() <= 0.5
    outwards = matrix - found  # of a convex set: from the nearest point nothing lies further in its direction
    for _ in range(50):
        other = Composition(nuclear, infinity)(matrix * (1 + rng.normal(size=matrix.shape)) * rng.random())
        other *= min(1.0, 15.0 / nuclear_norm(other))
        assert np.vdot(outwards, other - found) <= 1e-6 * np.linalg.norm(outwards)


def test_one_projection_after_the_other_is_not_the_projection() -> None:
    matrix = 2 * np.random.default_rng(3).normal(size=(4, 5))
    nuclear, infinity = NuclearBall(2.0), InfinityBall(0.3)
    both, once = Intersection(nuclear, infinity)(matrix), Composition(nuclear, infinity)(matrix)
    again = once
    for _ in range(200):
        again = Composition(nuclear, infinity)(again)
    for alternated in (once, again):
        assert np.abs(alternated).max() <= 0.3
    assert nuclear_norm(again) <= 2.0 + 1e-9
    distances = [float(np.linalg.norm(point - matrix)) for point in (both, again)]
    assert distances[1] > distances[0] + 1e-3


def test_the_warm_start_is_that_of_the_nuclear_ball() -> None:
    nuclear, infinity = NuclearBall(2.0), InfinityBall(0.4)
    for project in (Intersection(nuclear, infinity), Composition(nuclear, infinity)):
        project.rank = 5
        assert nuclear.rank == project.rank == 5


def test_a_matrix_is_cut_to_the_nearest_of_a_rank() -> None:
    matrix = np.random.default_rng(0).normal(size=(6, 5))
    matrix[2] = 0
    cut = truncated(matrix, 2)
    assert np.linalg.matrix_rank(cut) == 2
    lost = np.linalg.svd(matrix, compute_uv=False)[2:]
    assert np.linalg.norm(matrix - cut) == pytest.approx(np.linalg.norm(lost))
    assert not cut[2].any()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_sizes_out_of_range_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"radius of the nuclear-norm ball \(tau\) must be positive and finite; got"):
        NuclearBall(bad)
    with pytest.raises(ValueError, match=r"bound on the entries \(alpha\) must be positive and finite; got"):
        InfinityBall(bad)
