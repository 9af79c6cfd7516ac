"""Popularity: the control that every method must beat."""

import torch
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes


class Popularity(Recommender):
    """Ranks items by how many users rated them in training, the same for everybody.

    Target only, closed form. A cross-domain method that does not beat it has learned nothing about individual users.
    """

    batches = "full_batch"
    scores_cold_users = True
    scoring_needs = frozenset[str]()

    popularity: Tensor

    def build(self, sizes: Sizes) -> None:
        """Make the item scores' buffer."""
        self.register_buffer("popularity", torch.zeros(sizes["num_items"]))

    def step(self, batch: Batch) -> Outputs:
        """Count."""
        self.popularity.copy_(self.item_counts)
        return {}

    def score_all(self, users: Tensor) -> Tensor:
        """Item counts, shape ``(batch, num_items)``."""
        return self.popularity.expand(len(users), -1)
