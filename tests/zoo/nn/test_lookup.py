"""Rows looked up against torch's embedding, value and gradient."""

import pytest
import torch
from torch.nn import functional as F

from zoo.nn.lookup import Table, rows_at


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
