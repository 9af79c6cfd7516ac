"""Losses against the library's own on dense tensors, and the decorrelation loss against loops and its bounds."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.samples import some_ratings
from zoo.data.rows import SparseRows
from zoo.nn import losses
from zoo.nn.autoencoder import AlignedSources


def test_all_items_loss_is_cross_entropy_of_every_item() -> None:
    rows = SparseRows.from_ratings(some_ratings(density=0.5))
    index = torch.tensor([2, 0, 7, 2])
    logits = 3 * torch.randn(4, 7)
    expected = F.binary_cross_entropy_with_logits(logits, rows.dense(index), reduction="sum")
    assert torch.allclose(losses.all_items_loss(logits, rows.bags(index)), expected, rtol=1e-5)


def test_a_triple_costs_how_unlikely_its_order_is() -> None:
    users, positives, negatives = torch.randn(3, 4, 2, dtype=torch.float64).unbind()
    odds = [math.exp(float(u @ j) - float(u @ i)) for u, i, j in zip(users, positives, negatives, strict=True)]
    assert float(losses.pairwise_loss(users, positives, negatives)) == pytest.approx(sum(math.log(1 + x) for x in odds))


def test_alignment_pulls_nobody_to_somebody_else() -> None:
    source = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert losses.alignment_loss(source, source, torch.tensor([True, True])) == 0
    assert losses.alignment_loss(source, source.flip(0), torch.tensor([True, False])) == 2


def test_reconstruction_counts_present_rows_only() -> None:
    rows = torch.zeros(2, 3)
    assert losses.reconstruction_loss(torch.ones(2, 3), rows, torch.tensor([True, False])) == 3


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


def test_correlations_are_numpys() -> None:
    factors = drawn(20, 6)
    assert torch.allclose(losses.correlations(factors), torch.from_numpy(np.corrcoef(factors.numpy(), rowvar=False)))


@pytest.mark.parametrize(("rows", "dim"), [(20, 6), (5, 9), (3, 2)])
def test_decorrelation_is_the_mean_over_pairs_of_columns(rows: int, dim: int) -> None:
    factors = drawn(rows, dim)
    pairs = []
    for i in range(dim):
        for j in range(dim):
            if i != j:
                a, b = (column - column.mean() for column in (factors[:, i], factors[:, j]))
                pairs.append(float((a @ b) / (a.norm() * b.norm())) ** 2)
    assert float(losses.decorrelation_loss(factors)) == pytest.approx(math.fsum(pairs) / len(pairs))
    distance = np.linalg.norm(np.corrcoef(factors.numpy(), rowvar=False) - np.eye(dim)) ** 2  # as the paper has it
    assert float(losses.decorrelation_loss(factors)) == pytest.approx(distance / (dim * (dim - 1)))


def test_decorrelation_has_the_right_gradient() -> None:
    for rows, dim in ((7, 4), (4, 7)):
        assert torch.autograd.gradcheck(losses.decorrelation_loss, drawn(rows, dim).requires_grad_())
    constant = drawn(7, 4)
    constant[:, 1] = 5
    constant.requires_grad_()
    (gradient,) = torch.autograd.grad(losses.decorrelation_loss(constant), constant)
    assert gradient[:, 1].abs().max() == 0
    others = constant.detach()[:, [0, 2, 3]].requires_grad_()
    (alone,) = torch.autograd.grad(losses.decorrelation_loss(others), others)
    assert torch.allclose(gradient[:, [0, 2, 3]], alone / 2), "3 of 6 pairs are left, over the same rows"


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
    loss = losses.decorrelation_loss(factors)
    (gradient,) = torch.autograd.grad(loss, factors)
    assert loss == 0
    assert torch.equal(gradient, torch.zeros_like(factors))


def test_two_rows_are_wholly_correlated_and_give_no_gradient() -> None:
    factors = drawn(2, 5).requires_grad_()
    loss = losses.decorrelation_loss(factors)
    (gradient,) = torch.autograd.grad(loss, factors)
    assert loss.item() == pytest.approx(1)
    assert gradient.abs().max() < 1e-9


def test_half_precision_is_worked_out_in_single() -> None:
    factors = torch.randn(30, 8).half() * 1e-4  # squares of such entries are 0 in half precision
    loss = losses.decorrelation_loss(factors)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(float(losses.decorrelation_loss(factors.double())), rel=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(losses.decorrelation_loss(factors), loss)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (0, 4)])
def test_what_is_no_matrix_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"rows of a matrix; got the shape \("):
        losses.decorrelation_loss(torch.zeros(shape))


def test_cross_entropy_of_rows_counts_those_that_are_present() -> None:
    logits, rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)), torch.eye(3, 5)
    present = torch.tensor([True, False, True])
    chances = logits.double().sigmoid()
    slow = -(rows * chances.log() + (1 - rows) * (1 - chances).log())[present].sum()
    assert float(losses.bits_loss(logits, rows, present)) == pytest.approx(float(slow), rel=1e-5)
