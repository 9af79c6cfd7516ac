"""Maps between domains: ridge regression written out, principal directions against a full decomposition."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from zoo.data.rows import DenseRows, SparseRows
from zoo.nn.mapping import RidgeMap, Standard, TanhMap, mean_over_sources, narrowed, narrowed_width, standardised
from zoo.nn.ridge import PENALTIES


def sparse(dense: torch.Tensor) -> SparseRows:
    matrix = csr_array(dense.numpy())
    starts, items = torch.from_numpy(matrix.indptr).long(), torch.from_numpy(matrix.indices).long()
    return SparseRows(starts, items, torch.from_numpy(matrix.data), dense.shape[1])


def test_a_linear_map_is_ridge_regression_with_the_penalty_of_the_least_error_left_out() -> None:
    """Normal equations with a column of ones that is not penalised; every user left out in turn."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(25, 6)) + 3
    targets = vectors @ rng.normal(size=(6, 4)) + 4 * rng.normal(size=(25, 4)) - 1
    spread = ((vectors - vectors.mean(axis=0)) ** 2).sum() / 25

    def solution(penalty: float, kept: np.ndarray) -> np.ndarray:
        ones = np.c_[vectors, np.ones(25)][kept]
        weight = np.diag([penalty * spread] * 6 + [0.0])
        return np.asarray(np.linalg.solve(ones.T @ ones + weight, ones.T @ targets[kept]))

    everybody = np.arange(25)
    errors = [
        sum(
            ((np.append(vectors[out], 1) @ solution(penalty, everybody != out) - targets[out]) ** 2).sum()
            for out in everybody
        )
        for penalty in PENALTIES
    ]
    best = PENALTIES[int(np.argmin(errors))]
    assert PENALTIES[0] < best < PENALTIES[-1], "a choice that is none shows nothing"
    weights, intercept = RidgeMap(vectors).solve(targets)
    assert np.allclose(np.vstack([weights, intercept]), solution(best, everybody >= 0))


def test_vectors_that_do_not_differ_map_to_the_mean() -> None:
    weights, intercept = RidgeMap(np.ones((3, 2))).solve(np.array([[1.0], [2.0], [6.0]]))
    assert np.array_equal(weights, np.zeros((2, 1)))
    assert intercept == pytest.approx(3.0)


def test_a_map_without_users_is_refused() -> None:
    with pytest.raises(ValueError, match="users with a vector and a target; there is none"):
        RidgeMap(np.ones((0, 2)))


def test_a_perceptron_is_linear_behind_its_last_tanh() -> None:
    torch.manual_seed(0)
    network = TanhMap([3, 5, 2])
    first, second = (layer for layer in network if isinstance(layer, torch.nn.Linear))
    vectors = torch.randn(4, 3)
    expected = torch.tanh(vectors @ first.weight.T + first.bias) @ second.weight.T + second.bias
    assert torch.allclose(network(vectors), expected, atol=1e-6)


@pytest.mark.parametrize("dense", [True, False])
def test_wide_rows_keep_their_principal_directions(dense: bool) -> None:
    """Distances in the best plane of the rows, which does not depend on the basis."""
    torch.manual_seed(1)
    rows = torch.randn(12, 2) @ torch.randn(2, 9) + 0.01 * torch.randn(12, 9)
    rows[3] = 0
    found = narrowed(DenseRows(rows) if dense else sparse(rows), 2)
    left, values, _ = np.linalg.svd(rows.numpy())
    expected = torch.from_numpy(left[:, :2] * values[:2]).float()
    assert found.shape == (12, 2)
    assert torch.allclose(torch.cdist(found, found), torch.cdist(expected, expected), atol=1e-3)


def test_narrowing_repeats_itself_and_leaves_the_runs_own_stream() -> None:
    rows = DenseRows(torch.rand(8, 6, generator=torch.Generator().manual_seed(0)))
    torch.manual_seed(3)
    first, drawn = narrowed(rows, 3), torch.rand(2)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(2), drawn)
    assert torch.equal(narrowed(rows, 3), first)


def test_rows_that_are_no_wider_stay_as_they_are() -> None:
    rows = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    for kept in (DenseRows(rows), sparse(rows)):
        assert torch.equal(narrowed(kept, 3), rows)


@pytest.mark.parametrize(("users", "width", "expected"), [(5, 9, 4), (3, 9, 3), (0, 9, 1), (0, 4, 4), (3, 4, 4)])
def test_widths_are_known_beforehand(users: int, width: int, expected: int) -> None:
    assert narrowed_width(users, width, 4) == expected
    assert narrowed(DenseRows(torch.rand(users, width)), 4).shape == (users, expected)


@pytest.mark.parametrize("scale", [700.0, 1e-30, 1e30])
def test_neither_scale_nor_shift_of_a_release_counts(scale: float) -> None:
    vectors, links = torch.tensor([[9.0, 9.0], [1.0, 2.0], [5.0, 2.0]]), torch.tensor([2, -1, 1])
    found = standardised(vectors * scale + 5 * scale, links)
    assert torch.allclose(found, torch.tensor([[2.0, 0.0], [0.0, 0.0], [-2.0, 0.0]]) / 2**0.5, atol=1e-5)


def test_equal_vectors_or_none_are_zeros() -> None:
    links = torch.tensor([0, -1, 1])
    assert torch.equal(standardised(torch.ones(2, 3), links), torch.zeros(3, 3))
    assert torch.equal(standardised(torch.zeros(0, 3), torch.tensor([-1, -1])), torch.zeros(2, 3))


def test_what_was_standardised_is_found_again() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(5, 3) * 4 + 2
    standard = Standard.of(vectors)
    assert torch.allclose(standard.apply(vectors).mean(0), torch.zeros(3), atol=1e-6)
    assert float(standard.apply(vectors).square().mean()) == pytest.approx(1, rel=1e-5)
    assert torch.allclose(standard.undo(standard.apply(vectors)), vectors, atol=1e-5)
    assert torch.equal(Standard.of(vectors[:1]).apply(vectors[:1]), torch.zeros(1, 3))


def test_sources_are_averaged_over_those_that_have_a_user() -> None:
    one, other = torch.tensor([[2.0], [4.0], [7.0], [9.0]]), torch.tensor([[6.0], [8.0], [1.0], [9.0]])
    has_one, has_other = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    mean, present = mean_over_sources([(one, has_one), (other, has_other)], torch.zeros(4, 1))
    assert mean.squeeze(1).tolist() == [4, 4, 1, 0]
    assert present.tolist() == [True, True, True, False]
    mean, present = mean_over_sources([], torch.zeros(2, 3))
    assert torch.equal(mean, torch.zeros(2, 3))
    assert not present.any()
