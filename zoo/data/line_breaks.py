"""Quoted values of a CSV file: whether rows are exact and as wide as the first line, and whether a value may hold a row."""

import csv
import io
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

import numpy as np

#: Characters of rows that may begin inside values and have not ended; with more they are taken for rows.
_MOST_BEGUN = 2**16


def are_even(lines: bytes, separator: str, count: int) -> bool:
    r"""Return whether whole lines are exact CSV without line breaks in quotes, and each has ``count`` separators outside quotes.

    Examples:
        >>> are_even(b'a,b\n"c, d",e\n', ",", 1), are_even(b'a,b\nc, d,e\n', ",", 1)
        (True, False)
    """
    text = np.frombuffer(b"\n" + lines, np.uint8)
    end, quote, between = (np.uint8(ord(each)) for each in '\n"' + separator)
    ends, places = np.flatnonzero(text == end), np.flatnonzero(text == between)
    if b'"' in lines:
        quotes = np.flatnonzero(text == quote)
        opening, closing = quotes[::2], quotes[1::2]
        before, after = (end, between, quote), (end, between, quote, np.uint8(ord("\r")))
        if len(quotes) % 2 or not (
            np.isin(text[opening - 1], before).all() and np.isin(text[closing + 1], after).all()
        ):
            return False
        if (np.searchsorted(quotes, ends) % 2).any():
            return False
        places = places[np.searchsorted(quotes, places) % 2 == 0]
    if len(places) != count * (len(ends) - 1) or not count:
        return not count and not len(places)
    each = places.reshape(-1, count)
    return bool((each[:, -1] < ends[1:]).all() and (each[:, 0] > ends[:-1]).all())


class LineBreaks:
    r"""Faults of a file with quoted values, which may have line breaks.

    A quote that somebody wrote into a text opens a value, up to the next such quote: rows of others between them are lost. So
    each row must be exact CSV with as many values as the first line, and no line inside a value may begin a row.

    Args:
        separator: Character between two values.
        width: Number of values of the first line.
        needed: Positions of users, items and the needed numbers.
        optional: Position of the numbers that may be missing (times).
        header: Whether the first line is a header; else it is a row, and may not decide which lines inside a value are rows.

    Examples:
        >>> breaks = LineBreaks(",", 4, [0, 1, 2])
        >>> breaks.fault('u,i,5,"a\nb"', ["u", "i", "5", "a\nb"])
        ''
        >>> breaks.fault('u,i,5,"a\nv,j,4,b"', ["u", "i", "5", "a\nv,j,4,b"])
        'a quoted value holds a line that may be a row'
    """

    def __init__(
        self, separator: str, width: int, needed: Sequence[int], optional: int | None = None, *, header: bool = True
    ) -> None:
        self.separator, self.width, self.needed, self.optional = separator, width, needed, optional
        self.header = header
        one = re.escape(separator)
        value = rf'(?:"(?:[^"]|"")*+"|[^"\n{one}]*+)'
        self._row, self._start = (
            re.compile(rf"{value}(?:{one}{value})*+"),
            re.compile(rf'((?:{value}{one})*)"((?:[^"]|"")*+)'),
        )
        self._begun: list[str] = []  # rows that begin inside a value, as far as they were read

    def fault(self, text: str, values: Sequence[str]) -> str:
        """Return what is wrong with the next row, by its text and values; empty if nothing is."""
        text = text.replace("\r\n", "\n").replace("\r", " ").removesuffix("\n")  # a CR alone ends no row
        if '"' in text and not self._row.fullmatch(text):
            return "a quote is inside a value without quotes"
        if len(values) != self.width and any(map(str.strip, values)):  # a blank line is no row
            return f"a row has {len(values)} values, the first line {self.width}"
        if "\n" not in text and not self._begun:
            return ""
        lines = text.split("\n")
        begins = ["", *lines[1:]]  # where a row may begin inside a value
        spans = "".join(values[:1]).count("\n") == len(lines) - 1 > 0
        if spans and 0 not in self.needed:
            # The rest of the row follows a text in the first column. The first line may be another row.
            begins[-1] = lines[0].replace('"', " ")
        rows = [row for line, begin in zip(lines, begins, strict=True) for row in self._rows_to(line, begin)]
        if not any(map(self._is_row, rows)) and sum(map(len, self._begun)) <= _MOST_BEGUN:
            return ""
        self._begun = []
        return "a quoted value holds a line that may be a row"

    def _rows_to(self, line: str, begin: str) -> list[list[str]]:
        """Return the values of rows that end with a line, and of one that it may ``begin``; empty for none."""
        rows = [begin.split(self.separator)] if begin else []
        begun = [f"{row}\n{line}" for row in self._begun]
        if begun or (begin and '"' in line):
            begun += [line] if begin else []
            self._begun = [row for row in begun if self._goes_on(row)]
            rows += [self._values(row) for row in begun if self._row.fullmatch(row)]
        return rows

    def _values(self, row: str) -> list[str]:
        return next(csv.reader(io.StringIO(row, newline=""), delimiter=self.separator), [])

    def _goes_on(self, row: str) -> bool:
        """Return whether the last value of a row is open, and it may still be a row: no needed value has several lines."""
        if (found := self._start.fullmatch(row)) is None:
            return False
        before, several = self._values(found[1])[:-1], "\n" in found[2].strip()
        return self._fit(before) and not (several and len(before) in self.needed)

    def _is_row(self, values: Sequence[str]) -> bool:
        """Return whether values are a row: as many as in the header, or as are needed, and numbers where needed."""
        enough = len(values) == self.width if self.header else len(values) > max(self.needed)
        return enough and self._fit(values)

    def _fit(self, values: Sequence[str]) -> bool:
        found = {at: values[at].strip() for at in self.needed[2:] if at < len(values)}
        return all(_is_number(text) or (not text and at == self.optional) for at, text in found.items())


def _is_number(text: str) -> bool:
    """Return whether a text may be read as a number or date: all that Python reads, or a decimal comma."""
    with suppress(ValueError):
        return float(text.replace(",", ".")) is not None
    with suppress(ValueError):
        return datetime.fromisoformat(text) is not None
    return False
