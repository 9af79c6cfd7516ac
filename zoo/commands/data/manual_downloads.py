"""Data sets to download manually, since no address with known content exists: where they are, and their terms."""

import csv
from pathlib import Path

with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    #: Address and terms by folder. docs/data.md describes the files.
    MANUAL_DOWNLOADS = {row["folder"]: row["where"] for row in csv.DictReader(_file)}


def download_hint(name: str) -> str:
    """Return where to download a data set, and where its tables go."""
    return (
        f"{name} must be downloaded manually. {MANUAL_DOWNLOADS[name]} Put the tables that docs/data.md describes into "
        f"$ZOO_DATA/{name} or data/{name}."
    )
