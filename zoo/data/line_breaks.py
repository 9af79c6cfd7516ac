"""Line breaks in quoted values of a CSV file, and whether a line inside one may be a row by itself."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

#: Lines of a value, up to which a row that begins inside another one is followed.
_MOST_LINES = 1_000


class LineBreaks:
    r"""Faults of a file in which quoted values have line breaks.

    A quote that somebody wrote into a text opens a value, up to the next such quote: rows of others between them are lost. So
    each row must be exact CSV with as many values as the first line, and no line inside a value may begin a row.

    Args:
        separator: Character between two values.
        width: Number of values of the first line.
        needed: Positions of users, items and the needed numbers.
        optional: Position of the numbers that may be missing (times).

    Examples:
        >>> breaks = LineBreaks(",", 4, [0, 1, 2])
        >>> breaks.fault('u,i,5,"a\nb"', ["u", "i", "5", "a\nb"])
        ''
        >>> breaks.fault('u,i,5,"a\nv,j,4,b"', ["u", "i", "5", "a\nv,j,4,b"])
        'a quoted value holds a line that may be a row'
    """

    def __init__(self, separator: str, width: int, needed: Sequence[int], optional: int | None = None) -> None:
        self.separator, self.width, self.needed, self.optional = separator, width, needed, optional
        one = re.escape(separator)
        value = rf'(?:"(?:[^"]|"")*+"|[^"\n{one}]*+)'
        self._row, self._start = (
            re.compile(rf"{value}(?:{one}{value})*+"),
            re.compile(rf'(?:{value}{one})*"(?:[^"]|"")*+'),
        )
        self._begun: list[str] = []  # rows that begin inside a value, as far as they were read

    def fault(self, text: str, values: Sequence[str]) -> str:
        """Return what is wrong with the next row, by its text and values; empty if nothing is."""
        text = text.replace("\r\n", "\n").replace("\r", " ").removesuffix("\n")  # a CR alone ends no row
        if '"' in text and not self._row.fullmatch(text):
            return "a quote is inside a value without quotes"
        if values and len(values) != self.width:
            return f"a row has {len(values)} values, the first line {self.width}"
        if "\n" not in text and not self._begun:
            return ""
        first, *rest = text.split("\n")
        if rest and 0 not in self.needed and values[0].count("\n") == len(rest) and not rest[-1].startswith('"'):
            # The rest of the row follows a text in the first column. The first line may be another row.
            rest[-1] = first.replace('"', " ")
        rows = [row for part in (first, *rest) for row in self._rows_to(part, part is not first)]
        return "a quoted value holds a line that may be a row" if any(map(self._is_row, rows)) else ""

    def _rows_to(self, line: str, inside: bool) -> Iterator[list[str]]:
        """Yield the values of rows that end with a line, and began inside a value."""
        if inside:
            yield line.split(self.separator)
        begun = [f"{row}\n{line}" for row in self._begun if row.count("\n") < _MOST_LINES] + [line] * inside
        self._begun = [row for row in begun if self._start.fullmatch(row)]
        for row in begun:
            if self._row.fullmatch(row):
                yield next(csv.reader(io.StringIO(row, newline=""), delimiter=self.separator), [])

    def _is_row(self, values: Sequence[str]) -> bool:
        """Return whether values are a row, even a short or long one: enough for the ids, and numbers where needed."""
        found = {at: values[at].strip() if at < len(values) else "" for at in self.needed[2:]}
        numbers = (_is_number(text) or (not text and at == self.optional) for at, text in found.items())
        return len(values) > max(self.needed[:2]) and all(numbers)


def _is_number(text: str) -> bool:
    """Return whether a text may be read as a number or date: all that Python reads, or a decimal comma."""
    with suppress(ValueError):
        return float(text.replace(",", ".")) is not None
    with suppress(ValueError):
        return datetime.fromisoformat(text) is not None
    return False
