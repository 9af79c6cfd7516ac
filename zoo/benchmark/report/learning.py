"""Learning curves: validation NDCG@10 of the best rows by epoch, a line for each seed."""

import csv
import math
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from zoo.benchmark.grid import slug
from zoo.benchmark.report.figures import COLOURS, Picture, shown
from zoo.benchmark.report.leaderboard import ranked
from zoo.benchmark.report.results import DECIDING, Line, Results

#: More lines than this cannot be told apart.
ROWS = 8
#: What the CSV logger of a run leaves in its folder.
LOG, EPOCH, VALIDATED = "metrics.csv", "epoch", f"val/{DECIDING}"


def validated(folder: Path) -> dict[int, float]:
    """Validation NDCG@10 by epoch, from 1; empty where a run has no log of it, or its log cannot be read."""
    try:
        with (folder / LOG).open(encoding="utf-8", newline="") as file:
            rows = [(row.get(EPOCH), row.get(VALIDATED)) for row in csv.DictReader(file)]
        found = {int(epoch) + 1: float(value) for epoch, value in rows if epoch and value}
    except (OSError, ValueError, csv.Error):
        return {}
    return {epoch: value for epoch, value in found.items() if math.isfinite(value)}


def learning_curves(results: Results, task: str, ranking: str) -> dict[str, Picture]:
    """One figure of a task's best rows that were validated in more than one epoch, by a name for its file."""
    drawn: list[tuple[Line, list[dict[int, float]]]] = []
    for line in ranked(results, task, ranking):
        found = [epochs for run in line.runs if len(epochs := validated(run.folder)) > 1]
        if found and not line.row.control and len(drawn) < ROWS:
            drawn.append((line, found))
    return {slug(f"{task} learning"): _figure(results, task, drawn)} if drawn else {}


@mpl.rc_context({"text.parse_math": False})  # names are no formulas
def _figure(results: Results, task: str, drawn: list[tuple[Line, list[dict[int, float]]]]) -> Picture:
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for number, ((line, found), colour) in enumerate(zip(drawn, cycle(COLOURS), strict=False)):
        style = "-" if number < len(COLOURS) else "--"
        for seed, epochs in enumerate(found):
            label = shown(line.name) if seed == 0 else None
            axes.plot(list(epochs), list(epochs.values()), style, color=colour, linewidth=1, alpha=0.8, label=label)
            best = max(epochs, key=epochs.__getitem__)
            axes.plot([best], [epochs[best]], "o", color=colour, markersize=4)
    axes.set_xlabel("epoch; the dot is the one that was tested")
    axes.set_ylabel("validation NDCG@10")
    axes.set_title(shown(results.benchmark["tasks"][task]["title"]), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return Picture.of(figure)
