"""PriCDR's figures 2 to 5 as PNG, for JLT and SJLT, from the report's results.csv.

python docs/pricdr_figures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from curves import at, curve, level, points, saved
from tables import read

SWEEPS = Path(__file__).parent / "results" / "pricdr_sweeps"
NUMBER = r"([\d.]+)"
#: What is swept: the name of the axis, how the rows are called, and where on it the row at epsilon 8 lies.
PANELS = (
    ("epsilon for one rating, delta 1e-5", f"eps {NUMBER}", None),
    ("n'", f"n' {NUMBER}", 400.0),
    ("density of the projection", f"density {NUMBER}", 0.5),
    ("ratings of the source, %", f"ratings {NUMBER} %", 100.0),
)
COLOURS = {"JLT": "C0", "SJLT": "C1", "Plaintext": "C2"}
LEVELS = (("PriCDR", "Plaintext", ":"), ("PriCDR", "Nothing", "-."), ("Popularity", "", "-"))


def draw_sweeps() -> Path:
    """HR@10 against epsilon, n', the density of the projection and the ratings of the source."""
    rows = read(SWEEPS / "results.csv")
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharey=True)
    for axis, (name, swept, where) in zip(axes.flat, PANELS, strict=True):
        for mechanism, colour in COLOURS.items():
            line = points(rows, "PriCDR", f"{mechanism} {swept}")
            if line and where is not None:
                whole = mechanism if mechanism == "Plaintext" else f"{mechanism} eps 8"
                line.append(at(where, rows, "PriCDR", whole))
            if line:
                curve(axis, line, mechanism, colour)
        for system, release, style in LEVELS:
            level(axis, rows, system, release, style)
        axis.set_xlabel(name)
    axes[0][0].set_xscale("log", base=2)
    axes[0][0].xaxis.set_major_formatter("{x:g}")
    for row in axes:
        row[0].set_ylabel("HR@10 at the target")
    axes[1][1].legend(frameon=False, fontsize=8, ncols=2)
    return saved(figure, SWEEPS / "sweeps.png")


if __name__ == "__main__":
    print(draw_sweeps())
