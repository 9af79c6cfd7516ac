"""The fields of a privacy record: what may stand in each, and how it is written to and read from plain JSON."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from zoo.privacy.accounting.relation import Relation, Unit

Reader = Callable[[str, object], Any]
"""Name of a field and plain JSON in, its value out."""


FLOATING_POINT = (
    "The guarantee is proved for exact real arithmetic; the implementation uses float64 noise with rounding and is not "
    "proved against floating-point or timing attacks."
)
"""The sentence that every record carries."""


class RecordError(ValueError):
    """A record that contradicts itself or cannot be read."""


class InconsistentRecordError(RecordError):
    """A record that states something else than what follows from its mechanism, or than its ledger."""


class UnderstatedPrivacyError(ValueError):
    """A record that states less privacy loss than its ledger gives."""


class Guarantee(StrEnum):
    """Whether a record's epsilon may be relied on."""

    PROVED = "proved"
    CONDITIONAL = "conditional"  # proved, if the record's conditions are true
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
    """The value of a field from plain JSON of another party; ``kind`` is its type as the record's class states it.

    `RecordError` if the value is of another type, or not one of those that the field knows. Its range, and the other fields,
    the record checks itself.
    """
    if value is None and kind.endswith(" | None"):
        return None
    return _READERS[kind.removesuffix(" | None")](name, value)


def _reader(kind: type[Any], what: str, convert: Callable[[Any], object]) -> Reader:
    """Of values of one type of JSON; a bool is no number."""

    def read(name: str, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, kind):
            raise RecordError(f"{name} must be {what}, got {type(value).__name__}.")
        return convert(value)

    return read


_read_text = _reader(str, "a text", str)
_read_list = _reader(list, "a list", list)


def _read_texts(name: str, value: object) -> tuple[str, ...]:
    return tuple(_read_text(name, text) for text in _read_list(name, value))


def _read_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise RecordError(f"{name} must be a finite number or null, got {str(value)[:80]}.")
    return float(value)


def _read_bool(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise RecordError(f"{name} must be true or false, got {str(value)[:80]}.")
    return value


def _reader_of(kind: type[StrEnum]) -> Reader:
    known = [str(member.value) for member in kind]

    def read(name: str, value: object) -> StrEnum:
        if not isinstance(value, str) or value not in known:
            raise RecordError(f"{name} must be one of {known}, got {str(value)[:80]!r}.")
        return kind(value)

    return read


_READERS: dict[str, Reader] = {
    "str": _read_text,
    "float": _read_number,
    "int": _reader(int, "an integer", int),
    "tuple[str, ...]": _read_texts,
    "Mapping[str, Plain]": _reader(Mapping, "a mapping", dict),
    "bool": _read_bool,
    "list": _read_list,
    "Guarantee": _reader_of(Guarantee),
    "Unit": _reader_of(Unit),
    "Relation": _reader_of(Relation),
}
