"""Counter-based randomness: stable, independent of other users, uniform, disjoint from what is excluded."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import zoo.data.sampling
from zoo.data.sampling import distinct_items, hash_ids, mix, uniform_integers, uniform_reals

NOTHING = np.zeros(0, dtype=np.int64)


def no_exclusions(num_users: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(num_users + 1, dtype=np.int64), NOTHING


def excluded_lists(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.cumsum([0, *map(len, lists)])
    return indptr, np.array([item for row in lists for item in sorted(row)], dtype=np.int64)


def test_splitmix64_gives_the_published_sequence() -> None:
    # mix adds its own constants; the finaliser alone must give the first output of splitmix64 seeded with 0.
    from zoo.data.sampling import _finalise

    assert int(_finalise(np.array([0x9E3779B97F4A7C15], dtype=np.uint64))[0]) == 0xE220A8397B1DCDAF


def test_keys_never_change_between_versions() -> None:
    # Splits of published results hang on these numbers.
    assert [int(key) for key in hash_ids(["", "u1", "12", "café"])] == [
        0xE868698BA209F922,
        0x4FB120A3D0437050,
        0xE3A39DC4A208A3E4,
        0x856A97151C277978,
    ]
    assert int(mix(1, "test", 2)[0]) == 0x57C6000209953432


def test_hash_does_not_depend_on_the_width_of_the_array() -> None:
    narrow, wide = np.array(["a", "bc"], dtype="<U2"), np.array(["a", "bc"], dtype="<U40")
    assert (hash_ids(narrow) == hash_ids(wide)).all()
    assert (hash_ids(narrow) == hash_ids(np.array(["a", "bc"], dtype=object))).all()
    assert (hash_ids(narrow) == hash_ids(narrow.astype(">U2"))).all()


@given(st.lists(st.text(st.characters(exclude_characters="\0"), max_size=12), min_size=1, max_size=20, unique=True))
@settings(max_examples=50, deadline=None)
def test_different_ids_have_different_hashes_and_each_stands_alone(ids: list[str]) -> None:
    ids = list(dict.fromkeys([*ids, *(f"a member of the shop, {name}" for name in ids)]))
    together = hash_ids(np.array(ids))
    assert len(set(together.tolist())) == len(ids)
    assert together.tolist() == [int(hash_ids(np.array([name]))[0]) for name in ids]


def test_hash_refuses_what_is_no_string() -> None:
    with pytest.raises(TypeError, match="ids are int64"):
        hash_ids(np.array([1, 2]))
    with pytest.raises(ValueError, match="one axis"):
        hash_ids(np.array([["a"]]))


def test_mix_depends_on_order_and_on_every_part() -> None:
    keys = {int(mix(*parts)[0]) for parts in permutations([0, 1, 2])} | {int(mix(0)[0]), int(mix(0, 0)[0])}
    assert len(keys) == 8
    assert mix(3, np.arange(4)[:, None], np.arange(5)).shape == (4, 5)


def test_mix_refuses_floats() -> None:
    with pytest.raises(TypeError, match="is float64"):
        mix(1.5)


def test_uniform_integers_are_uniform() -> None:
    # Chi-square at level 1e-6: this seed fails with that probability.
    drawn = uniform_integers(mix(0, np.arange(70_000)), 7)
    assert stats.chisquare(np.bincount(drawn, minlength=7)).pvalue > 1e-6


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32))
def test_uniform_integers_are_the_upper_half_of_the_product(key: int, high: int) -> None:
    assert int(uniform_integers(np.array([key], dtype=np.uint64), high)[0]) == key * high >> 64


def test_uniform_integers_refuse_an_impossible_bound() -> None:
    with pytest.raises(ValueError, match="from 1 to 2\\^32"):
        uniform_integers(mix(1), 0)


def test_uniform_reals_stay_inside_the_interval() -> None:
    ends = uniform_reals(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert 0 < ends[0] < ends[1] < 1


@given(
    lists=st.lists(st.sets(st.integers(0, 29)), min_size=1, max_size=8),
    count=st.integers(0, 35),
    weighted=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_drawn_items_are_distinct_allowed_and_as_many_as_possible(
    lists: list[set[int]], count: int, weighted: bool
) -> None:
    keys = hash_ids([f"u{row}" for row in range(len(lists))])
    weights = np.arange(1.0, 31.0) if weighted else None
    excluded = excluded_lists([list(row) for row in lists])
    drawn = distinct_items(keys, count, 30, excluded, seed=1, phase="test", weights=weights)
    assert drawn.shape == (len(lists), count)
    for row, banned in zip(drawn, lists, strict=True):
        wanted = min(count, 30 - len(banned))
        assert (row[:wanted] >= 0).all()
        assert (row[wanted:] == -1).all()
        assert len(set(row[:wanted].tolist()) - banned) == wanted


@given(st.permutations(range(24)), st.integers(1, 24))
@settings(max_examples=30, deadline=None)
def test_a_users_items_do_not_depend_on_the_other_users_nor_on_how_many_are_drawn_for_at_once(
    order: list[int], left: int
) -> None:
    lists = [[1, 2], [], [0, 7, 9], list(range(30)), [5], list(range(0, 40, 2))] * 4
    counts = np.tile([3, 5, 1, 4, 20, 9], 4)
    keys = hash_ids([f"u{row}" for row in range(24)])
    everyone = distinct_items(keys, counts, 40, excluded_lists(lists), seed=1, phase=0)
    some = np.array(order[:left])
    alone = distinct_items(keys[some], counts[some], 40, excluded_lists([lists[row] for row in some]), seed=1, phase=0)
    assert (alone == everyone[some, : alone.shape[1]]).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zoo.data.sampling, "_AT_ONCE", 50)
        again = distinct_items(keys, counts, 40, excluded_lists(lists), seed=1, phase=0)
    assert (again == everyone).all()


def test_where_rejection_gives_up_does_not_depend_on_another_users_count() -> None:
    # One item has all but 0.6 % of the weight: each user finds a few others before its own limit, and a few more after.
    weights, counts = np.array([1e4, *[1.0] * 59]), np.array([10] * 20 + [25])
    keys = hash_ids([f"u{row}" for row in range(21)])
    together = distinct_items(keys, counts, 60, no_exclusions(21), seed=1, phase=0, weights=weights)
    alone = distinct_items(keys[:20], 10, 60, no_exclusions(20), seed=1, phase=0, weights=weights)
    assert (alone == together[:20, :10]).all()


def test_a_pool_restricts_the_items() -> None:
    pool = np.array([3, 8, 9, 20, 31])
    drawn = distinct_items(hash_ids(["a", "b"]), 9, pool, excluded_lists([[8, 10], [1, 2]]), seed=1, phase="x")
    assert set(drawn[0].tolist()) == {3, 9, 20, 31, -1}
    assert set(drawn[1].tolist()) == {3, 8, 9, 20, 31, -1}


def test_seed_phase_and_user_each_change_the_items() -> None:
    keys = hash_ids(["a", "b"])
    base = distinct_items(keys, 10, 1000, no_exclusions(2), seed=1, phase="test")
    other_seed = distinct_items(keys, 10, 1000, no_exclusions(2), seed=2, phase="test")
    other_phase = distinct_items(keys, 10, 1000, no_exclusions(2), seed=1, phase="val")
    assert (base == distinct_items(keys, 10, 1000, no_exclusions(2), seed=1, phase="test")).all()
    for other in (other_seed, other_phase, base[::-1]):
        assert not (base == other).all(axis=1).any()


@pytest.mark.parametrize(
    ("num_items", "count", "banned"),
    [(50, 5, [3, 4, 40]), (12, 5, [0, 11]), (40, 3, list(range(25)))],
    ids=["rejection", "completion", "half rejected"],
)
def test_every_available_item_is_equally_likely(num_items: int, count: int, banned: list[int]) -> None:
    # Chi-square at level 1e-6 on 20,000 users; the draws of one user are without replacement, which only lowers
    # the statistic, so the test is conservative: it fails by chance with probability below 1e-6.
    keys = hash_ids([f"u{row}" for row in range(20_000)])
    drawn = distinct_items(keys, count, num_items, excluded_lists([banned] * len(keys)), seed=5, phase="test")
    counts = np.bincount(drawn.ravel(), minlength=num_items)
    assert counts[banned].sum() == 0
    assert stats.chisquare(np.delete(counts, banned)).pvalue > 1e-6


@pytest.mark.parametrize("count", [2, 3], ids=["rejection", "completion"])
def test_weighted_draws_follow_successive_sampling(count: int) -> None:
    # The reference is the exact probability of each ordered outcome; chi-square at level 1e-6.
    weights = np.array([8.0, 1.0, 2.0, 4.0, 3.0])
    banned, num_users = 4, 20_000
    keys = hash_ids([f"u{row}" for row in range(num_users)])
    excluded = excluded_lists([[banned]] * num_users)
    drawn = distinct_items(keys, count, 5, excluded, seed=5, phase="test", weights=weights)
    outcomes = list(permutations(range(4), count))
    expected = []
    for outcome in outcomes:
        chance, rest = 1.0, float(weights[:4].sum())
        for item in outcome:
            chance, rest = chance * weights[item] / rest, rest - weights[item]
        expected.append(chance * num_users)
    observed = [int((drawn == np.array(outcome)).all(axis=1).sum()) for outcome in outcomes]
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_a_prefix_is_completed_where_rejection_gives_up() -> None:
    # One item has nearly all the weight, so the draws repeat it and the other items must come from the completion.
    weights = np.array([1e12, *[1.0] * 49])
    drawn = distinct_items(hash_ids(["a", "b"]), 10, 50, no_exclusions(2), seed=1, phase="x", weights=weights)
    assert (drawn[:, 0] == 0).all()
    assert [len(set(row.tolist()) - {-1}) for row in drawn] == [10, 10]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": -1}, "count is -1"),
        ({"count": np.array([1, 2, 3])}, "one for each of 2 users"),
        ({"excluded": (np.array([0, 1]), np.array([4]))}, "must be 3 rising numbers"),
        ({"excluded": (np.array([0, 2, 2]), np.array([4, 4]))}, "not strictly rising within each user"),
        ({"num_items": np.array([4, 2])}, "items are not rising"),
        ({"weights": np.zeros(10)}, "10 finite numbers above 0"),
    ],
)
def test_unfit_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    fit = {"count": 3, "num_items": 10, "excluded": no_exclusions(2), "seed": 1, "phase": "x", "weights": None}
    with pytest.raises(ValueError, match=message):
        distinct_items(hash_ids(["a", "b"]), **(fit | arguments))
