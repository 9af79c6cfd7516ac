"""Tables: CSV files as they are read, and Markdown as the pages show it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    """The rows of a CSV file with a header."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def name(row: Row) -> str:
    """What a row of results is called."""
    return f"{row['system']}, {row['release']}" if row["release"] else row["system"]


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """A Markdown table whose first columns are aligned to the left, all others to the right."""
    rule = "|" + "---|" * left + "---:|" * (len(titles) - left)
    header, *body = (f"| {' | '.join(cells)} |" for cells in (titles, *rows))
    return "\n".join([header, rule, *body])
