"""Times: numbers in s, ms, us or ns since 1970, or ISO 8601 dates, as whole seconds."""

from typing import Literal, get_args

import polars as pl

from datamodules.protocol import TIME_BANDS, seconds_of

TimeUnit = Literal["s", "ms", "us", "ns", "date"]
#: What times have that are too small for any unit.
NO_UNIT = "no known unit"


def units_of(times: pl.Series) -> list[str]:
    """Return the units that whole times have by their size; small numbers, before 1973 in every unit, have none.

    Next to a unit other than seconds small numbers count as `NO_UNIT`: else one row would decide how these are divided.

    Examples:
        >>> import polars as pl
        >>> units_of(pl.Series([1_400_000_000, 100, 0])), units_of(pl.Series([1_400_000_000_000, 100, 0]))
        (['s'], ['ms', 'no known unit'])
    """
    size = times.abs()
    large = size.filter(size >= TIME_BANDS["s"][0])
    if large.is_empty():
        return []
    least, most = _unit(large.min()), _unit(large.max())
    units = [least] if least == most else [unit for unit in TIME_BANDS if in_unit(times, unit).any()]
    return [*units, NO_UNIT] if units != ["s"] and in_unit(times, NO_UNIT).any() else units


def _unit(size: object) -> str:
    return [unit for unit, (low, _) in TIME_BANDS.items() if isinstance(size, int) and size >= low][-1]


def in_unit(times: pl.Series, unit: str) -> pl.Series:
    """Return a mask of the times that have a unit, or none, by their size; 0 is the same in all."""
    size = times.abs()
    if unit == NO_UNIT:
        return size.is_between(1, TIME_BANDS["s"][0], closed="left").fill_null(False)
    low, _ = TIME_BANDS[unit]
    mask = size >= low if unit == "ns" else size.is_between(low, 1000 * low, closed="left")
    return mask.fill_null(False)


def in_seconds(times: pl.Series, unit: str) -> pl.Series:
    """Return whole times of a unit in whole seconds, rounded down; without a known unit they stay.

    Examples:
        >>> import polars as pl
        >>> in_seconds(pl.Series([1_400_000_000_999]), "ms").to_list()
        [1400000000]
    """
    factor = TIME_BANDS[unit][1] if unit in TIME_BANDS else 1
    return times if factor == 1 else times // factor


def finite(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return a column as Float64, and a mask of its values that are no finite numbers; null stays null."""
    numbers = column.cast(pl.Float64, strict=False)
    return numbers, (numbers.is_null() & column.is_not_null()) | ~numbers.is_finite().fill_null(True)


def whole_times(column: pl.Series, unit: TimeUnit | None = None) -> tuple[pl.Series, pl.Series, bool]:
    """Return a column of numbers, or of ISO 8601 dates, as Int64, a mask of its values that are neither, and whether it has dates.

    Numbers keep their unit, and whole ones every digit, whatever other rows have. Dates become seconds since 1970. In a column
    of dates a number is invalid. A number beyond 64 bits is invalid. With the unit `date` every value is a date, also without
    hyphens (`20140701`).
    """
    if unit is not None and unit not in get_args(TimeUnit):
        raise ValueError(f"time_unit is {unit!r}. Allowed: {', '.join(get_args(TimeUnit))}, or null to find it.")
    if column.dtype in (pl.Date, pl.Datetime):
        return column.dt.epoch("s").cast(pl.Int64), pl.repeat(False, len(column), eager=True), True
    if unit == "date":
        column = column.cast(pl.String)
        dated = _dated(column)
        dated = pl.repeat(None, len(column), dtype=pl.Int64, eager=True) if dated is None else dated
        return dated, dated.is_null() & column.is_not_null(), True
    whole = column.cast(pl.Int64, strict=False)
    if column.dtype.is_integer() or (column.dtype == pl.String and whole.null_count() == column.null_count()):
        return whole, whole.is_null() & column.is_not_null(), False
    numbers, broken = finite(column)
    words = column.zip_with(broken, column.clear(1)) if column.dtype == pl.String and broken.any() else column.clear()
    if len(words) and (dated := _dated(words)) is not None:
        return dated, dated.is_null() & column.is_not_null(), True
    times = whole.fill_null(numbers.cast(pl.Int64, strict=False))
    return times, broken | (times.is_null() & column.is_not_null()), False


def _dated(column: pl.Series) -> pl.Series | None:
    """Return a column of text in seconds, null where a value is no date; None if no value is a date."""
    distinct = column.drop_nulls().unique()
    seconds = pl.Series([seconds_of(text) for text in distinct.to_list()], dtype=pl.Int64)
    if seconds.null_count() == len(seconds):
        return None
    return column.replace_strict(distinct, seconds, default=None, return_dtype=pl.Int64)
