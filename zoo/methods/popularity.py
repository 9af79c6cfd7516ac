"""Popularity: the baseline that every method must beat."""

import torch
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes


class Popularity(Recommender):
    """Rank items by their number of users in training, the same ranking for all users.

    Target only, closed form. A cross-domain method that does not beat it has learned nothing about individual users.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.Popularity(), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    batches = "full_batch"
    scores_cold_users = True
    folds_in = "rows"
    scoring_needs = frozenset[str]()

    popularity: Tensor

    def build(self, sizes: Sizes) -> None:
        """Make the buffer of item scores."""
        self.register_buffer("popularity", torch.zeros(sizes["num_items"]))

    def step(self, batch: Batch) -> Outputs:
        """Count the users of each item."""
        self.popularity.copy_(self.item_counts)
        return {}

    def score_all(self, users: Tensor) -> Tensor:
        """Return the item counts, shape ``(batch, num_items)``."""
        return self.popularity.expand(len(users), -1)
