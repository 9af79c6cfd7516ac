"""RowMap: a linear map from a user's row in the releases to scores of the target's items."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo import Recommender
from zoo.data.batch_types import Batch, UserBatch
from zoo.methods.base import Outputs
from zoo.methods.target_data import Sizes


class RowMap(Recommender):
    """Scores items by one linear layer on a user's rows in the releases: the least that can transfer.

    Learned by logistic loss over whole target rows. A user without a row in any release is scored by the bias, which is close to
    popularity. It reads the releases and the target's ratings, so whatever is done here costs no further privacy.

    Args:
        dropout: Share of a row's values that is left out while training.
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
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}; 0 leaves nothing out.")
        self.dropout, self.lr, self.weight_decay = dropout, lr, weight_decay

    def build(self, sizes: Sizes) -> None:
        """Make the layer: the sizes of the data are known from here on, and not before."""
        width = sum(source["width"] for source in sizes["sources"].values())
        self.to_items = nn.Linear(width, sizes["num_items"])
        nn.init.zeros_(self.to_items.weight)

    def step(self, batch: Batch) -> Outputs:
        """The loss of a batch of users."""
        assert isinstance(batch, UserBatch)
        logits = self.to_items(F.dropout(self._rows(batch.users, batch.released), self.dropout, self.training))
        observed = self.target_rows.dense(batch.users, batch.ratings)  # told how many, no step waits for a GPU to count
        return {"loss": F.binary_cross_entropy_with_logits(logits, observed.clamp(0, 1))}

    def score_all(self, users: Tensor) -> Tensor:
        """Logits of all items, shape ``(batch, num_items)``."""
        scores: Tensor = self.to_items(self._rows(users))
        return scores

    def _rows(self, users: Tensor, entries: Mapping[str, int] | None = None) -> Tensor:
        """Rows of all releases side by side, zero where a user has none, shape ``(batch, widths together)``."""
        parts = [rows for rows, _ in self.all_source_rows(users, entries).values()]
        return torch.cat(parts, dim=1) if parts else torch.zeros(len(users), 0, device=users.device)
