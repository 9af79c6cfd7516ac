"""The table of the README that says what a private release is worth, from the report of the quickstart benchmark."""

from __future__ import annotations

from pathlib import Path

from tables import Row, read, table

from zoo.benchmark.report.gains import NOISE
from zoo.privacy.record.record import rounded_up

REPORT = Path(__file__).parent / "results" / "quickstart"
#: What each kind of release is to somebody who sees one for the first time.
WHAT = {
    "Nothing": "the target alone",
    "Plaintext": "all books of everybody, handed over as they are",
    "JLT": "a private release (`JLT`)",
    "Noise": "its noise control: the same release of ratings drawn anew",
}


def told(row: Row) -> tuple[str, ...]:
    """A row of the report in words: what the target is given, epsilon, figures, and the gain over its noise control."""
    release = row["release"]
    asked = f"epsilon {release.removesuffix(')').rsplit(' ', 1)[-1]}"
    what = next(text for kind, text in WHAT.items() if release.startswith(kind))
    what += f", {asked}" if row["control"] == "noise" else ""
    epsilon = f"{rounded_up(float(row['epsilon']))} ({row['guarantee']})" if row["epsilon"] else "-"
    cells = [f"{float(row[key]):.3f} ±{float(row[f'{key} sd']):.3f}" for key in ("full/ndcg@10", "full/hit_rate@10")]
    return (what, epsilon, *cells, gain(f"{row['system']}, {release}"))


def gain(name: str) -> str:
    """What a row has above its noise control, with the interval over users."""
    for row in read(REPORT / "gains.csv"):
        if (row["row"], row["against"], row["figure"]) == (name, NOISE, "full/ndcg@10"):
            difference, low, high = (float(row[key]) for key in ("difference", "low", "high"))
            return f"{difference:+.3f} [{low:+.3f}, {high:+.3f}]"
    return "-"


def parts() -> dict[str, str]:
    """Text by the name of the part: the target alone first, the plain ratings last."""
    order = {"Nothing": 0, "Plaintext": 2}
    rows = sorted(read(REPORT / "results.csv"), key=lambda row: order.get(row["release"], 1))
    titles = ("the target is given", "epsilon", "NDCG@10", "HR@10", "NDCG@10 less its noise control")
    return {"quickstart": table(titles, [told(row) for row in rows], left=2)}
