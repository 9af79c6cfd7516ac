"""Figures of a report: privacy-utility curves, learning curves and the overview; the same runs give the same SVG."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, zip_longest
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from zoo.benchmark.grid import slug
from zoo.benchmark.report.gains import NOISE, control_of
from zoo.benchmark.report.results import DECIDING, RANKINGS, GuaranteeKind, Line, Results
from zoo.privacy.record.record import rounded_up
from zoo.runtime.run_folder import visible

#: Distinguishable also without colour vision (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
#: Rows without guarantee that are drawn as levels: what stands without a release, and what plain ratings give.
REFERENCES = {"Popularity": ("0.65", "-"), "Nothing": ("0.35", "-."), "Plaintext": ("0.0", ":")}
#: And the row that all others are held against.
BASELINE_STYLE = ("0.35", "--")
#: Dots per inch of a PNG.
DPI = 150
#: Learning curves have at most this many rows: the eye cannot separate more lines.
LEARNERS = 8
#: Log of the CSV logger in a run's folder, and its columns.
LOG, EPOCH, VALIDATED = "metrics.csv", "epoch", f"val/{DECIDING}"
#: The overview has the best rows of the first tasks: the rest is in the tables.
TASKS, ROWS = 6, 12


@dataclass(frozen=True)
class Picture:
    """A figure as SVG, and as PNG for who can show no other."""

    svg: str
    figure: Figure = field(repr=False, compare=False)

    @classmethod
    def of(cls, figure: Figure) -> "Picture":
        """Draw the SVG now: each drawing may move the layout a little, and the first is the one that is always made."""
        return cls(svg_of(figure), figure)

    @mpl.rc_context({"text.parse_math": False, "font.family": "sans-serif"})  # names are no formulas
    def png(self) -> bytes:
        """The same as PNG."""
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=DPI)
        return file.getvalue()


def curves(results: Results, task: str) -> dict[str, Picture]:
    """One figure for each kind of guarantee on a task, NDCG@10 against epsilon, by a name for its file."""
    groups: dict[GuaranteeKind, list[Line]] = {}
    for line in results.lines[task]:
        if line.guarantee is not None and line.row.control == "":
            groups.setdefault(line.guarantee, []).append(line)
    names = {kind: slug(f"{task} {kind.unit} {kind.relation} {kind.delta:.6g}") for kind in groups}
    return {names[kind]: _curve(results, task, kind, lines) for kind, lines in groups.items()}


@mpl.rc_context({"text.parse_math": False})  # names are no formulas
def _curve(results: Results, task: str, guarantee: GuaranteeKind, lines: Sequence[Line]) -> Picture:
    rankings = [ranking for ranking in RANKINGS if all(line.has(ranking) for line in lines)]
    figure = Figure(figsize=(5.2 * len(rankings), 3.8), layout="constrained")
    for axes, ranking in zip(figure.subplots(1, len(rankings), squeeze=False)[0], rankings, strict=True):
        _draw(axes, results, lines, ranking)
        axes.set_title(RANKINGS[ranking], fontsize=10)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.suptitle(f"{visible(results.benchmark['tasks'][task]['title'])}: {guarantee}", fontsize=10)
    return Picture.of(figure)


def _draw(axes: Axes, results: Results, lines: Sequence[Line], ranking: str) -> None:
    series: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        asked = "" if line.row.epsilon is None else f" eps {line.row.epsilon:g}"
        series.setdefault((line.row.system, line.row.release.removesuffix(asked)), []).append(line)
    for colour, ((system, release), own) in zip(cycle(COLOURS), series.items(), strict=False):
        _errorbar(axes, own, own, ranking, colour, f"{system}, {release}")
        noise = [(line, control) for line in own if (control := control_of(results, line, NOISE)) is not None]
        if noise:
            where, controls = zip(*noise, strict=True)
            _errorbar(axes, where, controls, ranking, colour, f"{system}, {release}: its noise control", faint=True)
    for line in results.lines[lines[0].row.task]:
        style = REFERENCES.get(line.row.release or line.row.system)
        if line.name == results.baseline and line.guarantee is None:
            style = BASELINE_STYLE
        if style and line.has(ranking):
            drawn: dict[str, Any] = {"color": style[0], "linestyle": style[1], "linewidth": 1}
            axes.axhline(line.mean(ranking, DECIDING), label=shown(line.name), **drawn)
    axes.set_xscale("log")
    ticks = sorted({line.epsilon for line in lines if line.epsilon})
    axes.set_xticks(ticks, [rounded_up(epsilon) for epsilon in ticks], minor=False)
    axes.minorticks_off()
    axes.set_xlabel(f"epsilon, {'conditional' if any(line.conditions for line in lines) else 'proved'}")
    axes.set_ylabel("NDCG@10")
    axes.spines[["top", "right"]].set_visible(False)


def _errorbar(
    axes: Axes, where: Sequence[Line], lines: Sequence[Line], ranking: str, colour: str, label: str, faint: bool = False
) -> None:
    pairs = zip(where, lines, strict=True)
    points = [(at.epsilon or 0.0, line.mean(ranking, DECIDING), line.sd(ranking, DECIDING)) for at, line in pairs]
    x, y, sd = zip(*sorted(points), strict=True)
    marker, linestyle, alpha = ("x", ":", 0.6) if faint else ("o", "-", 1.0)
    style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": linestyle, "alpha": alpha}
    bars = np.nan_to_num(sd)  # one seed has no spread
    axes.errorbar(x, y, bars, label=shown(label), markersize=4, linewidth=1, capsize=2, **style)


def shown(label: str) -> str:
    """A name as a figure can only show it, and that the legend does not take for a hidden one."""
    return f" {visible(label)}" if label.startswith("_") else visible(label)


def svg_of(figure: Figure) -> str:
    """A figure as SVG, without a date, and with element names that depend on nothing but the drawing."""
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "cdr-zoo", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    return re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)


def validated(folder: Path) -> dict[int, float]:
    """Validation NDCG@10 by epoch, from 1; empty where a run has no log of it, or its log cannot be read."""
    try:
        with (folder / LOG).open(encoding="utf-8", newline="") as file:
            rows = [(row.get(EPOCH), row.get(VALIDATED)) for row in csv.DictReader(file)]
        found = {int(epoch) + 1: float(value) for epoch, value in rows if epoch and value}
    except (OSError, ValueError, csv.Error):
        return {}
    return {epoch: value for epoch, value in found.items() if math.isfinite(value)}


def learning_curves(results: Results, task: str) -> dict[str, Picture]:
    """One figure of a task's best rows that were validated in more than one epoch, by a name for its file."""
    drawn: list[tuple[Line, list[dict[int, float]]]] = []
    for line in results.ranked(task, results.ranking_of(task)):
        found = [epochs for run in line.runs if len(epochs := validated(run.folder)) > 1]
        if found and not line.row.control and len(drawn) < LEARNERS:
            drawn.append((line, found))
    return {slug(f"{task} learning"): _learning(results, task, drawn)} if drawn else {}


@mpl.rc_context({"text.parse_math": False})  # names are no formulas
def _learning(results: Results, task: str, drawn: list[tuple[Line, list[dict[int, float]]]]) -> Picture:
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


@mpl.rc_context({"text.parse_math": False})  # names are no formulas
def overview(results: Results) -> Picture:
    """NDCG@10 of the best rows of every task with its spread over seeds, with and without a guarantee."""
    tasks = list(results.lines)[:TASKS]
    rows = {task: _drawn(results, task) for task in tasks}
    columns = min(2, len(tasks))
    deep = -(-len(tasks) // columns)
    height = sum(max(len(rows[task]) for task in tasks[i * columns : (i + 1) * columns]) for i in range(deep))
    size = 5.2 * columns + 1.2, 0.24 * height + 0.9 * deep
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.1))
    places = figure.subplots(deep, columns, squeeze=False).flat
    for axes, task in zip_longest(places, tasks):
        if task is None:
            axes.axis("off")
        else:
            _draw_overview(axes, results, task, rows[task])
    return Picture.of(figure)


def _drawn(results: Results, task: str) -> list[Line]:
    lines = results.ranked(task, results.ranking_of(task))
    return ([line for line in lines if not line.row.control] or lines)[:ROWS]


def _draw_overview(axes: Axes, results: Results, task: str, lines: Sequence[Line]) -> None:
    ranking = results.ranking_of(task)
    for place, line in enumerate(lines):
        edge, face = ("0.45", "white") if line.guarantee is None else (COLOURS[0], COLOURS[0])
        style: dict[str, Any] = {"marker": "o", "markersize": 5, "color": edge, "markerfacecolor": face}
        spread = np.nan_to_num(line.sd(ranking, DECIDING))  # one seed has no spread
        axes.errorbar([line.mean(ranking, DECIDING)], [place], xerr=[spread], capsize=2, linewidth=1, **style)
    axes.set_yticks(range(len(lines)), [shown(_label(line)) for line in lines], fontsize=8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel(f"NDCG@10, {RANKINGS[ranking]}; filled: with a guarantee", fontsize=8)
    axes.set_title(shown(results.benchmark["tasks"][task]["title"]), fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _label(line: Line) -> str:
    return line.name if len(line.name) <= 44 else f"{line.name[:43]}…"
