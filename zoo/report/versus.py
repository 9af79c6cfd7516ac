"""Our rows beside the papers': reproduced, above, below, or not to be trusted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from zoo.report.papers import Published, published
from zoo.report.results import DECIDING, Line, Results

Status = Literal["reproduced", "above", "below", "paper inconsistent"]
#: Two figures agree within this share of the paper's, or within two standard errors of our mean, whichever is wider.
AGREEMENT = 0.05


@dataclass(frozen=True)
class Versus:
    """One of our rows beside a row of a paper."""

    line: Line
    paper: Published
    status: Status  # by NDCG@10 among 1 + 99 candidates; a paper's row that breaks the arithmetic is no target
    reason: str  # why the two may differ, and what is wrong with the paper's row


def versus(results: Results) -> dict[str, list[Versus]]:
    """Every row of ours that a paper has too, by task; papers' rows that are not ours yet are left out."""
    found: dict[str, list[Versus]] = {}
    for task, lines in results.lines.items():
        where = results.benchmark["tasks"][task]["published"]
        for line in lines if where else []:
            if math.isnan(line.mean("sampled", DECIDING)):
                continue  # ranked among all items alone, and papers rank among 1 + 99 candidates
            theirs = [p for p in published(**where) if p.method == line.row.published_as]
            found.setdefault(task, []).extend(_compared(line, paper) for paper in theirs)
    return {task: rows for task, rows in found.items() if rows}


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
