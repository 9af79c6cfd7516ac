"""Published figures and their comparison with ours; they are no targets.

``papers.csv`` holds them in long form by these keys:

* ``pricdr``: Chen et al., *Differential Private Knowledge Transfer for Privacy-Preserving Cross-Domain Recommendation*, WWW
  2022, doi:10.1145/3485447.3512192; table 1;
* ``ppgencdr``: Liao et al., *PPGenCDR: A Stable and Robust Framework for Privacy-Preserving Cross-Domain Recommendation*,
  AAAI 2023; the rows of table 1 that are legible in the paper's text;
* ``fedgcdr``: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation*, NeurIPS 2024; tables 1, 2 and 5
  ("Single Domain" is ``FedGNN``).

Many rows contradict the arithmetic of HR, NDCG and MRR with one positive per case (:attr:`Published.inconsistencies`): rank
``r <= K`` adds ``(1, 1 / log2(r + 1), 1 / r)``, other ranks add nothing. Means over cases, runs and ties are mixtures of such
points, so linear bounds hold for the means, too.
"""

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from zoo.benchmark.report.results import ALONE, MEASURES, PRIMARY_METRIC, Line, Results
from zoo.runtime.run_folder import METRIC_NAMES

Status = Literal["reproduced", "exceeded", "below", "not comparable"]
#: Relative tolerance for agreement with a paper. It does not depend on our spread.
AGREEMENT = 0.05
#: The figures that decide the status.
DECISIVE = ("hit_rate@10", "ndcg@10")


@dataclass(frozen=True)
class Published:
    """One row of a paper's table."""

    paper: str  # key, see above
    table: int
    dataset: str
    source: str  # a domain, or a number such as ``3 domains``
    target: str
    method: str  # name in the paper
    figures: dict[str, float]  # by metric and cut-off such as ``hit_rate@5``

    @property
    def inconsistencies(self) -> list[str]:
        """Contradictions between the rounded figures of the row (:func:`violations`)."""
        return violations(self.figures)


def published(dataset: str, source: str, target: str) -> list[Published]:
    """Return the rows of a data set and direction; empty if no paper reports it.

    >>> published("amazon", "movie", "book")[0].paper
    'pricdr'
    """
    return [row for row in all_published() if (row.dataset, row.source, row.target) == (dataset, source, target)]


@cache
def all_published() -> tuple[Published, ...]:
    """Return every published row in the order of the file."""
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
class Measured:
    """A measured row, from runs or from a report's ``results.csv``."""

    system: str
    release: str
    control: str
    figures: dict[str, float]  # by metric and cut-off such as ``hit_rate@5``, among 1 + 99 candidates

    @property
    def name(self) -> str:
        """Name of the row."""
        return f"{self.system}, {self.release}" if self.release else self.system


@dataclass(frozen=True)
class PaperComparison:
    """A measured row, the paper's row, and two baselines of the measured row."""

    ours: Measured
    paper: Published
    status: Status
    reason: str  # why they may differ, and contradictions in the paper's row
    noise: Measured | None  # the noise baseline
    alone: Measured | None  # the same system without a source, otherwise the best single-domain row


def replication_status(ours: Mapping[str, float], theirs: Mapping[str, float], differs: str = "") -> Status:
    """Return how a measured row replicates a published one, by HR@10 and NDCG@10 with a tolerance of 5 %.

    Args:
        ours: Means over seeds, by metric and cut-off such as ``ndcg@10``.
        theirs: Figures of the paper's row.
        differs: How data or split differ from the paper's; "" if both are the paper's.

    Returns:
        "not comparable" if data or split differ, "below" if a figure is below tolerance, "reproduced" if both are within,
        otherwise "exceeded".

    Examples:
        >>> replication_status({"hit_rate@10": 0.44, "ndcg@10": 0.25}, {"hit_rate@10": 0.45, "ndcg@10": 0.26})
        'reproduced'
    """
    if differs:
        return "not comparable"
    ratios = [ours[figure] / theirs[figure] - 1 for figure in DECISIVE if figure in theirs]
    if min(ratios) < -AGREEMENT:
        return "below"
    return "exceeded" if max(ratios) > AGREEMENT else "reproduced"


def compare_with_papers(results: Results, task: str) -> list[PaperComparison]:
    """Return our rows of a task that a paper reports, too."""
    rows = [(line.row, Measured(line.row.system, line.row.release, line.row.control, _figures(line)))
            for line in results.lines[task]]  # fmt: skip
    where = results.benchmark["tasks"][task]["published"]
    claims = [(row.published_as, row.reason, measured) for row, measured in rows]
    return compared(where, claims, [measured for _, measured in rows])


def compared(
    where: Mapping[str, str] | None, claims: Sequence[tuple[str, str, Measured]], rows: Sequence[Measured]
) -> list[PaperComparison]:
    """Return the comparisons of a task.

    Args:
        where: The task in ``papers.csv`` (``dataset``, ``source``, ``target``), and how it ``differs``; None if no paper has it.
        claims: The names that papers give a measured row, separated by commas, why they may differ, and the row.
        rows: All measured rows of the task, from which the baselines come.
    """
    if not where:
        return []
    differs = where.get("differs", "")
    theirs = published(where["dataset"], where["source"], where["target"])
    found = []
    # Papers rank among 1 + 99 candidates.
    for names, reason, ours in [claim for claim in claims if not math.isnan(claim[2].figures[PRIMARY_METRIC])]:
        for paper in [each for each in theirs if each.method in names.split(", ")]:
            status = replication_status(ours.figures, paper.figures, differs)
            wrong = [f"in the paper {sentence}" for sentence in paper.inconsistencies[:1]]
            reasons = "; ".join([*wrong, *filter(None, (differs, " ".join(reason.split())))])
            found.append(PaperComparison(ours, paper, status, reasons, *_baselines(ours, rows)))
    return found


def _figures(line: Line) -> dict[str, float]:
    return {measure: line.mean("sampled", measure) for measure in MEASURES}


def _baselines(ours: Measured, rows: Sequence[Measured]) -> tuple[Measured | None, Measured | None]:
    """Return the noise baseline of a row, and its system without a source, or else the best single-domain row."""
    noise = [row for row in rows if (row.system, row.release) == (ours.system, f"Noise ({ours.release})")]
    alone = [row for row in rows if row.release in ALONE and row.name != ours.name]
    own = [row for row in alone if row.system == ours.system]
    best = sorted(own or alone, key=lambda row: row.figures[PRIMARY_METRIC])
    return next(iter(noise), None), next(reversed(best), None)


def violations(figures: Mapping[str, float], tolerance: float = 1e-4, *, joint: bool = False) -> list[str]:
    """Return a sentence for each rule that figures break.

    With the discount ``d(r)`` of rank ``r``, ``1 / log2(r + 1)`` for NDCG and ``1 / r`` for MRR, the rules are:

    * every figure is in [0, 1], and none falls as K grows;
    * NDCG@K and MRR@K are in ``[d(K), d(1)] * HR@K``, and MRR@K is at most NDCG@K;
    * between consecutive cut-offs ``K1 < K2``, NDCG and MRR grow by ``[d(K2), d(K1 + 1)]`` times the growth of HR;
    * with ``joint``, NDCG and MRR per hit are in the convex hull of the ranks' points, in total and between cut-offs. Unrounded
      figures pass all rules if and only if some distribution of ranks has them. Figures from several checkpoints, as in some
      papers, may break this rule alone.

    Each rule allows ``tolerance / 2`` times the sum of its absolute coefficients.

    Args:
        figures: Values by ``hit_rate@K``, ``ndcg@K`` and ``mrr@K``.
        tolerance: One unit in the last digit of the figures; 1e-4 for four digits.
        joint: Whether the joint rule applies.

    Examples:
        >>> violations({"hit_rate@10": 0.4, "ndcg@10": 0.5})
        ['NDCG@10 is .5000; with HR@10 of .4000 it must be in [.1156, .4000]']
    """
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance is {tolerance}. It must be at least 0, such as 1e-4.")
    parsed = _Figures(figures, tolerance)
    return [*_single(parsed), *_between_metrics(parsed), *(_joint(parsed) if joint else [])]


class _Figures:
    """Figures by metric and ascending cut-off, and their tolerance."""

    def __init__(self, figures: Mapping[str, float], tolerance: float) -> None:
        self.tolerance = tolerance
        self.digits = max(4, math.ceil(-math.log10(max(tolerance, 1e-8))))
        self.at: dict[str, dict[int, float]] = {metric: {} for metric in METRIC_NAMES}
        for key, value in figures.items():
            match = re.fullmatch(r"(hit_rate|ndcg|mrr)@([1-9]\d*)", key)
            if not match:
                raise ValueError(f"Figure {key!r} is unknown. Allowed: hit_rate@K, ndcg@K, mrr@K.")
            self.at[match[1]][int(match[2])] = float(value)
        self.at = {metric: dict(sorted(by_cut_off.items())) for metric, by_cut_off in self.at.items()}

    def blocks(self, *metrics: str) -> list[tuple[int, int]]:
        """Return the ranges of ranks ``k1 + 1 .. k2`` at whose ends all these metrics are known."""
        shared = sorted(set.intersection(*(set(self.at[m]) for m in metrics)))
        shared = [k for k in shared if all(math.isfinite(self.at[m][k]) for m in metrics)]
        return [(0, k) for k in shared] + list(pairwise(shared))

    def growth(self, metric: str, k1: int, k2: int) -> float:
        """Return the growth of a metric from ``k1`` to ``k2``."""
        return self.at[metric][k2] - (self.at[metric][k1] if k1 else 0.0)

    def exceeds(self, excess: float, coefficients: float) -> bool:
        """Return whether a rule is broken beyond rounding; 1e-12 allows for double precision."""
        return excess > self.tolerance / 2 * coefficients + 1e-12

    def format_figure(self, value: float) -> str:
        """Return ``.0320`` or ``-.0131``, as papers print figures."""
        text = f"{value:.{self.digits}f}"
        return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text

    def out_of_range(self, what: str, value: float, given: Mapping[str, float], low: float, high: float) -> str:
        """Return the sentence of a broken rule."""
        conditions = " and ".join(f"{name} of {self.format_figure(known)}" for name, known in given.items())
        interval = f"[{self.format_figure(low)}, {self.format_figure(high)}]"
        return f"{what} is {self.format_figure(value)}; with {conditions} it must be in {interval}"


def _discount(metric: str, rank: int) -> float:
    """Return the value of a metric for a positive at this rank."""
    return {"hit_rate": 1.0, "ndcg": 1 / math.log2(rank + 1), "mrr": 1 / rank}[metric]


def _label(metric: str, k1: int, k2: int) -> str:
    name = METRIC_NAMES[metric]
    return f"{name}@{k2} - {name}@{k1}" if k1 else f"{name}@{k2}"


def _single(figures: _Figures) -> Iterator[str]:
    """Check the range of each metric, and its growth with the cut-off."""
    for metric, at in figures.at.items():
        for k, value in at.items():
            if not math.isfinite(value) or figures.exceeds(max(-value, value - 1), 1):
                yield f"{_label(metric, 0, k)} is {figures.format_figure(value)}; it must be in [0, 1]"
        for k1, k2 in figures.blocks(metric):
            if k1 and figures.exceeds(-figures.growth(metric, k1, k2), 2):
                known = f"{_label(metric, 0, k1)} of {figures.format_figure(at[k1])}"
                yield f"{_label(metric, 0, k2)} is {figures.format_figure(at[k2])}; with {known} it must not be lower"


def _between_metrics(figures: _Figures) -> Iterator[str]:
    """Check NDCG and MRR by HR, and MRR by NDCG."""
    for metric in ("ndcg", "mrr"):
        for k1, k2 in figures.blocks("hit_rate", metric):
            terms = 2 if k1 else 1
            value = figures.growth(metric, k1, k2)
            hits = max(figures.growth("hit_rate", k1, k2), 0.0)  # `_single` reports a falling HR
            last, first = _discount(metric, k2), _discount(metric, k1 + 1)
            under = figures.exceeds(last * hits - value, terms * (1 + last))
            if under or figures.exceeds(value - first * hits, terms * (1 + first)):
                given = {_label("hit_rate", k1, k2): hits}
                yield figures.out_of_range(_label(metric, k1, k2), value, given, last * hits, first * hits)
    for k1, k2 in figures.blocks("ndcg", "mrr"):
        ndcg, mrr = figures.at["ndcg"][k2], figures.at["mrr"][k2]
        if not k1 and figures.exceeds(mrr - ndcg, 2):
            yield figures.out_of_range(_label("mrr", 0, k2), mrr, {_label("ndcg", 0, k2): ndcg}, 0.0, ndcg)


def _joint(figures: _Figures) -> Iterator[str]:
    """Check MRR by HR and NDCG together.

    The ranks' points ``(1 / log2(r + 1), 1 / r)`` are on a convex curve. Lines through neighbouring ranks bound their hull from
    below, and the line through the first and the last rank from above.
    """
    for k1, k2 in figures.blocks("hit_rate", "ndcg", "mrr"):
        if k2 - k1 < 2:
            continue  # one rank: HR determines the point
        terms = 2 if k1 else 1
        hits, ndcg, mrr = (figures.growth(metric, k1, k2) for metric in METRIC_NAMES)
        edges = [(r, r + 1) for r in range(k1 + 1, k2)]
        bounds, broken = [], False
        for sign, (a, b) in [*((1, edge) for edge in edges), (-1, (k1 + 1, k2))]:
            # line through the points of ranks a and b, per hit: mrr = level + slope * ndcg
            slope = (1 / a - 1 / b) / (_discount("ndcg", a) - _discount("ndcg", b))
            level = 1 / a - slope * _discount("ndcg", a)
            bounds.append(level * hits + slope * ndcg)
            broken |= figures.exceeds(sign * (bounds[-1] - mrr), terms * (1 + abs(level) + abs(slope)))
        if broken:
            low, high = sorted((max(bounds[:-1]), bounds[-1]))
            given = {_label("hit_rate", k1, k2): hits, _label("ndcg", k1, k2): ndcg}
            yield figures.out_of_range(_label("mrr", k1, k2), mrr, given, low, high)
