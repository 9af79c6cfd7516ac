"""PPGenCDR: user profiles from the rows of a released generator support a two-tower model on the target."""

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


class PPGenCDR(TwoTowerRecommender):
    """RCDR, the recommender of PPGenCDR: an autoencoder on generated rows, DMF on the target, aligned user by user.

    A user's profile is the mean of target factor and code of the generated row, weighted by ``source_share``. It is the target
    factor for users without a row, and the code for cold-start users. The loss of a batch has three terms: the squared error of
    the decoded rows, binary cross-entropy over all target items, and ``alignment_weight`` times the squared distance between
    code and target factor of users with both. The released generator makes rows when they are read, so no further privacy
    budget is used. Releases of rows and ratings are accepted as baselines.

    Reference: Liao et al., *PPGenCDR: A Stable and Robust Framework for Privacy-Preserving Cross-Domain Recommendation*, AAAI
    2023, equations 8 to 10 and 12. Equation 11 is the callback `RobustnessConductor`. Departures: the paper scores with the
    target factor alone, the released code with the mean of both (``source_share`` 0.5) and the source's real rows; here rows
    are generated. DMF is two towers with a scaled cosine, as in `DMF`; the released code has a table and a dot product.

    Args:
        dims: Widths of the towers' layers; the last is that of the factors.
        encoder_dims: Widths of the encoder's layers before the code; mirrored in the decoder.
        source_share: Weight of the code in the profile of a user with both, in [0, 1]; 0 is as printed, 0.5 as released.
        scale: Factor on the cosine, above 0.
        alignment_weight: Weight of the alignment, the paper's lambda_A, at least 0.
        source_dropout: Probability in [0, 1) of dropping an entry of a generated row in training.
        input_dropout: Probability in [0, 1) of dropping an entry of a user's target row in training.
        item_dropout: Probability in [0, 1) of dropping an entry of an item's column in training.
        lr: Step size of Adam, above 0.
        weight_decay: L2 weight in Adam, at least 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40, seed=1)
        >>> generator = zoo.SPPG(epsilon=8.0, steps=5, sample_size=8, generator_dims=(8,))
        >>> publisher = zoo.GeneratorPublisher(generator)
        >>> run = zoo.fit(zoo.PPGenCDR(dims=(16, 8)), data, publisher=publisher, max_epochs=2, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(["u0000"], k=3)["rank"].to_list()
        [1, 2, 3]
        >>> data.releases["book"].kind, round(data.releases["book"].record.epsilon, 1)
        ('generator', 8.0)
    """

    accepted_releases = frozenset({"generator", "rows", "ratings"})
    published_with = "GeneratorPublisher(SPPG)"
    scores_cold_users = True
    scores_by_rows = True

    def __init__(
        self,
        dims: Sequence[int] = (200, 100),
        encoder_dims: Sequence[int] = (),
        source_share: float = 0.5,
        scale: float = 10.0,
        alignment_weight: float = 1.0,
        source_dropout: float = 0.0,
        input_dropout: float = 0.5,
        item_dropout: float = 0.5,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        checks.widths(0, encoder_dims=encoder_dims)
        checks.not_negative(alignment_weight=alignment_weight)
        checks.shares(source_share=source_share)
        dropouts = {"source_dropout": source_dropout, "input_dropout": input_dropout, "item_dropout": item_dropout}
        super().__init__(dims, scale, lr, weight_decay, **dropouts)
        self.encoder_dims, self.source_share = tuple(encoder_dims), source_share
        self.alignment_weight = alignment_weight

    def build(self, sizes: Sizes) -> None:
        """Make the towers, and one autoencoder per source."""
        widths = {name: source["width"] for name, source in sizes["sources"].items()}
        dims = (*self.encoder_dims, self.dims[-1])
        self.source_side = AlignedSources(widths, dims, self.dropouts["source_dropout"])
        super().build(sizes)

    def step(self, batch: Batch) -> Outputs:
        """Return reconstruction, prediction and alignment loss, each summed over the batch."""
        assert isinstance(batch, UserBatch)
        observed = self.target_rows.bags(batch.users, batch.ratings)
        own, items = self.towers.user_tower(observed), self.item_factors()
        rows = self.all_source_rows(batch.users, batch.released)
        reconstruction, alignment, code, present = self.source_side.losses(rows, own)
        profiles = self._profiles(batch.users, own, code, present)
        prediction = all_items_loss(self.towers.logits(profiles, items), observed)
        loss = reconstruction + prediction + self.alignment_weight * alignment
        return {"loss": loss, "user_factors": profiles, "item_factors": items}

    def _profiles(self, users: Tensor, own: Tensor, code: Tensor, present: Tensor) -> Tensor:
        """Mix target factors and codes of users (batch,), shape ``(batch, dim)``."""
        known = self.target_rows.counts_of(users) > 0
        share = torch.where(known, self.source_share, 1.0) * present
        return torch.lerp(own, code, share[:, None].to(own.dtype))

    def user_factors(self, users: Tensor) -> Tensor:
        """Return the profiles of users (batch,), shape ``(batch, dim)``."""
        own = self.towers.users(self.target_rows, users)
        code, present = self.source_side.mean_code(self.all_source_rows(users), own)
        return self._profiles(users, own, code, present)
