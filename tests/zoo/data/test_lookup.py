"""Rows looked up against torch's embedding, value and gradient."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from zoo.data.lookup import Table, linear_at, rows_at, sums_of_rows


@pytest.mark.parametrize("shape", [(0,), (5000,), (700, 4), (20, 5, 3)])
def test_rows_and_their_gradient_are_those_of_an_embedding(shape: tuple[int, ...]) -> None:
    table = torch.randn(50, 7, requires_grad=True)
    index = torch.randint(0, 50, shape)
    upstream = torch.randn(*shape, 7)
    found = rows_at(table, index)
    assert torch.equal(found, F.embedding(index, table))
    ours = torch.autograd.grad(found, table, upstream)[0]
    theirs = torch.autograd.grad(F.embedding(index, table), table, upstream)[0]
    assert torch.equal(ours, theirs)  # added up in the same order


def test_a_table_is_looked_up_so() -> None:
    table = Table(4, 3)
    index = torch.tensor([[3, 0], [3, 3]])
    assert torch.equal(table(index), table.weight[index])


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_row_that_there_is_not_is_refused(wrong: int) -> None:
    with pytest.raises(IndexError, match="out of range"):
        Table(4, 3)(torch.tensor([0, wrong]))


@pytest.mark.parametrize("shape", [(0,), (9,), (49,), (50,), (700, 4)])
def test_a_linear_map_of_rows_is_that_of_an_embedding(shape: tuple[int, ...]) -> None:
    """Values and gradients, with few rows of a table and with many; no row is mapped twice where there are as many."""
    table, weight, bias = (
        torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((50, 7), (3, 7), (3,))
    )
    index = torch.randint(0, 50, shape)
    with FlopCounterMode(display=False) as counter:
        found = linear_at(table, index, weight, bias)
    assert counter.get_total_flops() == 2 * 7 * 3 * min(index.numel(), 50)
    expected = F.linear(F.embedding(index, table), weight, bias)
    assert torch.allclose(found, expected)
    upstream = torch.randn(*shape, 3, dtype=torch.float64)
    ours = torch.autograd.grad(found, (table, weight, bias), upstream)
    theirs = torch.autograd.grad(expected, (table, weight, bias), upstream)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other)


def _entries(lengths: list[int], rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random entries of sums so long, where each begins, and weights."""
    counts = torch.tensor(lengths)
    total = int(counts.sum())
    return torch.randint(0, rows, (total,)), counts.cumsum(0) - counts, torch.randn(total, dtype=torch.float64)


@pytest.mark.parametrize("lengths", [[3, 0, 5, 1, 0], [40] * 30, [0, 0], [1]])
def test_sums_and_their_gradient_are_those_of_an_embedding_bag(lengths: list[int]) -> None:
    table = torch.randn(12, 4, dtype=torch.float64, requires_grad=True)
    index, offsets, weights = _entries(lengths, 12)
    upstream = torch.randn(len(lengths), 4, dtype=torch.float64)
    ours = sums_of_rows(table, index, offsets, weights)
    theirs = F.embedding_bag(index, table, offsets, mode="sum", per_sample_weights=weights)
    assert torch.equal(ours, theirs)
    found, expected = (torch.autograd.grad(sums, table, upstream)[0] for sums in (ours, theirs))
    assert found.numpy() == pytest.approx(expected.numpy(), abs=1e-12)


def test_the_gradient_of_sums_has_a_gradient_itself() -> None:
    """A penalty on a critic's gradient differentiates twice."""
    table = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    entries = _entries([2, 0, 4], 6)
    assert torch.autograd.gradcheck(lambda rows: sums_of_rows(rows, *entries), (table,))
    assert torch.autograd.gradgradcheck(lambda rows: sums_of_rows(rows, *entries), (table,))


def test_weights_that_learn_keep_their_gradient() -> None:
    table = torch.randn(6, 3, requires_grad=True)
    index, offsets, weights = _entries([2, 1], 6)
    learned = weights.float().requires_grad_()
    sums_of_rows(table, index, offsets, learned).sum().backward()
    assert learned.grad is not None
    assert learned.grad.tolist() == pytest.approx(table.detach()[index].sum(1).tolist(), abs=1e-5)
