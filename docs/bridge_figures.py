"""Figure of the report on a bridge and the number of people whom both know, as PNG, from its results.csv.

python docs/bridge_figures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from curves import HIT, at, curve, level, saved
from tables import read

from zoo.privacy.accounting.gaussian import gauss_mu

RESULTS = Path(__file__).parent / "results"
#: By the words of a row: the share of the users whom the map is made of.
SHARES = {"an eighth": 0.125, "a quarter": 0.25, "a half": 0.5, "all": 1.0}
#: Epsilons of a user that the rows have; the last one is hardly any noise.
EPSILONS, CLEAR = (0.25, 0.5, 1.0, 2.0), 1e6
DELTA = 1e-5


def draw(report: str = "bridge_reach") -> Path:
    """HR@10 against the share of the users, and what is left of the lift of those who are placed against share times mu."""
    rows = [row for row in read(RESULTS / report / "results.csv") if row["task"] == "home"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    for number, epsilon in enumerate((*EPSILONS, CLEAR)):
        line = [at(share, rows, "Bridge", f"{words} eps {epsilon:g}") for words, share in SHARES.items()]
        curve(left, line, "hardly any noise" if epsilon == CLEAR else f"epsilon {epsilon:g}", f"C{number}")
    level(left, rows, "Popularity", "", "-")
    level(left, rows, "Ridge", "Plaintext", "--")
    left.set(xscale="log", xlabel="share of the users in both whom the map is made of", ylabel="HR@10, 1 + 99")
    left.set_xticks(list(SHARES.values()), [f"{share:g}" for share in SHARES.values()])
    left.legend(frameon=False, fontsize=8)
    for number, epsilon in enumerate(EPSILONS):
        mu = gauss_mu(epsilon, DELTA)
        kept = [(share * mu, part_kept(rows, words, epsilon) / share, 0.0) for words, share in SHARES.items()]
        curve(right, kept, f"epsilon {epsilon:g}", f"C{number}")
    right.set(xscale="log", xlabel="share of the users x mu", ylabel="lift of who is placed, 1: all, without noise")
    right.legend(frameon=False, fontsize=8)
    return saved(figure, RESULTS / report / "signal.png")


def part_kept(rows: list[dict[str, str]], words: str, epsilon: float) -> float:
    """What a row adds to popularity, as a part of what the map of all users adds with hardly any noise."""
    hits = {(row["system"], row["release"]): float(row[HIT]) for row in rows}
    floor = hits["Popularity", ""]
    return (hits["Bridge", f"{words} eps {epsilon:g}"] - floor) / (hits["Bridge", f"all eps {CLEAR:g}"] - floor)


if __name__ == "__main__":
    print(draw())
