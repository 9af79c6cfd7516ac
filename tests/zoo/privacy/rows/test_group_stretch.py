"""The bound of what a matrix makes of several ratings: never below what any of them does, and near it."""

import math
from itertools import combinations, product

import numpy as np
import pytest

from tests.samples import memory_below
from zoo.privacy.audits.greedy_rows import greedy_items
from zoo.privacy.rows import group_stretch as module
from zoo.privacy.rows.group_stretch import group_stretch
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix

SMALL: dict[str, PublicMatrix] = {
    "gaussian": GaussianMatrix(5, 9, 0),
    "unit": GaussianMatrix(5, 9, 1, unit=True),
    "wide": GaussianMatrix(40, 9, 2),
    "sparse": SparseMatrix(6, 9, 3),
    "one item": GaussianMatrix(5, 1, 4),
}


def most(matrix: PublicMatrix, size: int) -> float:
    """The largest ``|M c|`` over all changes of at most ``size`` cells by 1, up or down, by brute force."""
    columns = matrix.transposed()
    found = [0.0]
    for count in range(1, min(size, matrix.num_items) + 1):
        signs = np.array(list(product((-1.0, 1.0), repeat=count)))
        for items in combinations(range(matrix.num_items), count):
            found.append(float(np.linalg.norm(signs @ columns[list(items)], axis=1).max()))
    return max(found)


def as_defined(matrix: PublicMatrix, size: int) -> float:
    """The bound by its formula, from the whole Gram matrix."""
    gram = np.abs(matrix.transposed() @ matrix.transposed().T)
    sums = [gram[i, i] + sum(sorted(np.delete(gram[i], i))[::-1][: size - 1]) for i in range(len(gram))]
    return math.sqrt(sum(sorted(sums)[::-1][:size]))


@pytest.mark.parametrize("matrix", SMALL.values(), ids=SMALL)
def test_no_change_of_k_cells_is_stretched_further(matrix: PublicMatrix, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (5, 1, 2, 3, 20)
    bounds = group_stretch(matrix, sizes)
    assert tuple(bounds) == sizes
    for block in (1, 20):
        monkeypatch.setattr(module, "_BLOCK", block)
        assert group_stretch(matrix, sizes) == pytest.approx(bounds, rel=1e-12)
    for size in sizes:
        worst = most(matrix, min(size, 6)) if size < 20 else most(matrix, 20)
        assert worst <= bounds[size] <= min(size, matrix.num_items) * matrix.column_norms().max() * (1 + 1e-8)
        assert bounds[size] == pytest.approx(as_defined(matrix, size), rel=1e-8)
    assert bounds[1] == pytest.approx(most(matrix, 1), rel=1e-8), "tight"
    assert bounds[2] == pytest.approx(most(matrix, 2), rel=0.15)


def test_parallel_columns_are_the_worst_case() -> None:
    """Then k ratings cost k times what one does, and the bound says so."""

    class Parallel(GaussianMatrix):
        def transposed(self) -> np.ndarray:
            return np.outer([1.0, -1.0, 1.0, 1.0], np.full(4, 1.5))

    bounds = group_stretch(Parallel(4, 4, 0), (1, 2, 3, 4, 9))
    assert list(bounds.values()) == pytest.approx([3.0, 6.0, 9.0, 12.0, 12.0], rel=1e-8)


def test_a_large_matrix_bounds_random_and_greedy_changes() -> None:
    matrix = GaussianMatrix(400, 3916, 0, unit=True)
    columns, rng = matrix.transposed(), np.random.default_rng(0)
    bounds = group_stretch(matrix, (2, 5, 10, 50))
    taken = greedy_items(matrix, 50)
    for size, bound in bounds.items():
        assert np.linalg.norm(columns[taken[:size]].sum(axis=0)) < bound
        for _ in range(200):
            signs, items = rng.choice([-1.0, 1.0], size), rng.choice(3916, size, replace=False)
            assert np.linalg.norm(signs @ columns[items]) < bound
        assert bound < size * 20 / 1.2, "less than the worst that columns could do"
        signed, total = [], np.zeros(400)
        for _ in range(size):  # greedy with signs
            along = columns @ total
            along[signed] = 0.0
            item = int(np.argmax(np.abs(along)))
            signed.append(item)
            total += columns[item] * (1.0 if along[item] >= 0 else -1.0)
        assert np.linalg.norm(total) < bound
    # By the review: 5 ratings at epsilon 8 have 33 in place of 69, 10 have 72 in place of 209; see test_show.
    assert bounds[5] / 20 == pytest.approx(3.04, abs=0.02)
    assert bounds[10] / 20 == pytest.approx(5.17, abs=0.02)


def test_no_gram_matrix_is_in_memory() -> None:
    matrix = GaussianMatrix(8, 6000, 0)
    matrix.transposed()
    with memory_below(8 * 6000 * 6000 / 3):
        group_stretch(matrix, (1, 10))


@pytest.mark.parametrize("sizes", [(), (0,), (3, -1)])
def test_no_ratings_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"sizes are .*Allowed: >= 1"):
        group_stretch(GaussianMatrix(4, 4, 0), sizes)
