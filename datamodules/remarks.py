"""Remarks: what is odd about data that are used all the same, and what was done with it."""

import polars as pl

from datamodules.protocol import Filters


def on_negative(table: pl.DataFrame, domain: str, filters: Filters) -> str | None:
    """Gives a sentence on negative ratings of a domain, None where there are none, or where the sign is the rating."""
    negative = table.filter(pl.col("rating") < 0)["rating"]
    if negative.is_empty() or filters.signs:
        return None
    if filters.threshold is None:
        done = "each counts as 1, like every other rating; filters.threshold leaves low ones out"
    else:
        done = f"those below filters.threshold {filters.threshold} are left out"
    return f"{domain}: {len(negative)} of {table.height} ratings are negative, the lowest is {min(negative)}; {done}."
