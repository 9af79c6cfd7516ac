"""Ranking metrics with exact treatment of ties, and how well signs and a known matrix are recovered."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torchmetrics import Metric

Ties = Literal["expected", "pessimistic"]

METRICS = ("hit_rate", "ndcg", "mrr")


def rank_counts(positive: Tensor, others: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """How many other candidates beat the positive, ``#{j: o_cj > s_c}``, and how many tie with it, ``#{j: o_cj = s_c}``.

    Scores are counted and never sorted: two comparisons of each score, where a sort takes a logarithm of the candidates more
    and would break ties in some order that nobody chose. A failing model must not win: a NaN score of the positive counts as
    minus infinity, one of another candidate as plus infinity.

    Args:
        positive: Score ``s`` of the held-out item, shape ``(cases,)``; higher is better.
        others: Scores ``o`` of the other candidates, shape ``(cases, candidates)``.
        valid: Which of the other candidates exist, shape ``(cases, candidates)``; all of them by default.

    Returns:
        Two integer tensors of shape ``(cases,)``.
    """
    target = positive.nan_to_num(-torch.inf, torch.inf, -torch.inf)[:, None]
    others = others.nan_to_num(torch.inf, torch.inf, -torch.inf)
    higher, equal = others > target, others == target
    if valid is not None:
        higher, equal = higher & valid, equal & valid
    return higher.sum(1), equal.sum(1)


def _summed_discounts(ranks: int) -> Tensor:
    """In row ``t`` the sums of ``1 / log2(rank + 1)`` and of ``1 / rank`` over the first t ranks, shape ``(ranks + 1, 2)``."""
    rank = torch.arange(1, ranks + 1, dtype=torch.float64)
    discounts = torch.stack([1 / torch.log2(rank + 1), 1 / rank], dim=1)
    return torch.cat([torch.zeros(1, 2, dtype=torch.float64), discounts.cumsum(0)])


def ranking_values(higher: Tensor, equal: Tensor, ks: Sequence[int], ties: Ties = "expected") -> Tensor:
    """Hit rate, NDCG and MRR of each case at each cut-off.

    With ``a`` candidates above the positive and ``b`` level with it, the ranks ``a + 1 .. a + b + 1`` are equally
    likely under random tie-breaking; ``expected`` is the mean over them, exactly. ``pessimistic`` takes the last of
    them. MRR counts zero beyond the cut-off.

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

    States are sums and a count, so several processes give the figure of one. Candidates are scored by their logits:
    a float32 sigmoid saturates near 17 and makes ties that the model did not mean.

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
        zeros = torch.zeros(len(self.ks), len(METRICS), dtype=torch.float64)
        self.add_state("sums", zeros, dist_reduce_fx="sum")
        self.add_state("pessimistic_sums", zeros.clone(), dist_reduce_fx="sum")
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
        """Means over the cases so far; NaN when there was no case.

        Returns:
            ``hit_rate@5``, ``ndcg@5``, ... and, with every tie decided against the model, ``pessimistic/hit_rate@5``, ...
        """
        return self._named("", self.sums) | self._named("pessimistic/", self.pessimistic_sums)

    def _named(self, prefix: str, sums: Tensor) -> dict[str, Tensor]:
        means = (sums / self.cases).float()
        return {f"{prefix}{name}@{k}": means[i, j] for i, k in enumerate(self.ks) for j, name in enumerate(METRICS)}


class SignAccuracy(Metric):
    """Share of signs that are predicted rightly; a score of 0, or NaN, counts as wrong.

    Reference: *One-Bit Matrix Completion with Differential Privacy*, section 5.1 (Acc).
    """

    full_state_update = False
    higher_is_better = True
    right: Tensor
    cases: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("right", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("cases", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, scores: Tensor, signs: Tensor) -> None:
        """Add scores (cases,) and the signs +1 or -1 (cases,) that they were to have."""
        self.right += (scores.sign() * signs > 0).sum()
        self.cases += len(scores)

    def compute(self) -> Tensor:
        """The share so far; NaN when there was no case."""
        return self.right / self.cases


class AverageRelativeError(Metric):
    """Squared Frobenius distance from a known matrix over its own squared norm.

    Reference: *One-Bit Matrix Completion with Differential Privacy*, section 5.1 (ARE): squared, whatever its name says.
    """

    full_state_update = False
    higher_is_better = False
    error: Tensor
    norm: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("error", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("norm", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, found: Tensor, truth: Tensor) -> None:
        """Add some rows of what was found and of the truth, each of shape ``(rows, columns)``."""
        self.error += (found.double() - truth.double()).square().sum()
        self.norm += truth.double().square().sum()

    def compute(self) -> Tensor:
        """The error so far; NaN when there was no row."""
        return self.error / self.norm
