"""Opening tables that come from anybody: how much they may unpack to, and which columns can be read."""

import gzip
import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import polars as pl

#: A packed file may unpack to so many times its size (ratings pack to a fifth, no column of ids to a hundredth); to `ALWAYS` bytes
#: however small it is, and to `UNPACKED` at most: all of it is in memory at once.
MOST_TIMES = 100
ALWAYS, UNPACKED = 2**26, 2**32

#: A Parquet file may take so many times its size in memory, from `LARGE` bytes on fewer times, and always `SMALL` bytes: ratings in
#: the order of users have one byte a row at least, and a row takes 128.
PARQUET_TIMES, LARGE_TIMES = 256, 64
SMALL, LARGE = 2**28, 2**32
#: What a value takes in memory while a table is read, in bytes: 125 a row of four columns were measured, for ten million rows.
VALUE = 32

#: Bytes of a text, at most.
LONGEST = 1024
_TOO_LONG = "\0too long"  # in the place of what is longer: nothing of it is copied

BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException, EOFError, gzip.BadGzipFile, zlib.error)
"""What libraries raise of a damaged file; a panic of polars is no `Exception`."""


def opened(path: Path, ending: str, packed: bool, needed: Sequence[str], ids: Sequence[str] = ()) -> pl.DataFrame:
    """Return the needed columns of a file, in their order there; a ValueError says what is wrong with it.

    Text is stripped, and null where nothing is left; that of ``ids`` becomes categories while the file streams by. A text of
    more than `LONGEST` bytes is refused. Where a needed column is lacking, all columns are returned by name alone.
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
        raise ValueError(f"{path} is empty: it needs a header line and at least one row.") from error
    except BROKEN as error:
        what = "it is damaged" if isinstance(error, pl.exceptions.PanicException) else str(error).split("\n", 1)[0]
        raise ValueError(f"{path} cannot be read as {ending}{'.gz' if packed else ''}: {what}") from error
    for name in text:
        if name in found.columns and (found[name] == _TOO_LONG).any():
            raise ValueError(
                f"{path} has a text of more than {LONGEST:,} bytes in column {name!r}, which is not read: give it a shorter name."
            )
    return found


def _short(name: str) -> pl.Expr:
    """A column as text; what is too long is replaced before it is copied: one long text may stand in a million rows."""
    text = pl.col(name).cast(pl.String)
    return pl.when(text.str.len_bytes() > LONGEST).then(pl.lit(_TOO_LONG)).otherwise(text)


def header(path: Path, ending: str) -> list[str]:
    """Names of a file's columns."""
    return list(opened(path, ending, False, [""]).columns)  # no column is called so: all are listed


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
        raise ValueError(
            f"{path} has {rows:,} rows in {size:,} bytes and takes {taken / 2**20:,.0f} MiB of memory to read, {taken // size:,} "
            f"times its size. At most {LARGE_TIMES} times is read. Write it as CSV if it is correct."
        )


def _text(path: Path, ending: str, packed: bool) -> pl.LazyFrame:
    """Its columns, unread unless it is packed, all as strings."""
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
        raise ValueError(
            f"{path} has several columns {repeated}, by their names before the colon: leave all but one out."
        )
    return table.rename(dict(zip(columns, names, strict=True)))


def _unpacked(path: Path) -> bytes:
    most = min(max(MOST_TIMES * path.stat().st_size, ALWAYS), UNPACKED)
    with gzip.open(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(
            f"{path} unpacks to more than {most:,} bytes, which is not read: at most {MOST_TIMES} times its size. Unpack it first."
        )
    return content


def check_type(name: str, kind: pl.DataType, path: Path) -> None:
    """Refuse a column whose values are neither text, numbers nor times; one without any value is none of these."""
    plain = isinstance(kind, pl.Null | pl.String | pl.Categorical | pl.Enum | pl.Boolean)
    if not (plain or kind.is_numeric() or kind.is_temporal()):
        raise ValueError(
            f"Column {name!r} of {path} is of type {kind.base_type() if kind.is_nested() else kind}, which is not read: ids are "
            "strings or integers, ratings numbers, times numbers or dates. Write it as one of these."
        )
