"""FedCDR: a shared item table, user vectors and rating heads on the users' devices, and added vectors of other domains."""

from collections.abc import Sequence

from torch import Tensor, nn

from zoo.data.batch_types import Batch, TripleBatch
from zoo.methods.mixed_factors import MixedFactors
from zoo.methods.target_data import Sizes
from zoo.nn.losses import pairwise_loss
from zoo.nn.mapping import TanhMap
from zoo.nn.modules import ModulesOf
from zoo.runtime import checks


class FedCDR(MixedFactors):
    """Federated factors: items are shared, vectors and rating heads are private to users, and other domains' vectors are added.

    The score of an item is ``sum_k head_k (vector_k + source_share * map(source's vector)_k) item_k``. Vector and head (one
    weight per number) stay at the user's device; items and mappings are shared. Each source has a mapping; the mean over those
    with the user is added. The mappings learn to rank by the mapped vectors alone, without moving the factors. So a share of 0
    is the single-domain baseline. A cold-start user is scored by the mapped vector under an untrained head of ones.

    Reference: Wu, Li, Chang, Rigall, Wang, Xu, *FedCDR: Federated Cross-Domain Recommendation for Privacy-Preserving Rating
    Prediction*, CIKM 2022. **No code of it is known and its text could not be checked: this is our reading** of descriptions by
    others. Sources are averaged as in the comparison of Yang et al., *FedGCDR*, NeurIPS 2024. Departures, as far as known: the
    paper predicts ratings, both domains learn from each other, and clients add noise to gradients. Here the loss is BPR's, the
    source has trained before its release, and the release alone is protected. All clients are trained at one place in batches
    of triples; Adam also moves vectors of clients outside of the batch. Vectors are mapped before they are averaged, as vectors
    of separate trainings share no axes. `MixedFactors` chooses the share.

    Args:
        num_factors: Width of user and item vectors.
        map_dims: Widths of the mappings' hidden layers, each followed by tanh; none: linear.
        source_share: Weight of the mapped vector beside the own one, in [0, 1]; null is chosen on validation.
        source_dropout: Probability in [0, 1) of dropping a number of a source's vector while the mapping learns.
        l2: Half of it times the squared factors of a triple, mapped ones included, is added to its loss; at least 0.
        lr: Step size of Adam, above 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> method = zoo.FedCDR(num_factors=8)
        >>> publisher = zoo.EmbeddingPublisher(zoo.BPR(num_factors=4), max_epochs=1, progress=False)
        >>> run = zoo.fit(method, data, publisher=publisher, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
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
        checks.widths(0, map_dims=map_dims)
        self.map_dims = tuple(map_dims)

    def build(self, sizes: Sizes) -> None:
        """Make vectors, items and heads, and a mapping per source."""
        super().build(sizes)
        self.heads = nn.Embedding(sizes["num_users"], self.num_factors)
        nn.init.ones_(self.heads.weight)
        self.maps: ModulesOf[TanhMap] = ModulesOf()
        for name, source in sizes["sources"].items():
            self.maps[name] = TanhMap([source["width"], *self.map_dims, self.num_factors], self.source_dropout)

    def own_factors(self, users: Tensor) -> Tensor:
        """Return the vectors of users (batch,) times their heads, shape ``(batch, num_factors)``."""
        factors: Tensor = self.heads(users) * self.factors.users(users)
        return factors

    def transfer_loss(self, batch: Batch) -> Tensor:
        """Return the pairwise loss of mapped vectors alone, summed over triples with a mapped user; it moves the mappings alone."""
        assert isinstance(batch, TripleBatch)
        mapped, present = self.mapped(batch.users)
        there = present.nonzero().squeeze(1)
        triples = (batch.positives, batch.negatives)
        positives, negatives = (self.factors.items(items[there]).detach() for items in triples)
        return pairwise_loss(mapped[there], positives, negatives) + self.l2 / 2 * mapped[there].square().sum()

    def mapped_by(self, name: str, users: Tensor) -> Tensor:
        """Return a source's mapped vectors of users (batch,) times the users' heads, which it does not move."""
        mapped: Tensor = self.heads(users).detach() * self.maps[name](self._vectors(name)[users])
        return mapped

    def mix(self, own: Tensor, mapped: Tensor, share: Tensor) -> Tensor:
        """Return the own vector plus a share of the mapped one."""
        return own + share * mapped
