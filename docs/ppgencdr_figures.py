"""Figures of the PPGenCDR reports as PNG: HR@10 against epsilon, the sensitivity sweeps, and the critic's gap.

python docs/ppgencdr_figures.py --runs runs/benchmarks/sppg     # reads the runs' logs, writes critic_gap.csv
python docs/ppgencdr_figures.py                                 # draws from the committed CSV files alone
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
from curves import Point, curve, points, saved
from matplotlib.axes import Axes
from tables import Row, read

RESULTS = Path(__file__).parent / "results"
SWEEPS = RESULTS / "ppgencdr_sweeps"
GAP = RESULTS / "sppg" / "critic_gap.csv"
#: Folders of the runs whose gap is drawn, and what the legend calls them.
STABILISED = {"no-privacy": "with GANStabilizer (tau 2)", "no-privacy-gs": "without"}


def write_gap(runs: Path) -> None:
    """The critic's gap by epoch, over tasks and seeds, from the logs of a benchmark's runs."""
    found: list[Row] = []
    for folder, label in STABILISED.items():
        for log in sorted(runs.glob(f"*/{folder}/seed-*/metrics.csv")):
            task, seed = log.parts[-4], log.parent.name.removeprefix("seed-")
            rows = [row for row in read(log) if row.get("train/critic_gap")]
            found += [
                {"task": task, "training": label, "seed": seed, "epoch": r["epoch"], "gap": r["train/critic_gap"]}
                for r in rows
            ]
    if not found:
        raise SystemExit(
            f"No logged gap below {runs}. Run: python -m zoo benchmark --config configs/benchmarks/sppg.yaml"
        )
    with GAP.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


def draw_gap() -> Path:
    """Mean real less mean generated score, one line per seed."""
    rows = read(GAP)
    tasks = sorted({row["task"] for row in rows})
    figure, axes = plt.subplots(1, len(tasks), figsize=(5 * len(tasks), 3.4), sharey=True, squeeze=False)
    for axis, task in zip(axes[0], tasks, strict=True):
        for colour, label in zip(("C0", "C3"), STABILISED.values(), strict=True):
            for number, seed in enumerate(sorted({row["seed"] for row in rows})):
                line = [r for r in rows if (r["task"], r["training"], r["seed"]) == (task, label, seed)]
                shown = label if number == 0 else None
                axis.plot([int(r["epoch"]) for r in line], [float(r["gap"]) for r in line], colour, lw=0.9, label=shown)
        axis.set(title=f"Douban {task}", xlabel="epoch (8 critic steps)")
    axes[0][0].set_ylabel("critic gap")
    axes[0][0].legend(frameon=False)
    return saved(figure, GAP.parent / "critic_gap.png")


def draw_epsilon() -> Path:
    """HR@10 at the target against the budget, by mechanism (the paper's figure 3)."""
    rows = read(SWEEPS / "results.csv")
    figure, axis = plt.subplots(figsize=(6, 3.8))
    for mechanism in ("private_d", "first_layer_only", "gs_wgan"):
        curve(axis, points(rows, "PPGenCDR", rf"{mechanism} eps ([\d.]+)"), mechanism)
    axis.set(xscale="log", xlabel="epsilon for a whole user, delta 1e-5", ylabel="HR@10 at the target")
    axis.legend(frameon=False)
    return saved(figure, SWEEPS / "epsilon.png")


def draw_sweeps() -> Path:
    """HR@10 against lambda_A, tau, lambda_R and the density of the source (the paper's figure 4)."""
    rows = read(SWEEPS / "results.csv")
    base = points(rows, "PPGenCDR", r"private_d eps (5)")[0]
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharey=True)
    panels: list[tuple[Axes, str, list[Point], float | None]] = [
        (axes[0][0], "lambda_A", points(rows, r"lambda_A ([\d.]+)", ".*"), 1.0),
        (axes[0][1], "tau", points(rows, "PPGenCDR", r"tau ([\d.]+)"), 2.0),
        (axes[1][0], "lambda_R", points(rows, r"lambda_R ([\d.]+)", ".*"), None),
        (axes[1][1], "ratings of the source, %", points(rows, "PPGenCDR", r"density (\d+) %"), 100.0),
    ]
    for axis, name, line, at in panels:
        known = [] if at is None else [(at, *base[1:])]
        curve(axis, [*line, *known], "PPGenCDR")
        axis.set(xlabel=name, xscale="linear" if "%" in name else "log")
    pricdr = points(rows, "PriCDR", r"density (\d+) %")
    pricdr += [(100.0, *point[1:]) for point in points(rows, "PriCDR", r"JLT eps (8)")]
    curve(axes[1][1], pricdr, "PriCDR, JLT at 8 for one rating")
    axes[1][1].legend(frameon=False)
    for row in axes:
        row[0].set_ylabel("HR@10 at the target")
    return saved(figure, SWEEPS / "sweeps.png")


def main() -> None:
    """Draw what there are figures for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=Path, help="runs of the benchmark sppg; their logs become critic_gap.csv")
    runs = options.parse_args().runs
    if runs is not None:
        write_gap(runs)
    drawings: list[Callable[[], Path]] = [draw_gap, draw_epsilon, draw_sweeps]
    for draw in drawings:
        print(draw())


if __name__ == "__main__":
    main()
