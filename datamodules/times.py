"""Times: numbers, or dates as ISO 8601 writes them, as whole seconds."""

from datetime import UTC, datetime

import polars as pl


def seconds_of(text: str) -> int | None:
    """Gives seconds since 1970 of an ISO 8601 date or time, of UTC unless it names a zone; None for any other text."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() // 1)


def whole_times(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Gives a column of numbers, or of ISO 8601 dates, as Int64, and which of its values are neither (a mask).

    Numbers keep their unit, and whole ones every digit, which a float would not; dates become seconds. Of text a column has
    one kind: a number among dates counts as broken, unless it is a date without hyphens (`20140701`). So does a number that
    64 bits with a sign do not hold.
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
    """Gives a column of text in seconds, null where it is no date; None where nothing is one."""
    distinct = column.drop_nulls().unique()
    seconds = pl.Series([seconds_of(text) for text in distinct.to_list()], dtype=pl.Int64)
    if seconds.null_count() == len(seconds):
        return None
    return column.replace_strict(distinct, seconds, default=None, return_dtype=pl.Int64)
