"""Reasons for unreliable metrics."""

from typing import Any

import pytest

from datamodules import Evaluation
from tests.datamodules.handmade import Held, Rows, table_of

FULL: dict[str, Any] = {"num_candidates": 0, "unknown_items": "include"}
MANY: Rows = [(user, f"{user}{n}") for user in "abc" for n in range(8)]


def remarks(rows: Rows, **settings: Any) -> list[str]:  # noqa: ANN401
    data = Held({"b": table_of(rows)}, sources=(), evaluation=Evaluation("latest1", **settings))
    data.read_target()
    said: list[str] = data.summary["remarks"]
    return said


def test_an_ordinary_test_has_no_remarks() -> None:
    assert remarks(MANY, **FULL) == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a", f"{n}") for n in range(9)], ["only one user", "only one test case"]),
        ([*MANY[:8], *((f"u{n}", f"{n}") for n in range(9))], ["only one test case"]),
        ([*MANY, ("a", "it"), ("b", "it"), ("c", "it")], ["all 3 test cases have the item 'it'"]),
    ],
)
def test_one_user_one_case_one_answer(rows: Rows, said: list[str]) -> None:
    found = remarks(rows, **FULL)
    for words in said:
        assert any(words in remark for remark in found), found


def test_cases_among_few_others_are_counted() -> None:
    """Of 13 items a has 3 and b 9: a is ranked against 10 others and b against 4. Training has 12 of them, and then 11."""
    rows = [("a", f"i{n}") for n in range(3)] + [("b", f"i{n}") for n in range(4, 13)] + [("c", "i3"), ("d", "i2")]
    few = "{} of {} test cases have fewer than 10 other items ({} ranking), so their HR@10 is always 1"
    assert [remark for remark in remarks(rows, **FULL) if "fewer" in remark] == [few.format(1, 2, "all")]
    found = remarks(rows)
    assert [remark for remark in found if "fewer" in remark] == [few.format(1, 1, kind) for kind in ("all", "sampled")]
