"""Parsed settings as plain values: to keep in a checkpoint, to write beside a release, to compare; and their refusal."""

from enum import Enum
from typing import Any

from jsonargparse import Namespace


def plain(value: Any) -> Any:  # noqa: ANN401  any parsed value
    """The same as plain dictionaries, lists, strings and numbers."""
    if isinstance(value, Namespace):
        value = value.as_dict()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        value = value.value
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def flat(value: Any, prefix: str = "") -> dict[str, Any]:  # noqa: ANN401  any plain value
    """Dotted keys of nested dictionaries."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for key, item in value.items() for k, v in flat(item, f"{prefix}.{key}".lstrip(".")).items()}


def differing(ours: Any, theirs: Any) -> list[str]:  # noqa: ANN401  any plain value
    """Dotted keys in which two plain settings differ."""
    ours, theirs = flat(ours), flat(theirs)
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def refusal(error: BaseException) -> str:
    """What the class itself said of its settings, without the parser's account of its attempts."""
    while error.__cause__ is not None and str(error).startswith("Does not validate"):
        error = error.__cause__
    return f"{type(error).__name__}: {error}"
