"""The fields of a privacy record: what may stand in each, and how it is written to and read from plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from zoo.privacy.accounting.relation import Relation, Unit

Plain = str | int | float | bool
"""What public inputs are made of."""


class RecordError(ValueError):
    """A record that contradicts itself or cannot be read."""


class Guarantee(StrEnum):
    """Whether a record's epsilon may be relied on."""

    PROVED = "proved"
    NONE = "none"


def check_number(name: str, value: float | None, limit: float) -> None:
    """Refuse what is no number of at least 0 and below a limit; None is allowed."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < limit:
        raise RecordError(f"{name} must be a number in [0, {limit:g}), got {value!r}.")


def write_field(value: Any) -> Any:  # noqa: ANN401  each field has a type of its own
    """A field's value as plain JSON."""
    match value:
        case StrEnum():
            return value.value
        case tuple():
            return list(value)
        case dict():
            return dict(value)
    return value


def read_field(name: str, kind: str, value: object) -> Any:  # noqa: ANN401  each field has a type of its own
    """The value of a field from plain JSON of another party. Its range, and the other fields, the record checks itself.

    Args:
        name: Of the field.
        kind: Its type, as the record's class states it.
        value: What JSON has there.

    Raises:
        RecordError: If the value is of another type, or not one of those that the field knows.
    """
    if value is None and kind.endswith(" | None"):
        return None
    return _READERS[kind.removesuffix(" | None")](name, value)


def _read_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise RecordError(f"{name} must be a text, got {type(value).__name__}.")
    return value


def _read_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise RecordError(f"{name} must be a finite number or null, got {str(value)[:80]}.")
    return float(value)


def _read_integer(name: str, value: object) -> int:
    if type(value) is not int:
        raise RecordError(f"{name} must be an integer, got {type(value).__name__}.")
    return value


def _read_texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise RecordError(f"{name} must be a list of texts, got {type(value).__name__}.")
    return tuple(_read_text(name, text) for text in value)


def _read_inputs(name: str, value: object) -> dict[str, Plain]:
    if not isinstance(value, Mapping):
        raise RecordError(f"{name} must be a mapping, got {type(value).__name__}.")
    return dict(value)


def _reader_of(kind: type[StrEnum]) -> Callable[[str, object], StrEnum]:
    known = [str(member.value) for member in kind]

    def read(name: str, value: object) -> StrEnum:
        if not isinstance(value, str) or value not in known:
            raise RecordError(f"{name} must be one of {known}, got {str(value)[:80]!r}.")
        return kind(value)

    return read


_READERS: dict[str, Callable[[str, object], object]] = {
    "str": _read_text,
    "float": _read_number,
    "int": _read_integer,
    "tuple[str, ...]": _read_texts,
    "Mapping[str, Plain]": _read_inputs,
    "Guarantee": _reader_of(Guarantee),
    "Unit": _reader_of(Unit),
    "Relation": _reader_of(Relation),
}
