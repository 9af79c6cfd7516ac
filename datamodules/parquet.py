"""What a Parquet file unpacks to, as its footer and the headers of its pages have it, before any page is unpacked.

A few hundred kilobytes may hold a column of one value a hundred million times, or a page that unpacks to gigabytes. The library
that reads them makes room for what each page claims, and for each row; both are counted here. The layout is that of Apache Parquet
(`parquet.thrift`), written down by Thrift's compact protocol.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

#: Bytes of a footer, at most: that of a table of ratings has kilobytes.
FOOTER = 2**24
_MAGIC, _DEEPEST = b"PAR1", 32
#: Bytes of a page's header that are read at first, and at most: it may hold the least and the greatest value.
_HEADER, _LONGEST = 2**9, 2**20

# Numbers of fields, as parquet.thrift has them.
_SCHEMA, _NAME, _CHILDREN = 2, 4, 5
_ROW_GROUPS, _COLUMNS, _ROWS = 4, 1, 3
_OUTSIDE, _META = 1, 3
_PATH, _VALUES, _PACKED, _DATA_AT, _DICTIONARY_AT = 3, 5, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED, _PAGE_KINDS, _PAGE_VALUES = 2, 3, (5, 7, 8), 1


class Unpacked(NamedTuple):
    """What columns of a file take once they are unpacked."""

    rows: int
    values: int  # of all these columns together
    size: int  # bytes of their pages


def unpacked(path: Path, columns: Sequence[str]) -> Unpacked:
    """Rows, values and bytes of flat columns of a file; a ValueError where it is damaged or claims what cannot be."""
    names = {(name.encode("utf-8", "replace"),) for name in columns}
    rows, values, size = 0, 0, 0
    with path.open("rb") as file:
        said = _whole(_footer(file))
        places = _places(_parts(said, _SCHEMA), {name for (name,) in names})
        for group in _parts(said, _ROW_GROUPS):
            count = _number(group, _ROWS)
            rows += count
            for place, chunk in enumerate(_parts(group, _COLUMNS)):
                meta = _part(chunk, _META)
                where = meta.get(_PATH)
                # Some find a column by its place, and some by its path.
                if place not in places and not (isinstance(where, list) and tuple(where) in names):
                    continue
                if _OUTSIDE in chunk:
                    raise ValueError("its columns lie in other files")
                told = 0
                for page in _pages(file, meta):
                    size += _number(page, _PAGE_UNPACKED)
                    told += sum(_number(_part(page, kind), _PAGE_VALUES) for kind in _PAGE_KINDS)
                values += max(told, count, _number(meta, _VALUES))
    return Unpacked(rows, values, size)


def _places(schema: list[dict[int, Any]], names: set[bytes]) -> set[int]:
    """Where columns of some names lie among all that have values, of which only those at the top are meant."""
    found: set[int] = set()
    left, place = [_number(element, _CHILDREN) for element in schema[:1]], 0
    for element in schema[1:]:
        while left and not left[-1]:
            left.pop()
        if not left:
            raise ValueError("its columns do not belong together")
        left[-1] -= 1
        if children := _number(element, _CHILDREN):
            left.append(children)
        else:
            if len(left) == 1 and element.get(_NAME) in names:
                found.add(place)
            place += 1
    return found


def _footer(file: BinaryIO) -> bytes:
    end = file.seek(0, 2)
    file.seek(max(end - 8, 0))
    length, magic = int.from_bytes(file.read(4), "little"), file.read(4)
    if magic != _MAGIC or length > end - 12:
        raise ValueError("it has no footer")
    if length > FOOTER:
        raise ValueError(f"its footer has {length:,} bytes, and at most {FOOTER:,} are read")
    file.seek(end - 8 - length)
    return file.read(length)


def _pages(file: BinaryIO, meta: dict[int, Any]) -> Iterator[dict[int, Any]]:
    """The headers of a column's pages in one row group, one after another as they lie in the file."""
    at = _number(meta, _DATA_AT)
    if _number(meta, _DICTIONARY_AT):
        at = min(at, _number(meta, _DICTIONARY_AT))
    end = at + _number(meta, _PACKED)
    while at < end:
        for most in (_HEADER, _LONGEST):
            file.seek(at)
            content = file.read(min(most, end - at))
            try:
                page, length = _struct(content, 0, 0)
                break
            except IndexError:
                if len(content) < most or most == _LONGEST:
                    raise ValueError("a page is cut off") from None
        yield page
        at += length + _number(page, _PAGE_PACKED)


def _number(values: dict[int, Any], field: int) -> int:
    """A whole number of a field that is not below 0; 0 where it is lacking."""
    found = values.get(field, 0)
    if type(found) is not int or found < 0:
        raise ValueError(f"it claims {found!r} where a number is wanted")
    return found


def _part(values: dict[int, Any], field: int) -> dict[int, Any]:
    """A structure of a field, an empty one where it is lacking."""
    found = values.get(field, {})
    if not isinstance(found, dict):
        raise ValueError(f"it has {type(found).__name__} where a structure is wanted")
    return found


def _parts(values: dict[int, Any], field: int) -> list[dict[int, Any]]:
    """The structures of a field."""
    found = values.get(field, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("it has something else where a list of structures is wanted")
    return found


# Thrift's compact protocol.


def _whole(content: bytes) -> dict[int, Any]:
    try:
        return _struct(content, 0, 0)[0]
    except IndexError:
        raise ValueError("its footer is cut off") from None


def _struct(content: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Fields by number, and where the structure ends; an IndexError where the content ends before."""
    found: dict[int, Any] = {}
    number = 0
    while kind := content[at]:
        at += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, at = _zigzag(content, at)
        kind &= 15
        if kind in (1, 2):  # true and false need no room of their own
            found[number] = kind == 1
        else:
            found[number], at = _value(kind, content, at, depth)
    return found, at + 1


def _value(kind: int, content: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > _DEEPEST:
        raise ValueError("it is nested too deep")
    match kind:
        case 1 | 2 | 3:
            return content[at], at + 1
        case 4 | 5 | 6:
            return _zigzag(content, at)
        case 7 | 8:
            length, at = (8, at) if kind == 7 else _varint(content, at)
            if length > len(content) - at:
                raise IndexError
            return content[at : at + length], at + length
        case 9 | 10:
            size, each = content[at] >> 4, content[at] & 15
            at += 1
            if size == 15:
                size, at = _varint(content, at)
            values = []
            for _ in range(size):  # each takes a byte at least, so that the content ends first
                value, at = _value(each, content, at, depth + 1)
                values.append(value)
            return values, at
        case 12:
            return _struct(content, at, depth + 1)
        case _:  # maps stand in no structure of Parquet
            raise ValueError(f"it holds a value of the kind {kind}, which Parquet does not know")


def _zigzag(content: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("it holds a number that is too long")
