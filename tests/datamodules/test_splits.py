"""Splits: each rule on tables small enough to check by eye, and against slow references."""

import random
from collections import Counter
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st
from scipy.stats import binom

from datamodules.protocol import Evaluation
from datamodules.splits import (
    Split,
    cold_start,
    folds,
    given,
    global_time,
    hold_out,
    leave_out_latest,
    leave_out_random,
    ratio,
    ties_in_time,
)
from datamodules.tables import SCHEMA, merge_repeats
from tests.datamodules.handmade import ROWS, TEN, Rows, pairs_of, table_of
from zoo.data.sampling import hash_ids, mix

SPLITS: dict[str, Callable[[pl.DataFrame], Split]] = {
    "random1": lambda table: leave_out_random(table, 1, 3),
    "random2": lambda table: leave_out_random(table, 2, 3),
    "latest1": lambda table: leave_out_latest(table, 1),
    "latest2": lambda table: leave_out_latest(table, 2),
    "ratio": lambda table: ratio(table, (0.6, 0.2, 0.2), 3),
    "folds": lambda table: folds(table, 3, 4),
    "temporal": lambda table: ratio(table, (0.6, 0.2, 0.2), temporal=True),
    "given": lambda table: given(table, None, table.unique("user_id", keep="first", maintain_order=True), 3),
}


def items_by_user(table: pl.DataFrame) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for user, item in pairs_of(table):
        found.setdefault(user, []).append(item)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", SPLITS)
@forall(rows=ROWS)
@settings(max_examples=30, deadline=None)
def test_no_pair_leaks_and_none_is_lost(name: str, rows: Rows) -> None:
    split = SPLITS[name](table_of(rows))
    parts = [pairs_of(part) for part in split]
    assert sorted(pair for part in parts for pair in part) == sorted(set(rows))
    assert all(part.schema == SCHEMA for part in split)


@pytest.mark.thorough
@forall(rows=ROWS, number=st.integers(2, 6), partition=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_folds_hold_out_every_pair_exactly_once(rows: Rows, number: int, partition: int) -> None:
    made = [folds(table_of(rows), number, number * partition + fold) for fold in range(number)]
    assert sorted(pair for split in made for pair in pairs_of(split.test)) == sorted(set(rows))
    for split in made:  # one item of each other user with two left is for validation
        left = Counter(user for user, _ in [*pairs_of(split.train), *pairs_of(split.validation)])
        assert Counter(user for user, _ in pairs_of(split.validation)) == {user: 1 for user in left if left[user] > 1}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["random1", "random2", "ratio", "folds", "given"])
@forall(rows=ROWS, shuffle=st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_a_users_random_split_ignores_row_order_and_other_users(name: str, rows: Rows, shuffle: random.Random) -> None:
    rows = list(dict.fromkeys(rows))
    test = table_of(rows).unique("user_id", keep="first", maintain_order=True)

    def split(some: Rows) -> Split:
        if name != "given":
            return SPLITS[name](table_of(some))
        return given(table_of(some), None, test.filter(pl.col("user_id").is_in([user for user, _ in some])), 3)

    alone = [pair for pair in rows if pair[0] == rows[0][0]]
    shuffle.shuffle(alone)
    for part, whole in zip(split(alone), split(rows), strict=True):
        assert set(pairs_of(part)) == {pair for pair in pairs_of(whole) if pair[0] == rows[0][0]}


def test_random2_serves_the_test_before_validation_and_train_before_both() -> None:
    split = leave_out_random(TEN, 2, 0)
    assert sorted((user, len(items)) for user, items in items_by_user(split.train).items()) == [
        ("a", 3),
        ("b", 1),
        ("c", 1),
    ]
    assert set(split.validation["user_id"]) == {"a"}
    assert sorted(split.test["user_id"]) == ["a", "b"]


def test_random1_tests_one_item_of_each_user_who_has_another() -> None:
    split = leave_out_random(TEN, 1, 0)
    assert {user: len(items) for user, items in items_by_user(split.train).items()} == {"a": 4, "b": 1, "c": 1}
    assert sorted(split.test["user_id"]) == ["a", "b"]
    assert split.validation.is_empty()
    assert split.hidden.is_empty()


DRAWN: dict[str, Callable[[pl.DataFrame, int], Split]] = {
    "random1": lambda table, seed: leave_out_random(table, 1, seed),
    "random2": lambda table, seed: leave_out_random(table, 2, seed),
    "ratio": lambda table, seed: ratio(table, (0.8, 0.1, 0.1), seed),
    "given": lambda table, seed: given(table, None, table.unique("user_id", keep="first"), seed),
    "cold_start": lambda table, seed: cold_start(table, 0.8, seed),
}


@pytest.mark.parametrize("name", DRAWN)
def test_whatever_is_drawn_depends_on_the_seed(name: str) -> None:
    """Of 50 users with 20 items; whoever is held out under both seeds has the same item under both by chance alone."""
    table = table_of([(f"u{n}", f"i{m}") for n in range(50) for m in range(20)])
    one, again, two = (DRAWN[name](table, seed) for seed in (1, 1, 2))
    assert all(part.equals(same) for part, same in zip(one, again, strict=True))
    for part, other in zip(*((split.validation, split.test) for split in (one, two)), strict=True):
        both = set(part["user_id"]) & set(other["user_id"])
        alike = {user for user, _ in set(pairs_of(part)) & set(pairs_of(other))}
        assert len(alike) <= len(both) / 2 or (name == "given" and part.equals(one.test))
    if name == "cold_start":
        assert set(one.test["user_id"]) != set(two.test["user_id"])


@pytest.mark.parametrize("number", [1, 2])
def test_users_of_equal_length_do_not_lose_the_same_position(number: int) -> None:
    # Uniform over 20 positions, 400 users: a count of 45 or more at one place has probability below 1e-5 (union bound
    # over the places, binomial tail); fixed seed.
    table = table_of([(f"u{n}", f"i{m}") for n in range(400) for m in range(20)])
    counts = leave_out_random(table, number, 1).test["item_id"].value_counts()["count"]
    assert len(counts) == 20
    assert counts.max() < 45  # type: ignore[operator]


def test_random1_and_random2_draw_apart() -> None:
    # Each of 50 users has the same test item by chance 1/20: 25 or more have it with probability below 1e-18; fixed seed.
    table = table_of([(f"u{n}", f"i{m}") for n in range(50) for m in range(20)])
    assert (
        len(set(pairs_of(leave_out_random(table, 1, 1).test)) & set(pairs_of(leave_out_random(table, 2, 1).test))) < 25
    )


def slow_latest(table: pl.DataFrame, number: int) -> tuple[Rows, Rows]:
    """(validation, test) of the latest splits: walk each user's rows from the latest back, skipping items seen."""
    validation, test = [], []
    rows = list(enumerate(table.iter_rows(named=True)))
    for user in dict.fromkeys(table["user_id"]):
        mine = [
            (row["timestamp"] or 0, at if row["timestamp"] is None else drawn(user, row["item_id"]), row["item_id"])
            for at, row in rows
            if row["user_id"] == user
        ]
        items = list(dict.fromkeys(item for _, _, item in sorted(mine, reverse=True)))
        if len(items) > 1:
            test.append((user, items[0]))
        if len(items) > 2 and number == 2:
            validation.append((user, items[1]))
    return validation, test


def drawn(user: str, item: str) -> int:
    return int(mix(0, "tie in time", hash_ids([user]), hash_ids([item]))[0])


@pytest.mark.thorough
@forall(ROWS, st.lists(st.integers(0, 4), min_size=30, max_size=30), st.booleans())
@settings(max_examples=80, deadline=None)
def test_latest_splits_agree_with_walking_back(rows: Rows, times: list[int], timed: bool) -> None:
    table = table_of(rows, times=list(times[: len(rows)]) if timed else None)
    for number, split in ((1, leave_out_latest(table, 1)), (2, leave_out_latest(table, 2))):
        validation, test = slow_latest(table, number)
        assert sorted(pairs_of(split.validation)) == sorted(validation)
        assert sorted(pairs_of(split.test)) == sorted(test)
        kept = {user: [pair for pair in pairs_of(split.train) if pair[0] == user] for user, _ in test}
        at = {row[:2]: row[3] for row in merge_repeats(table).rows()}
        held = {user: [pair for pair in validation + test if pair[0] == user] for user in kept}
        tied = [
            user
            for user, own in held.items()
            if min(at[pair] or -1 for pair in own) == max(at[pair] or -1 for pair in kept[user])
            or len({at[pair] for pair in own}) < len(own)
        ]
        assert ties_in_time(split) == ({"users": len(tied), "of_users": len(test)} if timed else {})


def test_latest_by_time_with_ties_by_a_hash() -> None:
    """`b` has two items at one time."""
    splits = [leave_out_latest(TEN, 2, seed) for seed in range(12)]
    assert {pair for split in splits for pair in pairs_of(split.test)} == {("a", "y"), ("b", "x"), ("b", "y")}
    assert all(pairs_of(split.validation) == [("a", "v")] for split in splits)
    assert all(ties_in_time(split) == {"users": 1, "of_users": 2} for split in splits)
    between = table_of([("a", "v"), ("a", "x"), ("a", "y")], times=[1, 2, 2])  # validation and test alone
    assert ties_in_time(leave_out_latest(between, 2)) == {"users": 1, "of_users": 1}


@pytest.mark.parametrize("name", ["latest1", "latest2", "temporal"])
def test_tied_items_are_held_out_equally_often_whatever_their_ids(name: str) -> None:
    """Each of 5 items at one time of 500 users: the counts leave a binomial 99.9 % interval with probability below 0.5 %."""
    table = table_of([(f"u{n}", f"i{m}") for n in range(500) for m in range(5)], times=[7] * 2500)
    counts = SPLITS[name](table).test["item_id"].value_counts()["count"]
    low, high = binom.interval(0.999, 500, 1 / 5)
    assert len(counts) == 5
    assert counts.is_between(low, high).all()


TIMED = {name: SPLITS[name] for name in ("random2", "latest1", "latest2", "ratio", "temporal")}
TIMED["global_time"] = lambda table: global_time(table, (0.6, 0.2, 0.2))


@pytest.mark.thorough
@pytest.mark.parametrize("name", TIMED)
@forall(rows=ROWS, data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_split_of_rows_with_times_ignores_their_order(name: str, rows: Rows, data: st.DataObject) -> None:
    """Repeats and ties included; ratings tell which row of a pair counts."""
    drawn = [(pair, data.draw(st.integers(0, 3)), data.draw(st.integers(1, 5))) for pair in rows]
    found = []
    for some in (drawn, data.draw(st.permutations(drawn))):
        pairs, times, ratings = (list(part) for part in zip(*some, strict=True))
        found.append([set(part.rows()) for part in TIMED[name](table_of(pairs, times, ratings))])
    assert found[0] == found[1]


@pytest.mark.parametrize("order", [1, -1])
def test_a_repeated_pair_is_held_out_at_its_latest_time(order: int) -> None:
    rows, times = [("u", "a"), ("u", "b"), ("u", "a"), ("u", "c")][::order], [300, 200, 100, 50][::order]
    table = table_of(rows, times)
    for split in (leave_out_latest(table, 1), global_time(table, begins=(250, 250))):
        assert split.test.rows() == [("u", "a", 1.0, 300)]
        assert {item for _, item in pairs_of(split.train)} == {"b", "c"}


def test_an_earlier_repeat_of_the_held_out_item_leaves_train() -> None:
    split = leave_out_latest(table_of([("a", "x"), ("a", "y"), ("a", "x")]), 1)
    assert (pairs_of(split.train), pairs_of(split.test)) == ([("a", "y")], [("a", "x")])
    assert split.validation.is_empty()


@pytest.mark.parametrize("split", [SPLITS[name] for name in ("latest1", "latest2", "temporal")])
def test_times_on_some_rows_only_are_refused(split: Callable[[pl.DataFrame], Split]) -> None:
    with pytest.raises(ValueError, match="1 of 2 rows have no timestamp"):
        split(table_of([("a", "x"), ("a", "y")], times=[1, None]))


@pytest.mark.parametrize("temporal", [True, False])
def test_ratio_rounds_down_but_holds_one_out(temporal: bool) -> None:
    for length, shares, sizes in (
        (1, (0.8, 0.1, 0.1), (1, 0, 0)),
        (2, (0.8, 0.1, 0.1), (1, 0, 1)),
        (3, (0.8, 0.1, 0.1), (1, 1, 1)),
        (19, (0.8, 0.1, 0.1), (17, 1, 1)),
        (20, (0.8, 0.1, 0.1), (16, 2, 2)),
        (100, (0.42, 0.29, 0.29), (42, 29, 29)),
        (3, (0.1, 0.1, 0.8), (1, 0, 2)),
        (10, (0.8, 0.0, 0.2), (8, 0, 2)),
    ):
        split = ratio(table_of([("a", f"i{n:03d}") for n in range(length)]), shares, temporal=temporal)
        assert tuple(part.height for part in split[:3]) == sizes


def test_temporal_ratio_goes_from_train_over_validation_to_test() -> None:
    split = ratio(table_of([("a", f"i{n}") for n in range(10)]), (0.6, 0.2, 0.2), temporal=True)
    assert [items_by_user(part)["a"] for part in split[:3]] == [
        ["i0", "i1", "i2", "i3", "i4", "i5"],
        ["i6", "i7"],
        ["i8", "i9"],
    ]


@pytest.mark.parametrize("shares", [(0.8, 0.1, 0.2), (0.0, 0.5, 0.5), (1.2, -0.1, -0.1), (0.5, 0.5)])
def test_shares_that_are_none_are_refused(shares: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"three numbers in \[0, 1\], sum 1"):
        ratio(TEN, shares)


def test_given_rows_are_taken_out() -> None:
    split = given(TEN, table_of([("a", "w")]), table_of([("b", "y"), ("a", "z")]), 0)
    assert pairs_of(split.validation) == [("a", "w")]
    assert sorted(pairs_of(split.test)) == [("a", "z"), ("b", "y")]
    assert sorted(pairs_of(split.train)) == [("a", "v"), ("a", "x"), ("a", "y"), ("b", "x"), ("c", "z")]


def test_without_validation_rows_one_is_drawn_where_two_are_left() -> None:
    split = given(TEN, None, table_of([("b", "y"), ("a", "z")]), 0)
    assert list(items_by_user(split.validation)) == ["a"]
    assert split.validation.height == 1
    assert set(pairs_of(split.validation)).isdisjoint(pairs_of(split.test))


def test_given_rows_must_be_apart() -> None:
    with pytest.raises(ValueError, match="1 rows are in validation and test"):
        given(TEN, table_of([("a", "z")]), table_of([("a", "z")]), 0)


COLD = table_of([(f"u{n}", f"i{m}") for n in range(25) for m in range(n % 4 + 1)])


def test_cold_users_leave_train_with_all_their_rows() -> None:
    split = cold_start(COLD, 0.4, 1)
    train, validation, test = (set(part["user_id"]) for part in split[:3])
    assert (len(train), len(validation), len(test)) == (15, 5, 5)
    assert len(train | validation | test) == 25
    assert (split.validation.height, split.test.height) == (5, 5)
    assert set(split.hidden["user_id"]) <= validation | test
    assert sorted(pair for part in split for pair in pairs_of(part)) == sorted(pairs_of(COLD))


def test_cold_start_ignores_row_order() -> None:
    split, shuffled = cold_start(COLD, 0.4, 1), cold_start(COLD.sample(fraction=1, shuffle=True, seed=4), 0.4, 1)
    assert all(set(pairs_of(one)) == set(pairs_of(two)) for one, two in zip(split, shuffled, strict=True))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_cold_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"cold_share is .*Allowed: \(0, 1\)"):
        cold_start(COLD, share, 1)


@pytest.mark.parametrize("share", [0.02, 0.99])
def test_a_cold_share_that_empties_a_part_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="Each part needs one"):
        cold_start(COLD, share, 1)


def test_held_out_rows_that_filters_dropped_are_left_aside() -> None:
    shipped = table_of([("a", "w"), ("gone", "w")]), table_of([("b", "y"), ("a", "z"), ("a", "gone")])
    split = hold_out(TEN, Evaluation("given"), 3, "music", shipped)
    assert pairs_of(split.validation) == [("a", "w")]
    assert sorted(pairs_of(split.test)) == [("a", "z"), ("b", "y")]
    drawn = hold_out(TEN, Evaluation("given"), 3, "music", (None, shipped[1]))
    assert list(items_by_user(drawn.validation)) == ["a"]


def test_given_needs_rows_that_ship_with_the_data() -> None:
    with pytest.raises(ValueError, match=r"'music' has no file music_test"):
        hold_out(TEN, Evaluation("given"), 3, "music")
