"""The fast transform against the dense matrix, and what makes the matrix worth having."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import hadamard

from zoo.privacy.rows import hadamard as module
from zoo.privacy.rows.hadamard import hadamard_transform, padded_size


def test_the_vectors_of_the_specification() -> None:
    assert (padded_size(9471), padded_size(3916)) == (16384, 4096)
    matrix = hadamard_transform(np.eye(4))
    assert (abs(matrix) == 0.5).all()
    assert abs(matrix @ matrix.T - np.eye(4)).max() == 0


@given(size=st.integers(1, 2**40))
def test_padding_goes_to_the_next_power_of_two(size: int) -> None:
    padded = padded_size(size)
    assert padded.bit_count() == 1
    assert size <= padded < 2 * size


@pytest.mark.parametrize("size", [1, 2, 4, 16, 256, 1024])
def test_the_transform_is_the_dense_matrix(size: int) -> None:
    vectors = np.random.default_rng(size).normal(size=(size, 3))
    before = vectors.copy()
    np.testing.assert_allclose(hadamard_transform(vectors), hadamard(size) @ vectors / np.sqrt(size), atol=1e-12)
    assert (vectors == before).all()


@pytest.mark.parametrize("size", [2, 8, 32])
def test_it_is_the_papers_formula(size: int) -> None:
    index = np.arange(size)
    bits = np.array([[(i & j).bit_count() for j in index] for i in index])
    np.testing.assert_allclose(hadamard_transform(np.eye(size)), (-1.0) ** bits / np.sqrt(size), atol=1e-15)


@given(power=st.integers(0, 12), columns=st.integers(1, 4), seed=st.integers(0, 10**6))
@settings(max_examples=30)
def test_it_is_orthogonal_and_its_own_inverse(power: int, columns: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(2**power, columns))
    mixed = hadamard_transform(vectors)
    np.testing.assert_allclose(hadamard_transform(mixed), vectors, atol=1e-12)
    np.testing.assert_allclose(mixed.T @ mixed, vectors.T @ vectors, atol=1e-9)


def test_other_sizes_have_no_orthogonal_matrix_of_this_form() -> None:
    for size, error in ((3, 1 / 3), (5, 0.6), (6, 1 / 3), (7, 1 / 7), (12, 1 / 3)):
        signs = np.array([[(-1.0) ** (i & j).bit_count() for j in range(size)] for i in range(size)])
        assert abs(signs @ signs.T / size - np.eye(size)).max() == pytest.approx(error)


def test_neither_the_cache_nor_the_other_columns_change_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(0).normal(size=(512, 6))
    whole = hadamard_transform(vectors)
    monkeypatch.setattr(module, "_CACHE", 256)
    assert (hadamard_transform(vectors) == whole).all()
    assert all((hadamard_transform(vectors[:, [j]])[:, 0] == whole[:, j]).all() for j in range(6))


@pytest.mark.parametrize("shape", [(3, 2), (12, 1), (0, 1), (4,)])
def test_sizes_without_a_transform_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"vectors have shape .*n a power of two. Pad to \d+"):
        hadamard_transform(np.zeros(shape))
    with pytest.raises(ValueError, match="size is 0"):
        padded_size(0)
