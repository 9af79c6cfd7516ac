"""Recall, precision and MAP against lists that are written out, ties in every order of them."""

from itertools import permutations, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.benchmark.report.lists import activity_gap, activity_groups, list_figures

Scores = tuple[list[int], list[int]]  # of held-out items, and of all others that may be listed


def orders(scores: list[int]) -> list[list[int]]:
    """Every order of items, best first, that breaks ties in some way."""
    levels = [[item for item, own in enumerate(scores) if own == score] for score in sorted({*scores}, reverse=True)]
    return [[item for level in order for item in level] for order in product(*map(permutations, levels))]


def measured(order: list[int], held_out: int, k: int) -> tuple[float, float, float]:
    """Recall, precision and average precision of one list, whose first items by number are held out."""
    places = [place for place, item in enumerate(order, 1) if item < held_out and place <= k]
    precisions = [number / place for number, place in enumerate(places, 1)]
    return len(places) / held_out, len(places) / k, sum(precisions) / min(held_out, k)


def cases_of(users: list[Scores]) -> pl.DataFrame:
    rows = [
        (f"u{user}", f"i{item}", sum(other > score for other in others), sum(other == score for other in others))
        for user, (own, others) in enumerate(users)
        for item, score in enumerate(own)
    ]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "full/above", "full/level"], orient="row")


some_scores = st.lists(st.integers(0, 2), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(users=st.lists(st.tuples(some_scores, some_scores), min_size=1, max_size=3), k=st.integers(1, 5))
def test_they_are_means_over_every_order_of_equal_scores(users: list[Scores], k: int) -> None:
    users = [*users, ([1, 1], [0, 1])]  # somebody has two, so ranks are counted
    expected = [
        np.mean([measured(order, len(own), k) for order in orders(own + others)], axis=0) for own, others in users
    ]
    found = list_figures(cases_of(users), "full", k)
    assert list(found) == [f"recall@{k}", f"precision@{k}", f"map@{k}"]
    assert list(found.values()) == pytest.approx(np.mean(expected, axis=0).tolist())


def test_of_one_held_out_item_each_they_are_hr_and_mrr() -> None:
    hits = pl.Series([1.0, 0.0], dtype=pl.Float32)
    cases = pl.DataFrame({"user_id": ["a", "b"], "sampled/hit_rate@5": hits, "sampled/mrr@5": [0.25, 0.0]})
    assert list_figures(cases, "sampled", 5) == {"recall@5": 0.5, "precision@5": 0.1, "map@5": 0.125}
    assert list_figures(cases, "full", 5) == list_figures(cases, "sampled", 10) == {}


def test_a_gap_is_between_quarters_of_users_and_equal_counts_stay_together() -> None:
    items, values = [1, 1, 1, 2, 3, 4, 4, 4, 4, 9], [float(n) ** 2 for n in range(10)]
    cases = pl.DataFrame({"user_id": list("abcdefghij"), "train_items": items, "sampled/ndcg@5": values})
    groups = [(1, 1), (2, 3), (4, 4), (5, 9)]  # the 3rd, 5th, 8th and last user end the quarters
    assert [*activity_groups(cases)] == ["1", "2 to 3", "4", "5 to 9"]
    means = [np.mean([v for n, v in zip(items, values, strict=True) if low <= n <= high]) for low, high in groups]
    assert activity_gap(cases, "sampled", 5) == {"ndcg_gap@5": pytest.approx(max(means) - min(means))}
    for too_little in (cases.head(3), cases.head(0), cases.drop("train_items"), cases.drop("sampled/ndcg@5")):
        assert activity_gap(too_little, "sampled", 5) == {}


def test_what_cases_do_not_tell_is_left_out() -> None:
    several = cases_of([([2, 1], [0, 1])])
    assert list_figures(several, "sampled", 5) == {}, "each has candidates of its own"
    assert list_figures(several.drop("full/level"), "full", 5) == {}, "a run of before ranks were written down"
