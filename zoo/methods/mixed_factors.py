"""MixedFactors: base class of methods that mix a user's own factor with factors from sources."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch, RankingBatch, TripleBatch
from zoo.data.metrics import RankingMetrics, full_counts, listed_items, sampled_counts
from zoo.data.rows import MOST_NUMBERS, DenseRows
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.factors import FactorTables
from zoo.nn.losses import pairwise_loss
from zoo.nn.mapping import mean_over_sources, standardised
from zoo.nn.modules import ModulesOf
from zoo.release.layouts import check_width
from zoo.runtime import checks

#: Shares of what sources say that validation chooses from.
SHARES = tuple(tenths / 10 for tenths in range(11))


class MixedFactors(Recommender):
    """Score users by a mix of the target's factor and a second factor derived from the sources' releases.

    The share of the second factor is 1 for cold-start users and 0 for users without a row. For the others it is
    ``source_share`` or, if null, the smallest of `SHARES` with the best NDCG@10 on the validation cases (sampled candidates if
    there are any), chosen at each validation; without users with both it is 0. Sources' vectors are standardised.

    A subclass overrides :meth:`mapped_by`, :meth:`transfer_loss` and, where needed, :meth:`own_factors` and :meth:`mix`.
    """

    scores_cold_users = True
    scoring_needs = frozenset({"releases"})
    step_outputs = frozenset({"user_factors", "item_factors"})

    map_dims: Sequence[int] = ()  # widths of a mapping's hidden layers

    share: Tensor

    def __init__(
        self, num_factors: int, source_share: float | None, l2: float, lr: float, source_dropout: float = 0.0
    ) -> None:
        super().__init__()
        checks.factors(num_factors=num_factors)
        checks.not_negative(l2=l2)
        checks.positive(lr=lr)
        checks.below_one(source_dropout=source_dropout)
        checks.shares(source_share=source_share)
        self.num_factors, self.source_share, self.l2, self.lr = num_factors, source_share, l2, lr
        self.source_dropout = source_dropout

    def build(self, sizes: Sizes) -> None:
        """Make the factors."""
        users, items = sizes["num_users"], sizes["num_items"]
        self.factors = FactorTables(users, items, self.num_factors, nn.init.xavier_normal_)
        self.register_buffer("share", torch.tensor(float(self.source_share or 0)))

    def stored_numbers(self, sizes: Sizes, entries: int) -> int:
        """Also count each source's vectors of the target's users."""
        widths = (self._width(source) for source in sizes["sources"].values())
        return super().stored_numbers(sizes, entries) + int(sizes["num_users"]) * sum(widths)

    def _width(self, source: dict[str, Any]) -> int:
        """Width of a source's vectors, from its sizes."""
        return int(source["width"])

    def read_data(self, data: TargetData) -> None:
        """Also store each source's vectors of the target's users."""
        super().read_data(data)
        self.vectors: ModulesOf[DenseRows] = ModulesOf()
        for name, source in self.sources.items():
            check_width(name, (released := self._released(name)).shape[1], len(source.links))
            self.vectors[name] = DenseRows(standardised(released, source.links))

    def _released(self, name: str) -> Tensor:
        """Vectors of a release (rows, width)."""
        rows = self.sources[name].rows
        return rows.dense(torch.arange(rows.num_rows))

    def _vectors(self, name: str) -> Tensor:
        """A source's vectors of all target users (num_users, width); zeros for users without a row."""
        return self.vectors[name].rows

    def _known(self) -> Tensor:
        return self.target_rows.counts() > 0

    def _present(self, name: str) -> Tensor:
        return self.sources[name].links >= 0

    # Training.

    def own_factors(self, users: Tensor) -> Tensor:
        """Return the single-domain factors of users (batch,), shape ``(batch, num_factors)``."""
        return self.factors.users(users)

    def step(self, batch: Batch) -> Outputs:
        """Return the loss of the factors, summed over the batch, plus the transfer loss."""
        users = self.own_factors(batch.users)
        loss, items = self.factor_loss(users, batch)
        if self.l2:
            loss = loss + self.l2 / 2 * (users.square().sum() + items.square().sum())
        return {"loss": loss + self.transfer_loss(batch), "user_factors": users, "item_factors": items}

    def factor_loss(self, users: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the summed pairwise loss of a batch's users (batch, num_factors), and the factors of its items."""
        assert isinstance(batch, TripleBatch)
        positives, negatives = self.factors.items(batch.positives), self.factors.items(batch.negatives)
        return pairwise_loss(users, positives, negatives), torch.cat([positives, negatives])

    @abstractmethod
    def transfer_loss(self, batch: Batch) -> Tensor:
        """Return the loss of learning from the sources, summed over the users of a batch; it moves no factor."""

    # Scoring.

    @abstractmethod
    def mapped_by(self, name: str, users: Tensor) -> Tensor:
        """Return a source's factors of users (batch,), shape ``(batch, num_factors)``; any values for users without a row."""

    def mapped(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean over sources with users (batch,), ``(batch, num_factors)``, and a mask of users in any, ``(batch,)``."""
        said = [(self.mapped_by(name, users), self._present(name)[users]) for name in self.sources]
        return mean_over_sources(said, torch.zeros_like(self.factors.users(users)))

    def prepare_scoring(self) -> None:
        """Cache the second factors of all users, and the mask of users with one."""
        everybody = torch.arange(len(self._known()), device=self.device)
        parts = [
            self.mapped(some) for some in torch.split(everybody, max(1, MOST_NUMBERS // max(self.map_dims, default=1)))
        ]
        self.cache["mapped"], self.cache["present"] = map(torch.cat, zip(*parts, strict=True))

    def mix(self, own: Tensor, mapped: Tensor, share: Tensor) -> Tensor:
        """Mix own and mapped factors (batch, num_factors) by the sources' share (batch, 1); linear in the share."""
        return torch.lerp(own, mapped, share)

    def user_factors(self, users: Tensor) -> Tensor:
        """Return the scoring factors of users (batch,), shape ``(batch, num_factors)``."""
        mapped, present = (
            (self.cache["mapped"][users], self.cache["present"][users]) if self.cache else self.mapped(users)
        )
        own = self.own_factors(users)
        known = torch.where((self.target_rows.counts_of(users) > 0)[:, None], self.mix(own, mapped, self.share), mapped)
        return torch.where(present[:, None], known, own)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return inner products with items (batch, candidates), in the same shape."""
        return (self.user_factors(users)[:, None] * self.factors.items(items)).sum(-1)

    def score_all(self, users: Tensor) -> Tensor:
        """Return inner products with all items, shape ``(batch, num_items)``."""
        return self.user_factors(users) @ self.factors.items.weight.T

    # The share.

    def on_validation_epoch_start(self) -> None:
        """Fill the cache for scoring, and choose the share by it."""
        super().on_validation_epoch_start()
        if self.source_share is None:
            self._choose_share(self.trainer.val_dataloaders or ())

    def _choose_share(self, batches: Iterable[RankingBatch]) -> None:
        """Set the smallest share with the best NDCG@10, the same in every process; a score is linear in the share."""
        figures = [RankingMetrics((10,), self.data.ties).to(self.device) for _ in SHARES]
        for batch in batches:
            moved: RankingBatch = self.transfer_batch_to_device(batch, self.device, 0)
            none, all_of_it = (self._candidate_scores(moved, share) for share in (0.0, 1.0))
            count = sampled_counts if self.data.sampled_ranking else full_counts
            for share, figure in zip(SHARES, figures, strict=True):
                weights = moved.weights(self.data.average)
                figure.update(*count(torch.lerp(none, all_of_it, share), moved), weights)
        values = torch.stack([figure.compute()["ndcg@10"] for figure in figures])
        self.share.fill_(SHARES[int(values.argmax())])  # without a case all are NaN, and the first is taken

    def _candidate_scores(self, batch: RankingBatch, share: float) -> Tensor:
        self.share.fill_(share)
        if self.data.sampled_ranking:
            return self.score(batch.users, listed_items(batch))
        return self.score_all(batch.users)
