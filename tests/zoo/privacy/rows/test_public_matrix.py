"""The Gaussian matrix: whole, in blocks, and bit for bit the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array

from tests.zoo.privacy.rows.references import project
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.rows.public_matrix import GaussianMatrix


def ratings(users: int, items: int) -> csr_array:
    return random_array((users, items), density=0.3, format="csr", rng=np.random.default_rng(1))


@given(dim=st.integers(1, 40), items=st.integers(1, 60), unit=st.booleans(), data=st.data())
@settings(max_examples=40)
def test_a_block_of_items_is_that_of_the_whole(dim: int, items: int, unit: bool, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, items - 1))
    stop = data.draw(st.integers(start + 1, items))
    matrix = GaussianMatrix(dim, items, 5, unit=unit)
    assert (matrix.columns(start, stop) == matrix.transposed()[start:stop]).all()


@pytest.mark.parametrize("dim", [400, 8192])
def test_a_block_of_a_wide_matrix_is_too(dim: int) -> None:
    matrix = GaussianMatrix(dim, 30, 5, unit=True)
    for start, stop in ((0, 1), (7, 11), (29, 30)):
        assert (matrix.columns(start, stop) == matrix.transposed()[start:stop]).all()


def test_the_matrix_of_a_seed_never_changes() -> None:
    # Never change these numbers: a release names its projection by a seed.
    gaussian, unit = (GaussianMatrix(2, 3, 0, unit=unit).transposed().T.tolist() for unit in (False, True))
    assert gaussian[0] == pytest.approx([1.4983914231467161, 0.4784381644968121, -0.4939697947197972], rel=1e-13)
    assert gaussian[1] == pytest.approx([-0.03880881692326596, -0.6610374772978417, -0.4213181431427495], rel=1e-13)
    assert unit[0] == pytest.approx([1.4137394548820297, 0.8291725330641059, -1.0759914102704187], rel=1e-13)


@pytest.mark.parametrize("unit", [True, False])
def test_blocks_give_the_release_of_the_whole(unit: bool) -> None:
    """The noise is the same word for word; sums over items may differ in their last digits, and so round elsewhere."""
    rows, w, dim = ratings(50, 70), 2.0, 16
    whole, blocks = (GaussianMatrix(dim, 70, 3, unit=unit, matrix_bytes=size) for size in (2**30, 8 * dim * 9))
    assert (whole.fits, blocks.fits) == (True, False)
    np.testing.assert_allclose(blocks.times(rows), whole.times(rows), rtol=1e-12, atol=1e-12)
    ours, theirs = (project(rows, matrix, w, NoiseSource.seeded(4)) for matrix in (whole, blocks))
    assert abs(ours - theirs).max() <= lattice_spacing(w / 4)
    assert (ours != theirs).mean() < 0.01


def test_a_matrix_that_fits_is_made_once_and_one_that_does_not_is_not_kept() -> None:
    whole, blocks = GaussianMatrix(4, 10, 0), GaussianMatrix(4, 10, 0, matrix_bytes=319)
    assert whole.transposed() is whole.transposed()
    assert blocks.transposed() is not blocks.transposed()
    assert (blocks.transposed() == whole.transposed()).all()


@pytest.mark.parametrize("matrix_bytes", [2**20, 100])
def test_norms_and_products_are_those_of_the_array(matrix_bytes: int) -> None:
    matrix = GaussianMatrix(6, 40, 2, matrix_bytes=matrix_bytes)
    array = GaussianMatrix(6, 40, 2).transposed().T
    np.testing.assert_allclose(matrix.column_norms(), np.linalg.norm(array, axis=0), rtol=1e-14)
    rows = ratings(8, 40)
    np.testing.assert_allclose(matrix.times(rows), rows.toarray() @ array.T, rtol=1e-12, atol=1e-12)


def test_matrices_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="matrix_bytes is 0"):
        GaussianMatrix(2, 3, 0, matrix_bytes=0)
    with pytest.raises(ValueError, match="num_items is 0"):
        GaussianMatrix(2, 0, 0)
