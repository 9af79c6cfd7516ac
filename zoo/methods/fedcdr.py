"""FedCDR: one table of items, vectors and rating heads that stay with their users, and other domains' vectors added to them."""

from collections.abc import Sequence

from torch import Tensor, nn

from zoo.data.batch_types import Batch, TripleBatch
from zoo.methods.mixed_factors import MixedFactors
from zoo.methods.target_data import Sizes
from zoo.nn.losses import pairwise_loss
from zoo.nn.mapping import TanhMap
from zoo.runtime import checks


class FedCDR(MixedFactors):
    """Federated factors: items are shared, vectors and rating heads are their users' own, and other domains' vectors are added.

    The score of an item is ``sum_k head_k (vector_k + source_share * map(source's vector)_k) item_k``. Vector and head (one
    weight for each number) stay at the user's device; items and maps are shared. Each source has a map; the mean over those
    that have the user is added. The maps learn to rank by the mapped vectors alone, without moving the factors. So a share of 0
    is the target's own model. A user without target history is scored by the mapped vector under an untrained head of ones.

    Reference: Wu, Li, Chang, Rigall, Wang, Xu, *FedCDR: Federated Cross-Domain Recommendation for Privacy-Preserving Rating
    Prediction*, CIKM 2022. **No code of it is known and its text could not be checked: this is our reading** of how others
    describe it. Sources are averaged as in the comparison of Yang et al., *FedGCDR*, NeurIPS 2024. Departures, as far as known:
    the paper predicts ratings, both domains learn from each other, and clients add noise to gradients. Here the loss is BPR's,
    the source has trained before its release, and the release alone is protected. All clients are trained at one place in
    batches of triples; Adam also moves vectors of clients outside of the batch. Vectors are mapped before they are averaged, as
    vectors of separate trainings share no axes. `MixedFactors` chooses the share.

    Args:
        num_factors: Width of a user's vector and of an item's.
        map_dims: Widths of the hidden layers of the maps, tanh behind each; none: a linear map.
        source_share: Weight of the mapped vector beside the own one; null is chosen on validation.
        source_dropout: Probability of leaving out a number of a source's vector while the map learns.
        l2: Half of it times the squared factors of a triple, mapped ones included, is added to its loss.
        lr: Step size of Adam.
    """

    batches = "triples"
    accepted_releases = frozenset({"embeddings"})

    def __init__(
        self,
        num_factors: int = 64,
        map_dims: Sequence[int] = (),
        source_share: float | None = None,
        source_dropout: float = 0.5,
        l2: float = 0.1,
        lr: float = 1e-2,
    ) -> None:
        super().__init__(num_factors, source_share, l2, lr, source_dropout)
        checks.at_least_one(map_dims=map_dims)
        self.map_dims = tuple(map_dims)

    def build(self, sizes: Sizes) -> None:
        """Make vectors and items, heads, and a map for each source."""
        super().build(sizes)
        self.heads = nn.Embedding(sizes["num_users"], self.num_factors)
        nn.init.ones_(self.heads.weight)
        self.maps = nn.ModuleDict()
        for name, source in sizes["sources"].items():
            self.maps[name] = TanhMap([source["width"], *self.map_dims, self.num_factors], self.source_dropout)

    def own_factors(self, users: Tensor) -> Tensor:
        """Vectors of users (batch,) under their heads, shape ``(batch, num_factors)``."""
        factors: Tensor = self.heads(users) * self.factors.users(users)
        return factors

    def transfer_loss(self, batch: Batch) -> Tensor:
        """The pairwise loss of mapped vectors alone, summed over the triples whose user has one; it moves the maps alone."""
        assert isinstance(batch, TripleBatch)
        mapped, present = self.mapped(batch.users)
        there = present.nonzero().squeeze(1)
        triples = (batch.positives, batch.negatives)
        positives, negatives = (self.factors.items(items[there]).detach() for items in triples)
        return pairwise_loss(mapped[there], positives, negatives) + self.l2 / 2 * mapped[there].square().sum()

    def mapped_by(self, name: str, users: Tensor) -> Tensor:
        """A source's vectors of users (batch,), mapped, under the users' heads; it does not move these."""
        mapped: Tensor = self.heads(users).detach() * self.maps[name](self._vectors(name)[users])
        return mapped

    def mix(self, own: Tensor, mapped: Tensor, share: Tensor) -> Tensor:
        """The own vector, and a share of the mapped one added."""
        return own + share * mapped
