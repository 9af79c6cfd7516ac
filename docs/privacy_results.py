"""Tables of the privacy pages from committed results: audits, and utility at equal epsilon."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from result_tables import gains
from tables import Row, name, read, table, where

from zoo.privacy.record.record import rounded_up

DOCS = Path(__file__).parent
AUDIT = DOCS / "privacy" / "audit.csv"
EQUAL = DOCS / "results" / "equal_epsilon" / "results.csv"

#: Rows of the comparison at equal epsilon, and the system whose plain row is the most that each can have.
SCORERS = {base + how: base for base in ("Ridge", "UserKNN", "PriCDR") for how in ("", ", denoised")}
TASK, FIGURE, ASKED = "cold", "sampled/hit_rate@10", (1, 2, 4, 8, 16)
#: Rows of the comparison for warm-start users, on Kitchen <- Food.
KITCHEN = DOCS / "results" / "kitchen"
KNOWN = ["UserKNN, Nothing", "UserKNN, Plaintext"]
KNOWN += [f"UserKNN{how}, FlippedRows eps {epsilon}" for epsilon in (8, 4) for how in (", denoised", "")]
LABEL = re.compile(r"(.+) eps [\d.]+")

#: Audits of each section, by the first word of their mechanism.
AUDITS = {
    "JLT": ("JLT",), "SJLT": ("SJLT",), "NoisyRows": ("NoisyRows",), "FlippedRows": ("FlippedRows",),
    "SPPG": ("DP-SGD", "GS-WGAN"), "EmbeddingPublisher": ("EmbeddingPublisher",),
    "BridgePublisher": ("BridgePublisher",), "private rounds": ("DP-FedAvg",), "InP": ("InP",),
    "ObjP": ("ObjP",), "GraP": ("GraP",), "OutP": ("OutP",),
}  # fmt: skip
NEIGHBOURS = {
    "change_one_rating": "one rating",
    "change_one_rating_value": "rating value",
    "zero_out_one_user": "user zeroed",
    "replace_one_user": "user replaced",
}


def audit_rows(section: str | None = None, path: Path = AUDIT) -> list[Row]:
    """Return the committed audits, of one section of the pages or all."""
    heads = [head for name, found in AUDITS.items() if section in (None, name) for head in found]
    return [row for row in read(path) if row["mechanism"].removeprefix("published ").split()[0].rstrip(",") in heads]


def audit_table(section: str) -> str:
    """Measured lower bounds of a section's mechanisms, next to their claims."""
    titles = ("mechanism", "neighbours", "verdict", "epsilon", "at least", "mu", "at least", "noise")
    rows = []
    for row in audit_rows(section):
        bounds = (row["claimed_epsilon"], row["epsilon_lower"], row["claimed_mu"], row["mu_lower"])
        claims = [rounded_up(float(text)) if text else "-" for text in bounds[::2]]
        seen = [f"{math.floor(float(text) * 1000) / 1000:.3f}" if text else "-" for text in bounds[1::2]]
        noise = f"{float(row['noise_ratio']):.3f}" if row["noise_ratio"] else "-"
        mechanism = row["mechanism"].replace(f", {row['relation'].replace('_', ' ')}", "")
        said = (mechanism, NEIGHBOURS[row["relation"]], row["verdict"])
        rows.append((*said, claims[0], seen[0], claims[1], seen[1], noise))
    return table(titles, rows, left=3)


def audit_counts() -> str:
    """Numbers of audits by whether their claim is true, and by verdict."""
    found = Counter((row["holds"], row["verdict"]) for row in audit_rows())
    words = {"true": "a true one", "false": "a false one, to test the audit"}
    return table(("claim", "verdict", "audits"), [(words[h], v, f"{n}") for (h, v), n in found.items()], left=2)


def transfer_tables(path: Path = EQUAL) -> str:
    """Return the share of the gain of plain ratings that is left at each requested epsilon, then the metric itself.

    Two shares: of the gain over popularity, and of the gain over the scorer's noise baseline.
    """
    rows = where(read(path), task=TASK)
    figures = {(row["system"], row["release"]): float(row[FIGURE]) for row in rows}
    shares, metrics = [], []
    for system, base in SCORERS.items():
        floors = figures["Popularity", ""], figures[base, "Noise (Plaintext)"]
        most = figures.get((base, "Plaintext"))
        labels = [row["release"] for row in rows if row["system"] == system and not row["control"]]
        for release in dict.fromkeys(match[1] for label in labels if (match := LABEL.fullmatch(label))):
            found = [figures.get((system, f"{release} eps {epsilon:g}")) for epsilon in ASKED]
            of = (system, release.replace(" with the", ","))
            shares.append((*of, *(left_of(figure, floors, most) for figure in found)))
            metrics.append((*of, *("-" if figure is None else f"{figure:.3f}" for figure in found)))
    titles = ("scorer", "release", *(f"epsilon {epsilon:g}" for epsilon in ASKED))
    return f"{table(titles, shares, left=2)}\n\n{table(titles, metrics, left=2)}"


def known_users_table(folder: Path = KITCHEN) -> str:
    """HR@10 of warm-start users in Kitchen <- Food, with and without releases, and the gain over each noise baseline."""
    figures = {(row["task"], name(row)): float(row[FIGURE]) for row in read(folder / "results.csv")}
    found, lines = gains(folder, FIGURE), []
    for known in KNOWN:
        cells = [known]
        for task in ("latest", "random"):
            gain = found.get((task, known))
            p = f"{float(gain['p_users_holm']):.1g} / {float(gain['p_seeds_holm']):.1g}" if gain else ""
            cells += [f"{figures[task, known]:.4f}", f"{float(gain['difference']):+.4f} ({p})" if gain else "-"]
        lines.append(cells)
    return table(("row", "latest", "gain (p users / seeds)", "random", "gain (p users / seeds)"), lines, left=1)


def left_of(figure: float | None, floors: Sequence[float], most: float | None) -> str:
    """The share of the way to ``most`` from each of ``floors``, in whole percent."""
    if figure is None:
        return "-"
    return " / ".join(
        "-" if most is None or most <= least else f"{round(100 * (figure - least) / (most - least))} %"
        for least in floors
    )
