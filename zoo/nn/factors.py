"""A table of user factors and one of item factors."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class FactorTables(nn.Module):
    """A factor for each user and one for each item; their inner product is the score of matrix factorisation.

    Args:
        num_users: Rows of the user table.
        num_items: Rows of the item table.
        dim: Width of a factor.
        init: Fills a table, in place.
    """

    def __init__(self, num_users: int, num_items: int, dim: int, init: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(num_users, dim), nn.Embedding(num_items, dim)
        for table in (self.users, self.items):
            init(table.weight)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Inner products of users (batch,) with items (batch, candidates), shape ``(batch, candidates)``."""
        scores: Tensor = (self.users(users)[:, None] * self.items(items)).sum(-1)
        return scores

    def score_all(self, users: Tensor) -> Tensor:
        """Inner products of users (batch,) with all items, shape ``(batch, num_items)``."""
        scores: Tensor = self.users(users) @ self.items.weight.T
        return scores
