"""Figures and tables of docs/results/one_bit.md.

python docs/one_bit_figures.py --measured OUT     # means of what benchmarks/one_bit.py wrote there, with its trials
python docs/one_bit_figures.py                    # draws from the committed CSV files alone

The tables stand between marks and are written by `python docs/generate.py`.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tables import Row, read, table

DOCS = Path(__file__).parent
FOLDER = DOCS / "results" / "one_bit"
MEANS, TRIALS = FOLDER / "means.csv", FOLDER / "trials.csv"
AUDIT = DOCS / "privacy" / "audit.csv"

#: Figures of the paper: data, ratio, title; each is drawn for both links.
FIGURES = {
    "figure_1": ("synthetic", "0.15", "Synthetic, 15 % observed"),
    "figure_2": ("ml-100k", "0.0", "MovieLens 100K, u1"),
    "figure_3": ("rc", "0.0", "Restaurant"),
}
RATIOS = ("0.2", "0.4", "0.6", "0.8")
BY_RATIO = {"figure_4": "probit", "figure_5": "logistic"}
LINKS = {"probit": "probit (Gaussian noise)", "logistic": "logistic"}
CONTROLS = ("Clear", "Clear, rank 1", "zero", "bias", "majority")
SHOWN = (1, 2, 4, 8, 10)
STYLES = {
    "InP": ("tab:blue", "-"),
    "ObjP": ("tab:orange", "-"),
    "ObjP, Gaussian": ("tab:brown", "-"),
    "ObjP, published": ("tab:orange", "--"),
    "GraP, Gaussian": ("tab:green", "-"),
    "GraP, Laplace": ("tab:olive", "-"),
    "GraP, published": ("tab:green", "--"),
    "OutP": ("tab:red", "-"),
    "OutP, published": ("tab:red", "--"),
}
#: Which audit speaks of a row: its name in the committed audit begins so.
AUDITED = {
    "InP": "InP",
    "ObjP": "ObjP Laplace",
    "ObjP, Gaussian": "ObjP Gaussian",
    "ObjP, published": "published ObjP",
    "GraP, Gaussian": "GraP Gaussian",
    "GraP, Laplace": "GraP Laplace",
    "GraP, published": "GraP Laplace",
    "OutP": "OutP Gaussian",
    "OutP, published": "published OutP",
}
FIELDS = ("data", "observed", "link", "mechanism", "epsilon", "figure", "mean", "sd", "draws", "guarantee", "seconds")


def summarise(measured: Path) -> None:
    """Means and standard deviations over draws, and the trials, into the committed folder."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for path in sorted(measured.glob("results*.csv")):
        for row in read(path):
            groups[tuple(row[name] for name in ("data", "observed", "link", "mechanism", "epsilon", "figure"))].append(
                row
            )
    FOLDER.mkdir(parents=True, exist_ok=True)
    with MEANS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for key in sorted(groups):
            rows = groups[key]
            values = [float(row["value"]) for row in rows]
            spread = f"{statistics.stdev(values):.4f}" if len(values) > 1 else ""
            seconds = statistics.mean(float(row["seconds"]) for row in rows)
            writer.writerow(
                [*key, f"{statistics.mean(values):.4f}", spread, len(rows), rows[0]["guarantee"], f"{seconds:.3f}"]
            )
    TRIALS.write_bytes((measured / "trials.csv").read_bytes())


class Means:
    """Means by what they are of."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = {(r["data"], r["observed"], r["link"], r["mechanism"], float(r["epsilon"])): r for r in rows}

    def curve(
        self, data: str, observed: str, link: str, mechanism: str
    ) -> tuple[list[float], list[float], list[float]]:
        """Epsilons, means and standard deviations of a row, by epsilon."""
        found = sorted((key[4], row) for key, row in self.rows.items() if key[:4] == (data, observed, link, mechanism))
        spreads = [float(row["sd"] or 0) for _, row in found]
        return [epsilon for epsilon, _ in found], [float(row["mean"]) for _, row in found], spreads

    def cell(self, data: str, observed: str, link: str, mechanism: str, epsilon: float) -> str:
        """Mean and spread for a table."""
        row = self.rows.get((data, observed, link, mechanism, float(epsilon)))
        if row is None:
            return "-"
        return f"{float(row['mean']):.3f}" + (f" ±{float(row['sd']):.3f}" if row["sd"] else "")

    def guarantee(self, data: str, observed: str, link: str, mechanism: str) -> str:
        """What the records of a row say."""
        key = (data, observed, link, mechanism)
        return next((row["guarantee"] for found, row in self.rows.items() if found[:4] == key), "-")


def parts() -> dict[str, str]:
    """Every generated table of the page, by the name in its marks."""
    means = Means(read(MEANS))
    made = {
        name.replace("_", " "): "\n\n".join(by_epsilon(means, data, observed, link) for link in LINKS)
        for name, (data, observed, _) in FIGURES.items()
    }
    for name, link in BY_RATIO.items():
        made[name.replace("_", " ")] = by_ratio(means, link)
    return made | {"audits": audits(), "settings": settings(), "seconds": speed(means)}


def by_epsilon(means: Means, data: str, observed: str, link: str) -> str:
    """A row for every mechanism, its guarantee, and its figure at some epsilons."""
    titles = (LINKS[link], "guarantee", *(f"epsilon {epsilon}" for epsilon in SHOWN))
    rows = [
        (control, "none", means.cell(data, observed, link, control, 0), *[""] * (len(SHOWN) - 1))
        for control in CONTROLS
        if means.cell(data, observed, link, control, 0) != "-"
    ]
    for mechanism in STYLES:
        cells = [means.cell(data, observed, link, mechanism, epsilon) for epsilon in SHOWN]
        if set(cells) != {"-"}:
            rows.append((mechanism, means.guarantee(data, observed, link, mechanism), *cells))
    return table(titles, rows, left=2)


def by_ratio(means: Means, link: str) -> str:
    """A row for every mechanism, and its error at two epsilons under every observation ratio."""
    epsilons = (1, 5, 10)
    titles = ("mechanism", *(f"{float(ratio):.0%}, epsilon {epsilon}" for ratio in RATIOS for epsilon in epsilons))
    clear = [("Clear", *(means.cell("synthetic", ratio, link, "Clear", 0) for ratio in RATIOS for _ in epsilons))]
    rows = [
        (m, *(means.cell("synthetic", ratio, link, m, epsilon) for ratio in RATIOS for epsilon in epsilons))
        for m in STYLES
    ]
    return table(titles, [*clear, *(row for row in rows if set(row[1:]) != {"-"})], left=1)


def audits() -> str:
    """What the committed audits of each mechanism found."""
    found = read(AUDIT)
    rows = []
    for mechanism, name in AUDITED.items():
        for row in (row for row in found if row["mechanism"].startswith(name)):
            holds = "yes" if row["holds"] == "true" else "no"
            rows.append(
                (
                    mechanism,
                    row["mechanism"],
                    holds,
                    row["verdict"],
                    row["claimed_epsilon"],
                    f"{math.floor(float(row['epsilon_lower']) * 1000) / 1000:.3f}",  # a lower bound is rounded down
                )
            )
    return table(("row", "audit", "meant to hold", "verdict", "epsilon claimed", "at least"), rows, left=4)


def settings() -> str:
    """The setting that was chosen for each mechanism, on a part of the training signs."""
    best: dict[tuple[str, str, str], Row] = {}
    for row in read(TRIALS):
        key = row["data"], row["link"], row["mechanism"]
        if key not in best or float(row["sign_accuracy"]) > float(best[key]["sign_accuracy"]):
            best[key] = row
    rows = [(*key, row["setting"], row["sign_accuracy"]) for key, row in best.items()]
    return table(("data", "link", "row", "chosen", "sign accuracy on the held-out tenth"), rows, left=4)


def speed(means: Means) -> str:
    """Seconds of one completion on the films."""
    rows = []
    for mechanism in ("Clear", *STYLES):
        cells = [
            [
                float(row["seconds"])
                for key, row in means.rows.items()
                if key[0] == "ml-100k" and key[2:4] == (link, mechanism)
            ]
            for link in LINKS
        ]
        if any(cells):
            rows.append((mechanism, *(f"{statistics.mean(found):.1f}" if found else "-" for found in cells)))
    return table(("row", *(f"{LINKS[link]}, seconds" for link in LINKS)), rows, left=1)


def draw() -> list[Path]:
    """Every figure as a PNG; gives their paths."""
    means, drawn = Means(read(MEANS)), []
    for name, (data, observed, title) in FIGURES.items():
        drawn.append(_panels(means, name, [(data, observed, link, f"{title}, {LINKS[link]}") for link in LINKS]))
    for name, link in BY_RATIO.items():
        panels = [("synthetic", ratio, link, f"{float(ratio):.0%} observed, {LINKS[link]}") for ratio in RATIOS]
        drawn.append(_panels(means, name, panels))
    return drawn


def _panels(means: Means, name: str, panels: Sequence[tuple[str, str, str, str]]) -> Path:
    """One figure with a panel for each of data, ratio, link and title."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 4.2), squeeze=False, sharey=True)
    for axis, (data, observed, link, title) in zip(axes[0], panels, strict=True):
        for mechanism, (colour, style) in STYLES.items():
            epsilons, values, spreads = means.curve(data, observed, link, mechanism)
            if epsilons:
                low, high = ([v + sign * s for v, s in zip(values, spreads, strict=True)] for sign in (-1, 1))
                axis.plot(epsilons, values, style, color=colour, label=mechanism, marker="." if style == "-" else None)
                axis.fill_between(epsilons, low, high, color=colour, alpha=0.12, linewidth=0)
        for control, style in zip(CONTROLS, (":", "-.", (0, (1, 3)), "-.", (0, (1, 3))), strict=True):
            _, values, _ = means.curve(data, observed, link, control)
            if values:
                axis.axhline(values[0], color="black", linewidth=1, linestyle=style, label=control)
        axis.set(title=title, xlabel="epsilon of one rating's value, asked for")
    errors = panels[0][0] == "synthetic"
    axes[0][0].set_ylabel("average relative error" if errors else "sign accuracy")
    if errors:
        axes[0][0].set_yscale("log")
    axes[0][-1].legend(fontsize=7, loc="best")
    figure.text(
        0.01, 0.01, "dashed colours: as published (ObjP and OutP do not hold); bands: one sd over draws", fontsize=7
    )
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    path = FOLDER / f"{name}.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
    return path


def main() -> None:
    """Summarise what was measured, if it is given, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, help="folder that benchmarks/one_bit.py wrote to")
    arguments = parser.parse_args()
    if arguments.measured is not None:
        summarise(arguments.measured)
    for path in draw():
        print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
