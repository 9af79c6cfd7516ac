"""FedGCDR's figures 4 and 6 as PNG, what sources do to a target as there are more of them, from a report's negative_transfer.csv.

python docs/negative_transfer_figures.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from curves import Point, curve, saved
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator
from tables import Row, read

RESULTS = Path(__file__).parent / "results"
NAMES = {"hit_rate": "HR", "ndcg": "NDCG"}
#: Cut-offs of the paper's figures.
CUT_OFFS = (5, 10)


def draw(report: str, ranking: str = "sampled") -> list[Path]:
    """A figure for each cut-off: HR above NDCG, a column for each series."""
    rows = swept(read(RESULTS / report / "negative_transfer.csv"))
    series = list(dict.fromkeys(row["series"] for row in rows))
    colours = {name: f"C{number}" for number, name in enumerate(dict.fromkeys(row["row"] for row in rows))}
    made = []
    for k in CUT_OFFS:
        shape = {"squeeze": False, "sharex": "col", "figsize": (4.6 * len(series), 6)}
        figure, axes = plt.subplots(len(NAMES), len(series), **shape)
        for column, title in enumerate(series):
            for axis, (measure, name) in zip(axes[:, column], NAMES.items(), strict=True):
                figures = {"series": title, "figure": f"{ranking}/{measure}@{k}"}
                panel(axis, [row for row in rows if figures.items() <= row.items()], colours)
                axis.set_ylabel(f"{name}@{k}")
            axes[0][column].set_title(title)
            axes[0][column].legend(frameon=False, fontsize=8)
            axes[-1][column].set_xlabel("domains, the target among them")
        made.append(saved(figure, RESULTS / report / f"negative_transfer_{k}.png"))
    return made


def swept(rows: Sequence[Row]) -> list[Row]:
    """Those of rows that a series has at more than one number of domains: one number makes no line."""
    counts: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        counts.setdefault((row["series"], row["row"]), set()).update({row["domains"], row["fewer"] or row["domains"]})
    return [row for row in rows if len(counts[row["series"], row["row"]]) > 1]


def panel(axis: Axes, rows: Sequence[Row], colours: Mapping[str, str]) -> None:
    """A line for each row of the report, and each target alone dotted, what lies below it shaded: soft negative transfer.

    Where there are several, a target alone has the colour of the first row that is held against it.
    """
    for name, line in lines(rows).items():
        curve(axis, line, name, colours[name])
    soft = [row for row in reversed(rows) if row["kind"] == "soft"]
    alone = {row["against"]: (float(row["against_mean"]), colours[row["row"]]) for row in soft}
    for name, (value, colour) in alone.items():
        axis.axhline(value, color=colour if len(alone) > 1 else "0.2", ls=":", lw=1.4, label=name)
    low, high = axis.get_ylim()
    for value, _ in alone.values():
        axis.axhspan(low, value, color="C3", alpha=0.08, lw=0)
    axis.set_ylim(low, high)
    counts = sorted({int(row["domains"]) for row in rows})
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(counts))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")


def lines(rows: Sequence[Row]) -> dict[str, list[Point]]:
    """Number of domains, mean and spread of every row with sources, each once."""
    found: dict[str, dict[float, Point]] = {}
    for row in rows:
        count = float(row["domains"])
        found.setdefault(row["row"], {})[count] = count, float(row["mean"]), float(row["sd"] or 0)
        if row["kind"] == "hard":
            fewer = float(row["fewer"])
            found[row["row"]].setdefault(fewer, (fewer, float(row["against_mean"]), float(row["against_sd"] or 0)))
    return {name: sorted(points.values()) for name, points in found.items()}


if __name__ == "__main__":
    for path in sorted(RESULTS.glob("*/negative_transfer.csv")):
        print(*draw(path.parent.name), sep="\n")
