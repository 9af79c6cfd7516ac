"""Curves of swept rows: points from a report's results.csv, drawn with their spread, saved as PNG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables import Row

HIT, SPREAD = "sampled/hit_rate@10", "sampled/hit_rate@10 sd"
#: Value, mean and spread over seeds.
Point = tuple[float, float, float]


def points(rows: Sequence[Row], system: str, release: str) -> list[Point]:
    """HR@10 of the rows whose system and release match; the value is the number in the brackets of one of both."""
    found = []
    for row in rows:
        one, other = re.fullmatch(system, row["system"]), re.fullmatch(release, row["release"])
        if one and other:
            value = float((one.groups() or other.groups())[0])
            found.append((value, float(row[HIT]), float(row[SPREAD] or 0)))
    return sorted(found)


def at(value: float, rows: Sequence[Row], system: str, release: str) -> Point:
    """HR@10 of one row, as a point at a value that its name does not say."""
    [row] = [row for row in rows if (row["system"], row["release"]) == (system, release)]
    return value, float(row[HIT]), float(row[SPREAD] or 0)


def curve(axis: Axes, line: Sequence[Point], label: str, colour: str | None = None) -> None:
    """Draw points with their spread."""
    x, y, spread = zip(*sorted(line), strict=True)
    axis.errorbar(x, y, yerr=spread, marker="o", ms=4, capsize=2, label=label, color=colour)


def level(axis: Axes, rows: Sequence[Row], system: str, release: str, style: str) -> None:
    """Draw the mean of a row as a line across, under the name of its release, or of its system where it has none."""
    axis.axhline(at(0, rows, system, release)[1], color="0.4", ls=style, lw=1, label=release or system)


def saved(figure: Figure, path: Path) -> Path:
    """Write a figure that is the same for the same rows; gives its path."""
    figure.tight_layout()
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)
    return path
