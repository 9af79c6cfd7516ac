"""By hand: data sets that are not fetched, as no address with a known content is recorded, and where somebody gets them."""

import csv
from pathlib import Path

with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    #: Where each is published, and on which terms, by the name of its folder. docs/data.md says what its files look like.
    BY_HAND = {row["folder"]: row["where"] for row in csv.DictReader(_file)}


def said_of(name: str) -> str:
    """Where to get a data set by hand, and where its tables go."""
    return (
        f"{name} is not fetched: no address with a known content is recorded. Get it by hand: {BY_HAND[name]} docs/data.md says "
        f"what its tables look like; put them into $ZOO_DATA/{name}, or data/{name}."
    )
