"""Filters: each rule on tables small enough to check by eye, and against a slow reference."""

import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from datamodules.filters import binarise, common_users, filter_counts, keep_frequent
from tests.datamodules.handmade import ROWS, TEN, Rows, pairs_of, table_of


def test_a_threshold_keeps_what_reaches_it_as_ones() -> None:
    table = table_of([("a", "x"), ("a", "y"), ("b", "x")], ratings=[2.5, 3.0, 5.0])
    kept = binarise(table, 3)
    assert (pairs_of(kept), kept["rating"].to_list()) == ([("a", "y"), ("b", "x")], [1.0, 1.0])
    assert binarise(table, None)["rating"].to_list() == [1.0, 1.0, 1.0]


def test_a_threshold_that_nothing_reaches_is_refused() -> None:
    with pytest.raises(ValueError, match=r"threshold is 3, above all 10 ratings \(highest 1\.0\)"):
        binarise(TEN, 3)
    with pytest.raises(ValueError, match="threshold is nan"):
        binarise(TEN, float("nan"))


def test_minimums_count_rows() -> None:
    assert set(keep_frequent(TEN, "user_id", 2)["user_id"]) == {"a", "b"}
    assert set(keep_frequent(TEN, "item_id", 2)["item_id"]) == {"v", "x", "y", "z"}
    assert keep_frequent(TEN, "user_id", 1).equals(TEN)


@pytest.mark.parametrize("what", ["user", "item"])
def test_a_minimum_below_one_is_refused(what: str) -> None:
    with pytest.raises(ValueError, match=rf"min_{what}_ratings is 0"):
        keep_frequent(TEN, f"{what}_id", 0)


def test_a_list_of_users_cuts_the_table() -> None:
    assert set(filter_counts(TEN, users=["b", "c", "nobody"])["user_id"]) == {"b", "c"}


def test_one_pass_counts_users_then_cuts_then_counts_items() -> None:
    # w and z fall with their only other holders; a is then below the minimum of users, which one pass leaves alone.
    table = table_of([("a", "w"), ("a", "x"), ("b", "x"), ("b", "y"), ("c", "w"), ("d", "x"), ("d", "w")])
    kept = filter_counts(table, 2, 2, users=["a", "b", "c"])
    assert pairs_of(kept) == [("a", "x"), ("b", "x")]


def test_nothing_left_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 9 rows per user and 1 per item"):
        filter_counts(TEN, 9)
    with pytest.raises(ValueError, match="among 1 listed users"):
        filter_counts(TEN, 3, users=["b"])


def slow_filter(rows: Rows, min_user: int, min_item: int, users: set[str]) -> Rows:
    """Drops one offending row at a time until none offends: the largest part that meets all conditions."""
    rows = list(rows)
    while True:
        for user, item in rows:
            mine, others = sum(u == user for u, _ in rows), sum(i == item for _, i in rows)
            if user not in users or mine < min_user or others < min_item:
                rows.remove((user, item))
                break
        else:
            return rows


@forall(ROWS, st.integers(1, 3), st.integers(1, 3), st.sets(st.sampled_from("abcde"), min_size=1))
@settings(max_examples=60, deadline=None)
def test_iterated_filter_agrees_with_dropping_row_by_row(
    rows: Rows, min_user: int, min_item: int, users: set[str]
) -> None:
    rows = list(dict.fromkeys(rows))
    expected = slow_filter(rows, min_user, min_item, users)
    if expected:
        kept = filter_counts(table_of(rows), min_user, min_item, users, iterated=True)
        assert pairs_of(kept) == expected
    else:
        with pytest.raises(ValueError, match="No row of"):
            filter_counts(table_of(rows), min_user, min_item, users, iterated=True)


def test_common_users_pass_in_every_domain() -> None:
    other = table_of([("c", "1"), ("c", "2"), ("b", "1"), ("b", "2"), ("d", "1")])
    assert common_users({"x": TEN, "y": other}) == ["b", "c"]
    assert common_users({"x": TEN, "y": other}, 2) == ["b"]


def test_no_common_user_is_refused_with_counts() -> None:
    with pytest.raises(ValueError, match=r"users by domain: x 3, y 1"):
        common_users({"x": TEN, "y": table_of([("q", "1")])})
