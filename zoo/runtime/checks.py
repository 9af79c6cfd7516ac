"""Checks of settings: the rules that constructors share for numbers, widths and names, with one form of error message."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any

# A received file could state more for free.
_MOST_FACTORS, _MOST_LAYERS, _MOST_WIDTH = 4096, 100, 2**16


def positive(**settings: float | None) -> None:
    """Refuse, with a `ValueError`, settings that are not above 0 and finite.

    Examples:
        >>> positive(lr=0.1)
        >>> positive(lr=0)
        Traceback (most recent call last):
        ...
        ValueError: lr is 0. It must be positive and finite. Set it above 0.
    """
    _require(lambda value: 0 < value < inf, "It must be positive and finite. Set it above 0.", settings)


def not_negative(**settings: float) -> None:
    """Refuse, with a `ValueError`, settings that are below 0 or not finite."""
    _require(lambda value: 0 <= value < inf, "It must be finite and not negative. Set it to 0 or more.", settings)


def shares(**settings: float | None) -> None:
    """Refuse, with a `ValueError`, settings outside [0, 1]."""
    _require(lambda value: 0 <= value <= 1, "It must lie in [0, 1]. Set it to a share, e.g. 0.5.", settings)


def below_one(**settings: float) -> None:
    """Refuse, with a `ValueError`, settings outside [0, 1), such as dropouts."""
    _require(lambda value: 0 <= value < 1, "It must lie in [0, 1). Set it below 1, e.g. to 0.5.", settings)


def at_least_one(**settings: float | None) -> None:
    """Refuse, with a `ValueError`, settings below 1."""
    _require(lambda value: value >= 1, "It must be at least 1. Set it to 1 or more.", settings)


def factors(**settings: int | None) -> None:
    """Refuse, with a `ValueError`, widths of vectors below 1 or above 4,096: scoring may need the square of one."""
    _require(
        lambda value: 1 <= value <= _MOST_FACTORS, f"It must be 1 to {_MOST_FACTORS}. Set it within these.", settings
    )


def layers(least: int = 1, **settings: int) -> None:
    """Refuse, with a `ValueError`, numbers of layers below ``least`` or above 100."""
    rule = f"It must be {least} to {_MOST_LAYERS}. Set it within these."
    _require(lambda value: least <= value <= _MOST_LAYERS, rule, settings)


def widths(least: int = 1, **settings: Sequence[int]) -> None:
    """Refuse, with a `ValueError`, fewer layers than ``least``, more than 100, or one of width below 1 or above 65,536."""
    _require(
        lambda value: least <= len(value) <= _MOST_LAYERS and _are_widths(value),
        f"It must name {least} to {_MOST_LAYERS} layers, each of width 1 to {_MOST_WIDTH}. Set it, e.g. to {[64] * max(1, least)}.",
        settings,
    )


def shared_widths(**settings: Sequence[int]) -> None:
    """Refuse, with a `ValueError`, layers whose input does not split in half for a user's and an item's vector."""
    _require(
        lambda value: 2 <= len(value) <= _MOST_LAYERS and value[0] % 2 == 0 and _are_widths(value),
        f"It must be 2 to {_MOST_LAYERS} widths, the first even, as two vectors share it. Set it, e.g. to [64, 32].",
        settings,
    )


def one_of(allowed: Collection[object], **settings: object) -> None:
    """Refuse, with a `ValueError`, settings that are none of the allowed values."""
    _require(lambda value: value in allowed, f"It must be one of {[*allowed]}. Choose one of them.", settings)


def instance(kind: type, example: str, **arguments: object) -> None:
    """Refuse, with a `TypeError`, arguments of a call that are no objects of a class; ``example`` is one that is.

    Examples:
        >>> instance(dict, "{}", settings=dict)
        Traceback (most recent call last):
        ...
        TypeError: settings is the class dict. It must be an object of dict. Call it: dict(...).
    """
    for name, value in arguments.items():
        if isinstance(value, kind):
            continue
        if isinstance(value, type):
            called = f"{value.__name__}(...)" if issubclass(value, kind) else example
            found, do = f"the class {value.__name__}", f"Call it: {called}"
        else:
            shown = f" {value[:40]!r}" if isinstance(value, str) else ""
            found, do = f"a {type(value).__name__}{shown}", f"Pass one, e.g. {example}"
        raise TypeError(f"{name} is {found}. It must be an object of {kind.__name__}. {do}.")


def _are_widths(value: Sequence[int]) -> bool:
    return all(1 <= width <= _MOST_WIDTH for width in value)


def _require(holds: Callable[[Any], bool], rule: str, settings: Mapping[str, object]) -> None:
    """Refuse settings for which the rule does not hold; null settings are skipped."""
    for name, value in settings.items():
        held = value is None
        with suppress(TypeError):  # text instead of a number
            held = held or holds(value)
        if not held:
            raise ValueError(f"{name} is {[*value] if isinstance(value, tuple) else value!r}. {rule}")
