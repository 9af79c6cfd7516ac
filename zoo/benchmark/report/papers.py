"""Figures that papers print, and ours beside them; they are not targets.

``papers.csv`` holds them in long form, by these keys:

* ``pricdr``: Chen et al., *Differential Private Knowledge Transfer for Privacy-Preserving Cross-Domain Recommendation*, WWW
  2022, doi:10.1145/3485447.3512192; table 1;
* ``ppgencdr``: Liao et al., *PPGenCDR: A Stable and Robust Framework for Privacy-Preserving Cross-Domain Recommendation*,
  AAAI 2023; of table 1 the rows whose cells can be told apart in the paper's text;
* ``fedgcdr``: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation*, NeurIPS 2024; tables 1, 2 and 5
  ("Single Domain" is ``FedGNN``).

Many rows contradict the arithmetic of HR, NDCG and MRR with one positive per case (:attr:`Published.inconsistencies`): rank ``r``
adds ``(1, 1 / log2(r + 1), 1 / r)`` to them if ``r <= K``, and nothing otherwise. Means over cases, runs and ties are mixtures of
such points, so every bound that is linear in them also holds for the means.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from zoo.benchmark.report.results import DECIDING, Line, Results
from zoo.runtime.run_folder import METRIC_NAMES

Status = Literal["reproduced", "above", "below", "paper inconsistent"]
#: Two figures agree within this share of the paper's, or within two standard errors of our mean, whichever is wider.
AGREEMENT = 0.05


@dataclass(frozen=True)
class Published:
    """One row of a paper's table."""

    paper: str  # its key, as above
    table: int
    dataset: str
    source: str  # a domain, or how many there are, for example ``3 domains``
    target: str
    method: str  # as the paper names it
    figures: dict[str, float]  # values by metric and cut-off, for example ``hit_rate@5``

    @property
    def inconsistencies(self) -> list[str]:
        """What in the row cannot be, from its rounded figures (:func:`violations`)."""
        return violations(self.figures)


def published(dataset: str, source: str, target: str) -> list[Published]:
    """The rows on one data set and direction, such as amazon from movie to book; empty if no paper reports it."""
    return [row for row in all_published() if (row.dataset, row.source, row.target) == (dataset, source, target)]


@cache
def all_published() -> tuple[Published, ...]:
    """Every row of the papers' tables, in the order of the file."""
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    with Path(__file__).with_name("papers.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            row = tuple(line[name] for name in ("paper", "table", "dataset", "source", "target", "method"))
            rows.setdefault(row, {})[f"{line['metric']}@{line['k']}"] = float(line["value"])
    return tuple(
        Published(paper, int(table), dataset, source, target, method, figures)
        for (paper, table, dataset, source, target, method), figures in rows.items()
    )


@dataclass(frozen=True)
class Versus:
    """One of our rows beside a row of a paper."""

    line: Line
    paper: Published
    status: Status  # by NDCG@10 among 1 + 99 candidates; a paper's row that breaks the arithmetic is no target
    reason: str  # why the two may differ, and what is wrong with the paper's row


def versus(results: Results, task: str) -> list[Versus]:
    """Every row of ours on a task that a paper has too; papers' rows that are not ours yet are left out."""
    where = results.benchmark["tasks"][task]["published"]
    theirs = published(**where) if where else []
    # Papers rank among 1 + 99 candidates: a row that ranked among all items alone has nothing to compare.
    ours = [line for line in results.lines[task] if not math.isnan(line.mean("sampled", DECIDING))]
    return [_compared(line, paper) for line in ours for paper in theirs if paper.method == line.row.published_as]


def _compared(line: Line, paper: Published) -> Versus:
    ours, theirs = line.mean("sampled", DECIDING), paper.figures[DECIDING]
    spread = line.sd("sampled", DECIDING)
    error = 0.0 if math.isnan(spread) else spread / math.sqrt(len(line.runs))
    tolerance = max(AGREEMENT * theirs, 2 * error)
    status: Status = "reproduced" if abs(ours - theirs) <= tolerance else "above" if ours > theirs else "below"
    reasons = [" ".join(line.row.reason.split())] if line.row.reason else []
    if wrong := paper.inconsistencies:
        reasons = [f"in the paper {wrong[0]}; beside it ours is {status}", *reasons]
        status = "paper inconsistent"
    return Versus(line, paper, status, "; ".join(reasons))


def violations(figures: Mapping[str, float], tolerance: float = 1e-4, *, joint: bool = False) -> list[str]:
    """Return a sentence for each rule that figures break.

    With ``d(r)`` the discount of rank ``r``, ``1 / log2(r + 1)`` for NDCG and ``1 / r`` for MRR, the rules are:

    * every figure lies in [0, 1], and none falls as K grows;
    * NDCG@K and MRR@K lie in ``[d(K), d(1)] * HR@K``, and MRR@K is at most NDCG@K;
    * between consecutive cut-offs ``K1 < K2``, NDCG and MRR grow by ``[d(K2), d(K1 + 1)]`` times the growth of HR;
    * with ``joint``, NDCG and MRR over HR lie in the convex hull of the ranks' points, in total and between cut-offs. Together the
      rules are exact: figures without rounding pass if and only if some distribution of ranks has them. Figures that were each
      read at their own best checkpoint, as in some papers, may break this rule alone.

    Each rule allows for ``tolerance / 2`` times the sum of its absolute coefficients.

    Args:
        figures: Any of ``hit_rate@K``, ``ndcg@K`` and ``mrr@K`` by that name.
        tolerance: One unit in the last digit of the figures; 1e-4 for four digits.
        joint: Whether the joint rule applies.
    """
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance is {tolerance}. It must be a number of at least 0, such as 1e-4.")
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
                raise ValueError(f"A figure is named {key!r}. It must be hit_rate@K, ndcg@K or mrr@K.")
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
