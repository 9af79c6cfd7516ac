"""Filters: pure functions from a table of interactions to the rows of it that count.

A table has the columns user_id, item_id, rating and timestamp (`datamodules.tables`).
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np
import polars as pl

from zoo.data.ratings import Ratings, as_ids


def binarise(table: pl.DataFrame, threshold: float | Literal["mean"] | None, signs: bool = False) -> pl.DataFrame:
    """Gives the rows rated at least `threshold` (None: all rows), each with a rating of 1.

    Args:
        table: the interactions.
        threshold: the least rating that counts; `mean`: that of the table.
        signs: the rows below the threshold are kept, with a rating of -1.

    Raises:
        ValueError: the threshold is not a finite number, or no row reaches it; with signs, all rows are on one side of it.
    """
    if threshold == "mean":
        threshold = _mean(table)
    if threshold is None:
        return table.with_columns(rating=pl.lit(1.0))
    if not signs:
        return _rated(table, threshold).with_columns(rating=pl.lit(1.0))
    if not np.isfinite(threshold):
        raise ValueError(f"A threshold is a finite number, or None for all rows, got {threshold}.")
    signed = table.with_columns(rating=pl.when(pl.col("rating") >= threshold).then(1.0).otherwise(-1.0))
    if signed["rating"].n_unique() < 2:
        raise ValueError(
            f"All {table.height} ratings lie on one side of the threshold {threshold:g} (from {table['rating'].min()!r} to "
            f"{table['rating'].max()!r}), so all signs are the same: choose a threshold between them."
        )
    return signed


def keep_users_with(table: pl.DataFrame, minimum: int) -> pl.DataFrame:
    """Gives the rows of the users who have at least `minimum` rows.

    Raises:
        ValueError: `minimum` is below 1.
    """
    _need_minimum(minimum, "user")
    return table.filter(pl.len().over("user_id") >= minimum)


def keep_items_with(table: pl.DataFrame, minimum: int) -> pl.DataFrame:
    """Gives the rows of the items that have at least `minimum` rows.

    Raises:
        ValueError: `minimum` is below 1.
    """
    _need_minimum(minimum, "item")
    return table.filter(pl.len().over("item_id") >= minimum)


def keep_users(table: pl.DataFrame, ids: Iterable[str]) -> pl.DataFrame:
    """Gives the rows of the given users; ids that are not in the table are of no account."""
    return table.filter(pl.col("user_id").is_in(as_ids(ids).tolist()))


def filter_counts(
    table: pl.DataFrame,
    min_user: int = 1,
    min_item: int = 1,
    users: Iterable[str] | None = None,
    iterated: bool = False,
) -> pl.DataFrame:
    """Gives the rows of users and items that are frequent enough.

    One pass has three steps, in this order: users with `min_user` rows; of these the given `users`; items with
    `min_item` rows among them. The last step may leave a user with fewer rows than `min_user`; with `iterated` all steps
    are repeated until nothing changes, which leaves the largest part of the table that meets both minimums.

    Args:
        table: the interactions.
        min_user: fewest rows of a user.
        min_item: fewest rows of an item.
        users: ids to cut the table to; None: nobody is cut.
        iterated: whether to repeat.

    Raises:
        ValueError: a minimum below 1, or nothing is left.
    """
    listed = None if users is None else as_ids(users).tolist()
    before, rows = -1, table
    while before != rows.height:
        before = rows.height
        rows = keep_users_with(rows, min_user)
        if listed is not None:
            rows = keep_users(rows, listed)
        rows = keep_items_with(rows, min_item)
        if not iterated:
            break
    if rows.is_empty():
        among = "" if listed is None else f" among the {len(listed)} given users"
        raise ValueError(
            f"No row is left of {table.height}: at least {min_user} rows per user and {min_item} per item{among} are too "
            "much for this data. Lower the minimums or check the list of users."
        )
    return rows


def common_users(tables: Mapping[str, pl.DataFrame], min_user: int = 1) -> list[str]:
    """Gives, sorted, the users who have at least `min_user` rows in every domain.

    Raises:
        ValueError: no domain, a minimum below 1, or no such user.
    """
    if not tables:
        raise ValueError("Users in common need at least one domain.")
    passing = {name: set(keep_users_with(table, min_user)["user_id"]) for name, table in tables.items()}
    both = set.intersection(*passing.values())
    if not both:
        counts = ", ".join(f"{name} {len(users)}" for name, users in passing.items())
        raise ValueError(
            f"No user has at least {min_user} rows in every domain (users who do in one: {counts}). Lower the minimum, or "
            "check that the same person has the same id everywhere."
        )
    return sorted(both)


def rebuild_douban(book: pl.DataFrame, music: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Gives the Douban Book and Music sample of PriCDR (Chen et al. 2022, table 3) from the ratings of GA-DTCDR.

    Ratings of at least 3; users with at least 6 of them in each domain; items with at least 6 among these users; once.
    The paper says that fewer than 5 are dropped; the sample that was published has the numbers above. Ratings stay 3 to 5.
    """
    tables = {"book": _rated(book, 3), "music": _rated(music, 3)}
    users = common_users(tables, 6)
    kept = {name: filter_counts(table, 6, 6, users) for name, table in tables.items()}
    return kept["book"], kept["music"]


def describe(ratings: Ratings) -> dict[str, int | float]:
    """Gives the size of a domain in plain numbers: users, items, ratings, density."""
    return {
        "users": ratings.num_users,
        "items": ratings.num_items,
        "ratings": ratings.num_ratings,
        "density": ratings.density,
    }


def _rated(table: pl.DataFrame, threshold: float) -> pl.DataFrame:
    """Gives the rows rated at least `threshold`, ratings as they are."""
    if not np.isfinite(threshold):
        raise ValueError(f"A threshold is a finite number, or None for all rows, got {threshold}.")
    rows = table.filter(pl.col("rating") >= threshold)
    if rows.is_empty() and not table.is_empty():
        raise ValueError(
            f"None of {table.height} ratings reaches the threshold {threshold}; the highest is {table['rating'].max()!r}. "
            "Ratings that are 1 throughout want no threshold: give None."
        )
    return rows


def _mean(table: pl.DataFrame) -> float:
    """Gives the mean rating of a table.

    Raises:
        ValueError: a rating is not a finite number, or there is none.
    """
    ratings = table["rating"].cast(pl.Float64).to_numpy()
    if not len(ratings) or not np.isfinite(ratings).all():
        raise ValueError(
            f"{int((~np.isfinite(ratings)).sum())} of {len(ratings)} ratings are no numbers, so they have no mean: mend or "
            "drop these rows, or give a threshold."
        )
    return float(ratings.mean())


def _need_minimum(minimum: int, what: str) -> None:
    """Raises when a minimum count says nothing."""
    if minimum < 1:
        raise ValueError(f"The fewest rows of one {what} are 1 or more, got {minimum}; 1 keeps every {what}.")
