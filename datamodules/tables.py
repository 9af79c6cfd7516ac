"""Interaction tables from files: user_id and item_id (categories), rating (Float64), timestamp (Int64, null when unknown).

Times are seconds since 1970 where their unit is stated or plain. Without times, rows run from oldest to newest. A repeated (user,
item) counts at its latest time.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from datamodules.data_quality import Facts, missing_ids, note, warn_once
from datamodules.times import TimeUnit, finite, in_seconds, in_unit, units_of, whole_times
from zoo.data.open_table import open_table, rounded, whole_numbers
from zoo.data.text_table import ENDINGS, KINDS, PACKS, PLAIN, TextForm, line_numbers, split_ending

logger = logging.getLogger(__name__)

_IDS: pl.DataType = pl.Categorical()
SCHEMA = pl.Schema({"user_id": _IDS, "item_id": _IDS, "rating": pl.Float64(), "timestamp": pl.Int64()})
_NO_RATINGS = "If every row counts as 1, set rating_column to null."
_NO_TIMES = "If times do not matter, set timestamp_column to null."
#: What to do with rows that cannot be read.
BadRows = Literal["error", "drop", "convert"]
#: Lines that a message names for each kind of fault, and characters of a value.
_LINES_SHOWN, _SHOWN = 3, 40
_COLUMNS_SHOWN = 12
_UNLIKE = "a time that is no date such as 2014-07-01"
_DECIMAL_COMMA = r"^([-+]?\d+),(\d+)$"


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
    """Return the file of a domain, `<domain>` with a known ending, or its folder of Parquet files; two of them are refused."""
    paths = [Path(folder) / f"{domain}{ending}" for ending in ENDINGS]
    found = [path for path in paths if path.is_file() or (path.suffix == ".parquet" and path.is_dir())]
    if any((Path(folder) / domain).glob("*.parquet")):
        found.append(Path(folder) / domain)
    if len(found) == 1:
        return found[0]
    absolute = Path(folder).resolve()
    if found:
        names = " and ".join(path.name for path in found)
        raise ValueError(f"{domain!r} has {len(found)} files in {absolute}: {names}. Allowed: one.")
    missing = f"No ratings of {domain!r} in {absolute}{_suggestion(absolute, domain)}"
    names = f"{', '.join(domain + kind for kind in KINDS)} (each plain or {', '.join(PACKS[1:])}), {domain}.parquet"
    raise FileNotFoundError(f"{missing} Looked for {names}. Add one, or set ZOO_DATA or data.root.")


def _suggestion(folder: Path, domain: str) -> str:
    """Return the end of a sentence about a missing folder or domain, with similar names that exist."""
    existing, end, word = folder, ".", domain
    if not folder.is_dir():
        existing, end, word = folder.parent, " (the folder itself does not exist).", folder.name
    known = {path.name.split(".")[0] if path.is_file() else path.name for path in existing.glob("*")}
    near = get_close_matches(word, sorted(known), n=3)
    return f"{end} Did you mean {' or '.join(near)}?" if near else end


class _Faults:
    """Faults of a table, by kind: one message reports them all, or the rows with a fault are dropped."""

    def __init__(self, source: str | Path, form: TextForm, bad_rows: BadRows) -> None:
        if bad_rows not in get_args(BadRows):
            raise ValueError(f"on_bad_rows is {bad_rows!r}. Allowed: {', '.join(get_args(BadRows))}.")
        self.source, self.form, self.bad_rows = source, form, bad_rows
        self.columns, self.texts, self.hints = list[str](), list[str](), dict[str, None]()
        self.dropped: pl.Series | None = None
        self.odd_ids: dict[str, int] = {}

    def add_column(self, column: pl.Series, allowed: str, hint: str = "") -> None:
        self.columns.append(f"column {column.name!r} is {column.dtype}, and {allowed}")
        self.hints[hint] = None

    def add_rows(self, column: pl.Series, broken: pl.Series, what: str, hint: str = "") -> None:
        if not (count := int(broken.sum())):
            return
        self.texts.append(self._text(column, broken, what))
        self.dropped = broken if self.dropped is None else self.dropped | broken
        if 2 * count >= len(broken):  # probably another column is meant
            self.hints[hint] = None

    def _text(self, column: pl.Series, rows: pl.Series, what: str) -> str:
        count, lines = int(rows.sum()), self.rows_named(rows)
        shown = repr(column.filter(rows)[0])
        value = "" if shown == "None" else f", first value {shown[:_SHOWN]}{'...' * (len(shown) > _SHOWN)}"
        number = f"{count:,} rows have" if count > 1 else "1 row has"
        return f"{number} {what} ({lines}, column {column.name!r}{value})"

    def rows_named(self, rows: pl.Series) -> str:
        first = rows.arg_true().head(_LINES_SHOWN).to_list()
        word, numbers = "row", {row: row + 1 for row in first}
        if isinstance(self.source, Path):
            word, numbers = line_numbers(self.source, first, self.form)
        count = int(rows.sum())
        return f"{word}{'s' * (count > 1)} {', '.join(map(str, numbers.values()))}{', ...' * (count > len(numbers))}"

    def converted(self, column: pl.Series, rows: pl.Series, what: str) -> None:
        if rows.any():
            warn_once(f"{self.source}: {self._text(column, rows, what)}. They are converted (on_bad_rows).")

    def usable(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return the rows without a fault; raise a `ValueError` unless the others may be dropped."""
        if self.columns or (self.texts and self.bad_rows == "error"):
            hints = " ".join(filter(None, self.hints))
            texts = "; ".join([*self.columns, *self.texts])
            ways = "Correct these." if self.columns else "Correct or drop these (on_bad_rows)."
            raise ValueError(f"{self.source}: {texts}. {ways} {hints}".rstrip())
        if self.dropped is None:
            return table
        if self.dropped.all():
            raise ValueError(
                f"{self.source}: all {table.height:,} rows are bad: {'; '.join(self.texts)}. Check columns."
            )
        warn_once(
            f"{self.source}: {int(self.dropped.sum()):,} rows are dropped (on_bad_rows): {'; '.join(self.texts)}."
        )
        return table.filter(~self.dropped)


def read_table(
    path: str | Path,
    user_column: str | int = "user_id",
    item_column: str | int = "item_id",
    rating_column: str | int | None = "rating",
    timestamp_column: str | int | None = "timestamp",
    *,
    may_be_empty: bool = False,
    form: TextForm = PLAIN,
    time_unit: TimeUnit | None = None,
    on_bad_rows: BadRows = "error",
) -> pl.DataFrame:
    """Read the interactions of one domain from a file; columns are found by name, or by position in a file without header.

    Endings are .csv, .tsv, .dat, .txt, .inter (RecBole: tab-separated, its columns named without their types), .jsonl, .ndjson and
    .json, each plain, .gz, .bz2, .zst or .zip, and .parquet, a file or a folder of parts. A repeated (user, item) counts once, as
    `merge_repeats` says. A warning has the number of pairs whose ratings disagree.

    Args:
        path: The file.
        user_column: Column of user ids, strings or integers. A number is a position, from 0: then the file has no header.
        item_column: Column of item ids.
        rating_column: Column of finite numbers; None: every row is a rating of 1.
        timestamp_column: Column of numbers or ISO 8601 dates (see `whole_times`); None: no times.
        may_be_empty: Whether a file without rows is accepted.
        form: How a text file is written.
        time_unit: Unit of times that are numbers; None: found by their size.
        on_bad_rows: `error`: rows that cannot be read are refused. `drop`: they are left out. `convert`: ratings with a decimal
            comma are converted, other such rows left out.

    Returns:
        Table with the columns of `SCHEMA`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, or rows cannot be read: with the lines of each kind of fault.
    """
    columns, form = names_of([user_column, item_column, rating_column, timestamp_column], form)
    needed = [name for name in columns if name is not None]
    raw = _read(Path(path), needed, form, columns[3], may_be_empty=may_be_empty)
    return _interactions(raw, columns, Path(path), form, time_unit, on_bad_rows)


def names_of(columns: Sequence[str | int | None], form: TextForm) -> tuple[list[str | None], TextForm]:
    """Return columns as names, and the form; columns by position mean a file without header.

    Examples:
        >>> names_of([0, 1, None, 3], TextForm())[0]
        ['0', '1', None, '3']
    """
    named = [column for column in columns if column is not None]
    by_position = [column for column in named if isinstance(column, int)]
    if by_position and (len(by_position) < len(named) or min(by_position) < 0):
        raise ValueError(f"columns are {named}. Allowed: all by name, or all by position (from 0).")
    names = [None if column is None else str(column) for column in columns]
    if doubled := sorted({name for name in names if name is not None and names.count(name) > 1}):
        raise ValueError(f"columns are {named}, and {doubled[0]!r} is named twice.")
    return names, replace(form, header=False) if by_position else form


def interactions(
    raw: pl.DataFrame,
    user_column: str = "user_id",
    item_column: str = "item_id",
    rating_column: str | None = "rating",
    timestamp_column: str | None = "timestamp",
    *,
    source: str | Path = "The table",
    time_unit: TimeUnit | None = None,
    on_bad_rows: BadRows = "error",
) -> pl.DataFrame:
    """Return the interactions of a table with raw columns, checked as those of a file are (see `read_table`).

    Args:
        raw: Table with at least the named columns; text is stripped, and null if empty.
        user_column: Column of user ids, strings or integers.
        item_column: Column of item ids.
        rating_column: Column of finite numbers; None: every row is a rating of 1.
        timestamp_column: Column of numbers or dates; None: no times.
        source: Origin of the table, for messages. A path: rows are named by their lines in this file.
        time_unit: Unit of times that are numbers; None: found by their size.
        on_bad_rows: What to do with rows that cannot be read, as for `read_table`.

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
    columns = [user_column, item_column, rating_column, timestamp_column]
    return _interactions(raw, columns, source, PLAIN, time_unit, on_bad_rows)


def _interactions(
    raw: pl.DataFrame,
    columns: Sequence[str | None],
    source: str | Path,
    form: TextForm,
    time_unit: TimeUnit | None,
    on_bad_rows: BadRows,
) -> pl.DataFrame:
    user, item, rating, timestamp = columns
    faults, facts = _Faults(source, form, on_bad_rows), Facts(str(source))
    table = raw.select(
        user_id=_ids(raw[str(user)], "user", faults),
        item_id=_ids(raw[str(item)], "item", faults),
        rating=pl.lit(1.0) if rating is None else _ratings(raw[rating], faults),
        timestamp=pl.lit(None, pl.Int64) if timestamp is None else _times(raw[timestamp], faults, time_unit, facts),
    )
    table = faults.usable(table)
    facts.counts |= faults.odd_ids
    once, different, exact = _merged(table)
    kept = "last" if timestamp is None else "latest"
    if exact:
        facts.counts["rows are exact duplicates of others, and count once"] = exact
    if repeated := table.height - once.height - exact:
        facts.counts[f"rows repeat the user and item of others, and the {kept} counts"] = repeated
    facts.set_span(once["timestamp"])
    note(facts)
    if once.height < table.height:
        logger.info("%s: %d repeated (user, item) rows merged", source, table.height - once.height)
    if different:
        pairs = f"{different} of {once.height} (user, item) pairs"
        warn_once(f"{source}: {pairs} have different ratings. The {kept} row of each counts.")
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


def _merged(table: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """Return the result of `merge_repeats`, the number of pairs whose ratings differ, and that of rows equal to another one."""
    keys = pair_keys(table)
    if keys.n_unique() == len(keys):
        return table, 0, 0
    repeated = keys.is_duplicated()
    # Few, in most files. Rows without time come first, in their order.
    at_one_time = pl.when(pl.col("timestamp").is_null()).then(pl.col("at")).otherwise(pl.col("rating"))
    rows = table.with_row_index("at").filter(repeated).sort("timestamp", at_one_time)
    pairs = rows.group_by("user_id", "item_id").agg(
        latest=pl.col("at").last(), different=pl.col("rating").min() < pl.col("rating").max()
    )
    exact = rows.height - rows.drop("at").unique().height
    return table.filter((~repeated).scatter(pairs["latest"], values=True)), int(pairs["different"].sum()), exact


def read_negatives(
    path: str | Path, user_column: str | int = "user_id", item_column: str | int = "item_id", form: TextForm = PLAIN
) -> pl.DataFrame:
    """Read the negatives that ship with a data set: user_id and item_id, one row per negative, in the file's order."""
    path, (named, form) = Path(path), names_of([user_column, item_column], form)
    user, item = (str(name) for name in named)
    return negatives(_read(path, [user, item], form), user, item, path, form)


def negatives(raw: pl.DataFrame, user: str, item: str, source: str | Path, form: TextForm = PLAIN) -> pl.DataFrame:
    """Return the negatives of a table with the columns ``user`` and ``item``, as `read_negatives` does those of a file."""
    faults = _Faults(source, form, "error")
    return faults.usable(raw.select(user_id=_ids(raw[user], "user", faults), item_id=_ids(raw[item], "item", faults)))


def _read(
    path: Path, needed: list[str], form: TextForm, times: str | None = None, *, may_be_empty: bool = False
) -> pl.DataFrame:
    """Read columns of a file, of which the first two are ids; strings are stripped, and null if empty."""
    if not path.exists():
        raise FileNotFoundError(f"No file {path} (absolute: {path.resolve()}). Check the path, ZOO_DATA and data.root.")
    ending, pack = split_ending(path)
    if not ending:
        allowed = f"{', '.join(KINDS)} (plain, {', '.join(PACKS[1:])}) and .parquet"
        raise ValueError(f"{path.name} has an unknown ending. Use one of {allowed}.")
    raw = open_table(path, ending, pack, needed, needed[:2], form, times)
    if missing := [name for name in needed if name not in raw.columns]:
        quoted = " Set quoting to true." if any(name.startswith('"') for name in raw.columns) else ""
        if not form.header and form.separator is None:
            quoted = " Set separator."
        lacks = f"{path} has no column {', '.join(map(repr, missing))}; its columns are {columns_shown(raw.columns)}"
        raise ValueError(
            f"{lacks}.{quoted} Set columns: {{DOMAIN: {{user: ..., rating: ...}}}}. {_NO_RATINGS} {_NO_TIMES}"
        )
    if raw.is_empty() and not may_be_empty:
        raise ValueError(f"{path} has no rows. Needed: a header line and rows.")
    return raw


def columns_shown(names: Sequence[str]) -> str:
    """Return the first names of a table's columns for a message."""
    more = f" and {len(names) - _COLUMNS_SHOWN} more" if len(names) > _COLUMNS_SHOWN else ""
    return f"{[name[:_SHOWN] for name in names[:_COLUMNS_SHOWN]]}{more}"


def _ids(column: pl.Series, what: str, faults: _Faults) -> pl.Series:
    empty = column.is_null()
    if (
        column.dtype.is_float() and rounded(column).any()
    ):  # no row is dropped because of the type that another one needs
        faults.add_column(column, "ids are strings or integers that floats do not round")
        return pl.repeat(None, len(column), dtype=pl.Categorical(), eager=True)
    if column.dtype.is_float() or column.dtype.is_decimal():
        whole, inexact = whole_numbers(column)
        faults.add_rows(column, inexact, f"a {what} id that is not whole")
        column = whole.alias(column.name)
    if column.dtype == pl.Binary:
        column = column.cast(pl.String)
    if not (column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null) or column.dtype.is_integer()):
        faults.add_column(column, "ids are strings or integers")
        return pl.repeat(None, len(column), dtype=pl.Categorical(), eager=True)
    faults.add_rows(column, empty, f"no {what}")
    ids = column if column.dtype == pl.Categorical else column.cast(pl.String).cast(pl.Categorical())
    distinct = ids.unique().cast(pl.String).drop_nulls()
    if (count := missing_ids(ids, distinct)) is not None:
        faults.odd_ids[f"rows have a {what} id that means a missing value ({count[1]})"] = count[0]
    broken = distinct.filter(distinct.str.contains(r"[\t\r\n]"))
    if len(broken):
        rows = ids.cast(pl.String).is_in(broken.implode()).fill_null(False)
        faults.add_rows(ids.cast(pl.String).alias(column.name), rows, f"a {what} id with a line break or a tab")
    return ids


def _ratings(column: pl.Series, faults: _Faults) -> pl.Series:
    if column.dtype.is_temporal():
        faults.add_column(column, "ratings are numbers", _NO_RATINGS)
        return pl.repeat(None, len(column), dtype=pl.Float64, eager=True)
    if faults.bad_rows == "convert" and column.dtype == pl.String:
        comma = column.str.contains(_DECIMAL_COMMA).fill_null(False)
        faults.converted(column, comma, "a decimal comma")
        column = column.str.replace(_DECIMAL_COMMA, "$1.$2")
    numbers, broken = finite(column)
    faults.add_rows(column, column.is_null(), "no rating", _NO_RATINGS)
    faults.add_rows(column, broken, "a rating that is not a finite number")
    return numbers


def _times(column: pl.Series, faults: _Faults, unit: TimeUnit | None, facts: Facts) -> pl.Series:
    if column.dtype in (pl.Boolean, pl.Duration, pl.Time):
        faults.add_column(column, "times are numbers or dates", _NO_TIMES)
        return pl.repeat(None, len(column), dtype=pl.Int64, eager=True)
    if column.dtype == pl.Float64 and rounded(column).any():
        faults.add_column(column, "times are numbers or dates that floats do not round", _NO_TIMES)
    times, broken, dated = whole_times(column, unit)
    what = "a time that is neither a number nor a date such as 2014-07-01, or too large"
    if dated and column.dtype == pl.String and (broken & ~finite(column)[1]).any():
        # Which of both is bad would depend on the other rows, so that one rating decided about all of them.
        faults.add_column(column, "it has dates and other numbers")
    faults.add_rows(column, broken, f"{_UNLIKE}, unlike the others" if dated else what, _NO_TIMES)
    if dated:
        facts.unit = "date"
        return times
    found = [unit] if unit else units_of(times)
    if len(found) > 1:
        masks = {name: in_unit(times, name) for name in found}
        counts = " and ".join(f"{int(mask.sum()):,} in {name}" for name, mask in masks.items())
        place = faults.rows_named(min(masks.values(), key=lambda mask: int(mask.sum())))
        faults.columns.append(f"column {column.name!r} has times of several units: {counts} ({place}); set time_unit")
    facts.unit = found[0] if found else "unknown"
    return in_seconds(times, facts.unit)
