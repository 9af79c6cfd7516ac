"""DARec: rating patterns shared by all domains, from which a classifier cannot predict the domain."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from zoo.data.batch_types import Batch, UserBatch
from zoo.data.rows import Bags, DenseRows, SparseRows, is_binary
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.autoencoder import Rows, perceptron
from zoo.nn.losses import all_items_loss, bits_loss, reconstruction_loss
from zoo.nn.modules import ModulesOf
from zoo.nn.towers import SparseTower, relu_layers
from zoo.runtime import checks


def reverse_gradient(inputs: Tensor, weight: float) -> Tensor:
    """Return the inputs; their gradient is multiplied by ``-weight`` (Ganin et al., JMLR 2016, section 4.2)."""
    reversed_: Tensor = _Reversed.apply(inputs, weight)  # type: ignore[no-untyped-call]
    return reversed_


class DomainClassifier(nn.Module):
    """Predict the domain of features (batch, in_dim); its reversed gradient makes the features similar across domains.

    One backward pass does both. ``dims`` are the widths of its hidden layers, with ReLU. With one domain the loss is 0.

    Reference: Ganin et al., JMLR 2016, equations 13 to 17; there ``weight`` is lambda.
    """

    def __init__(self, in_dim: int, dims: Sequence[int], num_domains: int) -> None:
        super().__init__()
        first, *rest = *dims, num_domains
        self.layers = nn.Sequential(nn.Linear(in_dim, first), *relu_layers([first, *rest]))

    def loss(self, features: Tensor, domains: Tensor, weight: float) -> Tensor:
        """Return the cross-entropy of the domains (batch,) of features (batch, in_dim), summed; 0 for an empty batch."""
        logits = self.layers(reverse_gradient(features, weight))
        return F.cross_entropy(logits, domains, reduction="sum")


class _Reversed(torch.autograd.Function):
    """Identity forward, minus ``weight`` times the gradient backward."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: float) -> Tensor:  # noqa: ANN401
        ctx.weight = weight
        return inputs.view_as(inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return -ctx.weight * gradient, None


def pattern_extractor(vector_dim: int, dims: Sequence[int], dropout: float) -> nn.Sequential:
    """Make linear layers from vectors to patterns of width ``dims[-1]``, each with ReLU and then dropout."""
    layers: list[nn.Module] = []
    for width, next_width in pairwise([vector_dim, *dims]):
        layers += [nn.Linear(width, next_width), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


class UsualRow(nn.Module):
    """Prediction for an unknown user: the mean of rows or, for zeros and ones, log-odds by column.

    It is added to a decoder, which so learns differences between users and not item popularity. It is computed from the data
    and not stored in checkpoints. Half a user is added to either side, so log-odds are finite; without rows it is 0.
    """

    row: Tensor  # (width,)

    def __init__(self, rows: SparseRows | DenseRows, bits: bool) -> None:
        super().__init__()
        count = rows.num_rows
        row = rows.mean() if count else torch.zeros(rows.width)
        row = torch.logit((row * count + 0.5) / (count + 1)) if bits else row
        self.register_buffer("row", row, persistent=False)

    def forward(self, decoded: Tensor) -> Tensor:
        """Return row values, or logits of zeros and ones, from decoded patterns; both ``(batch, width)``."""
        return decoded + self.row


class Patterns(NamedTuple):
    """Patterns of a batch of users: first those of the target for all users, then one for each source with the user."""

    patterns: Tensor  # (vectors, dim)
    owners: Tensor  # place of each one's user in the batch, (vectors,)
    domains: Tensor  # domain of each: 0 for the target, then the sources in their order, (vectors,)


class DARec(Recommender):
    """U-DARec: one extractor makes patterns from a user's vectors of all domains; every domain's row is decoded from any of them.

    A domain's encoder makes a vector of a user's row, and the extractor a pattern of the vector. Every decoder reads its own
    domain's row of the user from the pattern of any domain. A classifier predicts the domain; its reversed gradient teaches
    extractor and encoders to hide it. The loss of a batch of users is the cross-entropy over all target items of every pattern,
    plus ``source_weight`` times that of every source's row (squared error of real values), plus the classifier's.

    Scores are the target decoder's logits: by the history, by the row, or by both mixed by ``source_share``; rows of several
    sources are averaged. Without a release it is a denoising autoencoder of the target's rows.

    Reference: Yuan, Yao, Benatallah: *DARec: Deep Domain Adaptation for Cross-Domain Recommendation via Transferring Rating
    Patterns*, IJCAI 2019, section 3; the user-based variant. The reversal: Ganin et al., JMLR 2016. Departures: the paper
    learns from the squared error of the given ratings, which a constant solves if all are 1. Here every entry counts, by
    cross-entropy, and decoders start from item frequencies. The encoders are AutoRec's, with tanh instead of the sigmoid, and
    are trained with the rest, not before it. The published evaluation scores all users from the source (``source_share`` 1).
    Entries of rows are dropped in training. Every further source has an encoder, a decoder and a class. The classifier sees
    only users of several domains. Widths are not the published ones; see below.

    Args:
        vector_dim: Width of a domain's vector of a user; 500 is as published.
        pattern_dims: Widths of the extractor's layers; [60, 32] is as published.
        decoder_dims: Widths of each decoder's hidden layers, none by default; [500] is as published.
        classifier_dims: Widths of the classifier's hidden layers.
        source_share: Weight of the source's pattern in the score of a user with both, in [0, 1]; 1 is as published.
        source_weight: Weight of the sources' rows relative to the target's, at least 0; 10 is as published.
        reversal_weight: Factor, beside -1, on the classifier's gradient into the patterns, at least 0; .1 is as published.
        dropout: Probability in [0, 1) of dropping a number of the extractor's layers in training; .25 is as published.
        source_dropout: Probability in [0, 1) of dropping an entry of a release row in training.
        input_dropout: Probability in [0, 1) of dropping an entry of a target row in training.
        lr: Step size of Adam, above 0.
        weight_decay: L2 weight in Adam, at least 0, for a loss that is summed over users and items.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> method = zoo.DARec(vector_dim=16, pattern_dims=(8,))
        >>> run = zoo.fit(method, data, publisher=zoo.NoisyRows(epsilon=8.0), max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    accepted_releases = frozenset({"rows", "ratings"})
    scores_cold_users = True
    folds_in = "rows"
    step_outputs = frozenset({"user_factors", "item_factors"})

    def __init__(
        self,
        vector_dim: int = 200,
        pattern_dims: Sequence[int] = (200,),
        decoder_dims: Sequence[int] = (),
        classifier_dims: Sequence[int] = (16, 8),
        source_share: float = 0.25,
        source_weight: float = 1.0,
        reversal_weight: float = 0.1,
        dropout: float = 0.0,
        source_dropout: float = 0.5,
        input_dropout: float = 0.5,
        lr: float = 3e-3,
        weight_decay: float = 1.0,
    ) -> None:
        super().__init__()
        dropouts = {"dropout": dropout, "source_dropout": source_dropout, "input_dropout": input_dropout}
        checks.factors(vector_dim=vector_dim)
        checks.widths(pattern_dims=pattern_dims)
        checks.widths(0, decoder_dims=decoder_dims, classifier_dims=classifier_dims)
        checks.shares(source_share=source_share)
        checks.not_negative(source_weight=source_weight, reversal_weight=reversal_weight, weight_decay=weight_decay)
        checks.positive(lr=lr)
        checks.below_one(**dropouts)
        self.vector_dim, self.pattern_dims = vector_dim, tuple(pattern_dims)
        self.decoder_dims, self.classifier_dims = tuple(decoder_dims), tuple(classifier_dims)
        self.source_share, self.source_weight, self.reversal_weight = source_share, source_weight, reversal_weight
        self.dropouts, self.lr, self.weight_decay = dropouts, lr, weight_decay

    def build(self, sizes: Sizes) -> None:
        """Make an encoder and a decoder per domain, the extractor, and the classifier."""
        widths = {name: source["width"] for name, source in sizes["sources"].items()}
        self.target_encoder = SparseTower(sizes["num_items"], [self.vector_dim], self.dropouts["input_dropout"])
        self.source_encoders: ModulesOf[nn.Sequential] = ModulesOf(
            {name: self._source_encoder(width) for name, width in widths.items()}
        )
        self.extractor = pattern_extractor(self.vector_dim, self.pattern_dims, self.dropouts["dropout"])
        dims = (self.pattern_dims[-1], *self.decoder_dims)
        self.target_decoder = perceptron([*dims, sizes["num_items"]])
        self.source_decoders: ModulesOf[nn.Sequential] = ModulesOf(
            {name: perceptron([*dims, width]) for name, width in widths.items()}
        )
        self.classifier = DomainClassifier(dims[0], self.classifier_dims, 1 + len(widths))

    def _source_encoder(self, width: int) -> nn.Sequential:
        layer = nn.Linear(width, self.vector_dim)
        nn.init.xavier_uniform_(layer.weight)  # as the target's: Linear's own bounds are for dense rows
        nn.init.zeros_(layer.bias)
        return nn.Sequential(nn.Dropout(self.dropouts["source_dropout"]), layer)

    def read_data(self, data: TargetData) -> None:
        """Also compute the usual row of each domain, and which releases hold zeros and ones."""
        super().read_data(data)
        self.target_usual = UsualRow(self.target_rows, bits=True)
        self.source_usual: ModulesOf[UsualRow] = ModulesOf()
        self.bits: dict[str, bool] = {}
        for name in self.sources:
            rows = self.sources[name].rows
            assert isinstance(rows, SparseRows | DenseRows)
            self.bits[name] = is_binary(rows)
            self.source_usual[name] = UsualRow(rows, self.bits[name])

    def step(self, batch: Batch) -> Outputs:
        """Return the loss of every domain's row by every pattern, and of the classifier; summed over the batch."""
        assert isinstance(batch, UserBatch)
        rows = self.all_source_rows(batch.users, batch.released)
        made = self.patterns(self.target_rows.bags(batch.users, batch.ratings), rows)
        observed = self.target_rows.bags(batch.users[made.owners])
        loss = all_items_loss(self.logits(made.patterns), observed)
        loss = loss + self.source_weight * self._source_loss(made, rows)
        told = self.has_row(batch.users)[made.owners].nonzero().squeeze(1)
        loss = loss + self.classifier.loss(made.patterns[told], made.domains[told], self.reversal_weight)
        items = self.target_decoder[-1].weight
        assert isinstance(items, Tensor)
        return {"loss": loss, "user_factors": made.patterns[: len(batch.users)], "item_factors": items}

    def patterns(self, history: Bags, rows: Rows) -> Patterns:
        """Return patterns from the users' history (batch,) and from their release rows."""
        vectors = [self.target_encoder(history)]
        owners = [torch.arange(len(history.offsets), device=history.offsets.device)]
        for name, (source, present) in rows.items():
            owners.append(present.nonzero().squeeze(1))
            vectors.append(self.source_encoders[name](source[owners[-1]]))
        domains = torch.cat([torch.full_like(places, number) for number, places in enumerate(owners)])
        return Patterns(self.extractor(torch.cat(vectors).tanh()), torch.cat(owners), domains)

    def logits(self, patterns: Tensor) -> Tensor:
        """Return logits of all target items, decoded from patterns (vectors, dim); shape ``(vectors, num_items)``."""
        logits: Tensor = self.target_usual(self.target_decoder(patterns))
        return logits

    def _source_loss(self, made: Patterns, rows: Rows) -> Tensor:
        """Loss of each source's rows, decoded from every pattern of their users; summed."""
        total = made.patterns.new_zeros(())
        for name, (source, present) in rows.items():
            there = present[made.owners].nonzero().squeeze(1)
            decoded = self.source_usual[name](self.source_decoders[name](made.patterns[there]))
            loss = bits_loss if self.bits[name] else reconstruction_loss
            total = total + loss(decoded, source[made.owners[there]], torch.ones_like(there))
        return total

    def score_all(self, users: Tensor) -> Tensor:
        """Return logits of all items (batch, num_items), from history, rows, or both mixed by ``source_share``."""
        made = self.patterns(self.target_rows.bags(users), self.all_source_rows(users))
        logits = self.logits(made.patterns)
        own, of_rows, owners = logits[: len(users)], logits[len(users) :], made.owners[len(users) :]
        count = torch.bincount(owners, minlength=len(users))[:, None]
        from_rows = torch.zeros_like(own).index_add_(0, owners, of_rows) / count.clamp(min=1)
        known = self.target_rows.counts_of(users) > 0
        share = torch.where(known, self.source_share, 1.0)[:, None] * (count > 0)
        return torch.lerp(own, from_rows, share)
