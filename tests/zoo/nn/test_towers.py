"""Towers on sparse rows against ordinary layers on dense ones."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.samples import some_ratings
from zoo.data.rows import SparseRows
from zoo.nn.towers import SparseLinear, SparseTower, TwoTowers


def test_sparse_linear_is_linear_on_the_dense_row() -> None:
    ratings = some_ratings()
    layer, rows = SparseLinear(7, 4), SparseRows.from_ratings(ratings)
    dense = nn.Linear(7, 4)
    dense.weight.data, dense.bias.data = layer.weight.data.T.clone(), layer.bias.data.clone()
    index = torch.arange(9)
    out, expected = layer(rows.bags(index)), dense(rows.dense(index))
    assert torch.allclose(out, expected, atol=1e-6)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert dense.weight.grad is not None
    assert layer.weight.grad is not None
    assert torch.allclose(layer.weight.grad, dense.weight.grad.T, atol=1e-5)


def test_a_tower_ends_without_rectifying() -> None:
    torch.manual_seed(0)
    factors = SparseTower(7, (16, 8))(SparseRows.from_ratings(some_ratings()).bags(torch.arange(9)))
    assert factors.shape == (9, 8)
    assert (factors < 0).any()


def test_dropout_only_while_training() -> None:
    torch.manual_seed(0)
    tower, bags = SparseTower(7, (4,), dropout=0.5), SparseRows.from_ratings(some_ratings()).bags(torch.arange(9))
    assert not torch.equal(tower(bags), tower(bags))
    tower.eval()
    assert torch.equal(tower(bags), tower(bags))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_factors_of_all_items_learn_as_those_of_every_item_by_its_number(dropout: float) -> None:
    """To the bit: gradients are summed over the same ratings in the same order, those that dropout has left over."""
    ratings = some_ratings()
    rows, columns = SparseRows.from_ratings(ratings), SparseRows.from_ratings(ratings.transpose())
    towers = TwoTowers(9, 7, (5, 3), scale=1.0, input_dropout=0.0, item_dropout=dropout)
    learned = []
    for factors in (lambda: towers.all_items(columns, rows), lambda: towers.items(columns, torch.arange(7))):
        torch.manual_seed(0)
        found = factors()
        learned.append([found, *torch.autograd.grad(found.square().sum(), [*towers.item_tower.parameters()])])
    assert all(map(torch.equal, *learned))


def test_logits_are_scaled_cosines() -> None:
    towers = TwoTowers(9, 7, (5, 3), scale=10.0, input_dropout=0.0, item_dropout=0.0)
    assert towers.user_tower.first.weight.shape == (7, 5)  # a user's row is as long as there are items
    assert towers.item_tower.first.weight.shape == (9, 5)
    users, items = torch.randn(4, 3), torch.randn(6, 3)
    expected = 10 * F.cosine_similarity(users[:, None], items[None], dim=-1)
    assert torch.allclose(towers.logits(users, items), expected, atol=1e-5)
    some = torch.tensor([3, 0, 3])
    assert torch.allclose(towers.logits_at(users, items, some, some), expected[some, some], atol=1e-5)
    user, listed = torch.arange(4)[:, None], torch.tensor([[0, 5], [1, 1], [2, 0], [3, 3]])
    assert torch.allclose(towers.logits_at(users, items, user, listed), expected[user, listed], atol=1e-5)
