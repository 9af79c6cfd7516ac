"""Text tables: how they are written and packed, and whether every line becomes a row."""

import bz2
import codecs
import csv
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from zoo.data.line_breaks import LineBreaks, are_even

#: Limit of an unpacked file: 100 times its size (ratings pack to a fifth), at least `ALWAYS` bytes, at most `UNPACKED` bytes.
MOST_TIMES = 100
ALWAYS, UNPACKED = 2**26, 2**32

BROKEN = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    EOFError,
    gzip.BadGzipFile,
    zlib.error,
    zipfile.BadZipFile,
)
"""What libraries raise on a damaged file; a panic of polars is no `Exception`."""


#: What damaged, encrypted and unusual archives raise.
_UNPACKING = (OSError, EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError)
#: Kinds of text, and how each may be packed.
KINDS, PACKS = (
    (".csv", ".tsv", ".inter", ".dat", ".txt", ".jsonl", ".ndjson", ".json"),
    ("", ".gz", ".bz2", ".zst", ".zip"),
)
#: A `.rsds` of OmniRec is a zip archive with a table.
ENDINGS = (*(kind + pack for kind in KINDS for pack in PACKS), ".parquet", ".zip", ".rsds")
_JSON, _ARRAY = {".jsonl", ".ndjson", ".json"}, "array of .json"
#: Separators that are tried on the header if the usual one of the ending does not fit. `blanks`: any run of blanks or tabs.
_TRIED, BLANKS = (",", "\t", ";", "::", "|"), "blanks"
_ZSTD_BLOCK = 1 << 17  # bytes of an unpacked block, at most
_ONE = "\x1f"  # replaces a separator of several characters
_HEAD, _PART = 1 << 16, 1 << 22  # bytes that are read for the first line, and at a time to count lines
#: Columns that a message names.
_NAMED = 10


@dataclass(frozen=True)
class TextForm:
    """How a text file is written.

    Args:
        separator: Text between two values; `blanks`: any run of blanks or tabs; None: found in the header. A file without
            header needs it, unless it is `.csv` or `.tsv`.
        quoting: Whether a value may stand in quotes; None: in `.csv` alone.
        encoding: Encoding of the text.
        header: Whether the first line names the columns; else they are named by position, from 0.

    Examples:
        >>> TextForm(separator="::", header=False).quoting is None
        True
    """

    separator: str | None = None
    quoting: bool | None = None
    encoding: str = "utf-8"
    header: bool = True

    def __post_init__(self) -> None:
        if self.separator is not None and not self.separator:
            raise ValueError("separator is ''. Allowed: text, such as ';', or 'blanks'. Set null to find it.")
        if self.quoting and (self.separator == BLANKS or len(self.separator or ",") > 1):
            raise ValueError(f"quoting is true, and separator is {self.separator!r}. Quotes need one character.")
        try:
            found = codecs.lookup(self.encoding)
            if not found._is_text_encoding or re.match(
                "iso2022|hz|utf-7|(raw-)?unicode|punycode|idna|undef", found.name
            ):
                raise ValueError(f"encoding is {self.encoding!r}, in which a line may change others. Convert to UTF-8.")
        except LookupError:
            raise ValueError(f"encoding is {self.encoding!r}. Allowed: Python's, such as latin-1 or gb18030.") from None


PLAIN = TextForm()


class TextFile:
    """A text file of interactions: its form, and a comparison of the rows that were read with the lines that it has."""

    def __init__(
        self, path: Path, ending: str, pack: str, needed: Sequence[str], form: TextForm, optional: str | None = None
    ) -> None:
        self.path, self.ending, self.pack, self.needed, self.form = path, ending, pack, needed, form
        self.optional = optional  # of the needed columns, that whose values may be missing
        self.content = self._content()
        start = self._start()
        if ending in _JSON and self._open().read(3) == codecs.BOM_UTF8:
            self.content = self._open().read()[3:]
        self.first = start.decode("utf-8", errors="replace").strip("\r")
        self.separator = form.separator or self._found_separator()
        self.quoting = ending == ".csv" and len(self.separator) == 1 if form.quoting is None else form.quoting
        if len(self.separator) > 1 or len(self.separator.encode()) > 1:
            self._use_one_character()

    def _content(self) -> bytes | None:
        """Return the text if it has to be changed before it is read; None: it is read in place."""
        if not self.pack and codecs.lookup(self.form.encoding).name == "utf-8":
            return None
        content = unpacked(self.path, self.pack) if self.pack else self.path.read_bytes()
        try:
            return content if self.form.encoding == "utf-8" else content.decode(self.form.encoding).encode()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ValueError(
                f"{self.path} is not {self.form.encoding} (line {line}). Set encoding, e.g. latin-1."
            ) from None

    def _start(self) -> bytes:
        """Return the first line that is not empty."""
        with self._open() as file:
            start = file.read(_HEAD)
        if b"\n" not in start and b"\r" in start.rstrip(b"\r"):
            raise ValueError(f"{self.path} ends its lines with CR alone. Convert them to LF.")
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ValueError(f"{self.path} is UTF-16. Convert it, or set encoding.")
        start = start.removeprefix(codecs.BOM_UTF8)
        line = start.lstrip(b"\r\n")
        self.skipped = start[: len(start) - len(line)].count(b"\n")
        lines = line.split(b"\n")
        quoted = not self.form.header and (self.ending == ".csv" if self.form.quoting is None else self.form.quoting)
        while quoted and len(lines) > 1 and lines[0].count(b'"') % 2:  # a value of the first row has a line break
            lines[:2] = [b"\n".join(lines[:2])]
        return lines[0]

    def _found_separator(self) -> str:
        usual = "," if self.ending in (".csv", *_JSON) else "\t"
        if self.ending in (".inter", *_JSON):
            return usual
        if not self.form.header:  # the first row is a rating, and may not decide how all others are read
            if self.ending in (".csv", ".tsv"):
                return usual
            raise ValueError(f"{self.path} has no header. Set separator, for example '::' or 'blanks'.")
        likely = usual if usual in self.first else max((usual, *_TRIED), key=self.first.count)
        return next((tried for tried in (usual, *_TRIED, BLANKS) if self._fits(tried)), likely)

    def _fits(self, separator: str) -> bool:
        names = self.first.split() if separator == BLANKS else self.first.split(separator)
        return {*self.needed} <= {name.strip().strip('"') for name in names}

    def _use_one_character(self) -> None:
        content = self.path.read_bytes() if self.content is None else self.content
        if _ONE.encode() in content:
            raise ValueError(f"{self.path} has the character U+001F. Remove it, or change the separator.")
        if self.separator == BLANKS:
            lines = re.sub(rb"[ \t]+(?=\r?$)|^[ \t]+", b"", content, flags=re.MULTILINE)
            self.content = re.sub(rb"[ \t]+", _ONE.encode(), lines)
        else:
            self.content = content.replace(self.separator.encode(), _ONE.encode())
        self.separator, self.first = _ONE, self._start().decode("utf-8", errors="replace").strip("\r")

    def _names(self) -> list[str]:
        """Return the values of the first line."""
        try:
            if not self.quoting:
                return next(csv.reader([self.first], delimiter=self.separator, quoting=csv.QUOTE_NONE), [])
            return next(csv.reader([self.first], delimiter=self.separator), [])
        except csv.Error:  # a CR among the values
            return self.first.split(self.separator)

    def scan(self) -> pl.LazyFrame:
        """Return its columns, unread unless it is packed, all as text."""
        if self.ending in _JSON:
            return self._scan_json()
        names = self._names()
        if not self.form.header:
            return self._scan_csv(new_columns=[str(number) for number in range(len(names))])
        if self.ending == ".inter":
            names = [name.split(":")[0] for name in names]
        for name in sorted({name for name in names if names.count(name) > 1}):
            if name in self.needed or self.ending == ".inter":
                places = [at + 1 for at, other in enumerate(names) if other == name]
                by = ", by names before the colon" if self.ending == ".inter" else ""
                raise ValueError(f"{self.path} has several columns ['{name}']{by} (positions {places}). Keep one.")
        table = self._scan_csv()
        if self.ending != ".inter":
            return table
        return table.rename(dict(zip(table.collect_schema().names(), names, strict=True)))

    def _scan_csv(self, new_columns: list[str] | None = None) -> pl.LazyFrame:
        return pl.scan_csv(
            self._source(),
            separator=self.separator,
            infer_schema=False,
            quote_char='"' if self.quoting else None,
            has_header=new_columns is None,
            new_columns=new_columns,
            glob=False,
        )

    def _scan_json(self) -> pl.LazyFrame:
        """Return all values as text: in a column of numbers one value would decide about the digits of all others."""
        array = self.first.lstrip().startswith("[")
        self.ending = _ARRAY if array else self.ending
        for length in (None,) if array else (1, None):  # a key may be missing in the first line
            read = pl.read_json if array else pl.scan_ndjson
            known = read(self._open(), infer_schema_length=length).lazy().collect_schema()  # a path would be a pattern
            if {*self.needed} <= known.keys():
                kinds = {name: known[name] if known[name].is_nested() else pl.String() for name in self.needed}
                return read(self._open(), schema=kinds).lazy()
        return pl.LazyFrame(schema=dict.fromkeys(known, pl.Null))

    def _source(self) -> Path | io.BytesIO:
        return self.path if self.content is None else io.BytesIO(self.content)

    def check(self, rows: int, *, exact: bool) -> None:
        """Refuse the file if its lines are more than the rows that were read, or not ``exact`` CSV with quoting."""
        if self.ending == _ARRAY:
            return
        if self.ending in _JSON:
            with self._open() as file:
                expected, quotes, even = sum(not line.isspace() for line in file), False, True
        else:
            expected, quotes, even = self._expected()
        if rows != expected and not (self.quoting and quotes):
            raise ValueError(f"{self.path} has {expected:,} rows, and {rows:,} were read. Check quoting and separator.")
        if rows != expected or (self.quoting and exact and not even):
            self._check_quotes(rows)

    def _expected(self) -> tuple[int, bool, bool]:
        """Return the number of lines below the header, whether any has a quote, and whether all are exact and as wide."""
        lines, quotes, even, count = 0, False, True, len(self._names()) - 1
        with self._open() as file:
            while part := file.read(_PART) + file.readline():
                part += b"\n" * (not part.endswith(b"\n"))
                lines += part.count(b"\n")
                quotes = quotes or b'"' in part
                even = even and are_even(part, self.separator, count)
        if self.form.header:
            lines -= 1 + self.skipped  # polars skips empty lines before the header
        return lines, quotes, even

    def _open(self) -> io.BufferedReader | io.BytesIO:
        return self.path.open("rb") if self.content is None else io.BytesIO(self.content)

    def _check_quotes(self, rows: int) -> None:
        """Refuse rows that are no exact CSV or as wide as the first line, and quoted values that may hold rows."""
        with _lines(self.path, self.pack, self.form) as file:
            lines: list[str] = []  # of the record that is read
            reader = csv.reader(_kept(file, lines), delimiter=self.separator, strict=True)
            names, number = self._names(), 0
            places = {name: names.index(name) if self.form.header else int(name) for name in self.needed}
            breaks = LineBreaks(
                self.separator, len(names), [*places.values()], places.get(self.optional or ""), header=self.form.header
            )
            what = "a quote is not closed, or inside a value"
            try:
                if self.form.header:
                    next(filter(None, reader), None)
                lines.clear()
                for values in reader:
                    if fault := breaks.fault("".join(lines), values):
                        what = fault
                        raise csv.Error
                    lines.clear()
                    number += 1
            except csv.Error:
                line = reader.line_num - len(lines) + 1
                remedy = "leave out columns of text, or set quoting to false if no value is quoted"
                raise ValueError(f"{self.path}: {what} (line {line}). Correct it, {remedy}.") from None
        if number != rows:
            raise ValueError(f"{self.path} has {number:,} rows, and {rows:,} were read. Check quoting and separator.")


def _kept(file: Iterable[str], lines: list[str]) -> Iterator[str]:
    """Yield each line of a file after adding it to a list."""
    for line in file:
        lines.append(line)
        yield line


def unpacked(path: Path, pack: str, member: str | None = None) -> bytes:
    """Return the content of a packed file, of a zip archive that of its only table or a member, if its size allows it."""
    most = min(max(MOST_TIMES * path.stat().st_size, ALWAYS), UNPACKED)
    try:
        if pack == ".zst":
            content = _unpacked_zstd(path, most)
        elif pack == ".zip":
            with zipfile.ZipFile(path) as archive, archive.open(member or _member(path)) as packed:
                content = packed.read(most + 1)
        elif pack == ".bz2":
            content = _unpacked_bz2(path.read_bytes(), most)
        else:
            with gzip.open(path) as file:
                content = file.read(most + 1)
    except _UNPACKING as error:
        raise EOFError(str(error)) from error
    if len(content) > most:
        raise ValueError(f"{path} unpacks to more than {most:,} bytes. Unpack it first.")
    return content


_PADDING = b"\0\r\n"


def _unpacked_bz2(packed: bytes, most: int) -> bytes:
    """Return the content of all streams, cut off after ``most`` bytes and one; `bz2.open` omits a later stream that is damaged."""
    content, at, view = bytearray(), 0, memoryview(packed)
    while not at or ((packed[at : at + 99].strip(_PADDING) or packed[at:].strip(_PADDING)) and len(content) <= most):
        stream = bz2.BZ2Decompressor()
        while not stream.eof and len(content) <= most:
            if at == len(packed):
                raise EOFError("it is cut off")
            part = view[at : at + 2**16]
            content += stream.decompress(part, most + 1 - len(content))
            at += len(part)
        at -= len(stream.unused_data)
    return bytes(content)


def _unpacked_zstd(path: Path, most: int) -> bytes:
    """Return the lines of a Zstandard file, which polars unpacks, unless its blocks may hold more than ``most`` bytes."""
    if _zstd_bound(path.read_bytes()) > most:
        raise ValueError(f"{path} unpacks to more than {most:,} bytes. Unpack it first.")
    lines = pl.scan_csv(path, has_header=False, separator="\0", quote_char=None, infer_schema=False, glob=False)
    return "\n".join([*lines.collect().to_series().fill_null("").to_list(), ""]).encode()


def _zstd_bound(packed: bytes) -> int:
    """Return how many bytes a Zstandard file unpacks to at most: the sum over its blocks (RFC 8878, section 3.1.1)."""
    at, bound = 0, 0
    while at + 5 <= len(packed):
        if packed[at + 1 : at + 4] == b"\x2a\x4d\x18":  # a frame to skip
            at += 8 + int.from_bytes(packed[at + 4 : at + 8], "little")
            continue
        flags = packed[at + 4]
        single = flags >> 5 & 1
        at += 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6]
        last = 0
        while not last and at + 3 <= len(packed):
            block = int.from_bytes(packed[at : at + 3], "little")
            last, kind, size = block & 1, block >> 1 & 3, block >> 3
            bound += _ZSTD_BLOCK if kind == 2 else size
            at += 3 + (1 if kind == 1 else size)
        at += 4 * (flags >> 2 & 1)
    return bound


def split_ending(path: Path) -> tuple[str, str]:
    """Return kind and packing of a file by its name, or of the only table of a zip archive; two empty texts: unknown."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if path.is_dir() or suffixes[-1:] == [".parquet"]:
        return ".parquet", ""
    if suffixes and suffixes[-1] in KINDS:
        return suffixes[-1], ""
    if len(suffixes) == 2 and suffixes[-1] in PACKS and suffixes[0] in KINDS:
        return suffixes[0], suffixes[-1]
    if suffixes and suffixes[-1] in (".zip", ".rsds"):
        with suppress(*_UNPACKING):
            return Path(_member(path)).suffix.lower(), ".zip"
        return ".csv", ".zip"
    return "", ""


def _member(path: Path) -> str:
    """Return the only table of a zip archive."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    tables = [
        name
        for name in names
        if Path(name).suffix.lower() in KINDS and Path(name).stem.lower() not in ("meta", "lineage")
    ]
    if len(tables) != 1:
        shown = ", ".join(tables[:_NAMED]) or "none"
        raise ValueError(f"{path} has {len(tables)} tables ({shown}). Allowed: one. Unpack one.")
    return tables[0]


def line_numbers(path: Path, rows: Collection[int], form: TextForm = PLAIN) -> tuple[str, dict[int, int]]:
    """Return "line", or "row" for Parquet, and the number of each row (counted from 0) in the file, counted from 1.

    In text the header is a line, and a quoted value may hold line breaks. Only the part up to the last row is read.
    """
    ending, pack = split_ending(path)
    if ending in ("", ".parquet"):
        return "row", {row: row + 1 for row in rows}
    header = form.header and ending not in _JSON
    found = {row: row + 1 + header for row in rows}
    with suppress(csv.Error, *BROKEN), _lines(path, pack, form) as file:
        if ending in _JSON:
            filled = ((number, line) for number, line in enumerate(file, 1) if line.strip())
            for row, (number, line) in zip(range(max(rows, default=-1) + 1), filled, strict=False):
                if not row and line.lstrip("\ufeff ").startswith("["):
                    return "row", found
                found |= {row: number} if row in found else {}
            return "line", found
        separator = form.separator or max(",;\t|", key=file.readline().count)
        file.seek(0)
        quoted = (ending == ".csv" if form.quoting is None else form.quoting) and len(separator) == 1
        delimiter = separator if len(separator) == 1 else ","
        reader = csv.reader(file, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
        while header and rows and not next(reader, ["at the end"]):
            pass  # polars skips empty lines before the header, too
        for row in range(max(rows, default=-1) + 1):
            found |= {row: reader.line_num + 1} if row in found else {}
            next(reader, None)
    return "line", found


def _lines(path: Path, pack: str, form: TextForm) -> IO[str]:
    """Open the text of a file, without a byte order mark."""
    encoding = "utf-8-sig" if codecs.lookup(form.encoding).name == "utf-8" else form.encoding
    if pack in (".zst", ".zip", ".bz2"):
        return io.TextIOWrapper(io.BytesIO(unpacked(path, pack)), encoding, errors="replace", newline="")
    opener: Callable[..., IO[str]] = gzip.open if pack else open
    return opener(path, "rt", encoding=encoding, errors="replace", newline="")
