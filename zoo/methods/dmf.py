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
    """Deep matrix factorisation: a tower on a user's rating row, a tower on an item's rating column, and their cosine.

    Target only. Reference: Xue et al., *Deep Matrix Factorization Models for Recommender Systems*, IJCAI 2017, sections 3.2 and
    3.3, as used on the target domain of PriCDR (Chen et al., WWW 2022, section 4.4). Departures: the logit is ``scale`` times
    the cosine, as a bare cosine (1, as released with PriCDR) limits every sigmoid to [.27, .73]. No ReLU follows the last
    layer, so factors can be negative. The paper's clamp of the cosine above 0 is omitted. As in the paper, a user's row
    contains the predicted item, and an item's column the user; both dropouts thin them.

    Args:
        dims: Widths of the layers of both towers.
        scale: Factor on the cosine, above 0; 1 is as released.
        loss: ``all_items`` (binary cross-entropy over every item of a user) or ``sampled`` (observed pairs and
            ``num_negatives`` unobserved ones for each).
        num_negatives: Unobserved items for each observed one, for the sampled loss.
        input_dropout: Probability in [0, 1) of dropping an entry of a user's row in training.
        item_dropout: Probability in [0, 1) of dropping an entry of an item's column in training.
        lr: Step size of Adam, above 0.
        weight_decay: L2 weight in Adam, at least 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.DMF(dims=(16, 8)), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
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
        """Return binary cross-entropy over all items of the users, or over the pairs, summed; repeated users are read once."""
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
