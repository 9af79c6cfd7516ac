"""Base class of methods with two towers; the mathematics is in `zoo.nn.towers`."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.data.rows import in_parts
from zoo.methods.base import Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.towers import TwoTowers
from zoo.release.layouts import MOST_INNER
from zoo.runtime import checks


class TwoTowerRecommender(Recommender):
    """Score by scaled cosines of user and item factors; item factors are computed once per evaluation.

    A subclass passes dropouts by name, and overrides :meth:`user_factors` if users have more than their own row.
    """

    step_outputs = frozenset({"user_factors", "item_factors"})
    folds_in = "rows"

    def __init__(self, dims: Sequence[int], scale: float, lr: float, weight_decay: float, **dropouts: float) -> None:
        super().__init__()
        checks.widths(dims=dims)
        checks.positive(scale=scale, lr=lr)
        checks.not_negative(weight_decay=weight_decay)
        checks.below_one(**dropouts)
        self.dims, self.scale, self.dropouts = tuple(dims), scale, dropouts
        self.lr, self.weight_decay = lr, weight_decay

    def build(self, sizes: Sizes) -> None:
        """Make the towers."""
        dropouts = self.dropouts["input_dropout"], self.dropouts.get("item_dropout", 0.0)
        self.towers = TwoTowers(sizes["num_users"], sizes["num_items"], self.dims, self.scale, *dropouts)

    def stored_numbers(self, sizes: Sizes, entries: int) -> int:
        """Also count the factors of users and items, which wide last layers make large."""
        return super().stored_numbers(sizes, entries) + int(sizes["num_users"] + sizes["num_items"]) * self.dims[-1]

    def user_factors(self, users: Tensor) -> Tensor:
        """Return the factors of users (batch,), shape ``(batch, dim)``."""
        return self.towers.users(self.target_rows, users)

    def item_factors(self) -> Tensor:
        """Return the factors of all items, shape ``(num_items, dim)``."""
        return self.towers.all_items(self.target_columns, self.target_rows)

    def prepare_scoring(self) -> None:
        """Cache the factors of all items."""
        items = torch.arange(self.target_columns.num_rows, device=self.device)
        self.cache["items"] = in_parts(partial(self.towers.items, self.target_columns), items, max(self.dims))

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return scaled cosines with items (batch, candidates), in the same shape."""
        user = torch.arange(len(users), device=users.device)[:, None]
        return self.towers.logits_at(self.user_factors(users), self._item_factors(), user, items)

    def score_all(self, users: Tensor) -> Tensor:
        """Return scaled cosines with all items, shape ``(batch, num_items)``."""
        return self.towers.logits(self.user_factors(users), self._item_factors())

    def factors_of_all(self) -> tuple[Tensor, Tensor]:
        """Return the factors of users and items; scores are their cosines, scaled."""
        # Cold users read dense rows, maybe of a generator.
        widths = [MOST_INNER, *(source.rows.width for source in self.sources.values())] if self.sources else []
        users = torch.arange(self.target_rows.num_rows, device=self.device)
        return in_parts(self.user_factors, users, max([*self.dims, *widths])), self._item_factors()

    def head_factors(self) -> tuple[Tensor, Tensor]:
        """Return scaled unit vectors of users, and unit vectors of items."""
        users, items = self.factors_of_all()
        return self.towers.scale * F.normalize(users, dim=-1), F.normalize(items, dim=-1)

    def _item_factors(self) -> Tensor:
        return self.cache["items"] if self.cache else self.item_factors()
