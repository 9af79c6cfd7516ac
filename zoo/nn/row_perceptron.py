"""A perceptron that reads a sparse rating row, and a dense one beside it."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.rows import Bags
from zoo.nn.towers import SparseLinear

Activation = Literal["linear", "tanh", "sigmoid", "relu", "leaky_relu"]

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "linear": lambda hidden: hidden,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
}


class RowPerceptron(nn.Module):
    """Hidden layers on a user's row and a linear output, initialised as the networks of CFGAN are.

    The row is sparse. A discriminator reads a second, dense row beside it, as if both were one vector of twice the length:
    they share one table and one bias, whose bounds are those of that length.

    Weights are Glorot uniform, biases uniform in [-0.01, 0.01]. ``dims`` are the widths of the hidden layers, at least one,
    each followed by the activation.
    """

    def __init__(
        self, num_items: int, dims: Sequence[int], out_dim: int, activation: Activation, reads_second: bool = False
    ) -> None:
        super().__init__()
        self.num_items, self.activation = num_items, ACTIVATIONS[activation]
        self.first = SparseLinear(num_items * (1 + reads_second), dims[0])
        self.rest = nn.ModuleList(nn.Linear(width, next_width) for width, next_width in pairwise([*dims, out_dim]))
        for layer in [self.first, *self.rest]:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.uniform_(layer.bias, -0.01, 0.01)

    def forward(self, rows: Bags, second: Tensor | None = None) -> Tensor:
        """Outputs, shape ``(batch, out_dim)``, of sparse rows and, if the network reads them, dense ones (batch, num_items)."""
        hidden: Tensor = self.first(rows)
        if second is not None:
            hidden = hidden + second @ self.first.weight[self.num_items :]
        for layer in self.rest:
            hidden = layer(self.activation(hidden))
        return hidden
