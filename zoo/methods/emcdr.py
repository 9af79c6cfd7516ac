"""EMCDR: factors of the target, and a map to them from what a source released of the same users."""

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from zoo.data.batches import Batch, PairBatch, RankingBatch, TripleBatch
from zoo.metrics import RankingMetrics, full_counts, listed_items, sampled_counts
from zoo.nn.factors import FactorTables
from zoo.nn.losses import alignment_loss, pairwise_loss
from zoo.nn.mapping import RidgeMap, TanhMap, narrowed, narrowed_width, standardised
from zoo.nn.rows import DenseRows
from zoo.nn.towers import check_training
from zoo.recommender import Outputs, Recommender, Sizes, TargetData

#: Shares of the mapped factor that validation chooses from.
SHARES = tuple(tenths / 10 for tenths in range(11))


class EMCDR(Recommender):
    """Embedding and mapping: factors are learned in the target alone, and a source's vectors are mapped to them.

    The map is learned from the users who have both, by squared error, and stands in for the factor of a user without target
    history. Scores are inner products of the item's factor with

        ``source_share * map(source's vector) + (1 - source_share) * target factor``,

    whose share is 1 for a user without target history and 0 for one without a row. A source's vectors are those of
    its network where it releases `embeddings`. Rows of ratings, or of anything else, are taken as they are up to a width of
    ``source_rank``, and above it are factorised here (`zoo.nn.mapping.narrowed`). Vectors are centred and scaled as one, so
    that neither a clip nor a unit of measure counts.

    A linear map (no ``map_dims``) is ridge regression in closed form, solved whenever users are to be scored, its penalty by
    leave-one-out: the more noise there is in the vectors, the nearer it comes to the mean target factor. A perceptron learns
    beside the factors, of which each batch's are its targets; no gradient goes from the map to the factors, which are those that
    there would be without a source. Several sources have a map each, and the mean over those that have the user is taken.

    Everything is worked out of releases and target ratings, so whatever is done here costs no further privacy.

    Reference: Man, Shen, Jin, Cheng, *Cross-Domain Recommendation: An Embedding and Mapping Approach*, IJCAI 2017: its
    latent factors (MF and BPR), its maps (linear and a perceptron with one hidden layer) and its cold users.

    Departures: the source factorises its own ratings and releases vectors, or the target factorises a release of rows; the
    paper has all ratings at one place. The linear map has an intercept and a penalty. The perceptron is learned along with
    the factors, in the place of after them. MF is fitted to observed pairs and sampled ones, as implicit feedback wants, in the
    place of ratings alone. ``source_share`` is 1 in the paper, which maps cold users alone; for somebody whom the target
    knows that throws the target factor away. Null takes the share of `SHARES` with the best NDCG@10 on the validation
    cases (sampled candidates if there are any), anew at each validation, the smallest of equal ones; it rests on users with history
    and a row, and without any such case it is 0.

    Args:
        num_factors: Width of the target's factors.
        factorisation: Loss of the target's factors: ``bpr`` or ``mf``, squared error of observed pairs (1) and sampled ones (0).
        map_dims: Widths of the hidden layers of the map, tanh behind each; none: a linear map. The paper has one hidden
            layer, twice as wide as the factors.
        source_share: Share of the mapped factor; 1 is as published, null is chosen on validation.
        source_rank: Rows wider than this are narrowed to it.
        source_dropout: Probability of leaving out a number of a vector while the perceptron learns.
        num_negatives: Only for ``mf``.
        l2: Half of it times the squared factors of a triple or pair is added to its loss.
        lr: Step size of Adam.
    """

    reads = frozenset({"rows", "ratings", "embeddings"})
    scores_cold_users = True
    exposes = frozenset({"user_factors", "item_factors"})

    share: Tensor

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
        super().__init__()
        if factorisation not in ("bpr", "mf"):
            raise ValueError(f"factorisation must be 'bpr' or 'mf', got {factorisation!r}.")
        if min(num_factors, source_rank, num_negatives, *map_dims) < 1:
            raise ValueError(
                f"num_factors, source_rank, num_negatives and map_dims must be at least 1; got {num_factors}, {source_rank}, "
                f"{num_negatives} and {[*map_dims]}."
            )
        if source_share is not None and not 0 <= source_share <= 1:
            raise ValueError(
                f"source_share must lie in [0, 1], or be null to be chosen on validation; got {source_share}. 1 is as published."
            )
        if not l2 >= 0:
            raise ValueError(f"l2 must not be negative, got {l2}; 0 leaves it out.")
        check_training(lr=lr, source_dropout=source_dropout)
        self.batches = "triples" if factorisation == "bpr" else "pairs"
        self.num_factors, self.map_dims, self.source_share = num_factors, tuple(map_dims), source_share
        self.source_rank, self.source_dropout = source_rank, source_dropout
        self.num_negatives, self.l2, self.lr = num_negatives, l2, lr

    def build(self, sizes: Sizes) -> None:
        """Make the factors and, of perceptrons, a map for each source."""
        users, items = sizes["num_users"], sizes["num_items"]
        self.factors = FactorTables(users, items, self.num_factors, nn.init.xavier_normal_)
        self.maps = nn.ModuleDict()
        for name, source in sizes["sources"].items() if self.map_dims else ():
            width = narrowed_width(source["num_users"], source["width"], self.source_rank)
            self.maps[name] = TanhMap([width, *self.map_dims, self.num_factors], self.source_dropout)
        self.register_buffer("share", torch.tensor(float(self.source_share or 0)))

    def read_data(self, data: TargetData) -> None:
        """Keep each source's vectors of the target's users, beside what every method keeps."""
        super().read_data(data)
        self.vectors = nn.ModuleDict()
        self._ridges: dict[str, RidgeMap] = {}
        for name in self.sources:
            linked = self._linked(name)
            vectors = standardised(narrowed(linked.rows, self.source_rank), linked.links)
            self.vectors[name] = DenseRows(vectors)
            if not self.map_dims and bool((both := self._both(name)).any()):
                self._ridges[name] = RidgeMap(vectors[both].double().cpu().numpy())

    def _vectors(self, name: str) -> Tensor:
        """Of all users of the target, (num_users, width); zeros of those without a row."""
        kept = self.vectors[name]
        assert isinstance(kept, DenseRows)
        return kept.rows

    def _known(self) -> Tensor:
        return self.target_rows.counts() > 0

    def _present(self, name: str) -> Tensor:
        return self._linked(name).links >= 0

    def _both(self, name: str) -> Tensor:
        return self._known() & self._present(name)

    # Training.

    def step(self, batch: Batch) -> Outputs:
        """The loss of the factors, summed over triples or pairs; of a perceptron also the map's, over the users of the batch."""
        users = self.factors.users(batch.users)
        if isinstance(batch, TripleBatch):
            positives, negatives = self.factors.items(batch.positives), self.factors.items(batch.negatives)
            loss, items = pairwise_loss(users, positives, negatives), torch.cat([positives, negatives])
        else:
            assert isinstance(batch, PairBatch)
            items = self.factors.items(batch.items)
            loss = ((users * items).sum(1) - batch.labels).square().sum()
        if self.l2:
            loss = loss + self.l2 / 2 * (users.square().sum() + items.square().sum())
        loss = loss + self.map_loss(batch.users)
        return {"loss": loss, "user_factors": users, "item_factors": items}

    def map_loss(self, users: Tensor) -> Tensor:
        """Squared distance of mapped vectors to factors, summed over those of users (batch,) who have a row, each once.

        It moves the map alone, and is 0 of a linear one.
        """
        users = torch.unique(users)
        factors = self.factors.users(users).detach()
        loss: Tensor = factors.new_zeros(())
        for name, perceptron in self.maps.items():
            loss = loss + alignment_loss(perceptron(self._vectors(name)[users]), factors, self._present(name)[users])
        return loss

    # Scoring.

    def prepare_scoring(self) -> None:
        """Keep the mapped factors, and who has one."""
        self.kept["mapped"], self.kept["present"] = self.mapped()

    def mapped(self) -> tuple[Tensor, Tensor]:
        """Mapped factors of all users, (num_users, num_factors), the mean over sources, and who is in any, (num_users,)."""
        total = torch.zeros_like(self.factors.users.weight)
        count = total.new_zeros(len(total), 1)
        for name in self.sources:
            present = self._present(name)[:, None]
            total, count = total + self._map(name) * present, count + present
        return total / count.clamp(min=1), count.squeeze(1) > 0

    def _map(self, name: str) -> Tensor:
        """Of one source; of users without a row whatever it makes of zeros."""
        if self.map_dims:
            mapped: Tensor = self.maps[name](self._vectors(name))
            return mapped
        vectors, factors = self._vectors(name), self.factors.users.weight.detach()
        if name not in self._ridges:  # nobody to learn from
            return factors[self._known()].mean(0).expand(len(factors), -1)
        solved = self._ridges[name].solve(factors[self._both(name)].double().cpu().numpy())
        weights, intercept = (torch.from_numpy(part).to(factors) for part in solved)
        predicted: Tensor = vectors @ weights + intercept
        return predicted

    def user_factors(self, users: Tensor) -> Tensor:
        """What users (batch,) are scored by, shape ``(batch, num_factors)``."""
        mapped, present = (self.kept["mapped"], self.kept["present"]) if self.kept else self.mapped()
        share = torch.where(self._known()[users], self.share, 1.0) * present[users]
        return torch.lerp(self.factors.users(users), mapped[users], share[:, None])

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Inner products with given items, shape ``(batch, candidates)``."""
        scores: Tensor = (self.user_factors(users)[:, None] * self.factors.items(items)).sum(-1)
        return scores

    def score_all(self, users: Tensor) -> Tensor:
        """Inner products with all items, shape ``(batch, num_items)``."""
        scores: Tensor = self.user_factors(users) @ self.factors.items.weight.T
        return scores

    # The share.

    def on_validation_epoch_start(self) -> None:
        """Let the method keep what scoring needs, and choose the share by it."""
        super().on_validation_epoch_start()
        if self.source_share is None:
            self._choose_share(self.trainer.val_dataloaders or ())

    def _choose_share(self, batches: Iterable[RankingBatch]) -> None:
        """Take the share with the best NDCG@10, the smallest of equal ones; every process takes the same.

        A score is linear in the share, so two of them are worked out, and the rest mixed.
        """
        figures = [RankingMetrics((10,), self.data.ties).to(self.device) for _ in SHARES]
        for batch in batches:
            moved: RankingBatch = self.transfer_batch_to_device(batch, self.device, 0)
            own, mapped = (self._candidate_scores(moved, share) for share in (0.0, 1.0))
            count = sampled_counts if self.data.sampled_ranking else full_counts
            for share, figure in zip(SHARES, figures, strict=True):
                figure.update(*count(torch.lerp(own, mapped, share), moved))
        values = torch.stack([figure.compute()["ndcg@10"] for figure in figures])
        self.share.fill_(SHARES[int(values.argmax())])  # without a case all are NaN, and the first is taken

    def _candidate_scores(self, batch: RankingBatch, share: float) -> Tensor:
        self.share.fill_(share)
        return (
            self.score(batch.users, listed_items(batch)) if self.data.sampled_ranking else self.score_all(batch.users)
        )
