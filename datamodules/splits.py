"""Splits: pure, seeded functions from a table of interactions (`datamodules.tables`) to train and held-out rows.

Random choices are hashes of (seed, user, item), ties in time included, so a user's split depends on no other user and, with times,
not on the order of rows. A repeated pair counts at its latest time (`merge_repeats`).
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from datamodules.protocol import TIME_BANDS, Evaluation
from datamodules.tables import merge_repeats
from zoo.data.arrays import Keys
from zoo.data.ratings import as_ids, map_ids
from zoo.data.sampling import hash_ids, mix, uniform_reals

PAIR = ["user_id", "item_id"]
#: A row's position among its user's rows, from 0, and the user's number of rows, in tables that have these columns.
POSITION, SIZE = pl.col("position"), pl.col("size")
#: The first row of a user who has another one for train.
FIRST = (POSITION == 0) & (SIZE > 1)
_OF_USER = pl.len().over("user_id").cast(pl.Int64)


class Split(NamedTuple):
    """Disjoint parts of a table."""

    train: pl.DataFrame
    validation: pl.DataFrame  # each row is one evaluation case
    test: pl.DataFrame  # each row is one evaluation case
    hidden: pl.DataFrame  # neither trained on nor evaluated, and never drawn as negatives (`cold_start`)


def hold_out(
    table: pl.DataFrame,
    evaluation: Evaluation,
    seed: int,
    domain: str,
    shipped: tuple[pl.DataFrame | None, pl.DataFrame] | None = None,
) -> Split:
    """Split a domain's interactions as the settings say; `given` needs the ``shipped`` rows, validation may be None.

    Examples:
        >>> import polars as pl
        >>> from datamodules import Evaluation
        >>> from datamodules.tables import with_categories
        >>> rows = {"user_id": ["ann"] * 3, "item_id": ["a", "b", "c"], "rating": 1.0, "timestamp": [10, 30, 20]}
        >>> parts = hold_out(with_categories(pl.DataFrame(rows)), Evaluation("latest2"), seed=0, domain="books")
        >>> [part["item_id"].to_list() for part in parts]  # train, validation, test, hidden
        [['a'], ['c'], ['b'], []]
    """
    match evaluation.split:
        case "random1" | "random2":
            return leave_out_random(table, int(evaluation.split[-1]), seed)
        case "latest1" | "latest2":
            return leave_out_latest(table, int(evaluation.split[-1]), seed)
        case "ratio":
            return ratio(table, evaluation.shares, seed, evaluation.temporal)
        case "folds":
            return folds(table, evaluation.folds, seed)
        case "global_time":
            return global_time(table, evaluation.shares, evaluation.begins)
        case "none":
            rows = merge_repeats(table)
            return Split(rows, *[rows.clear()] * 3)
        case "cold_start":
            return cold_start(table, evaluation.cold_share, seed)
        case "given":
            if shipped is None:
                raise ValueError(f"split is 'given', and {domain!r} has no file {domain}_test. Change split.")
            return given(table, *shipped, seed)


def leave_out_random(table: pl.DataFrame, number: int, seed: int) -> Split:
    """Hold out one random item of each user for the test and, of two, another for validation; train keeps at least one."""
    return _leave_out(_ordered_by_key(merge_repeats(table), seed, f"random{number}"), number)


def leave_out_latest(table: pl.DataFrame, number: int, seed: int = 0) -> Split:
    """Hold out the latest item of each user for the test and, of two, the one before it for validation.

    A hash of (seed, user, item) breaks ties in time. If no row has a time, the order of rows decides. Times on some rows only are
    refused. Users with one or two items are as in `leave_out_random`.
    """
    return _leave_out(_ordered_by_time(table, seed), number)


def ratio(
    table: pl.DataFrame, shares: tuple[float, float, float] = (0.8, 0.1, 0.1), seed: int = 0, temporal: bool = False
) -> Split:
    """Hold out a share of each user's items: random ones or, with `temporal`, the latest for the test, then validation.

    Shares are of train, validation and test. A held-out part gets its share rounded down, but at least one item. Train keeps at
    least one, and the test has priority over validation. Each held-out item is one case. With `temporal`, times are as in
    `leave_out_latest`.
    """
    _check_shares(shares)
    rows = _ordered_by_time(table, seed) if temporal else _ordered_by_key(merge_repeats(table), seed, "ratio")
    for_validation, for_test = (
        # 100 * 0.29 is just below 29
        (SIZE * share + 1e-9).floor().cast(pl.Int64).clip(lower_bound=1 if share > 0 else 0)
        for share in shares[1:]
    )
    test = pl.min_horizontal(for_test, SIZE - 1)
    held = pl.min_horizontal(test + for_validation, SIZE - 1)
    in_validation = POSITION.is_between(test, held, closed="left")
    return _split(rows, in_validation, test=POSITION.is_between(0, test, closed="left"))


def folds(table: pl.DataFrame, number: int, seed: int) -> Split:
    """Hold out fold ``seed % number`` of the partition ``seed // number``, and one random other item of each user who has two.

    A hash of a row alone decides its fold, so the folds of a partition hold out each row exactly once, some users have no item in a
    fold, and a user whose items are all in one has no history there.
    """
    rows, partition = merge_repeats(table), seed // number
    in_test = pl.Series(_keys(rows, partition, "fold") % number == seed % number, dtype=pl.Boolean)
    left = _ordered_by_key(rows.filter(~in_test), partition, "validation of a fold")
    train, validation, *_ = _split(left, FIRST, test=pl.lit(False))
    return Split(train, validation, rows.filter(in_test), hidden=rows.clear())


def global_time(
    table: pl.DataFrame, shares: tuple[float, float, float] = (0.8, 0.1, 0.1), begins: tuple[int, int] | None = None
) -> Split:
    """Hold out all rows from two moments on: validation from the first of `begins`, the test from the second.

    Without `begins` the moments follow from the shares of all rows; rows of one time stay together. Each held-out row is one
    case, also of a user or item that train does not have. Every row needs a time.
    """
    if missing := table["timestamp"].null_count():
        raise ValueError(f"split is 'global_time', and {missing} of {table.height} rows have no timestamp.")
    rows = merge_repeats(table)
    time = pl.col("timestamp")
    if begins is None:
        _check_shares(shares)
        ordered = rows["timestamp"].sort().to_list()
        ordered.append(max(ordered, default=0) + 1)  # no share is left for the test
        begins = ordered[int(rows.height * shares[0] + 1e-9)], ordered[int(rows.height * (1 - shares[2]) + 1e-9)]
    first, second = begins
    return _split(rows, time.is_between(first, second, closed="left"), time >= second)


def _check_shares(shares: tuple[float, float, float]) -> None:
    if len(shares) != 3 or not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6 or not shares[0]:
        raise ValueError(f"shares are {shares}. Allowed: three numbers in [0, 1], sum 1, first > 0.")


def given(table: pl.DataFrame, validation: pl.DataFrame | None, test: pl.DataFrame, seed: int) -> Split:
    """Hold out rows that ship with the data, except those that a filter has dropped from the table.

    The table has all rows, held-out ones included. A repeated pair counts once. No row may be in both held-out parts. Validation
    None: one random item, by the seed, of each user who has two left.
    """
    rows = merge_repeats(table)
    left, tested = _partition(rows, test)
    if validation is None:
        validation = _ordered_by_key(left, seed, "given").filter(FIRST)
    elif both := _partition(tested, validation)[1].height:
        raise ValueError(f"{both} rows are in validation and test table. Remove them.")
    train, chosen = _partition(left, validation)
    return Split(train, chosen, tested, hidden=rows.clear())


def cold_start(table: pl.DataFrame, share: float, seed: int) -> Split:
    """Hide the whole history of a share of the users: half of them are for validation, half for the test.

    One random item of each hidden user is the held-out row; the others are in `hidden`. The number of users is the share
    rounded to the nearest, so the draw depends on the set of users. A repeated pair counts once.
    """
    if not 0 < share < 1:
        raise ValueError(f"cold_share is {share}. Allowed: (0, 1).")
    rows = _ordered_by_key(merge_repeats(table), seed, "cold item")
    users = np.sort(as_ids(rows["user_id"].unique()))
    order = users[np.argsort(mix(seed, "cold user", hash_ids(users)), kind="stable")].tolist()
    cold = int(len(order) * share + 0.5)
    half = cold // 2
    if half < 1 or cold >= len(order):
        raise ValueError(f"cold_share {share} of {len(order)} users is {cold}. Each part needs one.")
    in_validation, in_test = (pl.col("user_id").is_in(part) for part in (order[:half], order[half:cold]))
    first = POSITION == 0
    return _split(rows, in_validation & first, in_test & first, hidden=(in_validation | in_test) & ~first)


def before_held_out(table: pl.DataFrame, target: Split, domain: str) -> pl.DataFrame:
    """Return the rows of a source before the same user's earliest held-out row of the target; all rows of other users."""
    if not table.height:  # an error would tell it from a source with one rating
        return table
    if missing := table["timestamp"].null_count():
        rows = f"{missing} of {table.height} rows of {domain!r}"
        raise ValueError(f"earlier_sources is true, and {rows} have no timestamp. Omit it.")
    held_out = pl.concat([target.validation, target.test])
    if not held_out.height or held_out["timestamp"].null_count():
        raise ValueError("earlier_sources is true, but the target's held-out items lack timestamps. Omit it.")
    medians = [float(rows["timestamp"].median() or 0) for rows in (table, held_out)]  # type: ignore[arg-type]
    if len({sum(abs(median) >= low for low, _ in TIME_BANDS.values()) for median in medians}) > 1:  # not both seconds
        unlike = f"the median time of {domain!r} is {medians[0]:.0f}, that of the held-out items {medians[1]:.0f}"
        raise ValueError(f"earlier_sources is true, and {unlike} (seconds). Set time_unit of both.")
    limits = held_out.group_by("user_id").agg(limit=pl.col("timestamp").min())
    limited = table.join(limits, on="user_id", how="left", maintain_order="left")
    return limited.filter(pl.col("limit").is_null() | (pl.col("timestamp") < pl.col("limit"))).drop("limit")


def _partition(rows: pl.DataFrame, pairs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows whose pair is not in the second table, and those whose pair is."""
    left = rows.join(pairs, on=PAIR, how="anti", maintain_order="left")
    return left, rows.join(pairs, on=PAIR, how="semi", maintain_order="left")


def _ordered_by_key(rows: pl.DataFrame, seed: int, phase: str) -> pl.DataFrame:
    """Add `position`, a random order from 0 within each user, and `size`, the user's number of rows."""
    keyed = rows.with_columns(position=pl.Series(uniform_reals(_keys(rows, seed, phase)), dtype=pl.Float64))
    return keyed.with_columns(position=POSITION.rank("ordinal").over("user_id").cast(pl.Int64) - 1, size=_OF_USER)


def _keys(rows: pl.DataFrame, seed: int, phase: str) -> Keys:
    """Return the hash of each row's seed, phase, user and item."""
    users, items = (map_ids(rows[name], hash_ids) for name in PAIR)
    return mix(seed, phase, users, items)


def _ordered_by_time(table: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Add `position`, 0 for each user's latest item and rising backwards, and `size`."""
    missing = table["timestamp"].null_count()
    if 0 < missing < table.height:
        untimed = f"{missing} of {table.height} rows have no timestamp"
        raise ValueError(f"{untimed}. Add them, or sort rows and set timestamp_column to null.")
    rows = merge_repeats(table)
    tie = pl.int_range(pl.len()) if missing else pl.lit(pl.Series(_keys(rows, seed, "tie in time")))
    at = rows.select(pl.arg_sort_by("timestamp", tie)).to_series()
    earlier = rows.select(pl.col("user_id").gather(at)).select(pl.int_range(pl.len(), dtype=pl.Int64).over("user_id"))
    rows = rows.with_columns(earlier.to_series().gather(at.arg_sort()).alias("position"), size=_OF_USER)
    return rows.with_columns(position=SIZE - 1 - POSITION)


def ties_in_time(split: Split) -> dict[str, int]:
    """Return how many users have held-out items that a tie in time decided (`users`), and how many a test item (`of_users`).

    The latest row of a part has the time of the earliest row of a later part. Empty without times.

    Examples:
        >>> import polars as pl
        >>> from datamodules.tables import with_categories
        >>> rows = {"user_id": ["ann"] * 3, "item_id": ["a", "b", "c"], "rating": 1.0, "timestamp": [10, 20, 20]}
        >>> ties_in_time(leave_out_latest(with_categories(pl.DataFrame(rows)), 1))
        {'users': 1, 'of_users': 1}
    """
    if any(part["timestamp"].null_count() for part in split):
        return {}
    columns = [(part["user_id"].to_physical().to_numpy(), part["timestamp"].to_numpy()) for part in split]
    parts = dict(zip(Split._fields, columns, strict=True))
    codes = 1 + max(int(users.max(initial=0)) for users, _ in columns)
    ends = np.iinfo(np.int64)
    first_test, first, last_validation, last_train = (
        np.full(codes, end) for end in (ends.max, ends.max, ends.min, ends.min)
    )
    np.minimum.at(first_test, *parts["test"])
    np.minimum.at(first, *parts["test"])
    np.minimum.at(first, *parts["validation"])
    np.maximum.at(last_validation, *parts["validation"])
    np.maximum.at(last_train, *parts["train"])
    tested = np.unique(parts["test"][0])
    tied = (last_validation == first_test) | (last_train == first)
    return {"users": int(tied[tested].sum()), "of_users": len(tested)}


def _leave_out(rows: pl.DataFrame, number: int) -> Split:
    """Hold out each user's first row for the test and, of two, the second for validation, as long as one is left."""
    return _split(rows, validation=(POSITION == 1) & (SIZE > 2) & (number == 2), test=FIRST)


def _split(rows: pl.DataFrame, validation: pl.Expr, test: pl.Expr, hidden: pl.Expr | None = None) -> Split:
    """Return the four parts, without the columns `position` and `size`; all other rows are train."""
    hidden = pl.lit(False) if hidden is None else hidden
    parts = (~(validation | test | hidden), validation, test, hidden)
    return Split(*(rows.filter(part).drop("position", "size", strict=False) for part in parts))
