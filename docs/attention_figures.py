"""What sources weigh in the rows of a report as PNG, a file for each task, from its attention.csv.

python docs/attention_figures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from curves import saved
from matplotlib.axes import Axes
from tables import Row, read

RESULTS = Path(__file__).parent / "results"


def draw(report: str) -> list[Path]:
    """For each task a panel for each row: mean weight of every source by layer, with its spread over seeds, and its overlap."""
    rows = read(RESULTS / report / "attention.csv")
    made = []
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        names = list(dict.fromkeys(row["row"] for row in own))
        sources = list(dict.fromkeys(row["source"] for row in own))
        shape = {"squeeze": False, "sharey": True, "figsize": (1.8 + 3.4 * len(names), 1.6 + 0.32 * len(sources))}
        with mpl.rc_context({"text.parse_math": False}):  # names are no formulas
            figure, axes = plt.subplots(1, len(names), **shape)
            for axis, name in zip(axes[0], names, strict=True):
                panel(axis, [row for row in own if row["row"] == name], sources)
                axis.set_title(name, fontsize=9)
            axes[0][0].legend(frameon=False, fontsize=7)
            made.append(saved(figure, RESULTS / report / f"attention_{task}.png"))
    return made


def panel(axis: Axes, rows: list[Row], sources: list[str]) -> None:
    """A bar for each source and layer, sources from top to bottom, each named with its overlap."""
    layers = sorted({int(row["layer"]) for row in rows})
    for number, layer in enumerate(layers):
        own = [row for row in rows if int(row["layer"]) == layer and row["mean"]]
        places = [sources.index(row["source"]) + (number - (len(layers) - 1) / 2) * 0.8 / len(layers) for row in own]
        means, spread = ([float(row[name] or 0) for row in own] for name in ("mean", "sd"))
        axis.barh(places, means, xerr=spread, height=0.7 / len(layers), label=f"layer {layer}")
    overlap = {row["source"]: float(row["overlap"]) for row in rows}
    axis.set_yticks(range(len(sources)), [f"{name} ({overlap.get(name, 0):.0%})" for name in sources], fontsize=8)
    axis.set_ylim(len(sources) - 0.5, -0.5)
    axis.set_xlabel("attention, mean over users")


if __name__ == "__main__":
    for path in sorted(RESULTS.glob("*/attention.csv")):
        print(*draw(path.parent.name), sep="\n")
