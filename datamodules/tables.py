"""Interaction tables from files: what may be in them, and what they look like afterwards.

A table has the columns user_id and item_id (strings), rating (Float64) and timestamp (Int64, null when unknown). Its
row order means something: it breaks ties in time, and where there are no times it is the order.
"""

import gzip
import logging
import os
import zlib
from pathlib import Path

import polars as pl

logger = logging.getLogger(__name__)

SCHEMA = pl.Schema({"user_id": pl.String, "item_id": pl.String, "rating": pl.Float64, "timestamp": pl.Int64})
ENDINGS = (".csv.gz", ".csv", ".tsv", ".tsv.gz", ".inter", ".inter.gz", ".parquet")


def data_folder(root: Path | None, name: str) -> Path:
    """Where a data set lies: ``root``, else ``$ZOO_DATA/<name>``, else ``data/<name>``."""
    if root is not None:
        return Path(root)
    return Path(os.environ.get("ZOO_DATA", "data")) / name


def find_table(folder: str | Path, domain: str) -> Path:
    """Gives the file of a domain: `<domain>` with the first of the known endings that is there.

    Raises:
        FileNotFoundError: none of them is.
    """
    for ending in ENDINGS:
        path = Path(folder) / f"{domain}{ending}"
        if path.is_file():
            return path
    state = "" if Path(folder).is_dir() else " (the folder itself does not exist)"
    raise FileNotFoundError(
        f"No ratings of {domain!r} in {Path(folder).resolve()}{state}. Looked for "
        f"{', '.join(domain + ending for ending in ENDINGS)}: put one there or point ZOO_DATA or data.root elsewhere."
    )


def read_table(
    path: str | Path,
    user_column: str = "user_id",
    item_column: str = "item_id",
    rating_column: str | None = "rating",
    timestamp_column: str | None = "timestamp",
) -> pl.DataFrame:
    """Gives the interactions of one file, checked.

    Files are .csv, .tsv, RecBole's .inter (tabs; a header such as `user_id:token`), each plain or .gz, and .parquet.
    A repeated (user, item) counts once: with the rating and time of its last row, at the place of its first.

    Args:
        path: the file.
        user_column: where the user's id is; for .inter without the type after the colon, here and below.
        item_column: where the item's id is.
        rating_column: where the rating is; None: every row is a rating of 1.
        timestamp_column: where the time is; None, or a column that is not there: no times.

    Returns:
        The columns of `SCHEMA`, rows in the file's order.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unknown ending, a missing column, an empty id, an unusable rating or time, or no rows.
    """
    path = Path(path)
    raw = _read(path)
    wanted = [user_column, item_column] + ([rating_column] if rating_column is not None else [])
    _need(raw, wanted, path)
    columns = [
        _ids(raw[user_column], path).alias("user_id"),
        _ids(raw[item_column], path).alias("item_id"),
        pl.repeat(1.0, raw.height, dtype=pl.Float64, eager=True).alias("rating")
        if rating_column is None
        else _ratings(raw[rating_column], path),
        _times(raw[timestamp_column], path)
        if timestamp_column in raw.columns
        else pl.repeat(None, raw.height, dtype=pl.Int64, eager=True).alias("timestamp"),
    ]
    table = pl.DataFrame(columns)
    merged = table.unique(["user_id", "item_id"], keep="first", maintain_order=True)
    if merged.height < table.height:
        logger.info("%s: %d repeated (user, item) rows merged", path, table.height - merged.height)
        last = table.unique(["user_id", "item_id"], keep="last", maintain_order=True)
        merged = merged.select("user_id", "item_id").join(last, on=["user_id", "item_id"], maintain_order="left")
    return merged.select(SCHEMA.names())


def read_negatives(path: str | Path, user_column: str = "user_id", item_column: str = "item_id") -> pl.DataFrame:
    """Gives the negatives that ship with a data set: user_id and item_id, one row per negative, in the file's order.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unknown ending, a missing column, an empty id, or no rows.
    """
    path = Path(path)
    raw = _read(path)
    _need(raw, [user_column, item_column], path)
    return pl.DataFrame([_ids(raw[user_column], path).alias("user_id"), _ids(raw[item_column], path).alias("item_id")])


def _read(path: Path) -> pl.DataFrame:
    """Gives the columns of a file as they are, those of a text file as strings."""
    if not path.is_file():
        raise FileNotFoundError(
            f"No file {path} (looked for {path.resolve()}): check the path, or ZOO_DATA and data.root."
        )
    endings = [ending for ending in path.suffixes if ending != ".gz"]
    ending, packed = (endings or [""])[-1], path.suffix == ".gz"
    if ending not in {".csv", ".tsv", ".inter", ".parquet"} or (packed and ending == ".parquet"):
        raise ValueError(f"{path.name} has an ending that is not read; known are {', '.join(ENDINGS)}.")
    try:
        raw = pl.read_parquet(path) if ending == ".parquet" else _read_text(path, ending, packed)
    except (pl.exceptions.PolarsError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        what = str(error).split("\n", 1)[0]
        raise ValueError(f"{path} cannot be read as {ending}{'.gz' if packed else ''}: {what}") from error
    if raw.is_empty():
        raise ValueError(f"{path} holds no rows: it needs a header line and at least one row.")
    return raw


def _read_text(path: Path, ending: str, packed: bool) -> pl.DataFrame:
    """Gives the columns of a text file, all as strings."""
    content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    if not content.strip():
        raise ValueError(f"{path} is empty: it needs a header line and at least one row.")
    raw = pl.read_csv(
        content,
        separator="," if ending == ".csv" else "\t",
        infer_schema=False,
        quote_char=None if ending == ".inter" else '"',  # RecBole writes no quotes, and a token may hold one
    )
    return raw.rename({name: name.split(":")[0] for name in raw.columns}) if ending == ".inter" else raw


def _need(raw: pl.DataFrame, columns: list[str], path: Path) -> None:
    """Raises when a column is not there."""
    missing = [name for name in columns if name not in raw.columns]
    if missing:
        raise ValueError(
            f"{path} has no column {', '.join(map(repr, missing))}; its columns are {raw.columns}. Name the right ones "
            "(rating_column=None: the file has no ratings, every row counts as 1)."
        )


def _ids(column: pl.Series, path: Path) -> pl.Series:
    """Gives a column of ids as strings."""
    if not (column.dtype == pl.String or column.dtype.is_integer() or column.dtype == pl.Categorical):
        raise ValueError(f"Ids in {path}, column {column.name!r}, are {column.dtype}; ids are strings or integers.")
    ids = column.cast(pl.String).str.strip_chars()
    empty = int((ids.is_null() | (ids == "")).sum())
    if empty:
        raise ValueError(f"{empty} of {len(ids)} rows of {path} have no {column.name!r}: drop these rows.")
    return ids


def _numbers(column: pl.Series, path: Path, what: str) -> pl.Series:
    """Gives a column as Float64, null where it was null or empty; raises on anything else that is no finite number."""
    if column.dtype == pl.String:
        column = column.str.strip_chars().replace("", None)
    numbers = column.cast(pl.Float64, strict=False)
    broken = (numbers.is_null() & column.is_not_null()) | ~numbers.is_finite().fill_null(True)
    if broken.any():
        first = column.filter(broken)[0]
        raise ValueError(
            f"{int(broken.sum())} of {len(column)} {what}s of {path}, column {column.name!r}, are no finite numbers, "
            f"the first is {first!r}: drop or mend these rows."
        )
    return numbers


def _ratings(column: pl.Series, path: Path) -> pl.Series:
    """Gives a column as ratings."""
    numbers = _numbers(column, path, "rating")
    missing = numbers.null_count()
    if missing:
        raise ValueError(
            f"{missing} of {len(numbers)} rows of {path} have no {column.name!r}: drop these rows, or give "
            "rating_column=None if every row counts as 1."
        )
    return numbers.alias("rating")


def _times(column: pl.Series, path: Path) -> pl.Series:
    """Gives a column as whole timestamps; integers keep their exact value."""
    if column.dtype == pl.String:
        whole = column.str.strip_chars().replace("", None).cast(pl.Int64, strict=False)
        if whole.null_count() == column.str.strip_chars().replace("", None).null_count():
            return whole.alias("timestamp")
    elif column.dtype.is_integer():
        return column.cast(pl.Int64).alias("timestamp")
    return _numbers(column, path, "timestamp").cast(pl.Int64).alias("timestamp")
