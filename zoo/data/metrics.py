"""Ranking: held-out items among all items and among candidates, with exact treatment of ties; metrics of lists and of signs."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from zoo.data.batch_types import RankingBatch
from zoo.data.best_items import best_listed

Ties = Literal["expected", "pessimistic"]

METRICS = ("hit_rate", "ndcg", "mrr")
#: The figure by which a run's checkpoint is chosen.
SELECTION_METRIC = "val/ndcg@10"
#: Two ways of counting ties that differ by more than this are both reported.
TIES_TOLERANCE = 1e-4

#: Scores that are compared together: what is found of them stays in a processor's cache; elsewhere it takes 16 MiB.
_AT_ONCE, _AT_ONCE_ELSEWHERE = 1 << 19, 1 << 22

Counts = tuple[Tensor, Tensor]  # candidates above the positive of each case, and level with it; each (cases,)


def rank_counts(positive: Tensor, others: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """How many other candidates beat the positive, ``#{j: o_cj > s_c}``, and how many tie with it, ``#{j: o_cj = s_c}``.

    Scores are counted and never sorted, so ties are not broken. A failing model must not win: a NaN score of the positive
    counts as minus infinity, one of another candidate as higher than all.

    Args:
        positive: Score ``s`` of the held-out item, shape ``(cases,)``; higher is better.
        others: Scores ``o`` of the other candidates, shape ``(cases, candidates)``.
        valid: Which of the other candidates exist, shape ``(cases, candidates)``; all of them by default.

    Returns:
        Two integer tensors of shape ``(cases,)``.
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
    not_higher, equal = (torch.cat(counts) for counts in zip(*parts, strict=True))
    return others.shape[1] - not_higher, equal


def _counts(target: Tensor, others: Tensor, found: Tensor) -> tuple[Tensor, Tensor]:
    """Others at most the target (cases, 1), and equal to it; float sums are exact up to 2^24 and faster than those of booleans."""
    kind = torch.float64 if others.shape[1] > 1 << 24 else torch.float32
    not_higher = torch.le(others, target, out=found).sum(1, dtype=kind).long()
    return not_higher, torch.eq(others, target, out=found).sum(1, dtype=kind).long()


def _summed_discounts(ranks: int) -> Tensor:
    """In row ``t`` the sums of ``1 / log2(rank + 1)`` and of ``1 / rank`` over the first t ranks, shape ``(ranks + 1, 2)``."""
    rank = torch.arange(1, ranks + 1, dtype=torch.float64)
    discounts = torch.stack([1 / torch.log2(rank + 1), 1 / rank], dim=1)
    return torch.cat([torch.zeros(1, 2, dtype=torch.float64), discounts.cumsum(0)])


def ranking_values(higher: Tensor, equal: Tensor, ks: Sequence[int], ties: Ties = "expected") -> Tensor:
    """Hit rate, NDCG and MRR of each case at each cut-off.

    With ``a`` candidates above the positive and ``b`` level with it, the ranks ``a + 1 .. a + b + 1`` are equally likely under
    random tie-breaking; ``expected`` is the exact mean over them, ``pessimistic`` takes the last. MRR counts zero beyond the
    cut-off.

    Args:
        higher: Candidates that score higher, shape ``(cases,)``.
        equal: Candidates that score the same, shape ``(cases,)``.
        ks: Cut-offs.
        ties: How ties are treated.

    Returns:
        Values in float64, shape ``(len(ks), 3, cases)``, in the order of :data:`METRICS`.
    """
    if ties == "pessimistic":
        higher, equal = higher + equal, torch.zeros_like(equal)
    span = equal.double() + 1
    most = sum(int(counts.max()) if len(counts) else 0 for counts in (higher, equal))
    last = min(max(ks), most + 1)  # no rank beyond it counts
    sums = _summed_discounts(last).to(higher.device)
    values = []
    for k in ks:
        # The mean over ranks a + 1 .. a + b + 1 that are at most k, as a difference of two sums.
        first = higher.clamp(max=min(k, last))
        until = (higher + equal + 1).clamp(max=min(k, last))
        ndcg, mrr = ((sums[until] - sums[first]) / span[:, None]).unbind(1)
        hit_rate = (k - higher).clamp(min=0).minimum(equal + 1) / span
        values.append(torch.stack([hit_rate, ndcg, mrr]))
    return torch.stack(values)


class RankingMetrics(Metric):
    """HR@K, NDCG@K and MRR@K of one positive among its candidates, averaged over held-out cases.

    States are sums and a count, so several processes give the figure of one. Candidates are scored by their logits: a float32
    sigmoid saturates near 17 and makes ties.

    Args:
        ks: Cut-offs.
        ties: ``expected`` (mean over random tie-breaking) or ``pessimistic`` (the positive comes last).

    Raises:
        ValueError: If there is no cut-off or one is below 1.
    """

    full_state_update = False
    higher_is_better = True
    sums: Tensor
    pessimistic_sums: Tensor
    cases: Tensor

    def __init__(self, ks: Sequence[int] = (5, 10), ties: Ties = "expected") -> None:
        super().__init__()
        if not ks or min(ks) < 1:
            raise ValueError(f"ks must be cut-offs of at least 1, for example [5, 10]; got {list(ks)}.")
        if ties not in ("expected", "pessimistic"):
            raise ValueError(f"ties must be 'expected' or 'pessimistic', got {ties!r}.")
        self.ks = tuple(ks)
        self.ties: Ties = ties
        for name in ("sums", "pessimistic_sums"):
            zeros = torch.zeros(len(self.ks), len(METRICS), dtype=torch.float64)
            self.add_state(name, zeros, dist_reduce_fx="sum")
        self.add_state("cases", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, higher: Tensor, equal: Tensor) -> None:
        """Add a batch of cases by the counts that :func:`rank_counts` gives, each of shape ``(cases,)``."""
        pessimistic = ranking_values(higher, equal, self.ks, "pessimistic").sum(2)
        self.pessimistic_sums += pessimistic
        self.sums += ranking_values(higher, equal, self.ks).sum(2) if self.ties == "expected" else pessimistic
        self.cases += len(higher)

    def cases_of(self, higher: Tensor, equal: Tensor) -> dict[str, Tensor]:
        """Each figure of each case, float32, shape ``(cases,)``, by the name that its mean has in ``compute``."""
        values = ranking_values(higher, equal, self.ks, self.ties).float()
        return {f"{name}@{k}": values[i, j] for i, k in enumerate(self.ks) for j, name in enumerate(METRICS)}

    def compute(self) -> dict[str, Tensor]:
        """Means over the cases so far, NaN without a case: ``hit_rate@5``, ...; ``pessimistic/hit_rate@5``, ... lose every tie."""
        return self._named("", self.sums) | self._named("pessimistic/", self.pessimistic_sums)

    def _named(self, prefix: str, sums: Tensor) -> dict[str, Tensor]:
        means = (sums / self.cases).float()
        return {f"{prefix}{name}@{k}": means[i, j] for i, k in enumerate(self.ks) for j, name in enumerate(METRICS)}


class ListMetrics(Metric):
    """Coverage@K and novelty@K of the lists in which held-out items are ranked among all items.

    * coverage@K: the share of all items that stand among the best K of some case (Ge, Delgado-Battenfeld and Jannach, *Beyond
      Accuracy: Evaluating Recommender Systems by Coverage and Serendipity*, RecSys 2010, section 3.1: catalog coverage).
    * novelty@K: the mean over the best K of ``log2(users / owners)`` bits, with ``owners`` the users who have the item in training,
      and the mean of that over cases (Zhou et al., *Solving the apparent diversity-accuracy dilemma of recommender systems*, PNAS
      2010: surprisal). Departure: an item that nobody has counts as one that one user has, where the paper's is infinite.

    States are sums and counts, so several processes give the figures of one.

    Args:
        owners: Users who have each item in training, shape ``(num_items,)``.
        num_users: How many there are.
        ks: Cut-offs.
    """

    full_state_update = False
    listed: Tensor
    surprisal: Tensor
    cases: Tensor
    bits: Tensor

    def __init__(self, owners: Tensor, num_users: int, ks: Sequence[int] = (5, 10)) -> None:
        super().__init__()
        self.ks = tuple(ks)
        self.register_buffer("bits", (num_users / owners.double().clamp(min=1)).log2(), persistent=False)
        self.add_state("listed", torch.zeros(len(self.ks), len(owners), dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("surprisal", torch.zeros(len(self.ks), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("cases", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, best: Tensor) -> None:
        """Add the lists of some cases, best first, (cases, at least the largest K or all items); -1 where one is shorter."""
        for i, k in enumerate(self.ks):
            items = best[:, :k]
            self.listed[i] += torch.bincount(items[items >= 0], minlength=self.listed.shape[1])
        self.surprisal += torch.stack([values.double().sum() for values in self.cases_of(best).values()])
        self.cases += len(best)

    def cases_of(self, best: Tensor) -> dict[str, Tensor]:
        """The novelty of each list, float32, shape ``(cases,)``, by the name that its mean has in ``compute``."""
        bits = torch.where(best >= 0, self.bits[best.clamp(min=0)], 0.0)
        return {f"novelty@{k}": (bits[:, :k].sum(1) / (best[:, :k] >= 0).sum(1).clamp(min=1)).float() for k in self.ks}

    def compute(self) -> dict[str, Tensor]:
        """``coverage@5``, ``novelty@5``, ... so far; without any case coverage is 0 and novelty NaN."""
        coverage, novelty = (self.listed > 0).double().mean(1).float(), (self.surprisal / self.cases).float()
        return {
            f"{name}@{k}": values[i]
            for i, k in enumerate(self.ks)
            for name, values in (("coverage", coverage), ("novelty", novelty))
        }


class _Ratio(Metric):
    """A sum over another one; NaN before there is any."""

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
    """Share of signs that are predicted rightly; a score of 0, or NaN, counts as wrong.

    Reference: *One-Bit Matrix Completion with Differential Privacy*, section 5.1 (Acc).
    """

    higher_is_better = True

    def __init__(self) -> None:
        super().__init__(torch.long)

    def update(self, scores: Tensor, signs: Tensor) -> None:
        """Add scores (cases,) and the true signs (cases,), +1 or -1."""
        self.part += (scores.sign() * signs > 0).sum()
        self.whole += len(scores)


class AverageRelativeError(_Ratio):
    """Squared Frobenius distance from a known matrix over its own squared norm.

    Reference: *One-Bit Matrix Completion with Differential Privacy*, section 5.1 (ARE): squared, whatever its name says.
    """

    higher_is_better = False

    def __init__(self) -> None:
        super().__init__(torch.float64)

    def update(self, found: Tensor, truth: Tensor) -> None:
        """Add some rows of what was found and of the truth, each of shape ``(rows, columns)``."""
        self.part += (found.double() - truth.double()).square().sum()
        self.whole += truth.double().square().sum()


def listed_items(batch: RankingBatch) -> Tensor:
    """The positive of each case, then its sampled candidates, (cases, 1 + candidates); padding reads as item 0."""
    return torch.cat([batch.positives[:, None], batch.candidates.clamp(min=0)], dim=1)


def sampled_counts(scores: Tensor, batch: RankingBatch) -> Counts:
    """Candidates above and level with the positive, by scores (cases, 1 + candidates) of `listed_items`."""
    return rank_counts(scores[:, 0], scores[:, 1:], batch.candidates >= 0)


def full_counts(scores: Tensor, batch: RankingBatch) -> Counts:
    """Items above and level with the positive among all unseen ones, by scores (cases, num_items), without a mask of that size."""
    positives = scores.gather(1, batch.positives[:, None]).squeeze(1)
    counts = rank_counts(positives, scores)
    # The positive is not among the seen, and against itself it would always tie.
    own = torch.arange(len(positives), device=scores.device)
    rows, items = torch.cat([batch.seen_rows, own]), torch.cat([batch.seen_items, batch.positives])
    for count, others in zip(counts, rank_counts(positives[rows], scores[rows, items, None]), strict=True):
        count.index_add_(0, rows, others, alpha=-1)
    return counts


class PhaseRanking(nn.Module):
    """Ranking figures of the held-out cases of one phase, of each case and over all cases of all processes.

    Args:
        full: Whether all items are ranked.
        sampled: Whether sampled candidates are.
        ks: Cut-offs.
        ties: How ties are treated.
        lists: Measures the lists of the full ranking, too.
    """

    def __init__(
        self, full: bool, sampled: bool, ks: Sequence[int], ties: Ties, lists: ListMetrics | None = None
    ) -> None:
        super().__init__()
        kinds = {"sampled": sampled, "full": full}
        self.metrics = nn.ModuleDict({kind: RankingMetrics(ks, ties) for kind, asked in kinds.items() if asked})
        self.lists = lists

    def _metric(self, kind: str) -> RankingMetrics:
        metric = self.metrics[kind]
        assert isinstance(metric, RankingMetrics)
        return metric

    def best(self, scores: Tensor, batch: RankingBatch) -> Tensor | None:
        """The list of each case by scores (batch, num_items), where lists are measured."""
        return None if self.lists is None else best_listed(scores, batch, max(self.lists.ks))

    def update(self, counts: dict[str, Counts], best: Tensor | None = None) -> None:
        """Add cases, by kind how many candidates are above and how many level with each positive, and their lists."""
        for kind, (higher, equal) in counts.items():
            self._metric(kind).update(higher, equal)
        if self.lists is not None and best is not None:
            self.lists.update(best)

    def cases_of(self, counts: dict[str, Counts], best: Tensor | None = None) -> dict[str, Tensor]:
        """The figures of each case, shape ``(cases,)``, by names such as ``full/ndcg@10``, ``full/above`` and ``full/level``."""
        found: dict[str, Tensor] = {}
        for kind, (higher, equal) in counts.items():
            figures = self._metric(kind).cases_of(higher, equal)
            own = figures | {"above": higher.int(), "level": equal.int()}
            found |= {f"{kind}/{name}": values for name, values in own.items()}
        if self.lists is not None and best is not None:
            found |= {f"full/{name}": values for name, values in self.lists.cases_of(best).items()}
        return found

    def compute(self) -> dict[str, Tensor]:
        """The means so far over all processes, by the same names, and a fresh start; pessimistic ones only where ties matter."""
        figures: dict[str, Tensor] = {}
        for kind in self.metrics:
            metric = self._metric(kind)
            values = metric.compute()
            chosen = {name: value for name, value in values.items() if not name.startswith("pessimistic/")}
            gaps = (abs(float(value - values[f"pessimistic/{name}"])) for name, value in chosen.items())
            if any(gap > TIES_TOLERANCE for gap in gaps):
                chosen = values
            figures |= {f"{kind}/{name}": value for name, value in chosen.items()}
            metric.reset()
        if self.lists is not None:
            figures |= {f"full/{name}": value for name, value in self.lists.compute().items()}
            self.lists.reset()
        return figures
