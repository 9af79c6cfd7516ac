"""The rules against figures counted from ranks, and against a linear programme that looks for such ranks."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from zoo.benchmark.report.papers import violations

KS = (1, 5, 10, 20)
NAMES = ("hit_rate", "ndcg", "mrr")
SOUND = {"hit_rate@5": 0.4, "ndcg@5": 0.3, "mrr@5": 0.267, "hit_rate@10": 0.5, "ndcg@10": 0.332, "mrr@10": 0.28}

cases = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12)), min_size=1, max_size=12)


def point(rank: int, k: int) -> tuple[float, float, float]:
    return (1.0, 1 / math.log2(rank + 1), 1 / rank) if rank <= k else (0.0, 0.0, 0.0)


def counted(cases: list[tuple[int, int]], ks: tuple[int, ...]) -> dict[str, float]:
    """Means over cases of (first rank, ties), each the mean over the ranks that its ties leave open."""
    found = {}
    for k in ks:
        means = [np.mean([point(first + t, k) for t in range(ties + 1)], axis=0) for first, ties in cases]
        found |= {f"{name}@{k}": float(value) for name, value in zip(NAMES, np.mean(means, axis=0), strict=True)}
    return found


def distance(figures: dict[str, float]) -> float:
    """The least error in any figure that lets some distribution of ranks have them all; ranks past 20 are one."""
    rows, values = [], []
    for key, value in figures.items():
        name, k = key.split("@")
        row = [point(rank, int(k))[NAMES.index(name)] for rank in range(1, 22)]
        rows += [[*row, -1.0], [*(-x for x in row), -1.0]]
        values += [value, -value]
    total = [[1.0] * 21 + [0.0]]
    return float(linprog([0.0] * 21 + [1.0], A_ub=rows, b_ub=values, A_eq=total, b_eq=[1.0]).fun)


@settings(max_examples=150, deadline=None)
@given(cases=cases, ks=st.sets(st.integers(1, 45), min_size=1, max_size=4), keep=st.integers(0, 2**12 - 1))
def test_figures_of_ranks_break_no_rule(cases: list[tuple[int, int]], ks: set[int], keep: int) -> None:
    found = counted(cases, tuple(ks))
    found = {key: value for i, (key, value) in enumerate(found.items()) if keep >> i & 1}
    assert violations(found, 0.0, joint=True) == []


@settings(max_examples=150, deadline=None)
@given(cases=cases, digits=st.integers(2, 6))
def test_rounding_breaks_no_rule(cases: list[tuple[int, int]], digits: int) -> None:
    rounded = {key: round(value, digits) for key, value in counted(cases, KS).items()}
    assert violations(rounded, 10.0**-digits, joint=True) == []


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@given(cases=cases, key=st.sampled_from(sorted(SOUND)), shift=st.floats(-0.2, 0.2))
def test_exactly_figures_that_no_ranks_have_are_caught(cases: list[tuple[int, int]], key: str, shift: float) -> None:
    figures = counted(cases, (5, 10))
    figures[key] += shift
    off = distance(figures)
    assume(not 1e-8 < off < 1e-4)  # where the solver's own error could decide
    assert bool(violations(figures, 1e-6, joint=True)) == (off >= 1e-4)


@settings(max_examples=60, deadline=None)
@given(cases=cases, key=st.sampled_from(sorted(SOUND)), shift=st.floats(-0.5, 0.5))
def test_the_plain_rules_condemn_nothing_that_ranks_have(cases: list[tuple[int, int]], key: str, shift: float) -> None:
    figures = counted(cases, (5, 10))
    figures[key] += shift
    found = violations(figures, 1e-6)
    assert set(found) <= set(violations(figures, 1e-6, joint=True))
    assert not found or distance(figures) > 1e-8


BROKEN = {
    "above 1": ({"ndcg@5": 1.1}, "NDCG@5 is 1.1000; it must be in [0, 1]"),
    "below 0": ({"mrr@5": -0.2}, "MRR@5 is -.2000; it must be in [0, 1]"),
    "no number": ({"hit_rate@5": math.nan, "ndcg@5": 0.2}, "HR@5 is nan; it must be in [0, 1]"),
    "HR falls": ({"hit_rate@5": 0.4, "hit_rate@10": 0.3}, "HR@10 is .3000; with HR@5 of .4000 it must not be lower"),
    "MRR falls": ({"mrr@5": 0.257, "mrr@10": 0.2439}, "MRR@10 is .2439; with MRR@5 of .2570 it must not be lower"),
    "NDCG above HR": (
        {"hit_rate@5": 0.142, "ndcg@5": 0.185},
        "NDCG@5 is .1850; with HR@5 of .1420 it must be in [.0549, .1420]",
    ),
    "NDCG below its share of HR": (
        {"hit_rate@5": 0.4, "ndcg@5": 0.1},
        "NDCG@5 is .1000; with HR@5 of .4000 it must be in [.1547, .4000]",
    ),
    "MRR below its share of HR": (
        {"hit_rate@10": 0.4, "mrr@10": 0.03},
        "MRR@10 is .0300; with HR@10 of .4000 it must be in [.0400, .4000]",
    ),
    "MRR above NDCG": (
        {"ndcg@5": 0.1665, "mrr@5": 0.221},
        "MRR@5 is .2210; with NDCG@5 of .1665 it must be in [.0000, .1665]",
    ),
    "NDCG grows too little": (
        {"hit_rate@5": 0.4, "hit_rate@10": 0.585, "ndcg@5": 0.3, "ndcg@10": 0.332},
        "NDCG@10 - NDCG@5 is .0320; with HR@10 - HR@5 of .1850 it must be in [.0535, .0659]",
    ),
    "MRR grows too much": (
        {"hit_rate@5": 0.4, "hit_rate@10": 0.5, "mrr@5": 0.2, "mrr@10": 0.23},
        "MRR@10 - MRR@5 is .0300; with HR@10 - HR@5 of .1000 it must be in [.0100, .0167]",
    ),
    "growth past a cut-off that lacks the metric": (
        {"hit_rate@5": 0.4, "hit_rate@10": 0.5, "hit_rate@20": 0.6, "ndcg@5": 0.3, "ndcg@20": 0.31},
        "NDCG@20 - NDCG@5 is .0100; with HR@20 - HR@5 of .2000 it must be in [.0455, .0712]",
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_named_with_its_interval(rule: str) -> None:
    figures, sentence = BROKEN[rule]
    assert violations(figures) == [sentence]


def test_metrics_that_only_clash_together_need_the_joint_rule() -> None:
    clash = SOUND | {"mrr@5": 0.20, "mrr@10": 0.213}
    assert violations(SOUND, joint=True) == violations(clash) == []
    [at_5, at_10] = violations(clash, joint=True)
    assert at_5 == "MRR@5 is .2000; with HR@5 of .4000 and NDCG@5 of .3000 it must be in [.2645, .2695]"
    assert at_10.startswith("MRR@10 is .2130; with HR@10 of .5000 and NDCG@10 of .3320 it must be in [")


@pytest.mark.parametrize("rank", range(1, 10))
def test_the_joint_rule_is_sharp_between_neighbouring_ranks(rank: int) -> None:
    figures = counted([(rank, 1)], (10,))  # half at this rank, half at the next: the least MRR for its NDCG
    assert violations(figures, 0.0, joint=True) == []
    assert len(violations(figures | {"mrr@10": figures["mrr@10"] - 1e-5}, 1e-7, joint=True)) == 1


def test_a_fall_of_hr_is_said_once() -> None:
    fallen = {"hit_rate@5": 0.4, "hit_rate@10": 0.35, "ndcg@5": 0.3, "ndcg@10": 0.3}
    assert violations(fallen) == ["HR@10 is .3500; with HR@5 of .4000 it must not be lower"]


def test_the_slack_is_half_a_unit_per_figure_and_no_more() -> None:
    # MRR@5 <= NDCG@5 has the coefficients 1 and -1: together they may be off by one unit
    assert violations({"ndcg@5": 0.2, "mrr@5": 0.20009}) == []
    assert violations({"ndcg@5": 0.2, "mrr@5": 0.20011}) != []
    assert violations({"ndcg@5": 0.2, "mrr@5": 0.20009}, 1e-5) != []
    # one rank at most is added between 0 and 1: HR@1, NDCG@1 and MRR@1 are one figure
    assert violations({"hit_rate@1": 0.3, "ndcg@1": 0.3, "mrr@1": 0.3}, 0.0, joint=True) == []
    assert len(violations({"hit_rate@1": 0.3, "ndcg@1": 0.31, "mrr@1": 0.3}, 0.0, joint=True)) == 1


def test_a_finer_tolerance_prints_more_digits() -> None:
    [sentence] = violations({"ndcg@5": 0.2, "mrr@5": 0.200004}, 1e-6)
    assert sentence == "MRR@5 is .200004; with NDCG@5 of .200000 it must be in [.000000, .200000]"


def test_nothing_is_consistent() -> None:
    assert violations({}) == []


@pytest.mark.parametrize("key", ["recall@5", "full/ndcg@5", "ndcg@05", "ndcg@5.0"])
def test_an_unknown_figure_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"Allowed: hit_rate@K, ndcg@K, mrr@K"):
        violations({key: 0.1})


@pytest.mark.parametrize("tolerance", [-1e-4, math.nan])
def test_a_tolerance_that_is_none_is_refused(tolerance: float) -> None:
    with pytest.raises(ValueError, match=r"tolerance is .*at least 0, such as 1e-4"):
        violations(SOUND, tolerance)
