"""PriCDR: a private release of the source's rows supports a two-tower model on the target."""

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.data.batch_types import Batch, UserBatch
from zoo.methods.base import Outputs
from zoo.methods.target_data import Sizes
from zoo.methods.two_towers import TwoTowerRecommender
from zoo.nn.autoencoder import AlignedSources
from zoo.nn.losses import all_items_loss
from zoo.runtime import checks


class PriCDR(TwoTowerRecommender):
    """HeteroCDR, the recommender of PriCDR: an autoencoder on the release, DMF on the target, aligned user by user.

    The loss of a batch has three terms: the squared error of the decoded release rows, binary cross-entropy over all target
    items, and ``alignment_weight`` times the squared distance between source code and target factor of users with both.
    Cold-start users are scored by the source code; ``transfer_weight`` trains the code for that on users with both.

    Reference: Chen et al., *Differential Private Knowledge Transfer*, WWW 2022, section 4.4, equations 5 to 8. Departures: the
    logit is ``scale`` times the cosine (see ``DMF``; 1 is as released). Alignment is row by row, as in equation 7; the released
    code aligns all users with all users. The cross-entropy has the minus sign that equation 6 lacks, and reads logits, as a
    cosine may be negative. ``transfer_weight`` is not in the paper, which scores no cold-start user.

    Args:
        dims: Widths of the towers and of the encoder; the last is that of the factors.
        scale: Factor on the cosine, above 0.
        alignment_weight: Weight of the alignment, at least 0.
        transfer_weight: Weight of the cross-entropy of the source code's own scores, at least 0; 0 is as published.
        source_dropout: Probability in [0, 1) of dropping an entry of a release row in training.
        input_dropout: Probability in [0, 1) of dropping an entry of a target row in training.
        lr: Step size of Adam, above 0.
        weight_decay: L2 weight in Adam, at least 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40, seed=1)
        >>> private = zoo.NoisyRows(epsilon=8.0)
        >>> run = zoo.fit(zoo.PriCDR(dims=(16, 8)), data, publisher=private, max_epochs=2, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(["u0000"], k=3)["rank"].to_list()
        [1, 2, 3]
        >>> data.releases["book"].record.epsilon
        8.0
    """

    accepted_releases = frozenset({"rows", "ratings"})
    published_with = "JLT or SJLT"
    scores_cold_users = True
    scores_by_rows = True

    def __init__(
        self,
        dims: Sequence[int] = (500, 200),
        scale: float = 10.0,
        alignment_weight: float = 100.0,
        transfer_weight: float = 0.0,
        source_dropout: float = 0.5,
        input_dropout: float = 0.0,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(dims, scale, lr, weight_decay, source_dropout=source_dropout, input_dropout=input_dropout)
        checks.not_negative(alignment_weight=alignment_weight, transfer_weight=transfer_weight)
        self.alignment_weight, self.transfer_weight = alignment_weight, transfer_weight

    def build(self, sizes: Sizes) -> None:
        """Make the towers, and one autoencoder per source."""
        widths = {name: source["width"] for name, source in sizes["sources"].items()}
        self.source_side = AlignedSources(widths, self.dims, self.dropouts["source_dropout"])
        super().build(sizes)

    def step(self, batch: Batch) -> Outputs:
        """Return reconstruction, prediction, alignment and transfer loss, each summed over the batch."""
        assert isinstance(batch, UserBatch)
        observed = self.target_rows.bags(batch.users, batch.ratings)
        users, items = self.towers.user_tower(observed), self.item_factors()
        rows = self.all_source_rows(batch.users, batch.released)
        reconstruction, alignment, code, present = self.source_side.losses(rows, users)
        loss = all_items_loss(self.towers.logits(users, items), observed)
        loss = loss + reconstruction + self.alignment_weight * alignment
        if self.transfer_weight:
            logits = self.towers.logits(code, items) * present[:, None]  # an absent user's logits are a constant 0
            loss = loss + self.transfer_weight * all_items_loss(logits, observed)
        return {"loss": loss, "user_factors": users, "item_factors": items}

    def user_factors(self, users: Tensor) -> Tensor:
        """Return target factors of users (batch,), source codes for cold-start users, shape ``(batch, dim)``."""
        factors = self.towers.users(self.target_rows, users)
        cold = self.target_rows.counts_of(users) == 0
        if bool(cold.any()):
            code, _ = self.source_side.mean_code(self.all_source_rows(users), factors)
            factors = torch.where(cold[:, None], code, factors)
        return factors
