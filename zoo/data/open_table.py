"""Open tables of unknown origin: how much they may unpack to, and which columns can be read."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path

import polars as pl

from zoo.data.text_table import BROKEN, PLAIN, TextFile, TextForm, line_numbers, split_ending

#: Types of text.
_TEXT = (pl.String, pl.Categorical, pl.Enum, pl.Binary)
#: Limit of a Parquet file in memory: 256 times its size, 64 times from `LARGE` bytes on, at least `SMALL` bytes. Sorted ratings
#: have at least one byte per row, and a row takes 128.
PARQUET_TIMES, LARGE_TIMES = 256, 64
SMALL, LARGE = 2**28, 2**32
#: Bytes of memory that a value takes while a table is read: 125 a row of four columns were measured, for ten million rows.
VALUE = 32

LONGEST = 1024  # bytes of a text
_TOO_LONG = "\0too long"  # replaces longer text, which is never copied


def open_table(
    path: Path,
    ending: str,
    pack: str,
    needed: Sequence[str],
    ids: Sequence[str] = (),
    form: TextForm = PLAIN,
    optional: str | None = None,
) -> pl.DataFrame:
    """Return the needed columns of a file, in their order there.

    Text is stripped, and null if nothing is left. That of ``ids`` becomes categories while the file streams by, and that of
    ``optional`` may be null. If a needed column is missing, the result has all columns by name alone.

    Raises:
        ValueError: If the file is damaged, too large, has a text of more than `LONGEST` bytes, or if rows would be lost.
    """
    try:
        if ending == ".parquet":
            table, check = _parquet(path, needed), None
        else:
            text = TextFile(path, ending, pack, needed, form, optional)
            table, check = text.scan(), text.check
        schema = table.collect_schema()
        if not set(needed) <= schema.keys():
            return pl.DataFrame(schema=dict.fromkeys(schema, pl.Null), data={name: [None] for name in schema})
        for name in needed:
            check_type(name, schema[name], path)
        text_columns = [n for n in schema if schema[n] in _TEXT]
        stripped = {name: _short(name).str.strip_chars().replace("", None) for name in text_columns}
        stripped |= {name: stripped[name].cast(pl.Categorical()) for name in ids if name in stripped}
        columns = [stripped.get(name, pl.col(name)).alias(name) for name in schema if name in needed]
        found = table.select(columns).collect(engine="streaming")
        if check is not None:
            check(found.height, exact=bool(ids))
    except pl.exceptions.NoDataError as error:
        raise ValueError(f"{path} is empty. Needed: a header line and rows.") from error
    except BROKEN as error:
        raise ValueError(f"{path} cannot be read as {ending}{pack}: {_reason(error)}") from error
    for name in text_columns:
        texts = found[name].unique().cast(pl.String) if name in found.columns else pl.Series(dtype=pl.String)
        for text in texts.filter(texts.str.contains("\0", literal=True)).head(1):
            row = int((found[name] == text).fill_null(False).arg_true()[0])
            word, numbers = line_numbers(path, [row], form)
            what = f"over {LONGEST:,} bytes" if text == _TOO_LONG else "with U+0000 or half of a surrogate pair"
            raise ValueError(f"{path} has a text {what} ({word} {numbers[row]}, column {name!r}). Correct it.")
    return found


def _reason(error: BaseException) -> str:
    """Return what is wrong, without any value of the file."""
    text = str(error).split("\n", 1)[0]
    if isinstance(error, pl.exceptions.PanicException):
        return "it is damaged"
    if "utf-8" in text.lower() or "utf8" in text.lower():
        return "it is not UTF-8. Convert it, or set encoding, for example latin-1"
    if text.startswith(("error deserializing value", "NDJSON line expected")):
        return "a row is no object of plain values"
    if "found more fields" in text:
        return "a row has more values than the first line. Set separator, quoting or columns"
    if text.startswith(("could not parse", "CSV malformed")):
        return "a quote is not closed. Set quoting to false, or close it"
    return text if len(text) <= 120 else f"{text[:120]}..."


def _short(name: str) -> pl.Expr:
    """Return a column as text; long text is replaced before it is copied, since one text may repeat in a million rows."""
    text = pl.col(name).cast(pl.String)
    return pl.when(text.str.len_bytes() > LONGEST).then(pl.lit(_TOO_LONG)).otherwise(text)


def open_columns(path: Path, needed: Sequence[str]) -> pl.DataFrame:
    """Return the needed columns of a list as text, null where nothing is written; `.txt` and unknown endings are CSV.

    Raises:
        ValueError: As `open_table`, or if a column is missing.
    """
    table = open_table(path, *_list_ending(path), needed)
    if not {*needed} <= {*table.columns}:
        raise ValueError(f"{path} has the columns {table.columns[:12]}. Needed: {', '.join(needed)}.")
    for name, kind in table.schema.items():
        if kind.is_float():  # ids that another program wrote as 7.0, unless they are other values
            table = table.with_columns(pl.col(name).fill_nan(None))
        if (kind.is_float() or kind.is_decimal()) and not (found := whole_numbers(table[name]))[1].any():
            table = table.with_columns(found[0])
    table = table.select(pl.col(*needed).cast(pl.String))
    if table.select(pl.any_horizontal(pl.all().str.contains(r"[\t\r\n]").any())).item():
        raise ValueError(f"{path} has a value with a line break or a tab. Correct it.")
    return table


def whole_numbers(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return floats or decimals as whole numbers, and a mask of values that are none, or that floats may have merged.

    Examples:
        >>> whole_numbers(pl.Series([7.0, 1.5, 2.0**60, None]))[1].to_list()
        [False, True, True, False]
    """
    whole = column.cast(pl.Int128, strict=False)
    inexact = whole.cast(column.dtype, strict=False) != column
    if column.dtype.is_float():
        inexact |= rounded(column)
    return whole, inexact.fill_null(True) & column.is_not_null()


def rounded(column: pl.Series) -> pl.Series:
    """Return a mask of the floats that may be other whole numbers than those that were written: from 2^53 on."""
    return (column.abs() >= (2**24 if column.dtype == pl.Float32 else 2**53)) & column.is_finite()


def column_names(path: Path) -> list[str]:
    """Return the names of a list's columns."""
    return list(open_table(path, *_list_ending(path), [""]).columns)  # no column has this name, so all are listed


def _list_ending(path: Path) -> tuple[str, str]:
    ending, pack = split_ending(path)
    return ".csv" if ending in ("", ".txt") else ending, pack


def distinct_ids(path: Path, column: str) -> tuple[list[str], str]:
    """Return the sorted ids of a list, and a sentence on rows that are not counted; empty: there are none."""
    ids = open_columns(path, [column])[column]
    found: list[str] = ids.drop_nulls().unique().sort().to_list()
    empty, repeated = ids.null_count(), len(ids) - ids.null_count() - len(found)
    counts = [f"{empty:,} without {column}"] * (empty > 0) + [f"{repeated:,} repeated"] * (repeated > 0)
    return found, f"{path}: of {len(ids):,} rows {' and '.join(counts)} are left out." if counts else ""


def _parquet(path: Path, needed: Sequence[str]) -> pl.LazyFrame:
    parts = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not parts:
        raise ValueError(f"{path} has no Parquet file. Needed: .parquet files.")
    for other in sorted(path.iterdir()) if path.is_dir() else ():
        endings, inside = (".parquet", ".parq", ".pq"), other.rglob("*.par*") if other.is_dir() else ()
        lost = other.suffix != ".parquet" and (other.suffix.lower() in endings or next(iter(inside), None) is not None)
        if lost and not other.name.startswith(("_", ".")):
            raise ValueError(f"{path} has {other.name!r}, which would not be read. Needed: files that end in .parquet.")
    tables = [pl.scan_parquet(part, glob=False) for part in parts]  # "*" in a name is no pattern
    schemas = [table.collect_schema() for table in tables]
    whole = [{*needed} <= schema.keys() for schema in schemas]
    check_size(path, [*compress(parts, whole)], needed)
    if len(parts) > 1:
        tables = [table.select(needed) if has else table for table, has in zip(tables, whole, strict=True)]
    _check_parts(path, schemas, needed)
    return tables[0] if len(tables) == 1 else pl.concat(tables, how="vertical_relaxed")


def _check_parts(path: Path, schemas: Sequence[pl.Schema], needed: Sequence[str]) -> None:
    """Refuse a column that is one thing in one part and another in a second, which would change values of the first."""
    for name in needed:
        kinds = {schema[name] for schema in schemas if name in schema and schema[name] != pl.Null}
        text = any(kind in _TEXT for kind in kinds) and not all(kind in _TEXT or kind.is_integer() for kind in kinds)
        if text or 0 < sum(kind.is_temporal() for kind in kinds) < len(kinds):
            found = ", ".join(sorted(map(str, kinds)))
            raise ValueError(f"Column {name!r} of the parts in {path} has types {found}. Write one type.")


def check_size(path: Path, parts: Sequence[Path], needed: Sequence[str]) -> None:
    """Refuse Parquet files whose needed columns take more memory together than files of their size may."""
    size = sum(part.stat().st_size for part in parts)
    tables = (pl.scan_parquet(part, glob=False) for part in parts)
    rows = sum(table.select(pl.len()).collect().item() for table in tables)  # of the footers alone
    taken = VALUE * rows * len(needed)
    if taken > max(SMALL, min(PARQUET_TIMES * size, max(LARGE, LARGE_TIMES * size))):
        needs = f"{taken / 2**20:,.0f} MiB of memory for {rows:,} rows, {taken // size:,} times its size"
        raise ValueError(
            f"{path} needs {needs}. Allowed: {PARQUET_TIMES} times, {LARGE_TIMES} for more than 4 GiB. Use CSV."
        )


def check_type(name: str, kind: pl.DataType, path: Path) -> None:
    """Refuse a column whose values are neither text, numbers nor times; a column without values passes."""
    plain = isinstance(kind, pl.Null | pl.String | pl.Categorical | pl.Enum | pl.Boolean | pl.Binary)
    if not (plain or kind.is_numeric() or kind.is_temporal()):
        found = kind.base_type() if kind.is_nested() else kind
        allowed = "Ids are strings or integers, ratings numbers, times numbers or dates"
        raise ValueError(f"Column {name!r} of {path} has type {found}. {allowed}.")
