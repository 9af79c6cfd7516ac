"""Read CSV files, and write Markdown tables as the pages show them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from zoo.privacy.record.words import MEANINGLESS, MOST_SUCCESS

Row = dict[str, str]
#: What the marks of an epsilon mean, as in reports.
MARKS = {
    "‡": "conditional: the reports list what this epsilon assumes",
    "§": f"{MEANINGLESS}: attack success may exceed {MOST_SUCCESS * 100:.0f} %",
    "¶": "metrics measured on the source's ratings, and choices based on them, are not protected",
}


@cache
def read(path: Path) -> list[Row]:
    """Return the rows of a CSV file with a header. Nobody changes them: several pages have the same."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def where(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """Return the rows that have these values in these columns."""
    return [row for row in rows if wanted.items() <= row.items()]


def distinct(rows: Iterable[Row], *keys: str) -> list[tuple[str, ...]]:
    """Return the values of some columns, in the order of their first rows."""
    return list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))


def name(row: Row) -> str:
    """Return the name of a row of results: its system and its release."""
    return f"{row['system']}, {row['release']}" if row["release"] else row["system"]


def meaningless(row: Row) -> bool:
    """Return whether attack success may exceed 99 %. Earlier reports have no label: there, for delta 0, epsilon decides."""
    if "label" in row or not row["epsilon"] or float(row["delta"]):
        return bool(row.get("label"))
    return float(row["epsilon"]) > math.log(MOST_SUCCESS / (1 - MOST_SUCCESS))


def marks(row: Row) -> str:
    """Return the `MARKS` of the epsilon of a row of results."""
    found = {"‡": row["conditions"], "§": meaningless(row), "¶": row.get("unprotected_metrics")}
    return "".join(f" {mark}" for mark, applies in found.items() if applies)


def spread(row: Row) -> str:
    """Return a mean with its standard deviation."""
    return f"{float(row['mean']):.3f}" + (f" ±{float(row['sd']):.3f}" if row["sd"] else "")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """Return a Markdown table; the first `left` columns are left-aligned, the others right-aligned."""
    rule = "|" + "---|" * left + "---:|" * (len(titles) - left)
    header, *body = (f"| {' | '.join(cells)} |" for cells in (titles, *rows))
    return "\n".join([header, rule, *body])
