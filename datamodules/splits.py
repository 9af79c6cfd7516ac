"""Splits: pure, seeded functions from a table of interactions to what is learned from and what is held out.

A table has the columns user_id, item_id, rating and timestamp (`datamodules.tables`). Whatever is random about a row is a
hash of (seed, user, item), so a user's split does not change with the order of the rows or with who else is there.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from datamodules.protocol import Evaluation
from zoo.data.ratings import as_ids
from zoo.data.sampling import hash_ids, mix, uniform_reals

PAIR = ["user_id", "item_id"]


class Split(NamedTuple):
    """What is learned from, what is held out, and what nobody may see; no pair is in two of them.

    Attributes:
        train: rows to learn from.
        validation: held-out rows to choose by; each row is one evaluation case.
        test: held-out rows to report; each row is one evaluation case.
        hidden: rows neither learned from nor evaluated, but never to be taken for negatives (`cold_start`).
    """

    train: pl.DataFrame
    validation: pl.DataFrame
    test: pl.DataFrame
    hidden: pl.DataFrame


def hold_out(
    table: pl.DataFrame,
    evaluation: Evaluation,
    seed: int,
    domain: str,
    shipped: tuple[pl.DataFrame | None, pl.DataFrame] | None = None,
) -> Split:
    """Holds out what the settings say.

    Args:
        table: the interactions that count.
        evaluation: names the split and what it takes.
        seed: of what is random.
        domain: whose table it is, for an error.
        shipped: for `given`: validation rows, if any, and test rows that ship with the data.

    Raises:
        ValueError: `given` without such rows, or what the split itself refuses.
    """
    match evaluation.split:
        case "random1":
            return random1(table, seed)
        case "random2":
            return random2(table, seed)
        case "latest1":
            return latest1(table)
        case "latest2":
            return latest2(table)
        case "ratio":
            return ratio(table, evaluation.shares, seed, evaluation.temporal)
        case "cold_start":
            return cold_start(table, evaluation.cold_share, seed)
        case "given":
            if shipped is None:
                raise ValueError(
                    f"split is 'given', and {domain!r} ships no held-out rows (files {domain}_test and, if any, "
                    f"{domain}_valid). Choose another split."
                )
            # A filter may have dropped users or items; their held-out rows go with them.
            validation, test = shipped
            chosen = None if validation is None else validation.join(table, on=PAIR, how="semi")
            return given(table, chosen, test.join(table, on=PAIR, how="semi"), seed)


def random1(table: pl.DataFrame, seed: int) -> Split:
    """Holds out one random item of each user for the test; there is no validation set.

    A user with one item has it in train. A repeated pair counts once.
    """
    rows = _place_by_key(_distinct(table), seed, "random1")
    return _split(rows, validation=pl.lit(False), test=_first_of_two())


def random2(table: pl.DataFrame, seed: int) -> Split:
    """Holds out two random items of each user: one for validation, one for the test.

    A user with two items has a test item only, a user with one has it in train. A repeated pair counts once.
    """
    rows = _place_by_key(_distinct(table), seed, "random2")
    return _split(rows, validation=(pl.col("place") == 1) & (pl.col("size") > 2), test=_first_of_two())


def latest1(table: pl.DataFrame) -> Split:
    """Holds out the latest item of each user for the test; there is no validation set.

    Ties in time go by row order, as does everything where no row has a time. A repeated pair counts once, at its latest
    row, so no earlier row of the test item stays in train. A user with one item has it in train.

    Raises:
        ValueError: some rows have a time and some have none.
    """
    return _split(_place_by_time(table), validation=pl.lit(False), test=_first_of_two())


def latest2(table: pl.DataFrame) -> Split:
    """Holds out the latest item of each user for the test and the one before it for validation.

    Otherwise as `latest1`; a user with two items has a test item and no validation item.

    Raises:
        ValueError: some rows have a time and some have none.
    """
    rows = _place_by_time(table)
    return _split(rows, validation=(pl.col("place") == 1) & (pl.col("size") > 2), test=_first_of_two())


def ratio(
    table: pl.DataFrame, shares: tuple[float, float, float] = (0.8, 0.1, 0.1), seed: int = 0, temporal: bool = False
) -> Split:
    """Holds out a share of each user's items, at random or the latest ones.

    A held-out part gets its share of the user's items rounded down, but at least one; train keeps at least one, and the
    test is served before validation. So a user can have several held-out items: each is an evaluation case of its own.

    Args:
        table: the interactions; a repeated pair counts once, at its latest row where times matter.
        shares: of train, validation and test.
        seed: for random shares; of no account with `temporal`.
        temporal: the latest items are the test, those before them validation.

    Raises:
        ValueError: shares that are no shares, or, with `temporal`, times on some rows only.
    """
    if len(shares) != 3 or not all(0 <= share <= 1 for share in shares) or abs(sum(shares) - 1) > 1e-6 or not shares[0]:
        raise ValueError(
            f"Shares of train, validation and test are three numbers from 0 to 1 with sum 1, got {shares}."
        )
    rows = _place_by_time(table) if temporal else _place_by_key(_distinct(table), seed, "ratio")
    counts = []
    for share in shares[1:]:
        wanted = (pl.col("size") * share + 1e-9).floor().cast(pl.Int64)  # 100 * 0.29 is just below 29
        counts.append(wanted.clip(lower_bound=1 if share > 0 else 0))
    test = pl.min_horizontal(counts[1], pl.col("size") - 1)
    held = pl.min_horizontal(test + counts[0], pl.col("size") - 1)
    place = pl.col("place")
    return _split(rows, validation=(place >= test) & (place < held), test=place < test)


def given(table: pl.DataFrame, validation: pl.DataFrame | None, test: pl.DataFrame, seed: int) -> Split:
    """Takes held-out rows that ship with the data out of a table that holds all rows.

    Args:
        table: all rows; a repeated pair counts once.
        validation: user_id and item_id of the validation rows; None: one random item of each user who has two left.
        test: user_id and item_id of the test rows.
        seed: for the random validation items.

    Raises:
        ValueError: a held-out row is not in the table, or in both held-out tables.
    """
    rows = _distinct(table)
    for name, held in (("validation", validation), ("test", test)):
        if held is None:
            continue
        strange = held.join(rows, on=PAIR, how="anti")
        if strange.height:
            raise ValueError(
                f"{strange.height} of {held.height} {name} rows are not in the table, the first is "
                f"{strange.select(PAIR).row(0)}. The table holds all rows, the held-out ones too; filter both alike."
            )
    tested = _marks(rows, test)
    if validation is None:
        left = _place_by_key(rows.filter(~tested), seed, "given").filter((pl.col("place") == 0) & (pl.col("size") > 1))
        chosen = _marks(rows, left)
    else:
        chosen = _marks(rows, validation)
        both = int((tested & chosen).sum())
        if both:
            raise ValueError(f"{both} rows are in both the validation and the test table: take them out of one.")
    hidden = rows.clear()
    return Split(rows.filter(~(tested | chosen)), rows.filter(chosen), rows.filter(tested), hidden)


def cold_start(table: pl.DataFrame, share: float, seed: int) -> Split:
    """Hides the whole history of a share of the users: half of them are for validation, half for the test.

    One item of each hidden user, drawn at random, is the held-out row; the others are in `hidden`. The number of users
    is the share rounded to the nearest, so who is drawn depends on the set of users (but not on the order of the rows).

    Args:
        table: the interactions; a repeated pair counts once.
        share: of the users, above 0 and below 1.
        seed: of both draws.

    Raises:
        ValueError: the share is not between 0 and 1, or it leaves no user for validation, test or train.
    """
    if not 0 < share < 1:
        raise ValueError(f"The share of cold users lies above 0 and below 1, got {share}.")
    rows = _place_by_key(_distinct(table), seed, "cold item")
    users = np.sort(as_ids(rows["user_id"].unique()))
    order = users[np.argsort(mix(seed, "cold user", hash_ids(users)), kind="stable")].tolist()
    cold = int(len(order) * share + 0.5)
    half = cold // 2
    if half < 1 or cold >= len(order):
        raise ValueError(
            f"A share of {share} of {len(order)} users is {cold}, which does not leave one for each of train, validation "
            "and test: give another share or more users."
        )
    user, first = pl.col("user_id"), pl.col("place") == 0
    in_validation, in_test = user.is_in(order[:half]), user.is_in(order[half:cold])
    return _split(rows, in_validation & first, in_test & first, hidden=(in_validation | in_test) & ~first)


def _distinct(table: pl.DataFrame) -> pl.DataFrame:
    """Gives each (user, item) once, as its last row."""
    return table.unique(PAIR, keep="last", maintain_order=True)


def _marks(rows: pl.DataFrame, pairs: pl.DataFrame) -> pl.Series:
    """Says of each row whether its pair is among the given ones."""
    marked = pairs.select(PAIR).unique().with_columns(mark=pl.lit(True))
    return rows.select(PAIR).join(marked, on=PAIR, how="left", maintain_order="left")["mark"].fill_null(False)


def _place_by_key(rows: pl.DataFrame, seed: int, phase: str) -> pl.DataFrame:
    """Adds `place`, a random order from 0 within each user, and `size`, how many rows the user has."""
    users, items = (hash_ids(as_ids(rows[name])) for name in PAIR)
    keyed = rows.with_columns(place=pl.Series(uniform_reals(mix(seed, phase, users, items)), dtype=pl.Float64))
    return keyed.with_columns(place=pl.col("place").rank("ordinal").over("user_id").cast(pl.Int64) - 1, size=_size())


def _place_by_time(table: pl.DataFrame) -> pl.DataFrame:
    """Adds `place`, 0 for each user's latest item and rising backwards, and `size`; a repeated pair counts at its latest."""
    missing = table["timestamp"].null_count()
    if 0 < missing < table.height:
        raise ValueError(
            f"{missing} of {table.height} rows have no timestamp, so what is latest is not known: fill them in, or read the "
            "file with timestamp_column=None if its rows run from oldest to newest."
        )
    rows = table.with_row_index("at").sort("timestamp", "at")
    rows = _distinct(rows)
    place = _size() - 1 - pl.int_range(pl.len(), dtype=pl.Int64).over("user_id")
    return rows.with_columns(place=place, size=_size()).sort("at").drop("at")


def _size() -> pl.Expr:
    """Gives how many rows the row's user has."""
    return pl.len().over("user_id").cast(pl.Int64)


def _first_of_two() -> pl.Expr:
    """Says whether a row is the first in place of a user who has another row for train."""
    return (pl.col("place") == 0) & (pl.col("size") > 1)


def _split(rows: pl.DataFrame, validation: pl.Expr, test: pl.Expr, hidden: pl.Expr | None = None) -> Split:
    """Gives the four parts, without the columns `place` and `size`; what is held out nowhere is train."""
    hidden = pl.lit(False) if hidden is None else hidden
    parts = [
        rows.filter(part).drop("place", "size") for part in (~(validation | test | hidden), validation, test, hidden)
    ]
    return Split(*parts)
