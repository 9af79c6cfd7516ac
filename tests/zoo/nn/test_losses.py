"""Losses against the library's own on dense tensors, and the decorrelation loss against loops and its bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from tests.samples import some_ratings
from zoo.data.rows import SparseRows
from zoo.nn.autoencoder import AlignedSources
from zoo.nn.losses import (
    alignment_loss,
    all_items_loss,
    bits_loss,
    correlations,
    decorrelation_loss,
    pairwise_loss,
    reconstruction_loss,
)


def test_all_items_loss_is_cross_entropy_of_every_item() -> None:
    rows = SparseRows.from_ratings(some_ratings(density=0.5))
    index = torch.tensor([2, 0, 7, 2])
    logits = 3 * torch.randn(4, 7)
    expected = F.binary_cross_entropy_with_logits(logits, rows.dense(index), reduction="sum")
    assert torch.allclose(all_items_loss(logits, rows.bags(index)), expected, rtol=1e-5)


def test_a_triple_costs_how_unlikely_its_order_is() -> None:
    users, positives, negatives = torch.randn(3, 4, 2, dtype=torch.float64).unbind()
    odds = [math.exp(float(u @ j) - float(u @ i)) for u, i, j in zip(users, positives, negatives, strict=True)]
    assert float(pairwise_loss(users, positives, negatives)) == pytest.approx(sum(math.log(1 + x) for x in odds))


def test_alignment_pulls_nobody_to_somebody_else() -> None:
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert alignment_loss(source, source, torch.tensor([True, True])) == 0
    assert alignment_loss(source, source.flip(0), torch.tensor([True, False])) == 2


def test_reconstruction_counts_present_rows_only() -> None:
    rows = torch.zeros(2, 3)
    assert reconstruction_loss(torch.ones(2, 3), rows, torch.tensor([True, False])) == 3


def test_mean_code_is_over_the_sources_that_have_the_user() -> None:
    torch.manual_seed(0)
    sources = AlignedSources({"a": 3, "b": 2}, (4,), dropout=0.0)
    a, b, like = torch.randn(2, 3), torch.randn(2, 2), torch.zeros(2, 4)
    rows = {"a": (a, torch.tensor([True, True])), "b": (b, torch.tensor([True, False]))}
    code, present = sources.mean_code(rows, like)
    encode = {name: sources.autoencoders[name].encode for name in "ab"}
    assert torch.allclose(code[0], (encode["a"](a)[0] + encode["b"](b)[0]) / 2)
    assert torch.allclose(code[1], encode["a"](a)[1])
    assert present.tolist() == [True, True]
    nobody = {"a": (a, torch.tensor([False, True]))}
    assert sources.mean_code(nobody, like)[1].tolist() == [False, True]


def drawn(rows: int, dim: int, seed: int = 0) -> torch.Tensor:
    """Columns that are correlated, off centre and of different scales, in float64."""
    random = torch.Generator().manual_seed(seed)
    mixed = torch.randn(rows, dim, generator=random).double() @ torch.randn(dim, dim, generator=random).double()
    return mixed * torch.logspace(-2, 2, dim) + 3


def floor(rows: int, dim: int) -> float:
    """Below which the loss cannot fall: C has the trace dim and at most the rank rows - 1."""
    return max(0.0, (dim - rows + 1) / ((rows - 1) * (dim - 1)))


def test_correlations_are_numpys() -> None:
    factors = drawn(20, 6)
    assert torch.allclose(correlations(factors), torch.from_numpy(np.corrcoef(factors.numpy(), rowvar=False)))


@pytest.mark.parametrize(("rows", "dim"), [(20, 6), (5, 9), (3, 2)])
def test_decorrelation_is_the_mean_over_pairs_of_columns(rows: int, dim: int) -> None:
    factors = drawn(rows, dim)
    pairs = []
    for i in range(dim):
        for j in range(dim):
            if i != j:
                a, b = (column - column.mean() for column in (factors[:, i], factors[:, j]))
                pairs.append(float((a @ b) / (a.norm() * b.norm())) ** 2)
    assert float(decorrelation_loss(factors)) == pytest.approx(math.fsum(pairs) / len(pairs))
    distance = np.linalg.norm(np.corrcoef(factors.numpy(), rowvar=False) - np.eye(dim)) ** 2  # as the paper has it
    assert float(decorrelation_loss(factors)) == pytest.approx(distance / (dim * (dim - 1)))


def test_decorrelation_has_the_right_gradient() -> None:
    for rows, dim in ((7, 4), (4, 7)):
        assert torch.autograd.gradcheck(decorrelation_loss, drawn(rows, dim).requires_grad_())
    constant = drawn(7, 4)
    constant[:, 1] = 5
    constant.requires_grad_()
    (gradient,) = torch.autograd.grad(decorrelation_loss(constant), constant)
    assert gradient[:, 1].abs().max() == 0
    others = constant.detach()[:, [0, 2, 3]].requires_grad_()
    (alone,) = torch.autograd.grad(decorrelation_loss(others), others)
    assert torch.allclose(gradient[:, [0, 2, 3]], alone / 2), "3 of 6 pairs are left, over the same rows"


def test_uncorrelated_columns_cost_nothing_and_proportional_ones_all() -> None:
    orthogonal = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    assert decorrelation_loss(orthogonal) == 0
    column = torch.randn(9, 1)
    assert float(decorrelation_loss(column * torch.tensor([1.0, -3.0, 0.01]) + 2)) == pytest.approx(1, abs=1e-4)


def test_each_duplicated_column_adds_the_square_of_one_for_its_pair() -> None:
    orthogonal = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    twice = torch.cat([orthogonal, orthogonal[:, :2]], dim=1)
    assert float(decorrelation_loss(twice)) == pytest.approx(2 / 10), "2 of 10 pairs"


@given(st.integers(2, 12), st.integers(2, 8), st.lists(st.floats(-5, 5), min_size=8, max_size=8), st.integers(0, 10**6))
def test_decorrelation_does_not_see_shift_scale_sign_or_order(
    rows: int, dim: int, exponents: list[float], seed: int
) -> None:
    factors = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)).double()
    moved = factors * (-1.5) ** torch.tensor([round(e) for e in exponents[:dim]]) + torch.tensor(exponents[:dim])
    expected = float(decorrelation_loss(factors))
    assert float(decorrelation_loss(moved)) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert float(decorrelation_loss(factors.flip(0).flip(1))) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.integers(2, 10), st.integers(2, 24), st.integers(0, 10**6))
def test_decorrelation_lies_between_its_floor_and_one(rows: int, dim: int, seed: int) -> None:
    factors = drawn(rows, dim, seed)
    repeats = torch.randint(rows, (2 * rows,), generator=torch.Generator().manual_seed(seed))
    for given_rows in (factors, torch.cat([factors, factors[repeats]])):
        assert floor(rows, dim) - 1e-9 <= float(decorrelation_loss(given_rows)) <= 1 + 1e-9


def test_more_columns_than_rows_come_down_to_the_floor_and_no_further() -> None:
    rows, dim = 9, 24
    factors = drawn(rows, dim).requires_grad_()
    optimiser = torch.optim.LBFGS([factors], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = decorrelation_loss(factors)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    assert float(decorrelation_loss(factors.detach())) == pytest.approx(floor(rows, dim), rel=1e-4)
    assert floor(rows, dim) == pytest.approx((dim**2 / (rows - 1) - dim) / (dim * (dim - 1)))


def test_independent_columns_give_one_over_rows_less_one() -> None:
    """Seeded. A squared correlation is Beta(1/2, (B - 2) / 2); the mean over 4,950 pairs has a deviation of 2 %."""
    factors = torch.randn(41, 100, generator=torch.Generator().manual_seed(3))
    assert float(decorrelation_loss(factors)) == pytest.approx(1 / 40, rel=0.1)


@pytest.mark.parametrize(
    "factors",
    [
        torch.zeros(5, 3),
        torch.full((5, 3), 0.1),
        torch.full((7, 3), 1e-30),
        torch.full((7, 3), 1e30),
        1e20 * torch.randn(7, 3),
        torch.randn(1, 3),
        torch.randn(6, 1),
        torch.tensor([[0.3, 5.0], [0.3, 7.0], [0.3, 6.0]]),
    ],
    ids=["dead", "constant", "tiny", "huge", "huge and apart", "one row", "one column", "one of two constant"],
)
def test_what_has_no_correlation_costs_nothing_and_gets_no_gradient(factors: torch.Tensor) -> None:
    factors = factors.clone().requires_grad_()
    loss = decorrelation_loss(factors)
    (gradient,) = torch.autograd.grad(loss, factors)
    assert loss == 0
    assert torch.equal(gradient, torch.zeros_like(factors))


def test_two_rows_are_wholly_correlated_and_give_no_gradient() -> None:
    factors = drawn(2, 5).requires_grad_()
    loss = decorrelation_loss(factors)
    (gradient,) = torch.autograd.grad(loss, factors)
    assert loss.item() == pytest.approx(1)
    assert floor(2, 5) == 1
    assert gradient.abs().max() < 1e-9


def test_half_precision_is_worked_out_in_single() -> None:
    factors = torch.randn(30, 8).half() * 1e-4  # squares of such entries are 0 in half precision
    loss = decorrelation_loss(factors)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(float(decorrelation_loss(factors.double())), rel=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(decorrelation_loss(factors), loss)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (0, 4)])
def test_what_is_no_matrix_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"rows of a matrix; got the shape \("):
        decorrelation_loss(torch.zeros(shape))


def test_cross_entropy_of_rows_counts_those_that_are_present() -> None:
    logits, rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)), torch.eye(3, 5)
    present = torch.tensor([True, False, True])
    chances = logits.double().sigmoid()
    slow = -(rows * chances.log() + (1 - rows) * (1 - chances).log())[present].sum()
    assert float(bits_loss(logits, rows, present)) == pytest.approx(float(slow), rel=1e-5)
