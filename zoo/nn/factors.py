"""Tables of user and item factors, and what neural collaborative filtering makes of two factors: a product, a perceptron."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.lookup import Table, linear_at
from zoo.data.rows import MOST_NUMBERS, SparseRows

# Users whose pairs with all items are scored at once: about what a processor's cache holds.
_USERS_AT_ONCE = 16


class FactorTables(nn.Module):
    """A factor of width ``dim`` for each user and for each item, filled by ``init`` in place; scores are inner products."""

    def __init__(self, num_users: int, num_items: int, dim: int, init: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.users, self.items = Table(num_users, dim), Table(num_items, dim)
        for table in (self.users, self.items):
            init(table.weight)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Inner products of users (batch,) with items (batch, candidates), shape ``(batch, candidates)``."""
        return (self.users(users)[:, None] * self.items(items)).sum(-1)

    def score_all(self, users: Tensor) -> Tensor:
        """Inner products of users (batch,) with all items, shape ``(batch, num_items)``."""
        return self.users(users) @ self.items.weight.T


def logits_of_all(logits: Callable[[Tensor, Tensor], Tensor], users: Tensor, num_items: int, width: int) -> Tensor:
    """Logits of users (batch,) with all items, shape ``(batch, num_items)``, block by block.

    ``logits`` are those of users (block, 1) and items (1, block); ``width`` is that of the widest layer, which bounds a block.
    """
    items = torch.arange(num_items, device=users.device)[None]
    at_once = max(1, min(num_items, MOST_NUMBERS // width))
    parts = torch.split(users[:, None], max(1, min(_USERS_AT_ONCE, MOST_NUMBERS // (width * at_once))))
    return torch.cat(
        [torch.cat([logits(some, block) for block in torch.split(items, at_once, 1)], 1) for some in parts]
    )


def history_features(rows: SparseRows, items: Tensor) -> Tensor:
    """Return the mean vector of the items (num_items, dim) in each row, and a 1 behind it, shape ``(rows, dim + 1)``."""
    means = rows.times(items) / rows.counts().clamp(min=1)[:, None]
    return torch.cat([means, torch.ones_like(means[:, :1])], dim=1)


def history_map(rows: SparseRows, items: Tensor, users: Tensor, penalty: float = 1e-4) -> Tensor:
    """Return the ridge regression of user vectors (rows, dim) on `history_features`, shape ``(dim + 1, dim)``.

    Users without a rating do not count. It gives vectors to users that training has not seen, with items fixed.

    Args:
        rows: Training ratings.
        items: Vectors of items (num_items, dim).
        users: Vectors of users (rows, dim).
        penalty: Weight of the squared norm, in units of the mean squared feature.
    """
    features = history_features(rows, items).double() * (rows.counts() > 0)[:, None]
    gram = features.T @ features
    gram += penalty * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    solved: Tensor = torch.linalg.solve(gram, features.T @ users.double())
    return solved.to(users)


def _small_normal(table: Tensor) -> Tensor:
    return nn.init.normal_(table, std=0.01)  # the paper's N(0, 0.01)


class GMF(FactorTables):
    """Generalised matrix factorisation: the product of user and item factor, number by number (He et al., WWW 2017, equation 8)."""

    def __init__(self, num_users: int, num_items: int, dim: int) -> None:
        super().__init__(num_users, num_items, dim, _small_normal)
        self.width = dim

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Features of users and items whose shapes broadcast, shape ``(*shape, width)``."""
        return self.users(users) * self.items(items)


class SideBySide(nn.Linear):
    """``Linear`` on the factors of a user and an item side by side, of half its inputs each.

    It is computed for users and for items alone and added up, so scoring all pairs costs no more than users plus items.
    """

    def forward(self, users: Tensor, items: Tensor) -> Tensor:  # type: ignore[override]
        """Outputs of users (..., dim) and items (..., dim) whose shapes broadcast."""
        dim = self.in_features // 2
        return F.linear(users, self.weight[:, :dim]) + F.linear(items, self.weight[:, dim:], self.bias)

    def looked_up(self, tables: FactorTables, users: Tensor, items: Tensor) -> Tensor:
        """The same of users and items by their numbers in two tables of factors."""
        dim = self.in_features // 2
        by_user = linear_at(tables.users.weight, users, self.weight[:, :dim])
        return by_user + linear_at(tables.items.weight, items, self.weight[:, dim:], self.bias)


class PairMLP(FactorTables):
    """A tower of ReLU layers on user and item factor side by side (He et al., WWW 2017, equation 10).

    ``dims`` are the widths from the input (both factors) on. ``dropout`` leaves out numbers of a factor while training.
    """

    def __init__(self, num_users: int, num_items: int, dims: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__(num_users, num_items, dims[0] // 2, _small_normal)
        self.width = dims[-1]
        self.dropout = nn.Dropout(dropout)
        self.first = SideBySide(dims[0], dims[1])
        layers = [nn.Linear(width, next_width) for width, next_width in pairwise(dims[1:])]
        for layer in [self.first, *layers]:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.rest = nn.Sequential(nn.ReLU(), *(part for layer in layers for part in (layer, nn.ReLU())))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Features of users and items whose shapes broadcast, shape ``(*shape, width)``."""
        if self.training and self.dropout.p:  # each pair leaves out numbers of its own
            return self.features(self.users(users), self.items(items))
        features: Tensor = self.rest(self.first.looked_up(self, users, items))
        return features

    def features(self, users: Tensor, items: Tensor) -> Tensor:
        """Features of any factors (..., dim) that broadcast, of these tables or others, shape ``(*shape, width)``."""
        features: Tensor = self.rest(self.first(self.dropout(users), self.dropout(items)))
        return features


class PairScorer(PairMLP):
    """The tower of `PairMLP` under a linear head: it gives any user and item factor a logit, also those of another domain."""

    def __init__(self, num_users: int, num_items: int, dims: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__(num_users, num_items, dims, dropout)
        self.head = nn.Linear(self.width, 1)
        bound = (3 / self.width) ** 0.5  # LeCun uniform, as the head of NeuMF
        nn.init.uniform_(self.head.weight, -bound, bound)
        nn.init.zeros_(self.head.bias)

    def logits(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits of factors (..., dim) that broadcast, of their common shape without the last."""
        logits: Tensor = self.head(self.features(users, items))
        return logits.squeeze(-1)
