"""Tables and the figure of docs/leakage.md, from what `privacy attack` measured.

python docs/leakage_figures.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import matplotlib.pyplot as plt
from curves import Point, curve, saved
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator
from tables import Row, read, table

MEASURED = Path(__file__).parent / "privacy"
#: By network, the file of `privacy attack`.
FILES = {"FedGNN": "leakage_fedgnn.csv", "BPR": "leakage_bpr.csv"}
PSEUDO = "leakage_pseudo.csv"
#: What an adversary sees, by the words of the file.
SEEN = {"plain": "vectors as they are", "clipped": "clipped, no noise", "noisy": "epsilon {:g}"}
ATTACKS = ("ridge", "perceptron")
FIGURES = {"leakage": "leakage", "auc": "AUC of items", "precision": "precision of items"}


def parts() -> dict[str, str]:
    """The page's tables, by the name in their marks."""
    made = {f"vectors of {network}": vectors_table(read(MEASURED / file)) for network, file in FILES.items()}
    return made | {"updates": updates_table()}


def vectors_table(rows: list[Row]) -> str:
    """What attacks recovered from vectors as they are, clipped, and at each epsilon; the control is the better of two."""
    titles = [f"{figure.replace('auc', 'AUC')}, {how}" for figure in FIGURES for how in (*ATTACKS, "shuffled")]
    releases = list(dict.fromkeys((row["release"], row["epsilon"]) for row in rows if row["release"] in SEEN))
    lines = []
    for release, epsilon in releases:
        own = [row for row in rows if (row["release"], row["epsilon"]) == (release, epsilon)]
        cells = []
        for figure in FIGURES:
            found = [row for row in own if row["figure"] == figure]
            plain = {row["attack"]: row for row in found if not row["control"]}
            shuffled = max((row for row in found if row["control"]), key=lambda row: float(row["mean"]))
            cells += [spread(row) for row in (*(plain[attack] for attack in ATTACKS), shuffled)]
        lines.append((SEEN[release].format(float(epsilon or 0)), *cells))
    popular = {row["figure"]: row for row in rows if row["attack"] == "popularity"}
    lines.append(("popularity", *["-"] * 5, spread(popular["auc"]), "-", "-", spread(popular["precision"])))
    return table(("what is seen", *titles), lines, left=1)


def updates_table() -> str:
    """What a server guesses of the items in a client's update, without and with pseudo items."""
    lines = []
    for name, file in (("own items and four drawn to each", FILES["FedGNN"]), ("30 pseudo items beside them", PSEUDO)):
        rows = [row for row in read(MEASURED / file) if row["release"] == "update"]
        for attack in dict.fromkeys(row["attack"] for row in rows):
            found = {row["figure"]: spread(row) for row in rows if row["attack"] == attack}
            lines.append((name, attack, found["precision"], found["recall"]))
    return table(("the update names", "guess", "precision", "recall"), lines, left=2)


def spread(row: Row) -> str:
    """A mean with its standard deviation over seeds."""
    return f"{float(row['mean']):.3f} ±{float(row['sd']):.3f}" if row["sd"] else f"{float(row['mean']):.3f}"


def draw() -> Path:
    """Leakage, AUC and precision against epsilon, a column for each network, with levels of plain vectors and of popularity."""
    figure, axes = plt.subplots(len(FIGURES), len(FILES), sharex=True, squeeze=False, figsize=(9, 8))
    for column, (network, file) in enumerate(FILES.items()):
        rows = read(MEASURED / file)
        for axis, (name, words) in zip(axes[:, column], FIGURES.items(), strict=True):
            panel(axis, [row for row in rows if row["figure"] == name])
            axis.set_ylabel(words)
        axes[0][column].set_title(f"vectors of {network}")
        axes[-1][column].set_xlabel("epsilon of one user's own vectors")
    axes[0][0].legend(frameon=False, fontsize=8)
    axes[1][0].legend(handles=axes[1][0].lines[-1:], frameon=False, fontsize=8)
    return saved(figure, MEASURED / "leakage.png")


def panel(axis: Axes, rows: Iterable[Row]) -> None:
    """A line for each attack, its control dotted in grey; what plain vectors give and what popularity gives, as levels."""
    rows = list(rows)
    for number, attack in enumerate(ATTACKS):
        curve(axis, points(rows, attack, ""), attack, f"C{number}")
        [plain] = [row for row in rows if (row["release"], row["attack"], row["control"]) == ("plain", attack, "")]
        axis.axhline(float(plain["mean"]), color=f"C{number}", ls="--", lw=1, label=f"{attack}, no noise")
    shuffled = points(rows, "ridge", "shuffled")
    curve(axis, shuffled, "ridge, shuffled", "0.6")
    for row in rows:
        if row["attack"] == "popularity":
            axis.axhline(float(row["mean"]), color="0.2", ls=":", lw=1.2, label="popularity alone")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator([x for x, _, _ in shuffled]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")


def points(rows: Iterable[Row], attack: str, control: str) -> list[Point]:
    """Epsilon, mean and spread of an attack on noisy vectors."""
    own = (row for row in rows if (row["release"], row["attack"], row["control"]) == ("noisy", attack, control))
    return sorted((float(row["epsilon"]), float(row["mean"]), float(row["sd"] or 0)) for row in own)


if __name__ == "__main__":
    print(draw())
