"""Ranking evaluation: ranking metrics and recommendations from the scores of a method."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from zoo.data.batch_types import PredictBatch, RankingBatch
from zoo.data.best_items import Recommendations, best_unseen
from zoo.data.list_metrics import PhaseRanking
from zoo.data.metrics import SELECTION_METRIC, full_counts, listed_items, sampled_counts
from zoo.data.rows import SparseRows
from zoo.methods.target_data import TargetData, TargetModule
from zoo.nn.modules import ModulesOf


def usable(scores: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores (users, items) to recommend by, and which users (users,) have item counts in place of scores.

    These are users with a score that is NaN or plus infinity, or minus infinity for every item: rows of a release may overflow
    what a network computes. Without counts, which a private training hides, scores stay as they are.

    Examples:
        >>> scores = torch.tensor([[0.5, 0.1], [0.5, torch.nan]])
        >>> usable(scores, torch.tensor([3, 4]))
        (tensor([[0.5000, 0.1000],
                [3.0000, 4.0000]]), tensor([False,  True]))
    """
    replaced = ~scores.amax(1).isfinite() & counts.any()
    return (torch.where(replaced[:, None], counts.to(scores), scores) if replaced.any() else scores), replaced


class RankingEvaluation(TargetModule):
    """Rank held-out items in validation and test, and recommend; unscorable users get training item counts as scores."""

    # What the method has.
    target_rows: SparseRows
    target_columns: SparseRows
    item_counts: Tensor
    cache: dict[str, Tensor]
    score_all: Callable[[Tensor], Tensor]
    score: Callable[[Tensor, Tensor], Tensor]
    prepare_scoring: Callable[[], None]
    can_score: Callable[[Tensor], Tensor]
    has_row: Callable[[Tensor], Tensor]

    def read_rankings(self, data: TargetData) -> None:
        """Make the metrics of each stage that ranks items; a source training has none."""
        # By stage, whether all items are ranked.
        full_of = {"val": data.full_ranking is True, "test": bool(data.full_ranking)}
        self.rankings: ModulesOf[PhaseRanking] = ModulesOf()
        for stage, full in full_of.items():
            if full or data.sampled_ranking:
                columns = None
                if full and stage == "test":
                    columns = self.target_columns
                self.rankings[stage] = PhaseRanking(
                    full, data.sampled_ranking, data.ks, data.ties, columns, data.average
                )

    def all_scores(self, users: Tensor) -> Tensor:
        """Return the result of ``score_all`` for users (batch,), refused with a `ValueError` unless it is (batch, num_items)."""
        scores = self.score_all(users)
        known = "item_counts" in self._buffers or not isinstance(scores, Tensor)  # not before the data are read
        return self._shaped("score_all", scores, (len(users), len(self.item_counts) if known else scores.shape[-1]))

    def _shaped(self, name: str, scores: Tensor, expected: tuple[int, ...]) -> Tensor:
        found = tuple(scores.shape) if isinstance(scores, Tensor) else None
        if found != expected:
            got = f"a {type(scores).__name__}" if found is None else f"shape {found}"
            raise ValueError(
                f"{type(self).__name__}.{name} returned {got} for {expected[0]} users. It must return scores of shape "
                f"{expected}."
            )
        return scores

    def ranking_scores(self, users: Tensor) -> Tensor:
        """Return logits of all items (batch, num_items), with item counts for users that cannot be scored."""
        return self._without_cold(users, self.all_scores(users), self.item_counts.expand(len(users), -1))

    def _without_cold(self, users: Tensor, scores: Tensor, counts: Tensor) -> Tensor:
        known = self.can_score(users)
        if known.all():
            return scores  # as they are: they may be many
        return torch.where(known[:, None], scores, counts.to(scores.dtype))

    def _rank(self, stage: str, batch: RankingBatch) -> dict[str, Tensor]:
        """Rank a batch; at the test, also return the metrics of its cases by name, each of shape ``(cases,)``."""
        ranking = self.rankings[stage]
        listed, counts, lists = listed_items(batch), {}, None
        if "full" in ranking.metrics:
            every = self.ranking_scores(batch.users)
            counts["full"] = full_counts(every, batch)
            lists = ranking.lists_of(every, batch, counts["full"])
            scores = every.gather(1, listed)
        else:
            scores = self._shaped("score", self.score(batch.users, listed), tuple(listed.shape))
            scores = self._without_cold(batch.users, scores, self.item_counts[listed])
        if "sampled" in ranking.metrics:
            counts["sampled"] = sampled_counts(scores, batch)
        ranking.update(counts, lists, batch)
        return ranking.cases_of(counts, lists) if stage == "test" else {}

    def _log_ranking(self, stage: str) -> None:
        self.cache = {}
        figures = {f"{stage}/{name}": value for name, value in self.rankings[stage].compute().items()}
        if stage == "val":
            kind = "sampled" if self.data.sampled_ranking else "full"
            self.log(SELECTION_METRIC, figures[f"val/{kind}/ndcg@10"], prog_bar=True, sync_dist=True)
        self.log_dict(figures, sync_dist=True)

    def on_validation_epoch_start(self) -> None:
        """Let the method fill its cache for scoring."""
        self.prepare_scoring()

    on_test_epoch_start = on_predict_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: RankingBatch, batch_idx: int) -> None:
        """Rank the validation items of a batch of users."""
        self._rank("val", batch)

    def test_step(self, batch: RankingBatch, batch_idx: int) -> dict[str, Tensor]:
        """Rank the test items of a batch of users; return the facts of each case, for callbacks."""
        counts = self.target_rows.counts_of(batch.users)
        known = {"users": batch.users, "items": batch.positives, "train_items": counts}
        return known | {"linked": self.has_row(batch.users)} | self._rank("test", batch)

    def on_validation_epoch_end(self) -> None:
        """Log the ranking metrics of the validation items."""
        self._log_ranking("val")

    def on_test_epoch_end(self) -> None:
        """Log the ranking metrics of the test items."""
        self._log_ranking("test")

    def on_predict_epoch_end(self) -> None:
        """Empty the cache for scoring."""
        self.cache = {}

    def predict_step(self, batch: PredictBatch, batch_idx: int) -> Recommendations:
        """Return the best unseen items of a batch of users; those without finite scores get popular ones."""
        scores, replaced = usable(self.ranking_scores(batch.users), self.item_counts)
        if replaced.any():
            warnings.warn("Some users have scores that are not finite. They get popular items.", stacklevel=2)
        return best_unseen(scores, batch, self.data.top_k)
