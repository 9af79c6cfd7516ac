"""PriCDR-SYM: the paper's ablation of PriCDR, with an autoencoder on both sides."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch, UserBatch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.autoencoder import AlignedSources, perceptron
from zoo.nn.losses import all_items_loss
from zoo.nn.towers import SparseTower
from zoo.runtime import checks


class PriCDRSym(Recommender):
    """Autoencoders on the release and on the target's rows, aligned user by user.

    The loss is that of ``PriCDR`` with an autoencoder's logits instead of DMF's.

    Reference: Chen et al., *Differential Private Knowledge Transfer*, WWW 2022, section 6.1 (PriCDR-SYM). Departures: the paper
    describes the variant in one sentence. As in the released code, where it is disabled, the loss is binary cross-entropy over
    all items, and one embedding per user is added to both codes before the ReLU. Alignment is row by row, as in equation 7. Its
    weight is 1, not PriCDR's 100: without normalisation, 100 pulls all codes towards zero.

    Args:
        dims: Widths of the encoders' layers; the last is that of the codes.
        alignment_weight: Weight of the alignment, at least 0.
        source_dropout: Probability in [0, 1) of dropping an entry of a release row in training.
        input_dropout: Probability in [0, 1) of dropping an entry of a target row in training.
        lr: Step size of Adam, above 0.
        weight_decay: L2 weight in Adam, at least 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> method = zoo.PriCDRSym(dims=(16, 8))
        >>> run = zoo.fit(method, data, publisher=zoo.NoisyRows(epsilon=8.0), max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    accepted_releases = frozenset({"rows", "ratings"})
    published_with = "JLT or SJLT"
    scores_cold_users = True
    step_outputs = frozenset({"user_factors", "item_factors"})

    def __init__(
        self,
        dims: Sequence[int] = (500, 200),
        alignment_weight: float = 1.0,
        source_dropout: float = 0.5,
        input_dropout: float = 0.5,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        checks.widths(dims=dims)
        checks.positive(lr=lr)
        checks.not_negative(alignment_weight=alignment_weight, weight_decay=weight_decay)
        checks.below_one(source_dropout=source_dropout, input_dropout=input_dropout)
        self.dims, self.alignment_weight = tuple(dims), alignment_weight
        self.source_dropout, self.input_dropout = source_dropout, input_dropout
        self.lr, self.weight_decay = lr, weight_decay

    def build(self, sizes: Sizes) -> None:
        """Make the two autoencoders and the user embeddings."""
        widths = {name: source["width"] for name, source in sizes["sources"].items()}
        self.source_side = AlignedSources(widths, self.dims, self.source_dropout)
        self.encoder = SparseTower(sizes["num_items"], self.dims, self.input_dropout)
        self.decoder = perceptron([*reversed(self.dims), sizes["num_items"]])
        self.user_embedding = nn.Embedding(sizes["num_users"], self.dims[-1])
        nn.init.normal_(self.user_embedding.weight, std=0.01)

    def step(self, batch: Batch) -> Outputs:
        """Return reconstruction of both sides and alignment, each summed over the batch."""
        assert isinstance(batch, UserBatch)
        shared = self.user_embedding(batch.users)
        observed = self.target_rows.bags(batch.users, batch.ratings)
        codes = self.encoder(observed) + shared
        rows = self.all_source_rows(batch.users, batch.released)
        reconstruction, alignment, _, _ = self.source_side.losses(rows, codes, shared)
        loss = all_items_loss(self._decode(codes), observed) + reconstruction + self.alignment_weight * alignment
        items = self.decoder[-1].weight
        assert isinstance(items, Tensor)
        return {"loss": loss, "user_factors": codes, "item_factors": items}

    def _decode(self, codes: Tensor) -> Tensor:
        logits: Tensor = self.decoder(codes.relu())
        return logits

    def score_all(self, users: Tensor) -> Tensor:
        """Return decoded logits of all items, from the source code for cold-start users, shape ``(batch, num_items)``."""
        codes = self.encoder(self.target_rows.bags(users)) + self.user_embedding(users)
        cold = self.target_rows.counts_of(users) == 0
        if bool(cold.any()):
            source, _ = self.source_side.mean_code(self.all_source_rows(users), codes)
            codes = torch.where(cold[:, None], source, codes)
        return self._decode(codes)
