"""Figures of users by what is known of them: training items, and a row in the release or none."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from zoo.report.results import Line

#: Upper ends of the groups of training items; the last is open.
EDGES = (0, 5, 10, 20, 50)

#: Who is in a slice, and which cases those are.
Slices = dict[str, pl.Expr]


def item_slices() -> Slices:
    """By the number of training items: none (cold start), 1 to 5, and so on."""
    items = pl.col("train_items")
    made = {"no training item": items == 0}
    made |= {f"{low + 1} to {high}": (items > low) & (items <= high) for low, high in pairwise(EDGES)}
    return made | {f"more than {EDGES[-1]}": items > EDGES[-1]}


def overlap_slices() -> Slices:
    """By whether the release has a row of the user."""
    return {"in the release": pl.col("linked"), "not in the release": ~pl.col("linked")}


def sliced(line: Line, slices: Slices, figure: str) -> list[tuple[float | None, float]]:
    """Mean of a figure in each slice and cases per seed; None where a slice has no case."""
    found = []
    for where in slices.values():
        part = line.cases.filter(where)
        mean = part[figure].cast(pl.Float64).mean() if len(part) else None
        found.append((float(mean) if isinstance(mean, float) else None, len(part) / len(line.runs)))
    return found
