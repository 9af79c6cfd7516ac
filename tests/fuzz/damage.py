"""Damage that is done to files: bytes changed, left out, put in and cut off, as hypothesis draws it."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from zoo.runtime.run_folder import refusal

#: What is written over bytes: the ends of numbers of several widths, and what text formats take for structure.
BINARY = (b"\x00", b"\xff", b"\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x10", b"\xf0\x28")
TEXT = (b"\n", b'"', b"\t", b",", b":", b"nan", b"-", b"1e999")

Hit = tuple[float, str, bytes]
HITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(("over", "in", "out", "end")),
        st.one_of(st.sampled_from(BINARY + TEXT), st.binary(min_size=1, max_size=6)),
    ),
    min_size=1,
    max_size=6,
)
#: Where Parquet, zip and gzip say what is in them: most hits go there.
ENDS = st.booleans()

#: What rich or a page would take for markup.
MARKUP = "[red]<b>x</b>"
#: What would be a line of its own in a message.
FORGED = "forged"
#: What is put in the place of a value.
ODD = (
    None, True, -1, 0, 2**70, 1e308, float("nan"), float("inf"), "", "x", f"\x1b[31m\u202e\n{FORGED}", MARKUP, [], {}, [[]],
    {"a": 1}, [None], 0.5,
)  # fmt: skip
Change = tuple[list[float], int]
#: Which value, as shares of what there is at each depth; and what it becomes.
CHANGES = st.lists(
    st.tuples(st.lists(st.floats(0, 1, exclude_max=True), min_size=4, max_size=4), st.sampled_from(range(len(ODD)))),
    min_size=1,
    max_size=2,
)


def damaged(content: bytes, hits: list[Hit], at_the_end: bool) -> bytes:
    """The content after each hit: bytes over others, put in, left out, or all behind cut off."""
    for share, how, word in hits:
        at = int((0.6 + 0.4 * share if at_the_end else share) * len(content))
        match how:
            case "over":
                content = content[:at] + word + content[at + len(word) :]
            case "in":
                content = content[:at] + word + content[at:]
            case "out":
                content = content[:at] + content[at + len(word) :]
            case _:
                content = content[:at]
    return content


def changed(value: Any, shares: list[float], odd: object) -> Any:  # noqa: ANN401  any JSON
    """The value with one part in it another: as deep as the shares go, and there is something."""
    if not shares or not isinstance(value, dict | list) or not value:
        return odd
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[int(shares[0] * len(keys))]
    inner = changed(value[key], shares[1:], odd)
    if isinstance(value, dict):
        return {**value, key: inner}
    return [*value[:key], inner, *value[key + 1 :]]


def with_forged_lines(value: Any) -> Iterator[Any]:  # noqa: ANN401  any JSON
    """The value with a line break and another line in one text, one number or one key of a mapping, each in turn."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield {f"{name}\n{FORGED}" if name == key else name: other for name, other in value.items()}
            yield from ({**value, key: inner} for inner in with_forged_lines(part))
    elif isinstance(value, list) and value:
        yield from ([inner, *value[1:]] for inner in with_forged_lines(value[0]))
    else:
        yield f"{value}\n{FORGED}"


def cases(count: int, many: int = 0) -> Callable[[Any], Any]:
    """So many examples, the same in every run of the suite; with ``-m slow``, if it is given, `many`."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    slow = many > 0 and os.environ.get("ZOO_TESTS_SLOW_ALONE") == "1"  # see tests/conftest.py
    given = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": checks}
    made = settings(max_examples=many if slow else count, **given)  # type: ignore[arg-type]
    return (lambda test: pytest.mark.slow(made(test))) if slow else made


def refusal_of(error: Exception, name: str) -> None:
    """An error's words are for people: they name the file, and the class is none of a library's."""
    assert name in str(error)
    assert type(error).__module__.split(".")[0] in ("builtins", "zoo")
    assert isinstance(error, ValueError | RuntimeError)
    in_own_lines(error)


def in_own_lines(error: Exception) -> None:
    """A terminal obeys nothing in an error's words, and no line of them is another's."""
    for line in refusal(error).split("\n"):
        assert line.isprintable()
        assert not line.startswith(FORGED), refusal(error)
