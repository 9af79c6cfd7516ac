"""FactorTables: given items and all items score the same, and tables start as they are told to."""

import torch
from torch import nn

from zoo.nn.factors import FactorTables


def test_scores_are_inner_products() -> None:
    torch.manual_seed(0)
    tables = FactorTables(5, 7, 3, nn.init.xavier_normal_)
    users, items = torch.tensor([4, 0]), torch.tensor([[6, 1, 1], [0, 2, 6]])
    every = tables.users.weight[users] @ tables.items.weight.T
    assert torch.equal(tables.score_all(users), every)
    assert torch.allclose(tables.score(users, items), every.gather(1, items))


def test_tables_start_as_they_are_told_to() -> None:
    tables = FactorTables(5, 7, 3, nn.init.ones_)
    assert torch.equal(tables.users.weight, torch.ones(5, 3))
    assert torch.equal(tables.items.weight, torch.ones(7, 3))
