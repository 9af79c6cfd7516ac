"""DDTCDR: two domains score each other's users; one orthogonal matrix maps user factors in both directions."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch, PairBatch
from zoo.data.released_pairs import ReleasedPairs
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.factors import PairScorer, logits_of_all
from zoo.nn.losses import alignment_loss
from zoo.nn.mapping import mean_over_sources
from zoo.nn.modules import ModulesOf
from zoo.nn.orthogonal import OrthogonalMap
from zoo.runtime import checks


class SourceSide(nn.Module):
    """A source of DDTCDR: its network, and the matrix that maps target user factors to it (``map``) and back (``map.back``)."""

    def __init__(self, num_users: int, num_items: int, dims: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.network = PairScorer(num_users, num_items, dims, dropout)
        self.map = OrthogonalMap(dims[0] // 2)


class DDTCDR(Recommender):
    """Deep dual transfer: the logit of a pair mixes its own domain's network and, with mapped user factors, the other's.

    Each domain A has factors of its users and items and a perceptron f_A on a user and an item factor side by side. One matrix
    X, orthogonal by a penalty, maps the factor of a target user to the source, and its transpose maps one back::

        target:  (1 - cross_share) f_A(u_A, i_A) + cross_share f_B(X u_A, i_A)
        source:  (1 - cross_share) f_B(u_B, i_B) + cross_share f_A(X^T u_B, i_B)

    The loss is the mean binary cross-entropy of the target's pairs with ``num_negatives`` unobserved ones for each, plus that
    of equally many pairs of the release, plus ``orthogonality_weight`` times ``|X X^T - I|``, plus ``alignment_weight`` times
    the mean squared distance between X u_A and u_B over the target's pairs.

    A user of one domain is scored by that domain's network alone. A cold-start user has X^T u_B instead of u_A. Cross terms and
    mapped factors are averaged over the sources with the user. It reads ratings or flipped entries.

    Reference: Li & Tuzhilin, *DDTCDR: Deep Dual Transfer Cross Domain Recommendation*, WSDM 2020, section 3.2 (mapping), 3.3
    (the mixture, in both directions) and 3.5 (several domains). Departures: the paper reads users and items from features of
    both domains, by autoencoders trained beforehand; here each has a factor, learned with the networks. So
    ``alignment_weight``, which is not in the paper, must tie u_A to u_B: with 0 nothing transfers. Logits are mixed, and binary
    cross-entropy replaces the squared error of ratings. The released code detaches the cross terms, mixes losses, and has a
    matrix per direction; here the gradient passes both networks and the one matrix. Adam replaces stochastic gradient descent.
    The paper scores no cold-start user.

    Args:
        dims: Widths of the perceptron; the first is that of a user and an item factor together.
        cross_share: The paper's alpha: weight of the other domain's network, in [0, 1]; the released code has 0.03.
        alignment_weight: Weight of the squared distance between a user's two factors, at least 0; 0 is as published.
        orthogonality_weight: Weight of the distance to an orthogonal matrix, at least 0.
        dropout: Probability in [0, 1) of dropping a number of a factor in training.
        num_negatives: Unobserved items for each observed one, in both domains.
        lr: Step size of Adam, above 0.
        weight_decay: L2 weight in Adam, at least 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.DDTCDR(dims=(16, 8)), data, publisher=zoo.Plaintext(), max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    batches = "pairs"
    accepted_releases = frozenset({"ratings", "rows"})
    scores_cold_users = True
    scoring_needs = frozenset({"releases"})
    step_outputs = frozenset({"user_factors", "item_factors"})

    def __init__(
        self,
        dims: Sequence[int] = (128, 64, 16),
        cross_share: float = 0.1,
        alignment_weight: float = 1.0,
        orthogonality_weight: float = 1e-3,
        dropout: float = 0.0,
        num_negatives: int = 4,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__()
        checks.shared_widths(dims=dims)
        checks.shares(cross_share=cross_share)
        checks.not_negative(
            alignment_weight=alignment_weight, orthogonality_weight=orthogonality_weight, weight_decay=weight_decay
        )
        checks.at_least_one(num_negatives=num_negatives)
        checks.positive(lr=lr)
        checks.below_one(dropout=dropout)
        self.dims, self.cross_share, self.dropout = tuple(dims), cross_share, dropout
        self.alignment_weight, self.orthogonality_weight = alignment_weight, orthogonality_weight
        self.num_negatives, self.lr, self.weight_decay = num_negatives, lr, weight_decay

    def build(self, sizes: Sizes) -> None:
        """Make the target's network, and one network and one mapping matrix per source."""
        self.network = PairScorer(sizes["num_users"], sizes["num_items"], self.dims, self.dropout)
        self.source_sides: ModulesOf[SourceSide] = ModulesOf()
        for name, source in sizes["sources"].items():
            self.source_sides[name] = SourceSide(source["num_users"], source["width"], self.dims, self.dropout)

    def read_data(self, data: TargetData) -> None:
        """Also store the pairs of the releases to sample from."""
        super().read_data(data)
        self.draws: ModulesOf[ReleasedPairs] = ModulesOf({name: self.source_pairs(name) for name in self.sources})

    def _sides(self) -> Iterator[tuple[str, SourceSide, Tensor]]:
        """Name and side of each source, and the row of each target user in its release, -1 for none."""
        for name, side in self.source_sides.items():
            yield name, side, self.sources[name].links

    # Learning.

    def step(self, batch: Batch) -> Outputs:
        """Return cross-entropy of target and source pairs, alignment and orthogonality."""
        assert isinstance(batch, PairBatch)
        users, items = self.network.users(batch.users), self.network.items(batch.items)
        loss = F.binary_cross_entropy_with_logits(self._logits(batch.users, users, items), batch.labels)
        count = len(batch.labels) // (1 + self.num_negatives)
        for name, side, links in self._sides():
            rows = links[batch.users]
            if self.sources[name].has_rows:
                theirs = side.network.users(rows.clamp(min=0))
                distance = alignment_loss(theirs, side.map(users), rows >= 0) / len(users)
                loss = loss + self.alignment_weight * distance
            if (draws := self.draws[name]).num_pairs:
                loss = loss + self._source_loss(name, side, draws.pairs(count, self.num_negatives))
            loss = loss + self.orthogonality_weight * side.map.penalty()
        return {"loss": loss, "user_factors": users, "item_factors": items}

    def _source_loss(self, name: str, side: SourceSide, batch: PairBatch) -> Tensor:
        """Mean cross-entropy of pairs of a release, whose users are its rows."""
        users, items = side.network.users(batch.users), side.network.items(batch.items)
        own, cross = side.network.logits(users, items), self.network.logits(side.map.back(users), items)
        share = self.cross_share * self.sources[name].shared()[batch.users]
        logits = torch.lerp(own, cross, share.to(own.dtype))
        return F.binary_cross_entropy_with_logits(logits, batch.labels)

    def _logits(self, users: Tensor, factors: Tensor, items: Tensor) -> Tensor:
        """Logits of target users (...) with their factors (..., dim) and item factors, of shapes that broadcast."""
        own = self.network.logits(factors, items)
        total, count = torch.zeros_like(own), torch.zeros_like(users, dtype=own.dtype)
        for name, side, links in self._sides():
            present = links[users] >= 0
            if self.sources[name].has_rows:
                total = total + side.network.logits(side.map(factors), items) * present
                count = count + present
        return torch.lerp(own, total / count.clamp(min=1), (self.cross_share * (count > 0)).to(own.dtype))

    # Scoring.

    def _user_factors(self, users: Tensor) -> Tensor:
        """Target factors of users (batch,), mapped source factors for cold-start users."""
        own = self.network.users(users)
        said = [
            (side.map.back(side.network.users(links[users].clamp(min=0))), links[users] >= 0)
            for name, side, links in self._sides()
            if self.sources[name].has_rows
        ]
        mapped, present = mean_over_sources(said, torch.zeros_like(own))
        replaced = (self.target_rows.counts_of(users) == 0) & present
        return torch.where(replaced[:, None], mapped, own)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return logits of items (batch, candidates), in the same shape."""
        return self._logits(users[:, None], self._user_factors(users)[:, None], self.network.items(items))

    def score_all(self, users: Tensor) -> Tensor:
        """Return logits of all items, shape ``(batch, num_items)``."""
        factors = self._user_factors(users)

        def logits(some: Tensor, items: Tensor) -> Tensor:
            return self._logits(users[some], factors[some], self.network.items(items))

        everybody = torch.arange(len(users), device=users.device)
        return logits_of_all(logits, everybody, self.target_rows.width, max(self.dims))
