"""Filters: pure functions from a table of interactions (`datamodules.tables`) to the rows that count."""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
import polars as pl

from zoo.data.ratings import as_ids


def binarise(
    table: pl.DataFrame, threshold: float | Literal["mean"] | None, signs: bool = False, *, may_be_empty: bool = False
) -> pl.DataFrame:
    """Return the rows rated at least `threshold` (`mean`: of the table; None: all rows), each with a rating of 1.

    With `signs` the other rows stay, with a rating of -1. An empty result, or equal signs, are refused unless it
    `may_be_empty`, as for a source on public lists, where the error would depend on one private rating.
    """
    if threshold is None:
        return table.with_columns(rating=pl.lit(1.0))
    least = _mean(table) if threshold == "mean" else threshold
    if not np.isfinite(least):
        raise ValueError(f"threshold is {least}. Allowed: finite numbers, or null for all rows.")
    if signs:
        signed = table.with_columns(rating=pl.when(pl.col("rating") >= least).then(1.0).otherwise(-1.0))
        if signed["rating"].n_unique() < 2 and not may_be_empty:
            span = f"{table['rating'].min()!r} to {table['rating'].max()!r}"
            one_side = f"all {table.height} ratings are on one side of it ({span})"
            raise ValueError(f"threshold is {least:g}, and {one_side}. Choose one between them.")
        return signed
    rows = table.filter(pl.col("rating") >= least)
    if rows.is_empty() and not (table.is_empty() or may_be_empty):
        highest = table["rating"].max()
        raise ValueError(f"threshold is {least}, above all {table.height} ratings (highest {highest!r}). Lower it.")
    return rows.with_columns(rating=pl.lit(1.0))


def keep_frequent(table: pl.DataFrame, column: str, minimum: int) -> pl.DataFrame:
    """Return the rows of the users (column user_id) or items (item_id) with at least `minimum` rows, 1 or more."""
    if minimum < 1:
        raise ValueError(f"min_{column.removesuffix('_id')}_ratings is {minimum}. Allowed: >= 1.")
    return table.filter(pl.len().over(column) >= minimum)


def filter_counts(
    table: pl.DataFrame,
    min_user: int = 1,
    min_item: int = 1,
    users: Iterable[str] | None = None,
    iterated: bool = False,
    *,
    may_be_empty: bool = False,
) -> pl.DataFrame:
    """Return the rows of users and items that are frequent enough, and of the given `users` alone (None: of all).

    One pass keeps users with `min_user` rows; of these the given `users`; then items with `min_item` rows among them. With
    `iterated` passes repeat until nothing changes: the largest part of the table that meets both minimums. An empty result is
    an error unless it `may_be_empty`.
    """
    listed = None if users is None else as_ids(users).tolist()
    rows, again = table, True
    while again:
        before = rows.height
        rows = keep_frequent(rows, "user_id", min_user)
        if listed is not None:
            rows = rows.filter(pl.col("user_id").is_in(listed))
        rows = keep_frequent(rows, "item_id", min_item)
        again = iterated and rows.height < before
    if rows.is_empty() and not may_be_empty:
        among = "" if listed is None else f" among {len(listed)} listed users"
        least = f"at least {min_user} rows per user and {min_item} per item{among}"
        raise ValueError(f"No row of {table.height} has {least}. Lower the minimums or check users.")
    return rows


def common_users(tables: Mapping[str, pl.DataFrame], min_user: int = 1) -> list[str]:
    """Return, sorted, the users with at least `min_user` rows in every domain; an empty result is an error."""
    passing = {name: set(keep_frequent(table, "user_id", min_user)["user_id"]) for name, table in tables.items()}
    common = set.intersection(*passing.values())
    if not common:
        counts = "users by domain: " + ", ".join(f"{name} {len(users)}" for name, users in passing.items())
        none = f"No user has at least {min_user} rows in every domain ({counts})"
        raise ValueError(f"{none}. Lower the minimum, or use the same ids.")
    return sorted(common)


def _mean(table: pl.DataFrame) -> float:
    ratings = table["rating"].cast(pl.Float64).to_numpy()
    if not len(ratings) or not np.isfinite(ratings).all():
        broken = int((~np.isfinite(ratings)).sum())
        raise ValueError(f"{broken} of {len(ratings)} ratings are not finite. Drop them.")
    return float(ratings.mean())
