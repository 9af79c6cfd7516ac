"""The fields of a privacy record: what may stand in each, and how it is read from the plain JSON of another party."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from zoo.privacy.accounting.relation import Relation, Unit

Plain = str | int | float | bool
"""What public inputs are made of."""

StrEnumT = TypeVar("StrEnumT", bound=StrEnum)


class RecordError(ValueError):
    """A record that contradicts itself or cannot be read."""


class Guarantee(StrEnum):
    """Whether a record's epsilon may be relied on."""

    PROVED = "proved"
    NONE = "none"


def check_number(name: str, value: float | None, limit: float) -> None:
    """Refuse what is no number of at least 0 and below a limit; None is allowed.

    Raises:
        RecordError: If it is refused.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < limit:
        raise RecordError(f"{name} must be a number in [0, {limit:g}), got {value!r}.")


def read_field(name: str, value: object) -> Any:  # noqa: ANN401  each field has a type of its own
    """The value of a record's field from plain JSON of another party, of the field's type.

    Whether it is in range and goes with the others the record checks itself.

    Args:
        name: Of the field.
        value: What JSON has there.

    Raises:
        RecordError: If the value is of another type, or not one of those that the field knows.
    """
    return _READERS[name](name, value)


def _read_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise RecordError(f"{name} must be a text, got {type(value).__name__}.")
    return value


def _read_optional_text(name: str, value: object) -> str | None:
    return None if value is None else _read_text(name, value)


def _read_number(name: str, value: object) -> float | None:
    if value is None:
        return None
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


def _read_enum(kind: type[StrEnumT], name: str, value: object) -> StrEnumT:
    known = [str(member.value) for member in kind]
    if not isinstance(value, str) or value not in known:
        raise RecordError(f"{name} must be one of {known}, got {str(value)[:80]!r}.")
    return kind(value)


_READERS: dict[str, Any] = {
    "mechanism": _read_text,
    "guarantee": lambda name, value: _read_enum(Guarantee, name, value),
    "noise_source": _read_text,
    "unit": lambda name, value: None if value is None else _read_enum(Unit, name, value),
    "relation": lambda name, value: None if value is None else _read_enum(Relation, name, value),
    "sensitivity_norm": _read_optional_text,
    "compositions": _read_integer,
    "accountant": _read_text,
    "public_inputs": _read_inputs,
    "assumptions": _read_texts,
    "not_protected": _read_texts,
    "reason": _read_optional_text,
} | dict.fromkeys(
    ("epsilon", "delta", "mu", "sensitivity", "clip", "noise_scale", "requested_epsilon"),
    _read_number,
)
