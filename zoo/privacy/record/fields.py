"""The fields of a privacy record: their types, and how plain JSON is written and read."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from zoo.privacy.accounting.relation import Relation, Unit

Reader = Callable[[str, object], Any]
"""Converts the name of a field and plain JSON to the field's value."""

FLOATING_POINT = (
    "The guarantee is proved for exact real arithmetic; the implementation uses float64 noise with rounding and is not "
    "proved against floating-point or timing attacks."
)
"""Sentence of every record. Files contain it, so it never changes."""
LARGEST = 2**128
"""Bound of the integers of a record: larger ones are no numbers of any mechanism, and none in floating point."""
ASK_SOURCE = "Do not use the release; ask the source party for a correct one."
"""What to do about a record that is wrong."""


class RecordError(ValueError):
    """A record that contradicts itself or cannot be read."""


class InconsistentRecordError(RecordError):
    """A record that differs from what its mechanism or its ledger gives."""


class UnderstatedPrivacyError(ValueError):
    """A record that states less privacy loss than its ledger gives."""


class Guarantee(StrEnum):
    """Strength of a record's guarantee."""

    PROVED = "proved"
    CONDITIONAL = "conditional"  # proved, if the record's conditions hold
    NONE = "none"


def check_number(name: str, value: float | None, limit: float) -> None:
    """Refuse a value that is no number in ``[0, limit)``; None is allowed."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < limit:
        raise RecordError(f"{name} is {value!r}. Allowed: [0, {limit:g}).")


def write_field(value: Any) -> Any:  # noqa: ANN401  each field has a type of its own
    """Return a field's value as plain JSON."""
    match value:
        case StrEnum():
            return value.value
        case tuple():
            return list(value)
        case dict():
            return dict(value)
    return value


def read_field(name: str, kind: str, value: object) -> Any:  # noqa: ANN401  each field has a type of its own
    """Return the value of a field from the untrusted JSON of another party; ``kind`` is its type in the record's class.

    Raises:
        RecordError: The value has another type, or is not one of the allowed values. The record checks its range.
    """
    if value is None and kind.endswith(" | None"):
        return None
    return _READERS[kind.removesuffix(" | None")](name, value)


def _reader(kind: type[Any], what: str, convert: Callable[[Any], object]) -> Reader:
    """Return a reader of one type of JSON; a bool is no number."""

    def read(name: str, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, kind):
            raise RecordError(f"{name} is of type {type(value).__name__}, not {what}.")
        return convert(value)

    return read


_read_text = _reader(str, "a text", str)
_read_list = _reader(list, "a list", list)


def _read_texts(name: str, value: object) -> tuple[str, ...]:
    return tuple(_read_text(name, text) for text in _read_list(name, value))


def _read_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise RecordError(f"{name} is {repr(value)[:80]}. Allowed: finite numbers or null.")
    return float(value)


def _read_bool(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise RecordError(f"{name} is {repr(value)[:80]}. Allowed: true, false.")
    return value


def _reader_of(kind: type[StrEnum]) -> Reader:
    known = [str(member.value) for member in kind]

    def read(name: str, value: object) -> StrEnum:
        if not isinstance(value, str) or value not in known:
            raise RecordError(f"{name} is {str(value)[:80]!r}. Allowed: {known}.")
        return kind(value)

    return read


def _read_integer(name: str, value: object) -> int:
    read: int = _reader(int, "an integer", int)(name, value)
    if not abs(read) < LARGEST:
        raise RecordError(f"{name} is {repr(read)[:80]}. Allowed: integers below 2^128.")
    return read


def _read_plain(name: str, value: object) -> dict[str, object]:
    read: dict[str, object] = _reader(Mapping, "a mapping", dict)(name, value)
    for key, one in read.items():
        if isinstance(one, int) and not isinstance(one, bool):
            _read_integer(f"{name}, {repr(key)[:80]}", one)
    return read


_READERS: dict[str, Reader] = {
    "str": _read_text,
    "float": _read_number,
    "int": _read_integer,
    "tuple[str, ...]": _read_texts,
    "Mapping[str, Plain]": _read_plain,
    "bool": _read_bool,
    "list": _read_list,
    "Guarantee": _reader_of(Guarantee),
    "Unit": _reader_of(Unit),
    "Relation": _reader_of(Relation),
}
