"""ETL: one linear mapping turns a user's code in one domain into the code in the other, and back."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch, UserBatch
from zoo.data.rows import Bags, is_binary
from zoo.methods.adversarial import Adversarial
from zoo.methods.base import Outputs
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.autoencoder import Rows, perceptron
from zoo.nn.losses import all_items_loss, bits_loss, reconstruction_loss
from zoo.nn.mapping import mean_over_sources
from zoo.nn.modules import ModulesOf
from zoo.nn.orthogonal import OrthogonalMap
from zoo.nn.towers import SparseTower
from zoo.runtime import checks


class SourceCoder(nn.Module):
    """Encoder and decoder of a release's rows (batch, width), and the mapping from its rectified codes to the target's."""

    def __init__(self, width: int, dims: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Dropout(dropout), perceptron([width, *dims]))
        self.decoder = perceptron([*reversed(dims), width])
        self.map = OrthogonalMap(dims[-1])


class CoupledAutoencoders(nn.Module):
    """An autoencoder on the target's rows, one on each source's, and one embedding per user that all its codes share.

    A code is an encoder's output plus the user's embedding, and is rectified before it is decoded or mapped.

    Args:
        num_users: Users of the target.
        num_items: Items of the target.
        widths: Width of each source's rows, by name.
        dims: Widths of all encoders, mirrored in the decoders.
        input_dropout: Probability of dropping an entry of a target row.
        source_dropout: Probability of dropping an entry of a release row.
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        widths: Mapping[str, int],
        dims: Sequence[int],
        input_dropout: float,
        source_dropout: float,
    ) -> None:
        super().__init__()
        self.encoder = SparseTower(num_items, dims, input_dropout)
        self.decoder = perceptron([*reversed(dims), num_items])
        self.users = nn.Embedding(num_users, dims[-1])
        nn.init.normal_(self.users.weight, std=0.01)
        self.sources: ModulesOf[SourceCoder] = ModulesOf()
        for name, width in widths.items():
            self.sources[name] = SourceCoder(width, dims, source_dropout)

    @property
    def item_factors(self) -> Tensor:
        """Weights of the target decoder's last layer by item, shape ``(num_items, dims[0])``."""
        last = self.decoder[-1]
        assert isinstance(last, nn.Linear)
        return last.weight

    def code(self, rows: Bags, shared: Tensor) -> Tensor:
        """Return unrectified codes of the target's rows, given the users' embeddings (batch, dim), in the same shape."""
        return self.encoder(rows) + shared

    def mapped(self, rows: Rows, shared: Tensor) -> tuple[Tensor, Tensor]:
        """Return source codes mapped to target codes, averaged over the sources with the user, and a mask of users in any."""
        said = []
        for name, (source, present) in rows.items():
            coder = self.sources[name]
            said.append((coder.map((coder.encoder(source) + shared).relu()), present))
        return mean_over_sources(said, torch.zeros_like(shared))


class PriorDiscriminator(nn.Module):
    """Distinguish codes from samples of a standard normal distribution, by one hidden layer of half their width.

    Reference: Makhzani et al., *Adversarial Autoencoders*, 2015, section 2; losses of Goodfellow et al., NIPS 2014,
    non-saturating.
    """

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        half = max(1, dim // 2)
        self.layers = nn.Sequential(nn.Linear(dim, half), nn.ReLU(), nn.Dropout(dropout), nn.Linear(half, 1))

    def forward(self, codes: Tensor) -> Tensor:
        """Return logits that codes (batch, dim) are samples of the prior, shape ``(batch,)``."""
        logits: Tensor = self.layers(codes).squeeze(1)
        return logits

    def own_loss(self, codes: Tensor) -> Tensor:
        """Return the discriminator's cross-entropy on codes (batch, dim) and as many samples of the prior, summed over both."""
        return F.softplus(-self(torch.randn_like(codes))).sum() + F.softplus(self(codes)).sum()

    def loss_of(self, codes: Tensor) -> Tensor:
        """Return the adversarial loss of the encoder, -log D(code), summed over codes (batch, dim)."""
        return F.softplus(-self(codes)).sum()


class SourceBatch(NamedTuple):
    """The users of a batch with a row in a release."""

    name: str  # of the source
    where: Tensor  # their places in the batch, (present,)
    rows: Tensor  # of the release, (present, width)
    codes: Tensor  # of these rows, not yet rectified, (present, dim)


class ETL(Adversarial):
    """Equivalent transformation learner: an autoencoder per domain, and a mapping between their codes, inverted by its transpose.

    A user's row in either domain is encoded, the user's embedding is added, and the code is rectified. Decoded, it must give
    its own row (self). A source's code times W, decoded by the target's decoder, must give the target's row, and the target's
    code times ``W^T`` the source's (cross). W must map a code there and back unchanged (equivalence). Codes before
    rectification must look standard normal to their domain's discriminator (prior).

    Users with target history are scored by the target's own logits, mixed with the cross logits by ``cross_share``; cold-start
    users by the cross logits without embedding. Every source has its own autoencoder, mapping and discriminator; mapped codes
    are averaged over the sources with the user.

    Reference: Chen, Zhang, Tsang, Pan & Su, *Toward Equivalent Transformation of User Preferences in Cross Domain
    Recommendation*, ACM TOIS 41(1), 2023 (online 2022; arXiv 2009.06884). Departures: all networks take a step of Adam on every
    batch; in the released code the discriminators take every third batch, by SGD, and the others skip it. W starts orthogonal
    instead of Xavier. A loss is a mean over the users of a batch, so a weight decay of 4e-6 is the released 1e-3 at 256 users.
    The weight of the prior is a setting; the released one is unused and 1 in effect. Real-valued rows have squared error
    instead of cross-entropy. The paper has no cold-start users.

    Args:
        dims: Widths of the encoders' layers; the last is that of the codes.
        cross_weight: Weight of the cross reconstructions, at least 0.
        equivalence_weight: Weight of the round-trip error of the mapping; the authors choose 0.5, 1 or 5 by data set.
        adversarial_weight: Weight of the codes' loss against the discriminators, at least 0.
        cross_share: Share in [0, 1] of the cross logits in the scores of users with both target history and a release row.
        source_dropout: Probability in [0, 1) of dropping an entry of a release row in training.
        input_dropout: Probability in [0, 1) of dropping an entry of a target row in training.
        discriminator_dropout: Probability in [0, 1) of dropping a hidden number of a discriminator in training.
        lr_generator: Step size of the autoencoders' Adam, above 0.
        lr_discriminator: Step size of the discriminators'.
        weight_decay_generator: L2 weight in the autoencoders' Adam, at least 0.
        weight_decay_discriminator: L2 weight in the discriminators'.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> method = zoo.ETL(dims=(8,))
        >>> run = zoo.fit(method, data, publisher=zoo.NoisyRows(epsilon=8.0), max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    generator: CoupledAutoencoders
    discriminator: nn.ModuleList

    accepted_releases = frozenset({"rows", "ratings"})
    scores_cold_users = True
    step_outputs = frozenset({"user_factors", "item_factors"})

    def __init__(
        self,
        dims: Sequence[int] = (200,),
        cross_weight: float = 1.0,
        equivalence_weight: float = 1.0,
        adversarial_weight: float = 1.0,
        cross_share: float = 0.0,
        source_dropout: float = 0.5,
        input_dropout: float = 0.5,
        discriminator_dropout: float = 0.5,
        lr_generator: float = 5e-3,
        lr_discriminator: float = 1e-3,
        weight_decay_generator: float = 0.0,
        weight_decay_discriminator: float = 0.0,
    ) -> None:
        super().__init__(lr_generator, lr_discriminator, weight_decay_generator, weight_decay_discriminator)
        self.dropouts = {"input_dropout": input_dropout, "source_dropout": source_dropout}
        self.discriminator_dropout = discriminator_dropout
        checks.widths(dims=dims)
        checks.not_negative(
            cross_weight=cross_weight, equivalence_weight=equivalence_weight, adversarial_weight=adversarial_weight
        )
        checks.shares(cross_share=cross_share)
        checks.below_one(**self.dropouts, discriminator_dropout=discriminator_dropout)
        self.dims, self.cross_share = tuple(dims), cross_share
        self.cross_weight, self.equivalence_weight = cross_weight, equivalence_weight
        self.adversarial_weight = adversarial_weight

    def build(self, sizes: Sizes) -> None:
        """Make the autoencoders with their mappings, and a discriminator for the target and for each source."""
        widths = {name: source["width"] for name, source in sizes["sources"].items()}
        self.generator = CoupledAutoencoders(sizes["num_users"], sizes["num_items"], widths, self.dims, **self.dropouts)
        critics = (PriorDiscriminator(self.dims[-1], self.discriminator_dropout) for _ in range(1 + len(widths)))
        self.discriminator = nn.ModuleList(critics)

    def read_data(self, data: TargetData) -> None:
        """Also find the releases of zeros and ones."""
        super().read_data(data)
        self.bits = {name: is_binary(self.sources[name].rows) for name in self.sources}

    def discriminator_step(self, batch: Batch) -> Outputs:
        """Return the discriminators' loss on each domain's codes, a mean over the users of the batch."""
        assert isinstance(batch, UserBatch)
        with torch.no_grad():
            codes = self._codes(*self._encoded(batch, self.target_rows.bags(batch.users, batch.ratings)))
        losses = [critic.own_loss(code) for critic, code in zip(self._critics(), codes, strict=True)]
        return {"loss": torch.stack(losses).sum() / len(batch.users)}

    def step(self, batch: Batch) -> Outputs:
        """Return self and cross reconstructions, equivalence and prior, a mean over the users of the batch."""
        assert isinstance(batch, UserBatch)
        observed = self.target_rows.bags(batch.users, batch.ratings)
        own, sources = self._encoded(batch, observed)
        loss = all_items_loss(self.generator.decoder(own.relu()), observed)
        for source in sources:
            loss = loss + self._source_loss(source, own[source.where], batch.users[source.where])
        for critic, code in zip(self._critics(), self._codes(own, sources), strict=True):
            loss = loss + self.adversarial_weight * critic.loss_of(code)
        return {"loss": loss / len(batch.users), "user_factors": own, "item_factors": self.generator.item_factors}

    def _encoded(self, batch: UserBatch, observed: Bags) -> tuple[Tensor, list[SourceBatch]]:
        """Target codes of users with these rows (batch, dim), and the users of each source."""
        shared = self.generator.users(batch.users)
        own = self.generator.code(observed, shared)
        sources = []
        for name, (rows, present) in self.all_source_rows(batch.users, batch.released).items():
            where = present.nonzero().squeeze(1)
            there = rows[where]
            codes = self.generator.sources[name].encoder(there) + shared[where]
            sources.append(SourceBatch(name, where, there, codes))
        return own, sources

    def _source_loss(self, source: SourceBatch, own: Tensor, users: Tensor) -> Tensor:
        """Summed loss of a source for its users (present,), with target codes ``own`` (present, dim)."""
        net, side = self.generator, self.generator.sources[source.name]
        there, here = source.codes.relu(), own.relu()
        everybody = torch.ones_like(source.where, dtype=torch.bool)

        def rebuilt(codes: Tensor) -> Tensor:
            fit = bits_loss if self.bits[source.name] else reconstruction_loss
            return fit(side.decoder(codes), source.rows, everybody)

        cross = all_items_loss(net.decoder(side.map(there)), self.target_rows.bags(users))
        cross = cross + rebuilt(side.map.back(here))
        equivalence = side.map.round_trip(there) + side.map.return_trip(here)
        return rebuilt(there) + self.cross_weight * cross + self.equivalence_weight * equivalence

    @staticmethod
    def _codes(own: Tensor, sources: list[SourceBatch]) -> list[Tensor]:
        return [own, *(source.codes for source in sources)]

    def _critics(self) -> list[PriorDiscriminator]:
        return [critic for critic in self.discriminator if isinstance(critic, PriorDiscriminator)]

    def score_all(self, users: Tensor) -> Tensor:
        """Return the target's own logits of all items, mixed with the cross logits; cross logits alone for cold-start users."""
        net = self.generator
        cold = (self.target_rows.counts_of(users) == 0)[:, None]
        shared = net.users(users) * ~cold
        logits: Tensor = net.decoder(net.code(self.target_rows.bags(users), shared).relu())
        if not (self.cross_share or bool(cold.any())):
            return logits
        mapped, present = net.mapped(self.all_source_rows(users), shared)
        share = torch.where(cold, 1.0, self.cross_share) * present[:, None]
        return logits.lerp(net.decoder(mapped), share)
