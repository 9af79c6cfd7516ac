"""Interaction tables from files: user_id and item_id (categories), rating (Float64), timestamp (Int64, null when unknown).

The order of rows breaks ties in time; where there are no times it is the order.
"""

import logging
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from datamodules.opening import opened
from datamodules.protocol import seconds_of
from datamodules.remarks import warn_once

logger = logging.getLogger(__name__)

_IDS: pl.DataType = pl.Categorical()
SCHEMA = pl.Schema({"user_id": _IDS, "item_id": _IDS, "rating": pl.Float64(), "timestamp": pl.Int64()})
_NO_RATINGS = "Name another column, or give rating_column null if every row counts as 1."
_NO_TIMES = "Name another column, or give timestamp_column null if times do not matter."
ENDINGS = (".csv.gz", ".csv", ".tsv", ".tsv.gz", ".inter", ".inter.gz", ".parquet")


def with_categories(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table with its ids as categories."""
    return table.with_columns(
        pl.col(name).cast(pl.String).cast(pl.Categorical())
        for name in ("user_id", "item_id")
        if table.schema[name] != pl.Categorical
    )


def pair_keys(table: pl.DataFrame) -> pl.Series:
    """Return one number for each row's (user, item), the same for the same pair in one process."""
    user, item = (pl.col(name).to_physical().cast(pl.UInt64) for name in ("user_id", "item_id"))
    return table.select(key=user * 2**32 + item).to_series()


def find_table(folder: str | Path, domain: str) -> Path:
    """Return the file of a domain: `<domain>` with the first of the known endings that is there."""
    for ending in ENDINGS:
        path = Path(folder) / f"{domain}{ending}"
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"No ratings of {domain!r} in {Path(folder).resolve()}{_meant(Path(folder).resolve(), domain)} Looked for "
        f"{', '.join(domain + ending for ending in ENDINGS)}: put one there or point ZOO_DATA or data.root elsewhere."
    )


def _meant(folder: Path, domain: str) -> str:
    """The end of a sentence about a folder or domain that is not there, with similar names that are."""
    there, ends, word = folder, ".", domain
    if not folder.is_dir():
        there, ends, word = folder.parent, " (the folder itself does not exist).", folder.name
    known = {path.name.split(".")[0] if path.is_file() else path.name for path in there.glob("*")}
    near = get_close_matches(word, sorted(known), n=3)
    return f"{ends} Did you mean {' or '.join(near)}?" if near else ends


def read_table(
    path: str | Path,
    user_column: str = "user_id",
    item_column: str = "item_id",
    rating_column: str | None = "rating",
    timestamp_column: str | None = "timestamp",
    *,
    may_be_empty: bool = False,
) -> pl.DataFrame:
    """Read the interactions of one file, checked: the columns of `SCHEMA`, rows in the file's order.

    Files are .csv, .tsv, RecBole's .inter (tabs; a header such as `user_id:token`, read without its types), each plain or .gz,
    and .parquet. A repeated (user, item) counts once, with the rating and time of its last row, at the place of its first; a
    warning says how many disagree. `rating_column` None: every row is a rating of 1; `timestamp_column` None: no times. Times
    are numbers, or ISO 8601 dates (`whole_times`). A file without a row is refused unless it `may_be_empty`.
    """
    path = Path(path)
    needed = [name for name in (user_column, item_column, rating_column, timestamp_column) if name is not None]
    raw = _read(path, needed, may_be_empty=may_be_empty)
    table = raw.select(
        user_id=_ids(raw[user_column], path),
        item_id=_ids(raw[item_column], path),
        rating=pl.lit(1.0) if rating_column is None else _ratings(raw[rating_column], path),
        timestamp=pl.lit(None, pl.Int64) if timestamp_column is None else _times(raw[timestamp_column], path),
    )
    return _merged(table, path)


def _merged(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Keep each (user, item) once; say how many rows that removes, and how many disagree."""
    keys = pair_keys(table)
    if keys.n_unique() == len(keys):
        return table
    repeated = keys.is_duplicated()
    several = table.with_row_index("at").filter(repeated).group_by("user_id", "item_id")  # few, of most files
    merged = several.agg(
        pl.col("at").first(),
        pl.col("rating", "timestamp").last(),
        different=pl.col("rating").min() < pl.col("rating").max(),
    )
    stays = (~repeated).scatter(merged["at"], values=True)
    last = [table[name].scatter(merged["at"], merged[name]) for name in ("rating", "timestamp")]
    once = table.with_columns(last).filter(stays)
    logger.info("%s: %d repeated (user, item) rows merged", path, table.height - once.height)
    if number := int(merged["different"].sum()):
        warn_once(
            f"{path}: {number} of {once.height} (user, item) have rows with different ratings; the last row of each counts."
        )
    return once


def read_negatives(path: str | Path, user_column: str = "user_id", item_column: str = "item_id") -> pl.DataFrame:
    """Read the negatives that ship with a data set: user_id and item_id, one row per negative, in the file's order."""
    raw = _read(Path(path), [user_column, item_column])
    return raw.select(user_id=_ids(raw[user_column], Path(path)), item_id=_ids(raw[item_column], Path(path)))


def _read(path: Path, needed: list[str], *, may_be_empty: bool = False) -> pl.DataFrame:
    """Read columns of a file, of which the first two are ids; strings are stripped, and null where nothing is left."""
    if not path.is_file():
        raise FileNotFoundError(
            f"No file {path} (looked for {path.resolve()}): check the path, or ZOO_DATA and data.root."
        )
    endings = [ending for ending in path.suffixes if ending != ".gz"]
    ending, packed = (endings or [""])[-1], path.suffix == ".gz"
    if ending not in {".csv", ".tsv", ".inter", ".parquet"} or (packed and ending == ".parquet"):
        raise ValueError(f"{path.name} has an ending that is not read; known are {', '.join(ENDINGS)}.")
    raw = opened(path, ending, packed, needed, needed[:2])
    if raw.is_empty() and not may_be_empty:
        raise ValueError(f"{path} holds no rows: it needs a header line and at least one row.")
    if missing := [name for name in needed if name not in raw.columns]:
        raise ValueError(
            f"{path} has no column {', '.join(map(repr, missing))}; its columns are {raw.columns}. Name the right ones (columns: "
            "{DOMAIN: {user: ..., item: ..., rating: ..., timestamp: ...}}), or say that there are none (rating_column null: every "
            "row counts as 1; timestamp_column null: no times, a user's rows run from oldest to newest)."
        )
    return raw


def _ids(column: pl.Series, path: Path) -> pl.Series:
    if not (column.dtype in (pl.String, pl.Categorical, pl.Null) or column.dtype.is_integer()):
        raise ValueError(f"Ids in {path}, column {column.name!r}, are {column.dtype}; ids are strings or integers.")
    if empty := column.null_count():
        raise ValueError(f"{empty} of {len(column)} rows of {path} have no {column.name!r}: drop these rows.")
    return column if column.dtype == pl.Categorical else column.cast(pl.String).cast(pl.Categorical())


def _numbers(column: pl.Series, path: Path, what: str) -> pl.Series:
    """Return a column as Float64, null where it was null; other values that are no finite number are refused."""
    numbers = column.cast(pl.Float64, strict=False)
    broken = (numbers.is_null() & column.is_not_null()) | ~numbers.is_finite().fill_null(True)
    if broken.any():
        raise ValueError(
            f"{int(broken.sum())} of {len(column)} {what}s of {path}, column {column.name!r}, are no finite numbers, "
            f"the first is {column.filter(broken)[0]!r}: drop or mend these rows."
        )
    return numbers


def _ratings(column: pl.Series, path: Path) -> pl.Series:
    if column.dtype.is_temporal():
        raise ValueError(
            f"Ratings in {path}, column {column.name!r}, are {column.dtype}; ratings are numbers. {_NO_RATINGS}"
        )
    numbers = _numbers(column, path, "rating")
    if missing := numbers.null_count():
        raise ValueError(
            f"{missing} of {len(numbers)} rows of {path} have no {column.name!r}: drop these rows. {_NO_RATINGS}"
        )
    return numbers


def _times(column: pl.Series, path: Path) -> pl.Series:
    if column.dtype in (pl.Boolean, pl.Duration, pl.Time):
        raise ValueError(
            f"Timestamps in {path}, column {column.name!r}, are {column.dtype}; they are numbers or dates. {_NO_TIMES}"
        )
    times, broken = whole_times(column)
    if broken.any():
        raise ValueError(
            f"{int(broken.sum())} of {len(column)} timestamps of {path}, column {column.name!r}, are no finite numbers and no "
            f"dates such as 2014-07-01 (all of one kind), the first is {column.filter(broken)[0]!r}. {_NO_TIMES}"
        )
    return times


def whole_times(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return a column of numbers, or of ISO 8601 dates, as Int64, and a mask of its values that are neither.

    Numbers keep their unit, and whole ones every digit; dates become seconds. In a column of dates a number counts as broken,
    unless it is a date without hyphens (`20140701`). So does a number beyond 64 bits.
    """
    if column.dtype in (pl.Date, pl.Datetime):
        return column.dt.epoch("s").cast(pl.Int64), pl.repeat(False, len(column), eager=True)
    whole = column.cast(pl.Int64, strict=False)
    if column.dtype.is_integer():
        return whole, whole.is_null() & column.is_not_null()
    if column.dtype == pl.String and whole.null_count() == column.null_count():
        return whole, pl.repeat(False, len(column), eager=True)
    numbers = column.cast(pl.Float64, strict=False)
    broken = (numbers.is_null() & column.is_not_null()) | ~numbers.is_finite().fill_null(True)
    if column.dtype == pl.String and broken.any() and (dated := _dated(column)) is not None:
        numbers, broken = dated, dated.is_null() & column.is_not_null()
    return numbers.cast(pl.Int64, strict=False), broken


def _dated(column: pl.Series) -> pl.Series | None:
    """Return a column of text in seconds, null where it is no date; None where nothing is one."""
    distinct = column.drop_nulls().unique()
    seconds = pl.Series([seconds_of(text) for text in distinct.to_list()], dtype=pl.Int64)
    if seconds.null_count() == len(seconds):
        return None
    return column.replace_strict(distinct, seconds, default=None, return_dtype=pl.Int64)
