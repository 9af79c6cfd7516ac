"""``P H D`` against dense references, and what the paper says it does to norms."""

from math import log, sqrt

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard
from scipy.sparse import csr_array, random_array
from scipy.stats import binom, kstest

from tests.zoo.privacy.rows.references import project
from zoo.privacy.mechanisms.jlt import JLT, release_rows
from zoo.privacy.randomness.noise import MASK_STREAM, SIGN_STREAM, NoiseSource, public_uniforms
from zoo.privacy.rows.hadamard import hadamard_transform
from zoo.privacy.rows.sparse_matrix import SparseMatrix, sparse_gaussian

Floats = npt.NDArray[np.float64]


def signs(seed: int, items: int) -> Floats:
    return np.where(public_uniforms(seed, items, SIGN_STREAM) < 0.5, -1.0, 1.0)


def dense(dim: int, items: int, padded: int, seed: int, density: float) -> Floats:
    """``P H D`` by dense matrices, the columns of the padding left out."""
    sparse = sparse_gaussian(public_uniforms(seed, (dim, padded), MASK_STREAM, 0), density)
    return (sparse @ hadamard(padded) / sqrt(padded))[:, :items] * signs(seed, items)


@pytest.mark.parametrize(("items", "padded"), [(1, 1), (2, 2), (5, 8), (16, 16), (100, 128)])
def test_the_matrix_is_the_dense_product(items: int, padded: int) -> None:
    for density in (0.3, 1.0):
        matrix = SparseMatrix(20, items, 7, density=density, unit=False).transposed().T
        reference = dense(20, items, padded, 7, density)
        np.testing.assert_allclose(matrix, reference, atol=1e-12)
        unit, norms = SparseMatrix(20, items, 7, density=density), np.linalg.norm(reference, axis=0)
        np.testing.assert_allclose(unit.transposed().T, reference * sqrt(20) / norms, rtol=1e-11, atol=1e-11)


@given(dim=st.integers(1, 40), items=st.integers(1, 90), seed=st.integers(0, 10**6), density=st.floats(0.01, 1.0))
@settings(max_examples=40)
def test_unit_columns_have_the_norm_of_the_mean(dim: int, items: int, seed: int, density: float) -> None:
    matrix = SparseMatrix(dim, items, seed, density=density)
    np.testing.assert_allclose(np.linalg.norm(matrix.transposed(), axis=1), sqrt(dim), rtol=1e-12)
    np.testing.assert_allclose(matrix.column_norms(), sqrt(dim), rtol=1e-12)


@pytest.mark.parametrize("unit", [True, False])
def test_blocks_give_the_product_of_the_whole_bit_for_bit(unit: bool) -> None:
    rows = random_array((30, 90), density=0.2, format="csr", rng=np.random.default_rng(0))
    whole, blocks = (SparseMatrix(40, 90, 3, density=0.2, unit=unit, matrix_bytes=size) for size in (2**20, 10))
    assert (whole.fits, blocks.fits) == (True, False)
    assert (blocks.times(rows) == whole.times(rows)).all()
    assert (blocks.transposed() == whole.transposed()).all()
    assert (blocks.components(17, 23) == whole.transposed()[:, 17:23]).all()
    np.testing.assert_allclose(blocks.column_norms(), whole.column_norms(), rtol=1e-14)
    ours, theirs = (project(rows, matrix, 2.0, NoiseSource.seeded(4)) for matrix in (whole, blocks))
    assert (ours == theirs).all()


def test_a_matrix_without_entries_is_drawn_again() -> None:
    # 8 entries at density 0.02: the first P is empty for 85 % of the seeds.
    for seed in range(20):
        uniforms = public_uniforms(seed, (1, 8), MASK_STREAM, 0)
        matrix = SparseMatrix(1, 8, seed, density=0.02)
        np.testing.assert_allclose(abs(matrix.transposed()), 1.0, rtol=1e-12)
        if (uniforms < 0.02).any():
            raw = SparseMatrix(1, 8, seed, density=0.02, unit=False).transposed().T
            np.testing.assert_allclose(raw, dense(1, 8, 8, seed, 0.02), atol=1e-12)
    assert sum(not (public_uniforms(seed, (1, 8), MASK_STREAM, 0) < 0.02).any() for seed in range(20)) > 5
    with pytest.raises(ValueError, match=r"density is 1e-12: 100 sparse matrices of 1 x 8 were empty"):
        SparseMatrix(1, 8, 0, density=1e-12).transposed()


@pytest.mark.parametrize("density", [0.1, 0.5, 1.0])
def test_entries_have_the_papers_law(density: float) -> None:
    # 2e5 entries; the count and the Kolmogorov test fail with probability 1e-6 each for fresh seeds.
    values = sparse_gaussian(NoiseSource.seeded(5).uniform(200_000), density)
    kept = values[values != 0]
    low, high = binom.ppf([5e-7, 1 - 5e-7], len(values), density)
    assert low <= len(kept) <= high
    assert kstest(kept * sqrt(density), "norm").pvalue > 1e-6


def test_raw_columns_are_about_as_long_as_the_specification_says() -> None:
    norms = SparseMatrix(400, 1024, 0, density=0.1, unit=False).column_norms()
    assert norms.mean() == pytest.approx(19.94, abs=0.1)
    assert norms.max() == pytest.approx(22.07, abs=0.7)  # depends on the draw


@given(power=st.integers(3, 8), vectors=st.integers(1, 6), kept=st.integers(1, 8), seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_signs_and_transform_flatten_any_vectors(power: int, vectors: int, kept: int, seed: int) -> None:
    """Lemma 5.5 holds with probability 19/20 for each D.

    Of 100 draws of D at most 16 may fail: more have probability below 1e-5 were each at 1/20, and it is far less.
    """
    items = 2**power
    generator = np.random.default_rng(seed)
    some = np.zeros((items, vectors))
    for column in some.T:
        column[generator.choice(items, min(kept, items), replace=False)] = generator.normal(size=min(kept, items))
    bound = sqrt(2 * log(40 * vectors * items) / items) * np.linalg.norm(some, axis=0)
    failed = 0
    for draw in range(100):
        mixed = hadamard_transform(some * signs(seed + draw, items)[:, None])
        np.testing.assert_allclose(np.linalg.norm(mixed, axis=0), np.linalg.norm(some, axis=0), rtol=1e-12)
        failed += bool((abs(mixed).max(axis=0) > bound).any())
    assert failed <= 16
    assert binom.sf(16, 100, 1 / 20) < 1e-5


@given(seed=st.integers(0, 10**6), density=st.sampled_from([0.1, 0.5, 0.9]), w=st.floats(0.1, 5))
@settings(max_examples=20)
def test_norms_are_kept(seed: int, density: float, w: float) -> None:
    """Theorem 5.4: the squared norm of the release is that of the ratings plus users w^2, up to a factor 1 +- gamma.

    The constant in gamma is 4, with which proposition C.1 holds for a Gaussian M: outside with probability below
    n'^-2 a user and side. The theorem multiplies these, but users share M; added up they are 8 * 2 / 400^2 = 1e-4.
    """
    users, items, dim = 8, 100, 400
    generator = np.random.default_rng(seed)
    rows = csr_array((generator.random((users, items)) < 0.1).astype(float))
    released = project(rows, SparseMatrix(dim, items, seed, density=density), w, NoiseSource.seeded(seed))
    gamma = 4 * sqrt(log(dim) / dim)
    for part in (slice(None), *range(users)):
        mean = float((rows.toarray()[part] ** 2).sum()) + w**2 * (users if part == slice(None) else 1)
        assert (1 - gamma) * mean <= float((released[part] ** 2).sum()) <= (1 + gamma) * mean


def test_one_rating_moves_the_output_as_the_plan_says() -> None:
    plan = JLT.calibrate(epsilon=1.0, delta=1e-5, dim=16)
    matrix = SparseMatrix(16, 30, 2)
    for item in range(30):
        before, after = np.zeros((1, 30)), np.zeros((1, 30))
        after[0, item] = 1
        moved = np.linalg.norm(matrix.times(csr_array(after)) - matrix.times(csr_array(before)))
        assert moved == pytest.approx(plan.largest_norm, rel=1e-12)


def test_a_release_takes_only_a_matrix_that_its_plan_allows() -> None:
    rows, plan = csr_array(np.eye(3, 30)), JLT.calibrate(epsilon=1.0, delta=1e-5, dim=16)
    noise = NoiseSource.os()
    assert release_rows(rows, plan, SparseMatrix(16, 30, 2), noise).shape == (3, 16)
    with pytest.raises(ValueError, match=r"longest column is .*The plan allows 4"):
        release_rows(rows, plan, SparseMatrix(16, 30, 2, unit=False), noise)
    with pytest.raises(ValueError, match="The projection has width 8, the plan 16"):
        release_rows(rows, plan, SparseMatrix(8, 30, 2), noise)


def test_matrices_that_make_no_sense() -> None:
    for density in (0.0, 1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match=r"density is .*Allowed: \(0, 1\]"):
            SparseMatrix(2, 3, 0, density=density)
