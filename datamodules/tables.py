"""Interaction tables from files: user_id and item_id (categories), rating (Float64), timestamp (Int64, null when unknown).

Where there are no times, rows run from oldest to newest. A repeated (user, item) counts at its latest time.
"""

import logging
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from datamodules.data_quality import warn_once
from datamodules.open_table import line_numbers, open_table
from datamodules.protocol import seconds_of

logger = logging.getLogger(__name__)

_IDS: pl.DataType = pl.Categorical()
SCHEMA = pl.Schema({"user_id": _IDS, "item_id": _IDS, "rating": pl.Float64(), "timestamp": pl.Int64()})
_NO_RATINGS = "If every row counts as 1, set rating_column to null."
_NO_TIMES = "If times do not matter, set timestamp_column to null."
ENDINGS = (".csv.gz", ".csv", ".tsv", ".tsv.gz", ".inter", ".inter.gz", ".parquet")
#: Lines that a message names for each kind of fault.
_LINES_SHOWN = 5


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
    """Return the file of a domain: `<domain>` with the first of the known endings that exists."""
    for ending in ENDINGS:
        path = Path(folder) / f"{domain}{ending}"
        if path.is_file():
            return path
    absolute = Path(folder).resolve()
    missing = f"No ratings of {domain!r} in {absolute}{_suggestion(absolute, domain)}"
    names = ", ".join(domain + ending for ending in ENDINGS)
    raise FileNotFoundError(f"{missing} Looked for {names}. Add the file, or set ZOO_DATA or data.root.")


def _suggestion(folder: Path, domain: str) -> str:
    """Return the end of a sentence about a missing folder or domain, with similar names that exist."""
    existing, end, word = folder, ".", domain
    if not folder.is_dir():
        existing, end, word = folder.parent, " (the folder itself does not exist).", folder.name
    known = {path.name.split(".")[0] if path.is_file() else path.name for path in existing.glob("*")}
    near = get_close_matches(word, sorted(known), n=3)
    return f"{end} Did you mean {' or '.join(near)}?" if near else end


class _Faults:
    """Faults of a file, by kind: one message reports them all."""

    def __init__(self, source: str | Path) -> None:
        self.source, self.texts, self.hints = source, list[str](), dict[str, None]()

    def add_column(self, column: pl.Series, allowed: str, hint: str = "") -> None:
        self.texts.append(f"column {column.name!r} is {column.dtype}, and {allowed}")
        self.hints[hint] = None

    def add_rows(self, column: pl.Series, broken: pl.Series, what: str, hint: str = "") -> None:
        if not (count := int(broken.sum())):
            return
        first = broken.arg_true().head(_LINES_SHOWN).to_list()
        in_file = isinstance(self.source, Path)
        word, numbers = line_numbers(self.source, first) if in_file else ("row", {row: row + 1 for row in first})
        lines = f"{word}{'s' * (count > 1)} {', '.join(map(str, numbers.values()))}{', ...' * (count > len(numbers))}"
        value = "" if (first := column.filter(broken)[0]) is None else f", first value {first!r}"
        rows = f"{count:,} rows have" if count > 1 else "1 row has"
        self.texts.append(f"{rows} {what} ({lines}, column {column.name!r}{value})")
        if 2 * count >= len(broken):  # probably another column is meant
            self.hints[hint] = None

    def refuse(self) -> None:
        if self.texts:
            hints = " ".join(filter(None, self.hints))
            raise ValueError(f"{self.source}: {'; '.join(self.texts)}. Correct or drop these. {hints}".rstrip())


def read_table(
    path: str | Path,
    user_column: str = "user_id",
    item_column: str = "item_id",
    rating_column: str | None = "rating",
    timestamp_column: str | None = "timestamp",
    *,
    may_be_empty: bool = False,
) -> pl.DataFrame:
    """Read the interactions of one domain from a file with a header line; columns are found by name.

    Endings are .csv, .tsv and .inter (RecBole: tab-separated, its columns named without their types), each plain or .gz,
    and .parquet. A repeated (user, item) counts once, as `merge_repeats` says. A warning has the number of pairs whose ratings
    disagree.

    Args:
        path: The file.
        user_column: Column of user ids, strings or integers.
        item_column: Column of item ids.
        rating_column: Column of finite numbers; None: every row is a rating of 1.
        timestamp_column: Column of numbers or ISO 8601 dates (see `whole_times`); None: no times.
        may_be_empty: Whether a file without rows is accepted.

    Returns:
        Table with the columns of `SCHEMA`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, or rows cannot be read: with the lines of each kind of fault.
    """
    needed = [name for name in (user_column, item_column, rating_column, timestamp_column) if name is not None]
    raw = _read(Path(path), needed, may_be_empty=may_be_empty)
    return interactions(raw, user_column, item_column, rating_column, timestamp_column, source=Path(path))


def interactions(
    raw: pl.DataFrame,
    user_column: str = "user_id",
    item_column: str = "item_id",
    rating_column: str | None = "rating",
    timestamp_column: str | None = "timestamp",
    *,
    source: str | Path = "The table",
) -> pl.DataFrame:
    """Return the interactions of a table with raw columns, checked as those of a file are (see `read_table`).

    Args:
        raw: Table with at least the named columns; text is stripped, and null if empty.
        user_column: Column of user ids, strings or integers.
        item_column: Column of item ids.
        rating_column: Column of finite numbers; None: every row is a rating of 1.
        timestamp_column: Column of numbers or dates; None: no times.
        source: Origin of the table, for messages. A path: rows are named by their lines in this file.

    Returns:
        Table with the columns of `SCHEMA`.

    Raises:
        ValueError: If rows cannot be read: with the lines of each kind of fault.

    Examples:
        >>> import polars as pl
        >>> raw = pl.DataFrame({"who": [7, 7], "what": ["emma", "dune"], "stars": ["4", "5"]})
        >>> interactions(raw, "who", "what", "stars", None).rows()
        [('7', 'emma', 4.0, None), ('7', 'dune', 5.0, None)]
    """
    faults = _Faults(source)
    table = raw.select(
        user_id=_ids(raw[user_column], "user", faults),
        item_id=_ids(raw[item_column], "item", faults),
        rating=pl.lit(1.0) if rating_column is None else _ratings(raw[rating_column], faults),
        timestamp=pl.lit(None, pl.Int64) if timestamp_column is None else _times(raw[timestamp_column], faults),
    )
    faults.refuse()
    once, different = _merged(table)
    if once.height < table.height:
        logger.info("%s: %d repeated (user, item) rows merged", source, table.height - once.height)
    if different:
        pairs = f"{different} of {once.height} (user, item) pairs"
        warn_once(f"{source}: {pairs} have different ratings. The latest row of each counts.")
    return once


def merge_repeats(table: pl.DataFrame) -> pl.DataFrame:
    """Keep the latest row of each (user, item): of rows at one time the one with the largest rating, without times the last row.

    Examples:
        >>> import polars as pl
        >>> rows = {"user_id": ["ann"] * 3, "item_id": ["a", "b", "a"], "rating": [5.0, 4.0, 3.0], "timestamp": [30, 20, 10]}
        >>> merge_repeats(with_categories(pl.DataFrame(rows)))["rating"].to_list()
        [5.0, 4.0]
    """
    return _merged(table)[0]


def _merged(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the result of `merge_repeats`, and the number of pairs whose ratings differ."""
    keys = pair_keys(table)
    if keys.n_unique() == len(keys):
        return table, 0
    repeated = keys.is_duplicated()
    # Few, in most files. Rows without time come first, in their order.
    at_one_time = pl.when(pl.col("timestamp").is_null()).then(pl.col("at")).otherwise(pl.col("rating"))
    rows = table.with_row_index("at").filter(repeated).sort("timestamp", at_one_time)
    pairs = rows.group_by("user_id", "item_id").agg(
        latest=pl.col("at").last(), different=pl.col("rating").min() < pl.col("rating").max()
    )
    return table.filter((~repeated).scatter(pairs["latest"], values=True)), int(pairs["different"].sum())


def read_negatives(path: str | Path, user_column: str = "user_id", item_column: str = "item_id") -> pl.DataFrame:
    """Read the negatives that ship with a data set: user_id and item_id, one row per negative, in the file's order."""
    return negatives(_read(Path(path), [user_column, item_column]), user_column, item_column, Path(path))


def negatives(raw: pl.DataFrame, user_column: str, item_column: str, source: str | Path) -> pl.DataFrame:
    """Return the negatives of a table with raw columns, as `read_negatives` does those of a file."""
    faults = _Faults(source)
    found = raw.select(user_id=_ids(raw[user_column], "user", faults), item_id=_ids(raw[item_column], "item", faults))
    faults.refuse()
    return found


def _read(path: Path, needed: list[str], *, may_be_empty: bool = False) -> pl.DataFrame:
    """Read columns of a file, of which the first two are ids; strings are stripped, and null if empty."""
    if not path.is_file():
        raise FileNotFoundError(f"No file {path} (absolute: {path.resolve()}). Check the path, ZOO_DATA and data.root.")
    endings = [ending for ending in path.suffixes if ending != ".gz"]
    ending, packed = (endings or [""])[-1], path.suffix == ".gz"
    if ending not in {".csv", ".tsv", ".inter", ".parquet"} or (packed and ending == ".parquet"):
        raise ValueError(f"{path.name} has an unknown ending. Use one of {', '.join(ENDINGS)}.")
    raw = open_table(path, ending, packed, needed, needed[:2])
    if raw.is_empty() and not may_be_empty:
        raise ValueError(f"{path} has no rows. Needed: a header line and rows.")
    if missing := [name for name in needed if name not in raw.columns]:
        lacks = f"{path} has no column {', '.join(map(repr, missing))}; its columns are {raw.columns}"
        raise ValueError(f"{lacks}. Set columns: {{DOMAIN: {{user: ..., rating: ...}}}}. {_NO_RATINGS} {_NO_TIMES}")
    return raw


def _ids(column: pl.Series, what: str, faults: _Faults) -> pl.Series:
    if not (column.dtype in (pl.String, pl.Categorical, pl.Null) or column.dtype.is_integer()):
        faults.add_column(column, "ids are strings or integers")
        return pl.repeat(None, len(column), dtype=pl.Categorical(), eager=True)
    faults.add_rows(column, column.is_null(), f"no {what}")
    return column if column.dtype == pl.Categorical else column.cast(pl.String).cast(pl.Categorical())


def _ratings(column: pl.Series, faults: _Faults) -> pl.Series:
    if column.dtype.is_temporal():
        faults.add_column(column, "ratings are numbers", _NO_RATINGS)
        return pl.repeat(None, len(column), dtype=pl.Float64, eager=True)
    numbers, broken = _finite(column)
    faults.add_rows(column, column.is_null(), "no rating", _NO_RATINGS)
    faults.add_rows(column, broken, "a rating that is not a finite number")
    return numbers


def _times(column: pl.Series, faults: _Faults) -> pl.Series:
    if column.dtype in (pl.Boolean, pl.Duration, pl.Time):
        faults.add_column(column, "times are numbers or dates", _NO_TIMES)
        return pl.repeat(None, len(column), dtype=pl.Int64, eager=True)
    times, broken = whole_times(column)
    what = "a time that is neither a number nor a date such as 2014-07-01"
    if broken.any() and column.dtype == pl.String and (_finite(column)[1] & ~broken).any():
        what = "a time that is no date such as 2014-07-01, unlike the others"
    faults.add_rows(column, broken, what, _NO_TIMES)
    return times


def _finite(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return a column as Float64, and a mask of its values that are no finite numbers; null stays null."""
    numbers = column.cast(pl.Float64, strict=False)
    return numbers, (numbers.is_null() & column.is_not_null()) | ~numbers.is_finite().fill_null(True)


def whole_times(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return a column of numbers, or of ISO 8601 dates, as Int64, and a mask of its values that are neither.

    Numbers keep their unit, and whole ones every digit. Dates become seconds since 1970. In a column of dates a number is
    invalid, unless it is a date without hyphens (`20140701`). A number beyond 64 bits is invalid.
    """
    if column.dtype in (pl.Date, pl.Datetime):
        return column.dt.epoch("s").cast(pl.Int64), pl.repeat(False, len(column), eager=True)
    whole = column.cast(pl.Int64, strict=False)
    if column.dtype.is_integer():
        return whole, whole.is_null() & column.is_not_null()
    if column.dtype == pl.String and whole.null_count() == column.null_count():
        return whole, pl.repeat(False, len(column), eager=True)
    numbers, broken = _finite(column)
    if column.dtype == pl.String and broken.any() and (dated := _dated(column)) is not None:
        numbers, broken = dated, dated.is_null() & column.is_not_null()
    return numbers.cast(pl.Int64, strict=False), broken


def _dated(column: pl.Series) -> pl.Series | None:
    """Return a column of text in seconds, null where a value is no date; None if no value is a date."""
    distinct = column.drop_nulls().unique()
    seconds = pl.Series([seconds_of(text) for text in distinct.to_list()], dtype=pl.Int64)
    if seconds.null_count() == len(seconds):
        return None
    return column.replace_strict(distinct, seconds, default=None, return_dtype=pl.Int64)
