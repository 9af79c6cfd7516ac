"""FactorTables: given items and all items score the same; the parts of NeuMF against the formulas on one pair at a time."""

import torch
from torch import nn
from torch.nn import functional as F

from zoo.nn.factors import GMF, FactorTables, PairMLP


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


def test_gmf_multiplies_number_by_number() -> None:
    torch.manual_seed(0)
    part = GMF(4, 5, 3)
    features = part(torch.tensor([1, 2])[:, None], torch.tensor([[0, 4], [3, 3]]))
    assert features.shape == (2, 2, 3)
    assert torch.equal(features[1, 0], part.users.weight[2] * part.items.weight[3])


def test_the_perceptron_reads_both_factors_side_by_side() -> None:
    torch.manual_seed(0)
    part = PairMLP(4, 5, (6, 8, 2))
    users, items = torch.tensor([1, 2]), torch.tensor([[0, 4, 1], [3, 3, 2]])
    features = part(users[:, None], items)
    assert features.shape == (2, 3, 2)
    last = part.rest[1]
    for row, user in enumerate(users):
        for column, item in enumerate(items[row]):
            both = torch.cat([part.users.weight[user], part.items.weight[item]])
            hidden = F.relu(part.first.weight @ both + part.first.bias)
            expected = F.relu(last.weight @ hidden + last.bias)
            assert torch.allclose(features[row, column], expected, atol=1e-7)


def test_tables_are_small_normal_and_layers_glorot() -> None:
    torch.manual_seed(0)
    part = PairMLP(400, 500, (32, 64, 8))
    for table in (part.users.weight, part.items.weight):
        assert table.shape[1] == 16
        assert 0.009 < float(table.detach().std()) < 0.011
    bound = (6 / (32 + 64)) ** 0.5
    assert 0.9 * bound < float(part.first.weight.detach().abs().max()) <= bound


def test_dropout_thins_factors_while_training_only() -> None:
    torch.manual_seed(0)
    part = PairMLP(40, 40, (64, 32), dropout=0.5)
    pairs = (torch.arange(40), torch.arange(40))
    assert not torch.equal(part(*pairs), part(*pairs))
    part.eval()
    assert torch.equal(part(*pairs), part(*pairs))
