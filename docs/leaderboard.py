"""The leaderboard of all reports: the best rows of every task, written into ``docs/results/index.md``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

from result_tables import gains
from tables import MARKS, Row, distinct, marks, meaningless, name, read, table, where

from zoo.benchmark.report.results import ALONE
from zoo.privacy.record.record import rounded_up

RESULTS = Path(__file__).parent / "results"
#: The metric that decides which row is best: the first that a task has.
METRICS = ("full/ndcg@10", "sampled/ndcg@10")
#: A larger epsilon protects next to nothing: its rows show what a mechanism costs without noise.
MAX_EPSILON = 10.0
#: What a row may know of the source, and which rows these are.
SINGLE = "single-domain"
KINDS: dict[str, Callable[[Row], bool]] = {
    SINGLE: lambda row: row["release"] in ALONE,
    "plain ratings": lambda row: row["release"] not in ("", "Nothing") and not row["epsilon"] and not row["control"],
    "private": lambda row: (
        bool(row["epsilon"]) and float(row["epsilon"]) <= MAX_EPSILON and not row["control"] and not meaningless(row)
    ),
}


def leaderboard() -> str:
    """Return a heading and a table for every report that has results, in the order of their folders."""
    said = " ".join(f"{mark} {MARKS[mark]}." for mark in "‡¶")
    return "\n\n".join([said, *(_report(path.parent) for path in sorted(RESULTS.glob("*/results.csv")))])


def _report(folder: Path) -> str:
    rows = read(folder / "results.csv")
    lines = [line for (task,) in distinct(rows, "task") for line in _task(folder, task, where(rows, task=task))]
    titles = ("task", "reads", "best row", "epsilon", "NDCG@10", "HR@10, 1 + 99", "over single", "over noise")
    title = (folder / "README.md").read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ")
    if folder.name.startswith("cross_domain_"):  # eight reports of one grid, with a task each
        title += f": {lines[0][0]}"
    return f"### [{title}]({folder.name}/README.md)\n\n{table(titles, lines, left=3)}"


def _task(folder: Path, task: str, rows: list[Row]) -> list[tuple[str, ...]]:
    """Return the best row of each kind; of those without the metric, none."""
    metric = next((metric for metric in METRICS if any(row[metric] for row in rows)), "")
    found = gains(folder, metric) if metric and (folder / "gains.csv").is_file() else {}
    lines: list[tuple[str, ...]] = []
    single = math.nan
    for kind, belongs in KINDS.items():
        own = [row for row in rows if belongs(row) and row.get(metric)]
        if own:
            best = max(own, key=lambda row: float(row[metric]))
            gain, value = found.get((task, name(best))), float(best[metric])
            over = "-" if kind == SINGLE or math.isnan(single) else f"{value - single:+.4f}"
            single = value if kind == SINGLE else single
            lines.append((task, kind, _short(name(best)), _epsilon(best), *_figures(best, metric), over, _gain(gain)))
    return lines


def _short(name: str) -> str:
    """Return the name of a row without its epsilon, which has a column."""
    name = re.sub(r" (eps|at epsilon) [\d.e+]+$", "", name).replace(", scored by the target factor alone", ", target")
    return name.replace("denoised, FlippedRows", "denoised flips")


def _figures(row: Row, metric: str) -> tuple[str, str]:
    sampled = " *" if metric.startswith("sampled") else ""
    hit_rate = float(row["sampled/hit_rate@10"] or math.nan)
    return f"{float(row[metric]):.4f}{sampled}", "-" if math.isnan(hit_rate) else f"{hit_rate:.4f}"


def _epsilon(row: Row) -> str:
    if not row["epsilon"]:
        return "-"
    return f"{rounded_up(float(row['epsilon'])).removesuffix('.00')} per {row['unit']}{marks(row)}"


def _gain(row: Row | None) -> str:
    """Return the gain over the row's noise baseline, bold where it is significant over users."""
    if row is None:
        return "-"
    text = f"{float(row['difference']):+.4f}"
    return f"**{text}**" if float(row["p_users_holm"]) < 0.05 else text
