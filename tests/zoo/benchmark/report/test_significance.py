"""Paired tests against closed formulas, shapes against enumerated ranks and fits, and Holm against the closed testing principle."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import astuple
from itertools import combinations, permutations, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from zoo.benchmark.report.significance import Comparison, holm, over_seeds, over_users, paired, shape


def by_hand(differences: Sequence[float]) -> Comparison:
    """The t-test from its textbook formula."""
    d = np.asarray(differences)
    n, mean = len(d), sum(d) / len(d)
    error = math.sqrt(sum((d - mean) ** 2) / (n - 1) / n)
    half = stats.t.ppf(0.975, n - 1) * error
    p_value = 2 * stats.t.sf(abs(mean) / error, n - 1)
    return Comparison(mean, mean - half, mean + half, p_value, n, sum(x > 1e-12 for x in d))


def close(found: Comparison | None, expected: Comparison) -> bool:
    return found is not None and astuple(found) == pytest.approx(astuple(expected), rel=1e-9, abs=1e-12)


def page_by_permutations(values: np.ndarray) -> float:
    """Two-sided p-value of the figures' ranks: of all orders of four levels, else of 20,000 drawn ones."""
    levels, ranks = np.arange(values.shape[1]), stats.rankdata(values, axis=1)
    draw = np.random.default_rng(7).permuted
    orders = (
        product(*(permutations(row) for row in ranks))
        if len(levels) <= 4
        else (draw(ranks, axis=1) for _ in range(20_000))
    )
    null = np.array([(np.asarray(order) @ levels).sum() for order in orders])
    centre = ranks.sum() * levels.mean()
    return float((abs(null - centre) >= abs((ranks @ levels).sum() - centre) - 1e-9).mean())


def frame(rows: Sequence[tuple[int, str, float]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["seed", "user_id", "ndcg@10"], orient="row")


def drawn(seeds: Sequence[int], users: Sequence[str], effect: float, key: int) -> pl.DataFrame:
    rng = np.random.default_rng(key)
    return frame([(seed, user, float(rng.normal(effect))) for seed in seeds for user in users])


def test_paired_is_the_textbook_t_test() -> None:
    # differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), t(2) of 97.5 % = 4.302653
    found = paired([2, 4, 6], [1, 2, 3])
    assert (found.difference, found.pairs, found.better) == (2, 3, 3)
    assert (found.low, found.high) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)
    assert found.p_value == pytest.approx(0.074180, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.tuples(st.integers(0, 64), st.integers(0, 64)), min_size=2, max_size=30))
def test_paired_agrees_with_the_formula_and_turns_round(values: list[tuple[int, int]]) -> None:
    ours, theirs = np.array(values).T / 64
    differences = ours - theirs
    found, other = paired(ours, theirs), paired(theirs, ours)
    if np.ptp(differences) > 0:
        assert close(found, by_hand(differences))
    assert (other.difference, other.low, other.high) == pytest.approx((-found.difference, -found.high, -found.low))
    assert found.better + other.better + sum(differences == 0) == len(values)
    assert other.p_value == pytest.approx(found.p_value)
    assert found.low <= found.difference <= found.high


@pytest.mark.thorough
def test_a_true_null_is_rejected_as_often_as_stated() -> None:
    # 2,000 tests at 5 %: 100 expected, sd 9.7; outside 60..140 with probability below 1e-4
    rng = np.random.default_rng(0)
    tests = [paired(rng.normal(size=6), rng.normal(size=6)) for _ in range(2000)]
    rejected = [t.p_value < 0.05 for t in tests]
    assert 60 <= sum(rejected) <= 140
    assert rejected == [not t.low <= 0 <= t.high for t in tests]


def test_no_difference_at_all_has_p_1() -> None:
    assert paired([0.2, 0.5, 0.9], [0.2, 0.5, 0.9]) == Comparison(0, 0, 0, 1, 3, 0)
    assert paired([0.0, 0.0], [0.0, 0.0]).p_value == 1


@pytest.mark.parametrize("pairs", [2, 5, 12])
@pytest.mark.parametrize("sign", [1, -1])
def test_equal_differences_have_the_p_value_of_their_signs(pairs: int, sign: int) -> None:
    # every difference may have either sign under the null: 2 of 2 ** pairs are as far out
    found = paired(np.full(pairs, 0.5 + 0.1 * sign), np.full(pairs, 0.5))
    assert found.p_value == 2 / 2**pairs
    assert found.low == found.high == found.difference == pytest.approx(0.1 * sign)
    assert found.better == (pairs if sign > 0 else 0)


def test_differences_that_are_equal_but_for_rounding_are_equal() -> None:
    assert np.ptp([0.3 - 0.1, 0.4 - 0.2, 0.9 - 0.7]) > 0
    assert paired([0.3, 0.4, 0.9], [0.1, 0.2, 0.7]).p_value == 0.25
    assert paired([0.1 + 0.2, 0.5], [0.3, 0.5]).p_value == 1
    assert paired([0.1 + 0.2, 0.5], [0.3, 0.5]).better == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ([1, 2, 3], [1, 2], r"shapes \(3,\) and \(2,\)\. Both must be one-dimensional, equally long"),
        ([[1, 2]], [[1, 2]], r"shapes \(1, 2\)"),
        ([1], [2], r"has 1 pairs\. It needs two\. Add seeds or users"),
        ([1, math.nan, math.nan], [1, 2, 3], r"ours has 2 NaN or infinite values of 3\. Remove those pairs"),
        ([1, 2, 3], [1, 2, math.inf], "theirs has 1 NaN or infinite values of 3"),
    ],
)
def test_what_cannot_be_paired_is_refused(ours: list[float], theirs: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        paired(ours, theirs)


def closed_testing(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values by definition: the largest Bonferroni p-value of any intersection that holds the hypothesis."""
    everything = range(len(p_values))
    subsets = [subset for size in range(1, len(p_values) + 1) for subset in combinations(everything, size)]
    local = {subset: min(1.0, len(subset) * min(p_values[i] for i in subset)) for subset in subsets}
    return [max(p for subset, p in local.items() if i in subset) for i in everything]


@settings(max_examples=150, deadline=None)
@given(p_values=st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.02, 1.0])), max_size=5))
def test_holm_is_the_closed_bonferroni_test(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(closed_testing(p_values), rel=1e-12)


def test_holm_keeps_the_order_given() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([0.03]) == [0.03]
    assert holm([]) == []


@pytest.mark.parametrize("wrong", [math.nan, -0.1, 1.1])
def test_holm_refuses_what_is_no_p_value(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"A p-value is .*\. It must be in \[0, 1\]"):
        holm([0.1, wrong])


def test_users_are_averaged_over_seeds_before_they_are_tested() -> None:
    seeds, users = [1, 2, 3], [f"u{i}" for i in range(20)]
    ours, theirs = drawn(seeds, users, 0.3, key=1), drawn(seeds, users, 0, key=2)
    values = (ours["ndcg@10"] - theirs["ndcg@10"]).to_numpy().reshape(3, 20)
    assert close(over_users(ours, theirs.sample(fraction=1, shuffle=True, seed=0), "ndcg@10"), by_hand(values.mean(0)))
    assert close(over_seeds(ours.reverse(), theirs, "ndcg@10"), by_hand(values.mean(1)))


def test_figures_that_single_precision_tells_apart_are_equal() -> None:
    """Such as lists of a file in double precision beside the run that made them."""
    run = drawn([1, 2], [f"u{i}" for i in range(9)], 0.3, key=1).with_columns(pl.col("ndcg@10").abs() / 9 + 0.1)
    single = run.with_columns(pl.col("ndcg@10").cast(pl.Float32) + 1e-8 * pl.col("seed"))
    for test in (over_users, over_seeds):
        found = test(run, single, "ndcg@10")
        assert found is not None
        assert (found.p_value, found.better) == (1.0, 0)


def test_repeating_the_seeds_does_not_multiply_the_users() -> None:
    users = [f"u{i}" for i in range(8)]
    ours, theirs = drawn([1], users, 0.3, key=3), drawn([1], users, 0, key=4)
    again = [pl.concat([f.with_columns(seed=pl.lit(s, pl.Int64)) for s in range(9)]) for f in (ours, theirs)]
    assert close(over_users(*again, "ndcg@10"), over_users(ours, theirs, "ndcg@10"))


def test_only_rows_that_both_have_count() -> None:
    ours = frame([(1, "a", 0.5), (1, "b", 0.7), (1, "c", 9.0), (2, "a", 0.4), (2, "b", 0.9), (3, "a", 7.0)])
    theirs = frame([(1, "a", 0.1), (1, "b", 0.2), (2, "d", 8.0), (2, "a", 0.2), (2, "b", 0.2), (4, "a", 6.0)])
    assert close(over_users(ours, theirs, "ndcg@10"), by_hand([(0.4 + 0.2) / 2, (0.5 + 0.7) / 2]))
    found = over_seeds(ours, theirs.filter(pl.col("user_id") != "b"), "ndcg@10")
    assert close(found, by_hand([0.4, 0.2]))


def test_one_run_without_randomness_stands_for_every_seed() -> None:
    seeds, users = [1, 2, 3], [f"u{i}" for i in range(10)]
    ours, once = drawn(seeds, users, 0.3, key=5), drawn([7], users, 0, key=6)
    repeated = pl.concat([once.with_columns(seed=pl.lit(seed, pl.Int64)) for seed in seeds])
    for test in (over_users, over_seeds):
        found, expected = test(ours, once, "ndcg@10"), test(ours, repeated, "ndcg@10")
        assert expected is not None
        assert found == expected
        turned = test(once, ours, "ndcg@10")
        assert turned is not None
        assert turned.difference == pytest.approx(-expected.difference)


def test_one_seed_of_other_users_is_not_repeated() -> None:
    ours = frame([(1, "a", 0.5), (1, "b", 0.7), (2, "a", 0.4), (2, "c", 0.9)])  # users that follow the seed
    once = frame([(1, "a", 0.1), (1, "b", 0.2)])
    assert close(over_users(ours, once, "ndcg@10"), by_hand([0.4, 0.5]))
    assert over_seeds(ours, once, "ndcg@10") is None


def test_there_is_no_test_over_seeds_without_seeds() -> None:
    users = ["a", "b", "c"]
    assert over_seeds(drawn([1], users, 0, key=7), drawn([1], users, 0, key=8), "ndcg@10") is None
    assert over_seeds(drawn([1, 2], users, 0, key=7), drawn([2, 3], users, 0, key=8), "ndcg@10") is None
    still = [pl.concat([drawn([s], users, 0, key=key) for s in range(5)]) for key in (9, 10)]
    assert over_seeds(*still, "ndcg@10") is None
    assert over_users(*still, "ndcg@10").pairs == 3


def test_frames_that_do_not_fit_are_refused() -> None:
    good = drawn([1, 2], ["a", "b"], 0, key=11)
    with pytest.raises(ValueError, match=r"theirs lacks mrr@5\. It must have seed, user_id and mrr@5"):
        over_users(good.with_columns(pl.lit(0.0).alias("mrr@5")), good, "mrr@5")
    with pytest.raises(ValueError, match=r"4 and 4 rows have no seed and user in common\. Compare one split"):
        over_users(good, good.with_columns(pl.col("user_id") + "x"), "ndcg@10")
    with pytest.raises(ValueError, match="ours has 8 rows with a repeated seed and user"):
        over_seeds(pl.concat([good, good]), good, "ndcg@10")
    for empty in (None, math.nan):
        first = (pl.col("seed") == 1) & (pl.col("user_id") == "a")  # the user's other seed has a figure
        hole = pl.when(first).then(pl.lit(empty)).otherwise(pl.col("ndcg@10")).alias("ndcg@10")
        with pytest.raises(ValueError, match="ours has 1 NaN or infinite values of 2"):
            over_users(good.with_columns(hole), good, "ndcg@10")


@pytest.mark.thorough
def test_a_shape_is_that_of_enumerated_ranks_and_of_a_fitted_parabola() -> None:
    values = np.random.default_rng(5).normal(size=(4, 4)) + [0, 0.5, 1.3, 1.1] + np.arange(4)[:, None] * 100
    levels = np.arange(1, 5)
    page = lambda rows: sum(levels @ np.asarray(row) for row in rows)  # noqa: E731
    ranks = values.argsort(1).argsort(1) + 1
    null = np.array([page(rows) for rows in product(permutations(levels), repeat=4)])
    found = shape(values)
    assert found.p_trend == pytest.approx(2 * min((null >= page(ranks)).mean(), (null <= page(ranks)).mean()))
    assert found.correlation == pytest.approx(np.mean([stats.spearmanr(levels, row).statistic for row in values]))
    fits = [np.polyfit(levels - 2.5, row, 2) for row in values]
    assert close(found.bend, by_hand([-fit[0] * 1.5**2 for fit in fits])), "offsets of seeds and a slope cancel"
    for ties in (np.array([[0, 1, 1, 0.5], [2, 2, 1, 3]]), np.array([[0, 1, 1], [1, 1, 1], [0, 1, 2]]), np.eye(9)[:4]):
        inexact = ties + np.random.default_rng(1).uniform(-2e-7, 2e-7, ties.shape)  # means in single precision
        near = 0.02 if len(ties.T) > 4 else 1e-9  # four of its standard deviations, and the normal limit
        assert shape(inexact).p_trend == shape(ties).p_trend == pytest.approx(page_by_permutations(ties), abs=near)
        with warnings.catch_warnings(action="ignore"):  # scipy has no correlation of a constant
            each = [stats.spearmanr(np.arange(len(row)), row).statistic for row in ties]
        assert shape(inexact).correlation == shape(ties).correlation == pytest.approx(np.nan_to_num(each).mean())
    straight = np.array([[0, 1, 2], [1, 2, 3], [2, 2, 2]]) / 24
    assert shape(np.float32(straight)).bend.p_value == 1.0, "a bend of rounding alone"
    level = shape(np.ones((3, 9)))
    assert (level.correlation, level.p_trend, level.bend.p_value) == (pytest.approx(0), 1.0, 1.0)
