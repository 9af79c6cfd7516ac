"""Figures of the reports on a smaller overlap and on a thinner source as PNG, from their results.csv.

python docs/cross_domain_figures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from curves import at, curve, level, points, saved
from tables import read

RESULTS = Path(__file__).parent / "results"
#: By report: what is swept, in the words of its rows, and the name of the axis.
SWEPT = {
    "overlap": ("overlap", "users in the release, %"),
    "density": ("ratings", "ratings of the source, %"),
}


def draw(report: str) -> Path:
    """HR@10 of every method against the part of the source that is released, a panel for each task."""
    word, name = SWEPT[report]
    rows = read(RESULTS / report / "results.csv")
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure, axes = plt.subplots(1, len(tasks), figsize=(4.6 * len(tasks), 3.8), squeeze=False)
    methods = [system for system in dict.fromkeys(row["system"] for row in rows) if system != "Popularity"]
    for axis, task in zip(axes[0], tasks, strict=True):
        own = [row for row in rows if row["task"] == task]
        for number, system in enumerate(methods):
            if line := points(own, system, rf"{word} ([\d.]+) %"):
                curve(axis, [*line, at(100.0, own, system, "Plaintext")], system, f"C{number}")
        level(axis, own, "Popularity", "", "-")
        axis.set(title=task, xlabel=name)
    axes[0][0].set_ylabel("HR@10 at the target")
    axes[0][0].legend(frameon=False, fontsize=8)
    return saved(figure, RESULTS / report / f"{report}.png")


if __name__ == "__main__":
    for report in SWEPT:
        print(draw(report))
