"""DMF: two towers over rating rows and columns, the target side of PriCDR."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch.nn import functional as F

from zoo.data.batch_types import Batch, PairBatch, UserBatch
from zoo.data.lookup import rows_at
from zoo.methods.base import Outputs
from zoo.methods.two_towers import TwoTowerRecommender
from zoo.nn.losses import all_items_loss


class DMF(TwoTowerRecommender):
    """Deep matrix factorisation: a user's rating row and an item's rating column, each through a tower; cosine.

    Target only. Reference: Xue et al., *Deep Matrix Factorization Models for Recommender Systems*, IJCAI 2017, sections 3.2 and
    3.3, as PriCDR uses it on the target domain (Chen et al., WWW 2022, section 4.4). Departures: the logit is ``scale`` times
    the cosine, as a bare cosine (1, as released with PriCDR) keeps every sigmoid in [.27, .73]. No layer of ReLU follows the
    last, so factors can be negative; the paper's clamp of the cosine above 0 is left out. As in the paper a user's row contains
    the predicted item, and an item's column the user; both dropouts thin them.

    Args:
        dims: Widths of both towers' layers.
        scale: Factor on the cosine; 1 is as released.
        loss: ``all_items`` (binary cross-entropy over every item of a user) or ``sampled`` (observed pairs and
            ``num_negatives`` unobserved ones for each).
        num_negatives: Only for the sampled loss.
        input_dropout: Probability of leaving out an entry of the user's input row while training.
        item_dropout: Probability of leaving out an entry of an item's input column while training.
        lr: Step size of Adam.
        weight_decay: L2 weight in Adam.
    """

    def __init__(
        self,
        dims: Sequence[int] = (500, 200),
        scale: float = 10.0,
        loss: Literal["all_items", "sampled"] = "all_items",
        num_negatives: int = 4,
        input_dropout: float = 0.0,
        item_dropout: float = 0.0,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(dims, scale, lr, weight_decay, input_dropout=input_dropout, item_dropout=item_dropout)
        self.batches = "users" if loss == "all_items" else "pairs"
        self.num_negatives = num_negatives

    def step(self, batch: Batch) -> Outputs:
        """Binary cross-entropy over all items of the users, or over the pairs; summed. Who comes twice is read once."""
        if isinstance(batch, PairBatch):
            people, person = torch.unique(batch.users, return_inverse=True)
            columns, column = torch.unique(batch.items, return_inverse=True)
            users, items = self.user_factors(people), self.towers.items(self.target_columns, columns)
            logits = self.towers.logits_at(users, items, person, column)
            loss = F.binary_cross_entropy_with_logits(logits, batch.labels, reduction="sum")
            users, items = rows_at(users, person), rows_at(items, column)  # the rows of the batch are its pairs
        else:
            assert isinstance(batch, UserBatch)
            observed = self.target_rows.bags(batch.users, batch.ratings)
            users, items = self.towers.user_tower(observed), self.item_factors()
            loss = all_items_loss(self.towers.logits(users, items), observed)
        return {"loss": loss, "user_factors": users, "item_factors": items}
