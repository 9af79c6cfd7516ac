"""Metrics: ranking among all items and among candidates, with exact treatment of ties; metrics of signs."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torchmetrics import Metric

from zoo.data.batch_types import RankingBatch

Ties = Literal["expected", "pessimistic"]

METRICS = ("hit_rate", "ndcg", "mrr")
#: Metric that selects a run's checkpoint.
SELECTION_METRIC = "val/ndcg@10"

#: Scores compared at once: the result fits a CPU's cache; on other devices it takes 16 MiB.
_AT_ONCE, _AT_ONCE_ELSEWHERE = 1 << 19, 1 << 22

Counts = tuple[Tensor, Tensor]  # num_better and num_tied of each case; each (cases,)


def rank_counts(positive: Tensor, others: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return how many other candidates beat the positive, ``#{j: o_cj > s_c}``, and tie with it, ``#{j: o_cj = s_c}``.

    Scores are counted and not sorted, so ties are not broken. A failing model must not win: a NaN score of the positive counts as
    minus infinity, that of another candidate as plus infinity.

    Args:
        positive: Score ``s`` of the held-out item, shape ``(cases,)``; higher is better.
        others: Scores ``o`` of the other candidates, shape ``(cases, candidates)``.
        valid: Mask of existing candidates, shape ``(cases, candidates)``; by default all.

    Returns:
        Two integer tensors of shape ``(cases,)``.

    Examples:
        >>> import torch
        >>> rank_counts(torch.tensor([0.5]), torch.tensor([[0.9, 0.5, 0.1]]))
        (tensor([1]), tensor([1]))
    """
    target = positive.nan_to_num(-torch.inf, torch.inf, -torch.inf)[:, None]
    if valid is not None:
        return (~(others <= target) & valid).sum(1), ((others == target) & valid).sum(1)
    together = _AT_ONCE if others.device.type == "cpu" else _AT_ONCE_ELSEWHERE
    at_once = max(together // max(others.shape[1], 1), 1)  # cases
    found = torch.empty(others[:at_once].shape, device=others.device)
    parts = [
        _counts(*part, found[: len(part[0])])
        for part in zip(torch.split(target, at_once), torch.split(others, at_once), strict=True)
    ]
    not_better, num_tied = (torch.cat(counts) for counts in zip(*parts, strict=True))
    return others.shape[1] - not_better, num_tied


def _counts(target: Tensor, others: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    # Float sums are exact up to 2^24 and faster than those of booleans.
    kind = torch.float64 if others.shape[1] > 1 << 24 else torch.float32
    not_better = torch.le(others, target, out=found).sum(1, dtype=kind).long()
    return not_better, torch.eq(others, target, out=found).sum(1, dtype=kind).long()


def summed_discounts(ranks: int) -> Tensor:
    """Return sums of ``1 / log2(rank + 1)`` and of ``1 / rank`` over the first t ranks in row t, shape ``(ranks + 1, 2)``."""
    rank = torch.arange(1, ranks + 1, dtype=torch.float64)
    discounts = torch.stack([1 / torch.log2(rank + 1), 1 / rank], dim=1)
    return torch.cat([torch.zeros(1, 2, dtype=torch.float64), discounts.cumsum(0)])


def ranking_values(num_better: Tensor, num_tied: Tensor, ks: Sequence[int], ties: Ties = "expected") -> Tensor:
    """Return hit rate, NDCG and MRR of each case at each cut-off.

    With ``a`` better and ``b`` tied candidates the ranks ``a + 1 .. a + b + 1`` are equally likely under random tie-breaking.
    ``expected`` is the exact mean over them, ``pessimistic`` takes the last. MRR is zero beyond the cut-off.

    Args:
        num_better: Number of better candidates, shape ``(cases,)``.
        num_tied: Number of tied candidates, shape ``(cases,)``.
        ks: Cut-offs.
        ties: Treatment of ties.

    Returns:
        Values in float64, shape ``(len(ks), 3, cases)``, in the order of :data:`METRICS`.

    Examples:
        >>> import torch
        >>> ranking_values(torch.tensor([0]), torch.tensor([1]), ks=[1])[0, 0]  # one of two tied items is first
        tensor([0.5000], dtype=torch.float64)
    """
    if ties == "pessimistic":
        num_better, num_tied = num_better + num_tied, torch.zeros_like(num_tied)
    span = num_tied.double() + 1
    most = sum(int(counts.max()) if len(counts) else 0 for counts in (num_better, num_tied))
    last = min(max(ks), most + 1)  # no rank beyond it counts
    sums = summed_discounts(last).to(num_better.device)
    values = []
    for k in ks:
        # Mean over the ranks a + 1 .. a + b + 1 up to k, as a difference of two sums.
        first = num_better.clamp(max=min(k, last))
        until = (num_better + num_tied + 1).clamp(max=min(k, last))
        ndcg, mrr = ((sums[until] - sums[first]) / span[:, None]).unbind(1)
        hit_rate = (k - num_better).clamp(min=0).minimum(num_tied + 1) / span
        values.append(torch.stack([hit_rate, ndcg, mrr]))
    return torch.stack(values)


def weighted_sum(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return the sum over the last axis of values (..., cases), times weights (cases,) if there are any."""
    return values.sum(-1) if weights is None else values @ weights.to(values.dtype)


class RankingMetrics(Metric):
    """HR@K, NDCG@K and MRR@K of one positive among its candidates, averaged over held-out cases or, by weights, over users.

    States are sums and a count, so several processes give the result of one. Use logits as scores: a float32 sigmoid saturates
    near 17 and makes ties.

    Args:
        ks: Cut-offs.
        ties: ``expected`` (mean over random tie-breaking) or ``pessimistic`` (the positive comes last).

    Raises:
        ValueError: If there is no cut-off or one is below 1.

    Examples:
        >>> import torch
        >>> metric = RankingMetrics(ks=[1, 2])
        >>> metric.update(num_better=torch.tensor([0, 1]), num_tied=torch.tensor([0, 0]))
        >>> round(float(metric.compute()["hit_rate@1"]), 4), round(float(metric.compute()["ndcg@2"]), 4)
        (0.5, 0.8155)
    """

    full_state_update = False
    higher_is_better = True
    sums: Tensor
    pessimistic_sums: Tensor
    total: Tensor  # of the weights

    def __init__(self, ks: Sequence[int] = (5, 10), ties: Ties = "expected") -> None:
        super().__init__()
        if not ks or min(ks) < 1:
            raise ValueError(f"ks is {list(ks)}. It must have cut-offs of at least 1, e.g. [5, 10].")
        if ties not in ("expected", "pessimistic"):
            raise ValueError(f"ties is {ties!r}. It must be 'expected' or 'pessimistic'.")
        self.ks = tuple(ks)
        self.ties: Ties = ties
        for name in ("sums", "pessimistic_sums"):
            zeros = torch.zeros(len(self.ks), len(METRICS), dtype=torch.float64)
            self.add_state(name, zeros, dist_reduce_fx="sum")
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, num_better: Tensor, num_tied: Tensor, weights: Tensor | None = None) -> None:
        """Add a batch of cases by the counts of :func:`rank_counts`, each of shape ``(cases,)``.

        ``weights`` (cases,), float64, are 1 by default. With 1 / (cases of the user) each user counts once.
        """
        pessimistic = weighted_sum(ranking_values(num_better, num_tied, self.ks, "pessimistic"), weights)
        self.pessimistic_sums += pessimistic
        expected = self.ties == "expected"
        self.sums += weighted_sum(ranking_values(num_better, num_tied, self.ks), weights) if expected else pessimistic
        self.total += len(num_better) if weights is None else weights.sum()

    def cases_of(self, num_better: Tensor, num_tied: Tensor) -> dict[str, Tensor]:
        """Return each metric per case, float32, shape ``(cases,)``, by its name in ``compute``."""
        values = ranking_values(num_better, num_tied, self.ks, self.ties).float()
        return {f"{name}@{k}": values[i, j] for i, k in enumerate(self.ks) for j, name in enumerate(METRICS)}

    def compute(self) -> dict[str, Tensor]:
        """Return weighted means over cases, NaN without a case: ``hit_rate@5``, ... and ``pessimistic/hit_rate@5``, ..."""
        return self._named("", self.sums) | self._named("pessimistic/", self.pessimistic_sums)

    def _named(self, prefix: str, sums: Tensor) -> dict[str, Tensor]:
        means = (sums / self.total).float()
        return {f"{prefix}{name}@{k}": means[i, j] for i, k in enumerate(self.ks) for j, name in enumerate(METRICS)}


class _Ratio(Metric):
    full_state_update = False
    part: Tensor
    whole: Tensor

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        for name in ("part", "whole"):
            self.add_state(name, torch.zeros((), dtype=kind), dist_reduce_fx="sum")

    def compute(self) -> Tensor:
        return self.part / self.whole


class SignAccuracy(_Ratio):
    """Share of correct signs; a score of 0 or NaN counts as wrong.

    Reference: *One-Bit Matrix Completion with Differential Privacy*, section 5.1 (Acc).

    Examples:
        >>> import torch
        >>> metric = SignAccuracy()
        >>> metric(torch.tensor([0.3, -2.0]), torch.tensor([1.0, 1.0]))
        tensor(0.5000)
    """

    higher_is_better = True

    def __init__(self) -> None:
        super().__init__(torch.long)

    def update(self, scores: Tensor, signs: Tensor) -> None:
        """Add scores (cases,) and the true signs (cases,), +1 or -1."""
        self.part += (scores.sign() * signs > 0).sum()
        self.whole += len(scores)


class AverageRelativeError(_Ratio):
    """Squared Frobenius distance from a known matrix, divided by its squared norm.

    Reference: *One-Bit Matrix Completion with Differential Privacy*, section 5.1 (ARE): squared, despite its name.
    """

    higher_is_better = False

    def __init__(self) -> None:
        super().__init__(torch.float64)

    def update(self, found: Tensor, truth: Tensor) -> None:
        """Add rows of the estimate and of the truth, each of shape ``(rows, columns)``."""
        self.part += (found.double() - truth.double()).square().sum()
        self.whole += truth.double().square().sum()


def listed_items(batch: RankingBatch) -> Tensor:
    """Return the positive of each case, then its sampled candidates, (cases, 1 + candidates); padding becomes item 0."""
    return torch.cat([batch.positives[:, None], batch.candidates.clamp(min=0)], dim=1)


def sampled_counts(scores: Tensor, batch: RankingBatch) -> Counts:
    """Return num_better and num_tied (cases,) by scores (cases, 1 + candidates) of `listed_items`."""
    return rank_counts(scores[:, 0], scores[:, 1:], batch.candidates >= 0)


def full_counts(scores: Tensor, batch: RankingBatch) -> Counts:
    """Return num_better and num_tied (cases,) among all unseen items, by scores (cases, num_items), without a dense mask.

    Items of ``batch.left_out`` do not count. Blocks of their scores are copied, never the whole matrix.
    """
    positives = scores.gather(1, batch.positives[:, None]).squeeze(1)
    counts = rank_counts(positives, scores)
    # The positive itself, which would always tie, is removed with the seen items.
    own = torch.arange(len(positives), device=scores.device)
    rows, items = torch.cat([batch.seen_rows, own]), torch.cat([batch.seen_items, batch.positives])
    out = batch.left_out
    # A seen item that is left out for all is subtracted with these.
    once = out[torch.searchsorted(out, items).clamp(max=len(out) - 1)] != items if len(out) else 1
    for count, others in zip(counts, rank_counts(positives[rows], scores[rows, items, None]), strict=True):
        count.index_add_(0, rows, others * once, alpha=-1)
    together = _AT_ONCE if scores.device.type == "cpu" else _AT_ONCE_ELSEWHERE
    for columns in torch.split(out, max(together // max(len(scores), 1), 1)) if len(out) else ():
        for count, others in zip(counts, rank_counts(positives, scores[:, columns]), strict=True):
            count -= others
    return counts
