"""EMCDR: factors of the target, and a mapping to them from a source's release of the same users."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from zoo.data.batch_types import Batch, PairBatch
from zoo.methods.mixed_factors import MixedFactors
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.losses import alignment_loss
from zoo.nn.mapping import RidgeMap, TanhMap, narrowed, narrowed_width
from zoo.nn.modules import ModulesOf
from zoo.runtime import checks


class EMCDR(MixedFactors):
    """Embedding and mapping: factors are learned on target ratings, and a source's vectors are mapped to them.

    The mapping is learned from users with both, by squared error. Scores are inner products of the item's factor with

        ``source_share * map(source's vector) + (1 - source_share) * target factor``,

    whose share is 1 for cold-start users and 0 for users without a row. Rows of any kind that are
    wider than ``source_rank`` are factorised (`zoo.nn.mapping.narrowed`). All are standardised.

    A linear mapping (no ``map_dims``) is ridge regression in closed form, solved at each evaluation, its penalty by
    leave-one-out. A perceptron learns beside the factors, without moving them. Sources with the user are averaged.

    Reference: Man, Shen, Jin, Cheng, *Cross-Domain Recommendation: An Embedding and Mapping Approach*, IJCAI 2017: its latent
    factors (MF and BPR), its mappings (linear and a perceptron with one hidden layer) and its cold-start users. Departures: the
    source, or the target for a release of rows, factorises the source's ratings; the paper has all ratings at one place. The
    linear mapping has an intercept and a penalty. The perceptron is learned along with the factors, not after them. MF is
    fitted to observed and sampled pairs, not to ratings alone. The paper maps cold-start users only (``source_share`` 1);
    choosing a share on validation is ours (see `MixedFactors`).

    Args:
        num_factors: Width of the target's factors.
        factorisation: Loss of the target's factors: ``bpr`` or ``mf``, squared error of observed and sampled pairs.
        map_dims: Widths of the mapping's hidden layers, each followed by tanh; none: linear. The paper has one layer.
        source_share: Share of the mapped factor in [0, 1]; 1 is as published, null is chosen on validation.
        source_rank: Rows wider than this are reduced to it.
        source_dropout: Probability in [0, 1) of dropping a number of a vector while the perceptron learns.
        num_negatives: Unobserved items for each observed one, for ``mf``.
        l2: Half of it times the squared factors of a triple or pair is added to its loss; at least 0.
        lr: Step size of Adam, above 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> method = zoo.EMCDR(num_factors=8)
        >>> publisher = zoo.EmbeddingPublisher(zoo.BPR(num_factors=4), max_epochs=1, progress=False)
        >>> run = zoo.fit(method, data, publisher=publisher, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    accepted_releases = frozenset({"rows", "ratings", "embeddings"})

    def __init__(
        self,
        num_factors: int = 64,
        factorisation: Literal["bpr", "mf"] = "bpr",
        map_dims: Sequence[int] = (),
        source_share: float | None = None,
        source_rank: int = 256,
        source_dropout: float = 0.0,
        num_negatives: int = 4,
        l2: float = 0.01,
        lr: float = 1e-2,
    ) -> None:
        super().__init__(num_factors, source_share, l2, lr, source_dropout)
        checks.one_of(("bpr", "mf"), factorisation=factorisation)
        checks.factors(source_rank=source_rank)
        checks.at_least_one(num_negatives=num_negatives)
        checks.widths(0, map_dims=map_dims)
        self.batches = "triples" if factorisation == "bpr" else "pairs"
        self.map_dims, self.source_rank, self.num_negatives = tuple(map_dims), source_rank, num_negatives

    def build(self, sizes: Sizes) -> None:
        """Make the factors and, for perceptrons, a mapping per source."""
        super().build(sizes)
        self.maps: ModulesOf[TanhMap] = ModulesOf()
        for name, source in sizes["sources"].items() if self.map_dims else ():
            self.maps[name] = TanhMap([self._width(source), *self.map_dims, self.num_factors], self.source_dropout)

    def _width(self, source: dict[str, Any]) -> int:
        return narrowed_width(source["num_users"], source["width"], self.source_rank)

    def read_data(self, data: TargetData) -> None:
        """Also store each source's vectors of the target's users, and the decomposition for a linear mapping."""
        super().read_data(data)
        self._ridges: dict[str, RidgeMap] = {}
        for name in self.sources if not self.map_dims else ():
            if bool((both := self._both(name)).any()):
                self._ridges[name] = RidgeMap(self._vectors(name)[both].double().cpu().numpy())

    def _released(self, name: str) -> Tensor:
        return narrowed(self.sources[name].rows, self.source_rank)

    def _both(self, name: str) -> Tensor:
        return self._known() & self._present(name)

    def factor_loss(self, users: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss of triples, or the squared error of pairs, summed, and the item factors."""
        if not isinstance(batch, PairBatch):
            return super().factor_loss(users, batch)
        items = self.factors.items(batch.items)
        return ((users * items).sum(1) - batch.labels).square().sum(), items

    def transfer_loss(self, batch: Batch) -> Tensor:
        """Return the squared distance of perceptron-mapped vectors to factors, summed over distinct users with a row."""
        loss: Tensor = self.factors.users.weight.new_zeros(())
        if not self.maps:
            return loss
        users = torch.unique(batch.users)
        factors = self.factors.users(users).detach()
        for name, perceptron in self.maps.items():
            loss = loss + alignment_loss(perceptron(self._vectors(name)[users]), factors, self._present(name)[users])
        return loss

    def mapped_by(self, name: str, users: Tensor) -> Tensor:
        """Return a source's mapped vectors of users (batch,); a linear mapping is solved first."""
        vectors = self._vectors(name)[users]
        if self.map_dims:
            mapped: Tensor = self.maps[name](vectors)
            return mapped
        factors = self.factors.users.weight.detach()
        if name not in self._ridges:  # no common users
            return factors[self._known()].mean(0).expand(len(users), -1)
        solved = self._ridges[name].solve(factors[self._both(name)].double().cpu().numpy())
        weights, intercept = (torch.from_numpy(part).to(factors) for part in solved)
        predicted: Tensor = vectors @ weights + intercept
        return predicted
