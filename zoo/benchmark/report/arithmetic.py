"""The arithmetic that binds HR, NDCG and MRR of one positive per case.

A case whose positive has rank ``r`` adds ``(1, 1 / log2(r + 1), 1 / r)`` to HR@K, NDCG@K and MRR@K if ``r <= K``, and
nothing otherwise. Means over cases, over runs, and over the ranks that a tie leaves open are mixtures of such
points, so every bound that is linear in them passes on to the means.
"""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

from zoo.runtime.run_folder import METRIC_NAMES


def violations(figures: Mapping[str, float], tolerance: float = 1e-4, *, joint: bool = False) -> list[str]:
    """What in a set of figures cannot be, as one sentence per broken rule.

    With ``d(r)`` the discount of rank ``r``, ``1 / log2(r + 1)`` for NDCG and ``1 / r`` for MRR, the rules are:

    * every figure lies in [0, 1], and none falls as K grows;
    * NDCG@K and MRR@K lie in ``[d(K), d(1)] * HR@K``, and MRR@K is at most NDCG@K;
    * between consecutive cut-offs ``K1 < K2``, NDCG and MRR grow by an amount in ``[d(K2), d(K1 + 1)]`` times the
      growth of HR;
    * with ``joint``, NDCG and MRR over HR lie in the convex hull of the ranks' points, again in total and between
      cut-offs. With the rules above this is exact: all three metrics without rounding pass if and only if some
      distribution of ranks has them. It is for figures of one checkpoint; where each was read at its own best
      checkpoint, as some papers do, they can break it and keep the other rules.

    A figure may be wrong by half of ``tolerance``. Each rule compares two sides that are linear in the figures and
    allows for the most that this can move them: ``tolerance / 2`` times the sum of the figures' absolute coefficients.

    Args:
        figures: Any of ``hit_rate@K``, ``ndcg@K`` and ``mrr@K`` by that name, for any cut-offs.
        tolerance: One unit in the last digit of the figures; 1e-4 for figures published to four digits.
        joint: Whether NDCG and MRR are also held against each other.
    """
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance must be a number of at least 0, for example 1e-4; got {tolerance}.")
    held = _Figures(figures, tolerance)
    return [*_single(held), *_against_hits(held), *(_joint(held) if joint else [])]


class _Figures:
    """Figures by metric and cut-off, cut-offs ascending, and how far each may be off."""

    def __init__(self, figures: Mapping[str, float], tolerance: float) -> None:
        self.tolerance = tolerance
        self.digits = max(4, math.ceil(-math.log10(max(tolerance, 1e-8))))
        self.at: dict[str, dict[int, float]] = {metric: {} for metric in METRIC_NAMES}
        for key, value in figures.items():
            match = re.fullmatch(r"(hit_rate|ndcg|mrr)@([1-9]\d*)", key)
            if not match:
                raise ValueError(
                    f"Figures must be named hit_rate@K, ndcg@K or mrr@K, for example ndcg@10; got {key!r}."
                )
            self.at[match[1]][int(match[2])] = float(value)
        self.at = {metric: dict(sorted(by_cut_off.items())) for metric, by_cut_off in self.at.items()}

    def blocks(self, *metrics: str) -> list[tuple[int, int]]:
        """Ranges of ranks ``k1 + 1 .. k2`` at whose ends all these metrics are known; nothing is found before rank 1."""
        shared = sorted(set.intersection(*(set(self.at[m]) for m in metrics)))
        shared = [k for k in shared if all(math.isfinite(self.at[m][k]) for m in metrics)]
        return [(0, k) for k in shared] + list(pairwise(shared))

    def grown(self, metric: str, k1: int, k2: int) -> float:
        """How much a metric grows from ``k1`` to ``k2``."""
        return self.at[metric][k2] - (self.at[metric][k1] if k1 else 0.0)

    def exceeds(self, excess: float, coefficients: float) -> bool:
        """Whether a rule is broken by more than rounding explains; 1e-12 is for double precision itself."""
        return excess > self.tolerance / 2 * coefficients + 1e-12

    def said(self, value: float) -> str:
        """``.0320`` and ``-.0131``: as papers print figures."""
        text = f"{value:.{self.digits}f}"
        return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text

    def must_lie(self, what: str, value: float, given: Mapping[str, float], low: float, high: float) -> str:
        """The sentence for a broken rule."""
        beside = " and ".join(f"{name} of {self.said(known)}" for name, known in given.items())
        interval = f"[{self.said(low)}, {self.said(high)}]"
        return f"{what} is {self.said(value)}; with {beside} it must lie in {interval}"


def _discount(metric: str, rank: int) -> float:
    """What a positive at this rank adds to the metric."""
    return {"hit_rate": 1.0, "ndcg": 1 / math.log2(rank + 1), "mrr": 1 / rank}[metric]


def _label(metric: str, k1: int, k2: int) -> str:
    name = METRIC_NAMES[metric]
    return f"{name}@{k2} - {name}@{k1}" if k1 else f"{name}@{k2}"


def _single(held: _Figures) -> Iterator[str]:
    """Rules within one metric: the range of its values, and growth with the cut-off."""
    for metric, at in held.at.items():
        for k, value in at.items():
            if not math.isfinite(value) or held.exceeds(max(-value, value - 1), 1):
                yield f"{_label(metric, 0, k)} is {held.said(value)}; it must lie in [0, 1]"
        for k1, k2 in held.blocks(metric):
            if k1 and held.exceeds(-held.grown(metric, k1, k2), 2):
                known = f"{_label(metric, 0, k1)} of {held.said(at[k1])}"
                yield f"{_label(metric, 0, k2)} is {held.said(at[k2])}; with {known} it must not be lower"


def _against_hits(held: _Figures) -> Iterator[str]:
    """Rules between two metrics: NDCG and MRR against HR, and MRR against NDCG."""
    for metric in ("ndcg", "mrr"):
        for k1, k2 in held.blocks("hit_rate", metric):
            terms = 2 if k1 else 1
            value = held.grown(metric, k1, k2)
            hits = max(held.grown("hit_rate", k1, k2), 0.0)  # a fall of HR has been said already
            last, first = _discount(metric, k2), _discount(metric, k1 + 1)
            under = held.exceeds(last * hits - value, terms * (1 + last))
            if under or held.exceeds(value - first * hits, terms * (1 + first)):
                given = {_label("hit_rate", k1, k2): hits}
                yield held.must_lie(_label(metric, k1, k2), value, given, last * hits, first * hits)
    for k1, k2 in held.blocks("ndcg", "mrr"):
        ndcg, mrr = held.at["ndcg"][k2], held.at["mrr"][k2]
        if not k1 and held.exceeds(mrr - ndcg, 2):
            yield held.must_lie(_label("mrr", 0, k2), mrr, {_label("ndcg", 0, k2): ndcg}, 0.0, ndcg)


def _joint(held: _Figures) -> Iterator[str]:
    """MRR against HR and NDCG together.

    The ranks' points ``(1 / log2(r + 1), 1 / r)`` lie on a convex curve, so their hull is bounded from below by the
    lines through neighbouring ranks and from above by the line through the first and the last.
    """
    for k1, k2 in held.blocks("hit_rate", "ndcg", "mrr"):
        if k2 - k1 < 2:
            continue  # one rank: the rules against HR leave a point
        terms = 2 if k1 else 1
        hits, ndcg, mrr = (held.grown(metric, k1, k2) for metric in METRIC_NAMES)
        edges = [(r, r + 1) for r in range(k1 + 1, k2)]
        bounds, broken = [], False
        for sign, (a, b) in [*((1, edge) for edge in edges), (-1, (k1 + 1, k2))]:
            # The line through the points of ranks a and b: mrr = level + slope * ndcg, both per hit.
            slope = (1 / a - 1 / b) / (_discount("ndcg", a) - _discount("ndcg", b))
            level = 1 / a - slope * _discount("ndcg", a)
            bounds.append(level * hits + slope * ndcg)
            broken |= held.exceeds(sign * (bounds[-1] - mrr), terms * (1 + abs(level) + abs(slope)))
        if broken:
            low, high = sorted((max(bounds[:-1]), bounds[-1]))
            given = {_label("hit_rate", k1, k2): hits, _label("ndcg", k1, k2): ndcg}
            yield held.must_lie(_label("mrr", k1, k2), mrr, given, low, high)
