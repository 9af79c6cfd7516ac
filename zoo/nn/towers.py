"""Towers that turn a sparse rating row into a factor."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.lookup import rows_at
from zoo.data.rows import Bags, SparseRows


def relu_layers(dims: Sequence[int]) -> nn.Sequential:
    """From each width to the next a linear layer behind a ReLU."""
    layers: list[nn.Module] = []
    for width, next_width in pairwise(dims):
        layers += [nn.ReLU(), nn.Linear(width, next_width)]
    return nn.Sequential(*layers)


class SparseLinear(nn.Module):
    """``torch.nn.Linear`` on a sparse row; the table is stored as ``(in, out)``, as ``embedding_bag`` wants it."""

    __call__: Callable[..., Tensor]

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        self.bias = nn.Parameter(torch.empty(out_dim))
        # Linear's own bounds are for dense rows; with a few dozen entries of thousands they leave the bias to speak alone.
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, bags: Bags, by_column: Bags | None = None) -> Tensor:
        """Shape ``(batch, out_dim)``; ``by_column`` as `Bags.times` takes it."""
        return bags.times(self.weight, by_column) + self.bias


class SparseTower(nn.Module):
    """A multilayer perceptron on sparse rows, ReLU between its layers and none after the last (Xue et al., IJCAI 2017).

    ``dropout`` leaves out entries of a row of length ``in_dim`` while training.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, in_dim: int, dims: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.first = SparseLinear(in_dim, dims[0])
        self.rest = relu_layers(dims)

    def forward(self, bags: Bags, by_column: Bags | None = None) -> Tensor:
        """Factors, shape ``(batch, dims[-1])``; ``by_column`` as `Bags.times` takes it."""
        if self.dropout and self.training:  # then these are other entries
            bags, by_column = bags._replace(weights=F.dropout(bags.weights, self.dropout)), None
        out: Tensor = self.rest(self.first(bags, by_column))
        return out


class TwoTowers(nn.Module):
    """Deep matrix factorisation: a tower over users' rows, a tower over items' columns, a scaled cosine between them.

    ``scale`` is the range of the logit. Dropouts leave out entries of users' rows and items' columns.

    Reference: Xue et al., IJCAI 2017, sections 3.2 and 3.3, equations 6 to 8.
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        dims: Sequence[int],
        scale: float,
        input_dropout: float,
        item_dropout: float,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.user_tower = SparseTower(num_items, dims, input_dropout)
        self.item_tower = SparseTower(num_users, dims, item_dropout)

    def users(self, rows: SparseRows, index: Tensor) -> Tensor:
        """Factors of users ``index`` (batch,), shape ``(batch, dims[-1])``."""
        return self.user_tower(rows.bags(index))

    def items(self, columns: SparseRows, index: Tensor) -> Tensor:
        """Factors of items ``index`` (batch,), shape ``(batch, dims[-1])``."""
        return self.item_tower(columns.bags(index))

    def all_items(self, columns: SparseRows, rows: SparseRows) -> Tensor:
        """Factors of all items, shape ``(items, dims[-1])``; ``rows`` are the same ratings by user, as gradients are summed."""
        return self.item_tower(columns.all_bags(), rows.all_bags())

    def logits(self, users: Tensor, items: Tensor) -> Tensor:
        """Of every user factor (users, dim) with every item factor (items, dim), shape ``(users, items)``."""
        return self.scale * F.normalize(users, dim=-1) @ F.normalize(items, dim=-1).T

    def logits_at(self, users: Tensor, items: Tensor, user: Tensor, item: Tensor) -> Tensor:
        """Logits of pairs: factors (users, dim) at ``user`` with factors (items, dim) at ``item``, which broadcast."""
        users, items = F.normalize(users, dim=-1), F.normalize(items, dim=-1)
        logits: Tensor = (rows_at(self.scale * users, user) * rows_at(items, item)).sum(-1)
        return logits
