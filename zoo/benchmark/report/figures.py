"""Figures of a report: privacy-utility curves, learning curves and the overview. The SVG is deterministic."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
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
from zoo.benchmark.report.paired_differences import NO_RELEASE, NOISE_BASELINE, control_of
from zoo.benchmark.report.results import PRIMARY_METRIC, RANKINGS, GuaranteeKind, Line, Results, Run
from zoo.privacy.record.fields import Guarantee
from zoo.privacy.record.record import rounded_up
from zoo.runtime.run_folder import visible

#: Safe for colour-blind readers (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
#: Rows without a guarantee that are drawn as horizontal lines.
REFERENCES = {"Popularity": ("0.65", "-"), "Nothing": ("0.35", "-."), "Plaintext": ("0.0", ":")}
#: Style of the baseline.
BASELINE_STYLE = ("0.35", "--")
#: Marker and explanation of the baselines of a row in the overview.
BASELINES = {NOISE_BASELINE: ("x", "x: noise baseline"), NO_RELEASE: ("|", "|: single-domain baseline")}
#: Resolution of a PNG in dots per inch.
DPI = 150
#: Maximum number of rows in a figure of learning curves.
LEARNERS = 8
#: File of the CSV logger in a run's folder, and its columns.
LOG, EPOCH, VALIDATION_COLUMN = "metrics.csv", "epoch", f"val/{PRIMARY_METRIC}"
#: Maximum number of tasks and of rows per task in the overview.
TASKS, ROWS = 6, 12


@dataclass(frozen=True)
class Picture:
    """A figure as SVG and PNG."""

    svg: str
    figure: Figure = field(repr=False, compare=False)

    @classmethod
    def of(cls, figure: Figure) -> "Picture":
        """Draw the SVG at once, because each drawing may move the layout a little."""
        return cls(svg_of(figure), figure)

    @mpl.rc_context({"text.parse_math": False, "font.family": "sans-serif"})  # names may contain $
    def png(self) -> bytes:
        """Return the figure as PNG."""
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=DPI)
        return file.getvalue()


def curves(results: Results, task: str) -> dict[str, Picture]:
    """Return a figure of NDCG@10 by epsilon for each kind of guarantee of a task, by file name."""
    groups: dict[GuaranteeKind, list[Line]] = {}
    for line in results.lines[task]:
        if line.guarantee is not None and line.row.control == "":
            groups.setdefault(line.guarantee, []).append(line)
    names = {kind: slug(f"{task} {kind.unit} {kind.relation} {kind.delta:.6g}") for kind in groups}
    equal = {kind for kind, name in names.items() if [*names.values()].count(name) > 1}
    names |= {kind: slug(f"{task} {kind.unit} {kind.relation} {kind.delta!r}") for kind in equal}
    return {names[kind]: _curve(results, task, kind, lines) for kind, lines in groups.items()}


@mpl.rc_context({"text.parse_math": False})  # names may contain $
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
        release, epsilon = line.row.release, line.row.epsilon
        if epsilon is not None:
            release = release.removesuffix(f" {epsilon:g}").removesuffix(" eps")
        series.setdefault((line.row.system, release), []).append(line)
    for colour, ((system, release), own) in zip(cycle(COLOURS), series.items(), strict=False):
        _errorbar(axes, own, own, ranking, colour, f"{system}, {release}")
        noise = [(line, control) for line in own if (control := control_of(results, line, NOISE_BASELINE)) is not None]
        if noise:
            where, controls = zip(*noise, strict=True)
            _errorbar(axes, where, controls, ranking, colour, f"{system}, {release}: {NOISE_BASELINE}", faint=True)
    for line in results.lines[lines[0].row.task]:
        style = REFERENCES.get(line.row.release or line.row.system)
        if line.name == results.baseline_of(line.row.task, ranking) and line.guarantee is None:
            style = BASELINE_STYLE
        if style and line.has(ranking):
            drawn: dict[str, Any] = {"color": style[0], "linestyle": style[1], "linewidth": 1}
            axes.axhline(line.mean(ranking, PRIMARY_METRIC), label=legend_text(line.name), **drawn)
    axes.set_xscale("log")
    ticks = sorted({line.epsilon for line in lines if line.epsilon})
    axes.set_xticks(ticks, [rounded_up(epsilon) for epsilon in ticks], minor=False)
    axes.minorticks_off()
    axes.set_xlabel(f"epsilon, {Guarantee.CONDITIONAL if any(line.conditions for line in lines) else Guarantee.PROVED}")
    axes.set_ylabel("NDCG@10")
    axes.spines[["top", "right"]].set_visible(False)


def _errorbar(
    axes: Axes, where: Sequence[Line], lines: Sequence[Line], ranking: str, colour: str, label: str, faint: bool = False
) -> None:
    pairs = zip(where, lines, strict=True)
    points = [
        (at.epsilon or 0.0, line.mean(ranking, PRIMARY_METRIC), line.sd(ranking, PRIMARY_METRIC)) for at, line in pairs
    ]
    x, y, sd = zip(*sorted(points), strict=True)
    marker, linestyle, alpha = ("x", ":", 0.6) if faint else ("o", "-", 1.0)
    style: dict[str, Any] = {"color": colour, "marker": marker, "linestyle": linestyle, "alpha": alpha}
    bars = np.nan_to_num(sd)  # one seed has no spread
    axes.errorbar(x, y, bars, label=legend_text(label), markersize=4, linewidth=1, capsize=2, **style)


def legend_text(label: str) -> str:
    """Return a printable name; matplotlib would hide one that begins with an underscore.

    >>> legend_text("_hidden")
    ' _hidden'
    """
    return f" {visible(label)}" if label.startswith("_") else visible(label)


def svg_of(figure: Figure) -> str:
    """Return a figure as SVG without a date and with deterministic element names."""
    file = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "cdr-zoo", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    return re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)


def validation_curve(folder: Path) -> dict[int, float]:
    """Return the best validation NDCG@10 by epoch, counted from 1; empty without a readable log."""
    try:
        with (folder / LOG).open(encoding="utf-8", newline="") as file:
            rows = [(row.get(EPOCH), row.get(VALIDATION_COLUMN)) for row in csv.DictReader(file)]
        every = sorted((float(value), int(epoch) + 1) for epoch, value in rows if epoch and value)
        found = {epoch: value for value, epoch in every if math.isfinite(value)}
    except (OSError, ValueError, csv.Error):
        return {}
    return dict(sorted(found.items()))


def stored_epoch(run: Run, validated: Mapping[int, float]) -> float:
    """Return the epoch from 1 that was tested: the best of the log, if the run states none."""
    stated: float = run.report.get("tested_epoch", max(validated, key=validated.__getitem__))
    return stated


def learning_curves(results: Results, task: str) -> dict[str, Picture]:
    """Return a figure of the best rows with more than one validated epoch, by file name; empty without such rows."""
    drawn: list[tuple[Line, list[Run]]] = []
    for line in results.ranked(task, results.ranking_of(task)):
        found = [run for run in line.runs if len(validation_curve(run.folder)) > 1]
        if found and not line.row.control and len(drawn) < LEARNERS:
            drawn.append((line, found))
    return {slug(f"{task} learning"): _learning(results, task, drawn)} if drawn else {}


@mpl.rc_context({"text.parse_math": False})  # names may contain $
def _learning(results: Results, task: str, drawn: list[tuple[Line, list[Run]]]) -> Picture:
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for number, ((line, found), colour) in enumerate(zip(drawn, cycle(COLOURS), strict=False)):
        style = "-" if number < len(COLOURS) else "--"
        for seed, run in enumerate(found):
            epochs = validation_curve(run.folder)
            label = legend_text(line.name) if seed == 0 else None
            axes.plot(list(epochs), list(epochs.values()), style, color=colour, linewidth=1, alpha=0.8, label=label)
            tested = stored_epoch(run, epochs)
            if tested in epochs:
                axes.plot([tested], [epochs[int(tested)]], "o", color=colour, markersize=4)
    axes.set_xlabel("epoch (dot: tested checkpoint)")
    axes.set_ylabel("validation NDCG@10")
    axes.set_title(legend_text(results.benchmark["tasks"][task]["title"]), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return Picture.of(figure)


@mpl.rc_context({"text.parse_math": False})  # names may contain $
def overview(results: Results) -> Picture:
    """Draw NDCG@10 of the best rows of the first tasks with the standard deviation over seeds, and their baselines."""
    tasks = list(results.lines)[:TASKS]
    rows = {task: _best_lines(results, task) for task in tasks}
    columns = min(2, len(tasks))
    deep = -(-len(tasks) // columns)
    height = sum(max(len(rows[task]) for task in tasks[i * columns : (i + 1) * columns]) for i in range(deep))
    size = 5.2 * columns + 1.2, 0.24 * height + 1.2 * deep
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.1))
    places = figure.subplots(deep, columns, squeeze=False).flat
    for axes, task in zip_longest(places, tasks):
        if task is None:
            axes.axis("off")
        else:
            _draw_overview(axes, results, task, rows[task])
    return Picture.of(figure)


def _best_lines(results: Results, task: str) -> list[Line]:
    lines = results.ranked(task, results.ranking_of(task))
    return ([line for line in lines if not line.row.control] or lines)[:ROWS]


def _draw_overview(axes: Axes, results: Results, task: str, lines: Sequence[Line]) -> None:
    ranking, used = results.ranking_of(task), list[str]()
    for place, line in enumerate(lines):
        edge, face = ("0.45", "white") if line.guarantee is None else (COLOURS[0], COLOURS[0])
        style: dict[str, Any] = {"marker": "o", "markersize": 5, "color": edge, "markerfacecolor": face}
        spread = np.nan_to_num(line.sd(ranking, PRIMARY_METRIC))  # one seed has no spread
        axes.errorbar([line.mean(ranking, PRIMARY_METRIC)], [place], xerr=[spread], capsize=2, linewidth=1, **style)
        for against, (marker, _) in BASELINES.items():
            if (other := control_of(results, line, against)) is not None and other.has(ranking):
                own: dict[str, Any] = {"marker": marker, "color": COLOURS[1], "markersize": 6, "linestyle": "none"}
                axes.plot([other.mean(ranking, PRIMARY_METRIC)], [place], **own)
                used.append(against)
    named = results.baseline_of(task, ranking)
    bar = next((line for line in results.lines[task] if line.name == named and line.has(ranking)), None)
    if bar is not None:
        axes.axvline(
            bar.mean(ranking, PRIMARY_METRIC), color=BASELINE_STYLE[0], linestyle=BASELINE_STYLE[1], linewidth=1
        )
    shown = "; ".join(BASELINES[one][1] for one in BASELINES if one in used)
    legend = [f"NDCG@10, {RANKINGS[ranking]}; filled: with a guarantee", shown, f"dashed: {_label(bar)}" if bar else ""]
    axes.set_yticks(range(len(lines)), [legend_text(_label(line)) for line in lines], fontsize=8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel("\n".join(filter(None, legend)), fontsize=8)
    axes.set_title(legend_text(results.benchmark["tasks"][task]["title"]), fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _label(line: Line) -> str:
    return line.name if len(line.name) <= 44 else f"{line.name[:43]}…"
