"""Ranking: held-out items among all items and among sampled candidates, and the best items that a user has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from zoo.data.batches import PredictBatch, RankingBatch
from zoo.metrics import RankingMetrics, Ties, rank_counts

#: The figure by which a run's checkpoint is chosen.
SELECTION_METRIC = "val/ndcg@10"
#: Two ways of counting ties that differ by more than this are both reported.
TIES_TOLERANCE = 1e-4

Counts = tuple[Tensor, Tensor]


class Recommendations(NamedTuple):
    """Best unseen items of a batch of users, best first.

    Attributes:
        users: Shape ``(batch,)``.
        items: Shape ``(batch, k)``; -1 where a user has fewer unseen items than that.
        scores: Logits, shape ``(batch, k)``.
    """

    users: Tensor
    items: Tensor
    scores: Tensor


def best_unseen(scores: Tensor, batch: PredictBatch, k: int) -> Recommendations:
    """The ``k`` best items that each user has not seen, by scores (batch, num_items); NaN is worse than every score."""
    scores = scores.nan_to_num(-torch.inf, torch.inf, -torch.inf)
    scores[batch.seen_rows, batch.seen_items] = -torch.inf
    best, items = scores.topk(min(k, scores.shape[1]), dim=1)
    return Recommendations(batch.users, items.masked_fill(best == -torch.inf, -1), best)


def listed_items(batch: RankingBatch) -> Tensor:
    """The positive of each case, then its sampled candidates, (cases, 1 + candidates); padding reads as item 0."""
    return torch.cat([batch.positives[:, None], batch.candidates.clamp(min=0)], dim=1)


def sampled_counts(scores: Tensor, batch: RankingBatch) -> Counts:
    """Candidates above and level with the positive, by scores (cases, 1 + candidates) of `listed_items`."""
    return rank_counts(scores[:, 0], scores[:, 1:], batch.candidates >= 0)


def full_counts(scores: Tensor, batch: RankingBatch) -> Counts:
    """Items above and level with the positive, among all that the user has not seen, by scores (cases, num_items)."""
    positives = batch.positives[:, None]
    competes = torch.ones_like(scores, dtype=torch.bool)
    competes[batch.seen_rows, batch.seen_items] = False
    competes.scatter_(1, positives, False)  # against itself it would always tie
    return rank_counts(scores.gather(1, positives).squeeze(1), scores, competes)


class PhaseRanking(nn.Module):
    """Ranking figures of the held-out cases of one phase, of each case and over all cases of all processes.

    Args:
        full: Whether all items are ranked.
        sampled: Whether sampled candidates are.
        ks: Cut-offs.
        ties: How ties are treated.
    """

    def __init__(self, full: bool, sampled: bool, ks: Sequence[int], ties: Ties) -> None:
        super().__init__()
        kinds = {"sampled": sampled, "full": full}
        self.metrics = nn.ModuleDict({kind: RankingMetrics(ks, ties) for kind, asked in kinds.items() if asked})

    def _metric(self, kind: str) -> RankingMetrics:
        metric = self.metrics[kind]
        assert isinstance(metric, RankingMetrics)
        return metric

    def update(self, counts: dict[str, Counts]) -> None:
        """Add cases, by kind how many candidates are above and how many level with each positive."""
        for kind, (higher, equal) in counts.items():
            self._metric(kind).update(higher, equal)

    def cases_of(self, counts: dict[str, Counts]) -> dict[str, Tensor]:
        """The figures of each case, shape ``(cases,)``, by names such as ``full/ndcg@10``."""
        return {
            f"{kind}/{name}": values
            for kind, (higher, equal) in counts.items()
            for name, values in self._metric(kind).cases_of(higher, equal).items()
        }

    def compute(self) -> dict[str, Tensor]:
        """The means so far, by the same names, and a fresh start; pessimistic ones only where ties matter.

        They are over all processes, so each of these decides and logs the same.
        """
        figures: dict[str, Tensor] = {}
        for kind in self.metrics:
            metric = self._metric(kind)
            values = metric.compute()
            chosen = {name: value for name, value in values.items() if not name.startswith("pessimistic/")}
            if any(
                abs(float(value - values[f"pessimistic/{name}"])) > TIES_TOLERANCE for name, value in chosen.items()
            ):
                chosen = values
            figures |= {f"{kind}/{name}": value for name, value in chosen.items()}
            metric.reset()
        return figures
