from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import chi2

from tests.zoo.privacy.rows.references import project
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import GaussianEvent, GaussianProjectionEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.gaussian_mixture import mix_epsilon, paper_w
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.jlt import JLT, Calibration, release_chunks, release_rows
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.rows.public_matrix import GaussianMatrix, rescale

Floats = npt.NDArray[np.float64]


def sparse(seed: int, users: int, items: int, density: float = 0.2) -> csr_array:
    generator = np.random.default_rng(seed)
    return csr_array((generator.random((users, items)) < density).astype(np.float64))


class Silence(NoiseSource):
    """No noise, to see what the noise hides."""

    def __init__(self) -> None:
        super().__init__(lambda count: np.full(count, 2**63, dtype=np.uint64), private=False)

    def normal(self, shape: int | tuple[int, ...]) -> Floats:
        return np.zeros(shape)


@pytest.mark.thorough
@pytest.mark.parametrize("items", [9, 4])
def test_covariance_is_that_of_the_full_lift_for_every_shape(items: int) -> None:
    # 400 000 published coordinates in 6 users. Every entry of the mean of x x^T within 6 standard errors, where the
    # variance of an entry is C_ii C_jj + C_ij^2: fails with probability below 1e-7 for fresh seeds; these are fixed.
    users, w, dim = 6, 1.5, 400
    rows = sparse(1, users, items, 0.5)
    total, draws = np.zeros((users, users)), 1000
    noise = NoiseSource.seeded(2)
    for draw in range(draws):
        x = project(rows, GaussianMatrix(dim, items, draw), w, noise) * sqrt(dim)
        total += x @ x.T
    dense = rows.toarray()
    expected = dense @ dense.T + w * w * np.eye(users)
    variance = np.outer(np.diag(expected), np.diag(expected)) + expected**2
    assert (abs(total / (draws * dim) - expected) < 6 * np.sqrt(variance / (draws * dim))).all()


def test_noise_has_the_stated_scale() -> None:
    # 1e5 coordinates of empty rows; the chi-square interval fails with probability 1e-6 for a fresh seed.
    plan = JLT.calibrate(epsilon=2.0, delta=1e-5, dim=100)
    rows = release_rows(csr_array((1000, 50)), plan, GaussianMatrix(100, 50, 0, unit=True), NoiseSource.seeded(3))
    low, high = chi2.ppf([5e-7, 1 - 5e-7], rows.size)
    assert low < float((rows**2).sum()) / plan.noise_std**2 < high


@given(calibration=st.sampled_from(["unit", "gaussian"]), item=st.integers(0, 29), change=st.floats(0.1, 5))
@settings(max_examples=20)
def test_one_rating_moves_the_output_by_its_column(calibration: Calibration, item: int, change: float) -> None:
    dim = 16
    matrix = GaussianMatrix(dim, 30, seed=4, unit=calibration == "unit")
    before = sparse(5, 7, 30).toarray()
    after = before.copy()
    after[3, item] += change
    # So little noise scale that the lattice does not show.
    moved = project(csr_array(after), matrix, 1e-9, Silence()) - project(csr_array(before), matrix, 1e-9, Silence())
    length = sqrt(dim) if calibration == "unit" else float(np.linalg.norm(matrix.transposed()[item]))
    assert np.linalg.norm(moved) == pytest.approx(change * length / sqrt(dim), rel=1e-9)
    assert (moved[[0, 1, 2, 4, 5, 6]] == 0).all()


def test_chunks_do_not_change_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, matrix = sparse(6, 23, 40), GaussianMatrix(8, 40, 1)
    whole = project(rows, matrix, 2.0, NoiseSource.seeded(7))
    for chunk in (1, 5, 100):
        monkeypatch.setattr("zoo.privacy.mechanisms.jlt._CHUNK", chunk * 8)
        assert (project(rows, matrix, 2.0, NoiseSource.seeded(7)) == whole).all()


def test_a_release_in_chunks_is_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, rows = JLT.calibrate(epsilon=2.0, delta=1e-5, dim=8), sparse(6, 23, 40)
    matrix = GaussianMatrix(8, 40, 1, unit=True)
    whole = release_rows(rows, plan, matrix, NoiseSource.seeded(7))
    monkeypatch.setattr("zoo.privacy.mechanisms.jlt._CHUNK", 5 * 8)
    chunks = list(release_chunks(rows, plan, matrix, NoiseSource.seeded(7)))
    assert [len(chunk) for chunk in chunks] == [5, 5, 5, 5, 3]
    assert (np.concatenate(chunks) == whole).all()


def test_chunks_are_refused_before_any_is_made() -> None:
    plan, matrix = JLT.calibrate(epsilon=2.0, delta=1e-5, dim=8), GaussianMatrix(8, 40, 1, unit=True)
    with pytest.raises(ValueError, match=r"The rows have 5 items, the projection 40"):
        release_chunks(sparse(0, 2, 5), plan, matrix, Silence())
    with pytest.raises(ValueError, match="Set clip for users"):
        replace(plan, rating_range=None)


def test_the_release_lies_on_the_public_grid() -> None:
    plan = JLT.calibrate(epsilon=8.0, delta=1e-5, dim=12)
    rows = release_rows(sparse(8, 9, 20), plan, GaussianMatrix(12, 20, 0, unit=True), NoiseSource.os())
    spacing = lattice_spacing(plan.noise_std)
    assert rows.shape == (9, 12)
    assert rows.dtype == np.float64
    assert (np.rint(rows / spacing) * spacing == rows).all()


def test_projections_are_standard_and_belong_to_items() -> None:
    matrix = GaussianMatrix(50, 200, seed=9).transposed().T
    assert matrix.shape == (50, 200)
    assert (matrix[:, :120] == GaussianMatrix(50, 120, seed=9).transposed().T).all()
    assert not (matrix == GaussianMatrix(50, 200, seed=10).transposed().T).any()
    # 199 * 100 correlations of columns of 50 draws and the mean square; each far beyond 6 sigma would be needed to fail.
    gram = (matrix.T @ matrix) / 50 - np.eye(200)
    assert abs(gram - np.diag(np.diag(gram))).max() < 1.0
    assert (matrix**2).mean() == pytest.approx(1.0, abs=6 * sqrt(2 / matrix.size))


@given(dim=st.integers(1, 60), items=st.integers(1, 60), seed=st.integers(0, 10**6))
@settings(max_examples=30)
def test_unit_columns_have_the_norm_of_the_mean(dim: int, items: int, seed: int) -> None:
    norms = np.linalg.norm(GaussianMatrix(dim, items, seed, unit=True).transposed(), axis=1)
    np.testing.assert_allclose(norms, sqrt(dim), rtol=1e-12)


def test_a_column_without_direction_is_refused() -> None:
    columns = GaussianMatrix(4, 3, 0).transposed()
    columns[1] = 0
    with pytest.raises(ValueError, match=r"Column 1 of the projection has norm 0\.0\. Use another seed"):
        rescale(columns, np.linalg.norm(columns, axis=1), 4)


@pytest.fixture
def largest_norm() -> float:
    return float(np.linalg.norm(GaussianMatrix(100, 300, seed=11).transposed(), axis=1).max())


@pytest.mark.parametrize(
    ("arguments", "w"),
    [
        ({"dim": 400, "epsilon": 1.0}, 74.61263269631878),
        ({"dim": 400, "epsilon": 8.0}, 12.004581443979031),
        ({"dim": 400, "epsilon": 1.0, "calibration": "gaussian"}, 75.20573473916025),
        ({"dim": 400, "epsilon": 1.0, "calibration": "paper"}, 7466.905446209314),
        ({"dim": 400, "epsilon": 1.0, "rating_range": 4.0}, 4 * 74.61263269631878),
        (
            {"dim": 400, "epsilon": 8.0, "calibration": "gaussian", "relation": Relation.REPLACE_ONE_USER, "clip": 3.0},
            6 * 12.161070370790775,
        ),
    ],
)
def test_a_plan_adds_the_noise_it_needs_and_pays_for_what_it_says(arguments: dict[str, Any], w: float) -> None:
    plan = JLT.calibrate(delta=1e-5, **arguments)
    assert plan.w == pytest.approx(w, rel=1e-8)
    assert plan.noise_std == pytest.approx(plan.w / 20, rel=1e-12)
    assert epsilon_of([plan.event], 1e-5, plan.relation) == pytest.approx(plan.epsilon, rel=1e-7)
    assert epsilon_of([plan.event], 1e-5) <= plan.epsilon * (1 + 1e-12)


def test_the_unit_plan_is_one_gaussian_release() -> None:
    plan = JLT.calibrate(epsilon=8.0, delta=1e-5, dim=400)
    assert plan.mu == gauss_mu(8.0, 1e-5)
    assert isinstance(plan.event, GaussianEvent)
    assert plan.event.noise_multiplier == pytest.approx(0.6002290722, rel=1e-9)
    assert (plan.sensitivity, plan.rating_range, plan.clip, plan.requested_epsilon) == (1.0, 1.0, None, None)
    assert plan.noise_std == pytest.approx(1 / gauss_mu(8.0, 1e-5), rel=1e-9)  # independent of dim


def test_the_papers_plan_states_the_true_epsilon() -> None:
    plan = JLT.calibrate(epsilon=64.0, delta=1e-5, dim=400, calibration="paper")
    assert plan.epsilon == pytest.approx(0.618, rel=1e-3)
    assert plan.requested_epsilon == 64.0
    assert plan.mu is None
    assert plan.event == GaussianProjectionEvent(paper_w(400, 64.0, 1e-5), 400)
    assert plan.epsilon == pytest.approx(mix_epsilon(1e-5, 1 / plan.w, 400), rel=1e-8)


def test_max_takes_its_noise_from_the_longest_column(largest_norm: float) -> None:
    arguments: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "dim": 100}
    plan = JLT.calibrate(calibration="max", largest_norm=largest_norm, **arguments)
    assert plan.w == pytest.approx(largest_norm / gauss_mu(1.0, 1e-5), rel=1e-12)
    assert plan.w > JLT.calibrate(**arguments).w
    assert isinstance(plan.event, GaussianEvent)
    assert plan.event.noise_multiplier == pytest.approx(1 / gauss_mu(1.0, 1e-5), rel=1e-12)
    matrix = GaussianMatrix(100, 300, seed=11)
    release_rows(sparse(12, 5, 300), plan, matrix, NoiseSource.os())
    with pytest.raises(ValueError, match=r"longest column is .*The plan allows .*Use its seed"):
        release_rows(
            sparse(12, 5, 300), JLT.calibrate(calibration="max", largest_norm=10.0, **arguments), matrix, Silence()
        )


def test_max_at_the_size_of_a_real_domain() -> None:
    norm = float(np.linalg.norm(GaussianMatrix(400, 18_467, seed=0).transposed(), axis=1).max())
    plan = JLT.calibrate(epsilon=1.0, delta=1e-5, dim=400, calibration="max", largest_norm=norm)
    assert plan.w == pytest.approx(85.39, rel=0.03)  # depends on the draw


@pytest.mark.parametrize("calibration", ["unit", "max", "paper"])
def test_users_need_the_gaussian_calibration(calibration: Calibration) -> None:
    norm = {"largest_norm": 3.0} if calibration == "max" else {}
    for relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER):
        users: dict[str, Any] = {"relation": relation, "clip": 1.0, **norm}
        with pytest.raises(ValueError, match=f"'{calibration}'. It protects ratings. Use 'gaussian'"):
            JLT.calibrate(epsilon=1.0, delta=1e-5, dim=4, calibration=calibration, **users)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"calibration": "best"}, "calibration is 'best'. Allowed:"),
        ({"calibration": "max"}, r"largest_norm is None with calibration 'max'.*column_norms"),
        ({"largest_norm": 3.0}, r"largest_norm is 3\.0 with calibration 'unit'"),
        ({"clip": 2.0}, "It bounds users; omit it for 'change_one_rating'"),
        ({"calibration": "gaussian", "relation": Relation.REPLACE_ONE_USER}, "clip is missing"),
        ({"rating_range": 0.0}, "sensitivity is .*Allowed: finite, > 0"),
        ({"epsilon": 0.0}, "epsilon is .*Allowed: finite"),
        ({"delta": 0.0}, r"delta is .*Allowed: \[1e-300, 1\)"),
        ({"dim": 0}, "dim is .*Allowed: integers >= 1"),
    ],
)
def test_plans_that_make_no_sense(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        JLT.calibrate(**({"epsilon": 1.0, "delta": 1e-5, "dim": 4} | arguments))


def test_a_release_bounds_its_data_itself() -> None:
    plan, matrix = JLT.calibrate(epsilon=1.0, delta=1e-5, dim=8), GaussianMatrix(8, 3, 0, unit=True)
    wild, tame = csr_array(np.array([[50.0, 0, 1]])), csr_array(np.array([[1.0, 0, 1]]))
    assert (release_rows(wild, plan, matrix, Silence()) == release_rows(tame, plan, matrix, Silence())).all()
    users = JLT.calibrate(
        epsilon=1.0, delta=1e-5, dim=8, calibration="gaussian", relation=Relation.ZERO_OUT_ONE_USER, clip=2.0
    )
    long, short = csr_array(np.array([[30.0, 0, 40]])), csr_array(np.array([[1.2, 0, 1.6]]))
    assert (release_rows(long, users, matrix, Silence()) == release_rows(short, users, matrix, Silence())).all()


def test_rows_and_projection_must_match() -> None:
    with pytest.raises(ValueError, match=r"The rows have 5 items, the projection 6"):
        project(sparse(0, 2, 5), GaussianMatrix(3, 6, 0), 1.0, Silence())
    with pytest.raises(ValueError, match=r"is .* Allowed: > 0"):
        project(sparse(0, 2, 5), GaussianMatrix(3, 5, 0), 0.0, Silence())
    with pytest.raises(ValueError, match="num_items is 0"):
        GaussianMatrix(3, 0, 0)
