"""RowMap: a linear map from release rows to item scores."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo import Recommender
from zoo.data.batch_types import Batch, UserBatch
from zoo.methods.base import Outputs
from zoo.methods.target_data import Sizes


class RowMap(Recommender):
    """Score items by one linear layer on a user's release rows: a minimal transfer method.

    Trained with logistic loss on whole target rows. A user without a release row is scored by the bias, close to popularity.
    Training on a release is post-processing and costs no further privacy.

    Args:
        dropout: Dropout rate of release rows.
        lr: Step size of Adam.
        weight_decay: L2 weight.
    """

    batches = "users"
    accepted_releases = frozenset({"rows", "ratings", "embeddings"})
    scores_cold_users = True
    scores_by_rows = True

    def __init__(self, dropout: float = 0.2, lr: float = 1e-2, weight_decay: float = 0.0) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}. It must lie in [0, 1).")
        self.dropout, self.lr, self.weight_decay = dropout, lr, weight_decay

    def build(self, sizes: Sizes) -> None:
        """Make the layer, now that the sizes are known."""
        width = sum(source["width"] for source in sizes["sources"].values())
        self.to_items = nn.Linear(width, sizes["num_items"])
        nn.init.zeros_(self.to_items.weight)

    def step(self, batch: Batch) -> Outputs:
        """Return the loss of a batch of users."""
        assert isinstance(batch, UserBatch)
        logits = self.to_items(F.dropout(self._rows(batch.users, batch.released), self.dropout, self.training))
        observed = self.target_rows.dense(batch.users, batch.ratings)  # the counts avoid a GPU synchronisation
        return {"loss": F.binary_cross_entropy_with_logits(logits, observed.clamp(0, 1))}

    def score_all(self, users: Tensor) -> Tensor:
        """Return logits of all items, ``(batch, num_items)``."""
        scores: Tensor = self.to_items(self._rows(users))
        return scores

    def _rows(self, users: Tensor, entries: Mapping[str, int] | None = None) -> Tensor:
        """Return the concatenated rows of all releases, 0 for missing ones, ``(batch, total width)``."""
        parts = [rows for rows, _ in self.all_source_rows(users, entries).values()]
        return torch.cat(parts, dim=1) if parts else torch.zeros(len(users), 0, device=users.device)
