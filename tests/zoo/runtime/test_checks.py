"""Checks of settings: the bounds of each rule, and what is said of the setting that breaks it."""

import math
import re
from collections.abc import Callable

import pytest

from zoo.runtime import checks

#: By rule, values that it allows, and values that it refuses.
RULES: dict[Callable[..., None], tuple[list[object], list[object]]] = {
    checks.positive: ([1e-9, 7], [0, -1.0, math.inf, math.nan]),
    checks.not_negative: ([0, 0.5], [-1e-9, math.inf, math.nan]),
    checks.shares: ([0, 0.3, 1], [-0.1, 1.1, math.nan]),
    checks.below_one: ([0, 0.9], [-0.1, 1, math.nan]),
    checks.at_least_one: ([1, 9], [0, 0.5, math.nan]),
    checks.factors: ([1, 4096], [0, 4097, math.nan]),
    checks.layers: ([1, 100], [0, 101, math.nan]),
    checks.widths: ([[1], [2**16] * 100], [[], [4, 0], [4] * 101, [2**16 + 1]]),
    checks.shared_widths: ([[4, 1], [2**16] * 100], [[], [4], [3, 2], [4, 0], [2] * 101, [2**16 + 2, 1]]),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_its_bounds(rule: Callable[..., None]) -> None:
    allowed, refused = RULES[rule]
    for value in allowed:
        rule(size=value)
    for value in refused:
        with pytest.raises(ValueError, match=rf"^size is {re.escape(repr(value))}\. It must .*\. Set it.*\.$"):
            rule(good=allowed[0], size=value)


def test_a_choice_is_one_of_those_allowed() -> None:
    checks.one_of(("a", "b"), kind="b")
    with pytest.raises(ValueError, match=r"^kind is 'c'\. It must be one of \['a', 'b'\]\. Choose one of them\.$"):
        checks.one_of(("a", "b"), kind="c")


def test_a_tuple_is_shown_as_a_config_has_it() -> None:
    with pytest.raises(ValueError, match=r"^dims is \[8, 0\]\. "):
        checks.widths(dims=(8, 0))
