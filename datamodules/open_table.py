"""Open tables of unknown origin: how much they may unpack to, and which columns can be read."""

import csv
import gzip
import io
import zlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl

#: Limit of an unpacked file: 100 times its size (ratings pack to a fifth), at least `ALWAYS` bytes, at most `UNPACKED` bytes.
MOST_TIMES = 100
ALWAYS, UNPACKED = 2**26, 2**32
#: Limit of a Parquet file in memory: 256 times its size, 64 times from `LARGE` bytes on, at least `SMALL` bytes. Sorted ratings
#: have at least one byte per row, and a row takes 128.
PARQUET_TIMES, LARGE_TIMES = 256, 64
SMALL, LARGE = 2**28, 2**32
#: Bytes of memory that a value takes while a table is read: 125 a row of four columns were measured, for ten million rows.
VALUE = 32

LONGEST = 1024  # bytes of a text
_TOO_LONG = "\0too long"  # replaces longer text, which is never copied

BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException, EOFError, gzip.BadGzipFile, zlib.error)
"""What libraries raise on a damaged file; a panic of polars is no `Exception`."""


def open_table(path: Path, ending: str, packed: bool, needed: Sequence[str], ids: Sequence[str] = ()) -> pl.DataFrame:
    """Return the needed columns of a file, in their order there.

    Text is stripped, and null if nothing is left. That of ``ids`` becomes categories while the file streams by. If a needed
    column is missing, the result has all columns by name alone.

    Raises:
        ValueError: If the file is damaged, too large, or has a text of more than `LONGEST` bytes.
    """
    try:
        table = _parquet(path, needed) if ending == ".parquet" else _text(path, ending, packed)
        schema = table.collect_schema()
        if not set(needed) <= schema.keys():
            return pl.DataFrame(schema=dict.fromkeys(schema, pl.Null), data={name: [None] for name in schema})
        text = [name for name in schema if isinstance(schema[name], pl.String | pl.Categorical | pl.Enum)]
        stripped = {name: _short(name).str.strip_chars().replace("", None) for name in text}
        stripped |= {name: stripped[name].cast(pl.Categorical()) for name in ids if name in stripped}
        columns = [stripped.get(name, pl.col(name)).alias(name) for name in schema if name in needed]
        found = table.select(columns).collect(engine="streaming")
    except pl.exceptions.NoDataError as error:
        raise ValueError(f"{path} is empty. Needed: a header line and rows.") from error
    except BROKEN as error:
        what = "it is damaged" if isinstance(error, pl.exceptions.PanicException) else str(error).split("\n", 1)[0]
        raise ValueError(f"{path} cannot be read as {ending}{'.gz' if packed else ''}: {what}") from error
    for name in text:
        if name in found.columns and (long := found[name] == _TOO_LONG).any():
            row = int(long.fill_null(False).arg_true()[0])
            word, numbers = line_numbers(path, [row])
            place = f"{word} {numbers[row]}, column {name!r}"
            raise ValueError(f"{path} has a text of more than {LONGEST:,} bytes ({place}). Shorten it.")
    return found


def line_numbers(path: Path, rows: Collection[int]) -> tuple[str, dict[int, int]]:
    """Return "line", or "row" for Parquet, and the number of each row (counted from 0) in the file, counted from 1.

    In text the header is a line, and a quoted value may hold line breaks. Only the part up to the last row is read.
    """
    if path.suffix == ".parquet":
        return "row", {row: row + 1 for row in rows}
    found = {row: row + 2 for row in rows}
    opener = gzip.open if path.suffix == ".gz" else open
    with suppress(csv.Error, *BROKEN), opener(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        quoted = ".inter" not in path.suffixes
        separator = "," if ".csv" in path.suffixes else "\t"
        reader = csv.reader(file, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        while rows and not next(reader, ["at the end"]):
            pass  # polars skips empty lines before the header, too
        for row in range(max(rows, default=-1) + 1):
            found |= {row: reader.line_num + 1} if row in found else {}
            next(reader, None)
    return "line", found


def _short(name: str) -> pl.Expr:
    """Return a column as text; long text is replaced before it is copied, since one text may repeat in a million rows."""
    text = pl.col(name).cast(pl.String)
    return pl.when(text.str.len_bytes() > LONGEST).then(pl.lit(_TOO_LONG)).otherwise(text)


def column_names(path: Path, ending: str) -> list[str]:
    """Return the names of a file's columns."""
    return list(open_table(path, ending, False, [""]).columns)  # no column has this name, so all are listed


def _parquet(path: Path, needed: Sequence[str]) -> pl.LazyFrame:
    schema = pl.read_parquet_schema(path)
    for name in (name for name in schema if name in needed):
        check_type(name, schema[name], path)
    table = pl.scan_parquet(path, glob=False)
    if set(needed) <= schema.keys():
        check_size(path, needed)
    return table


def check_size(path: Path, needed: Sequence[str]) -> None:
    """Refuse a Parquet file whose needed columns take more memory than one of its size may."""
    size = path.stat().st_size
    rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()  # of the footer alone
    taken = VALUE * rows * len(needed)
    if taken > max(SMALL, min(PARQUET_TIMES * size, max(LARGE, LARGE_TIMES * size))):
        needs = f"{taken / 2**20:,.0f} MiB of memory for {rows:,} rows, {taken // size:,} times its size"
        raise ValueError(f"{path} needs {needs}. Allowed: {LARGE_TIMES} times. Write it as CSV.")


def _text(path: Path, ending: str, packed: bool) -> pl.LazyFrame:
    """Return its columns, unread unless it is packed, all as strings."""
    source = io.BytesIO(_unpacked(path)) if packed else path
    table = pl.scan_csv(
        source,
        separator="," if ending == ".csv" else "\t",
        infer_schema=False,
        quote_char=None if ending == ".inter" else '"',  # RecBole writes no quotes, and a token may hold one
        glob=False,
    )
    if ending != ".inter":
        return table
    columns = table.collect_schema().names()
    names = [name.split(":")[0] for name in columns]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{path} has several columns {repeated}, by names before the colon. Keep one each.")
    return table.rename(dict(zip(columns, names, strict=True)))


def _unpacked(path: Path) -> bytes:
    most = min(max(MOST_TIMES * path.stat().st_size, ALWAYS), UNPACKED)
    with gzip.open(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path} unpacks to more than {most:,} bytes. Unpack it first.")
    return content


def check_type(name: str, kind: pl.DataType, path: Path) -> None:
    """Refuse a column whose values are neither text, numbers nor times; a column without values passes."""
    plain = isinstance(kind, pl.Null | pl.String | pl.Categorical | pl.Enum | pl.Boolean)
    if not (plain or kind.is_numeric() or kind.is_temporal()):
        found = kind.base_type() if kind.is_nested() else kind
        allowed = "Ids are strings or integers, ratings numbers, times numbers or dates"
        raise ValueError(f"Column {name!r} of {path} has type {found}. {allowed}.")
