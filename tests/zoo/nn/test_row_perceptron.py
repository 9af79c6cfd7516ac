"""RowPerceptron against linear layers on dense rows."""

import pytest
import torch
from torch.nn import functional as F

from zoo.data.rows import Bags
from zoo.nn.row_perceptron import ACTIVATIONS, Activation, RowPerceptron

ROWS = Bags(torch.tensor([0, 3, 2]), torch.tensor([0, 2, 2]), torch.tensor([1.0, 1.0, 1.0]))  # two, none, one


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_one_row_is_read_as_by_a_dense_layer(activation: Activation) -> None:
    torch.manual_seed(0)
    network = RowPerceptron(5, (4, 3), 2, activation)
    dense = ROWS.dense(5)
    function = {"linear": lambda x: x, "leaky_relu": F.leaky_relu}.get(activation) or getattr(torch, activation)
    hidden = function(dense @ network.first.weight + network.first.bias)
    hidden = function(F.linear(hidden, network.rest[0].weight, network.rest[0].bias))
    expected = F.linear(hidden, network.rest[1].weight, network.rest[1].bias)
    assert torch.allclose(network(ROWS), expected, atol=1e-6)


def test_two_rows_are_read_as_one_vector() -> None:
    torch.manual_seed(0)
    network = RowPerceptron(5, (4,), 1, "tanh", reads_second=True)
    second = torch.randn(3, 5)
    both = torch.cat([ROWS.dense(5), second], dim=1)
    hidden = torch.tanh(both @ network.first.weight + network.first.bias)
    expected = F.linear(hidden, network.rest[0].weight, network.rest[0].bias)
    assert torch.allclose(network(ROWS, second), expected, atol=1e-6)


def test_weights_are_glorot_uniform_and_biases_small() -> None:
    torch.manual_seed(0)
    network = RowPerceptron(100, (60,), 50, "tanh", reads_second=True)
    for layer, fans in ((network.first, 200 + 60), (network.rest[0], 60 + 50)):
        bound = (6 / fans) ** 0.5
        assert 0.95 * bound < float(layer.weight.detach().abs().max()) <= bound
        assert 0.005 < float(layer.bias.detach().abs().max()) <= 0.01
