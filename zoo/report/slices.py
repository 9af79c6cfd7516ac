"""Figures of users by what is known of them: training items, and a row in the release or none."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from zoo.report.results import Line

#: Upper ends of the groups of training items; the last is open.
EDGES = (0, 5, 10, 20, 50)


@dataclass(frozen=True)
class Slice:
    """Users of one kind.

    Attributes:
        name: Who they are.
        where: Which cases.
    """

    name: str
    where: pl.Expr


def item_slices() -> list[Slice]:
    """By the number of training items: none (cold start), 1 to 5, and so on."""
    items = pl.col("train_items")
    made = [Slice("no training item", items == 0)]
    for low, high in pairwise(EDGES):
        made.append(Slice(f"{low + 1} to {high}", (items > low) & (items <= high)))
    return [*made, Slice(f"more than {EDGES[-1]}", items > EDGES[-1])]


def overlap_slices() -> list[Slice]:
    """By whether the release has a row of the user."""
    return [Slice("in the release", pl.col("linked")), Slice("not in the release", ~pl.col("linked"))]


def sliced(line: Line, slices: list[Slice], figure: str) -> list[tuple[float | None, float]]:
    """Mean of a figure in each slice and cases per seed; None where a slice has no case."""
    cases = line.cases
    found = []
    for entry in slices:
        part = cases.filter(entry.where)
        mean = part[figure].cast(pl.Float64).mean() if len(part) else None
        found.append((float(mean) if isinstance(mean, float) else None, len(part) / len(line.runs)))
    return found
