"""TwoTowerRecommender: how methods of two towers score. Ceremony only; the mathematics is in `zoo.nn.towers`."""

from __future__ import annotations

from torch import Tensor

from zoo.nn.towers import TwoTowers
from zoo.recommender import Recommender


class TwoTowerRecommender(Recommender):
    """Scores are scaled cosines of user with item factors; those of all items are worked out once an evaluation.

    A method makes ``towers`` in ``build``, and overrides :meth:`user_factors` if they read more than the user's own row.
    """

    exposes = frozenset({"user_factors", "item_factors"})

    towers: TwoTowers

    def user_factors(self, users: Tensor) -> Tensor:
        """Factors of users (batch,), shape ``(batch, dim)``."""
        return self.towers.users(self.target_rows, users)

    def prepare_scoring(self) -> None:
        """Keep the factors of all items."""
        self.kept["items"] = self.towers.items(self.target_columns)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Scaled cosines with given items, shape ``(batch, candidates)``."""
        return self.towers.paired_logits(self.user_factors(users), self._item_factors()[items])

    def score_all(self, users: Tensor) -> Tensor:
        """Scaled cosines with all items, shape ``(batch, num_items)``."""
        return self.towers.logits(self.user_factors(users), self._item_factors())

    def _item_factors(self) -> Tensor:
        return self.kept["items"] if self.kept else self.towers.items(self.target_columns)
