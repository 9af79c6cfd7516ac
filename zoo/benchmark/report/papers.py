"""Figures that papers print, and ours beside them; they are not targets.

``papers.csv`` holds them in long form, by these keys:

* ``pricdr``: Chen et al., *Differential Private Knowledge Transfer for Privacy-Preserving Cross-Domain Recommendation*, WWW
  2022, doi:10.1145/3485447.3512192; table 1;
* ``ppgencdr``: Liao et al., *PPGenCDR: A Stable and Robust Framework for Privacy-Preserving Cross-Domain Recommendation*,
  AAAI 2023; of table 1 the rows whose cells can be told apart in the paper's text;
* ``fedgcdr``: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation*, NeurIPS 2024; tables 1, 2 and 5
  ("Single Domain" is ``FedGNN``).

Many rows break the arithmetic that binds their metrics; :attr:`Published.inconsistencies` says how.
"""

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from zoo.benchmark.report.arithmetic import violations
from zoo.benchmark.report.results import DECIDING, Line, Results

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
        """What in the row cannot be, from its rounded figures (:func:`zoo.benchmark.report.arithmetic.violations`)."""
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
