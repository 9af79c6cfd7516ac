"""Columns in the place of a source's items: a public number of them, onto which a fixed hash sends every item id."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from datamodules.protocol import Evaluation
from datamodules.splits import PAIR
from zoo.data.ratings import of_each
from zoo.data.sampling import hash_ids, mix, uniform_integers

#: A source may have so many columns at most: what `uniform_integers` tells apart.
MOST_COLUMNS = 2**32
#: Public and the same for everybody: nothing about the data decides which items share a column.
_SALT = "columns of a source"


def column_ids(number: int) -> list[str]:
    """Names of so many columns, in order."""
    width = len(str(number - 1))
    return [f"column-{at:0{width}d}" for at in range(number)]


def in_columns(table: pl.DataFrame, number: int) -> pl.DataFrame:
    """Gives the rows with a column's name for an item's, one for each (user, column): feature hashing, without signs.

    An item's column is a hash of its id, so it depends on nobody's ratings, and no list of items is needed. Of a user's rows in one
    column the last stands for all, so that of positive ratings a cell is 1 if any of the items is rated. Hence one rating moves one
    cell at most: the cell (user, column) is made of this user's rows of the column's items alone, and each row is of one item, so
    whatever a row becomes, it is added or it is taken away, every other cell stays what it is. The rows and columns of the matrix
    are settled before.

    Source: Weinberger et al., *Feature Hashing for Large Scale Multitask Learning*, ICML 2009. Departures: no random signs, and
    what shares a column is not added up; a sum of k ratings would have k times the range.
    """
    at = of_each(table["item_id"], lambda items: uniform_integers(mix(_SALT, hash_ids(items)), number))
    names = pl.Series(column_ids(number), dtype=pl.Categorical())
    return table.with_columns(item_id=names.gather(at)).unique(PAIR, keep="last", maintain_order=True)


def check_columns(catalogues: Mapping[str, int | Path], target: str, evaluation: Evaluation) -> None:
    """Refuse a number of columns, by domain, where it means nothing."""
    for name, given in catalogues.items():
        if not isinstance(given, int):
            continue
        if not 1 <= given <= MOST_COLUMNS or isinstance(given, bool):
            raise ValueError(f"catalogues.{name} is {given}; a number of columns is from 1 to 2^32. Take e.g. 8192.")
        if name == target:
            raise ValueError(
                f"catalogues.{name} is a number of columns, {given}, and {name!r} is the target, which ranks items and not "
                "columns that several of them share. Name a CSV file with a column item_id, or leave it out."
            )
        if evaluation.hold_out_of_sources:
            raise ValueError(
                f"catalogues.{name} is a number of columns, {given}, and evaluation.hold_out_of_sources takes single items "
                "out of them, which would leave others of their column in. Name a CSV file, or hold nothing out."
            )
