import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import PureEvent, RandomisedResponseEvent
from zoo.privacy.accounting.pure import flips_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.sign_response import (
    flipped_signs,
    plan_input,
    plan_ternary,
    plan_uneven_input,
    ternary_signs,
)
from zoo.privacy.one_bit.link_functions import Flipped, Logistic
from zoo.privacy.randomness.noise import NoiseSource

# A test of a sampled law fails with this probability for a fresh seed; the seeds are fixed.
LEVEL = 1e-6


def test_flip_probabilities() -> None:
    found = [plan_input(epsilon).p1 for epsilon in (0.5, 1, 2, 4, 8)]
    assert found == pytest.approx([0.3775406688, 0.2689414214, 0.1192029220, 0.0179862100, 0.00033535013], rel=1e-8)
    plan = plan_input(1.0)
    assert plan.p1 == plan.p2
    assert plan.event == RandomisedResponseEvent(plan.p1)
    assert plan.relation is Relation.CHANGE_ONE_RATING_VALUE
    assert plan.link(Logistic()) == Flipped(Logistic(), plan.p1, plan.p1)
    assert plan.link(Logistic()).probability(0.5) == pytest.approx(0.556590558014963, rel=1e-9)


@given(epsilon=st.floats(1e-3, 15))
def test_flips_cost_what_was_asked_for(epsilon: float) -> None:
    plan = plan_input(epsilon)
    found = Accountant(plan.relation).compose(plan.event).epsilon(0.0)
    assert found <= epsilon
    assert found == pytest.approx(epsilon, rel=1e-6)


@given(p1=st.floats(0.001, 0.499), p2=st.floats(0.001, 0.499))
def test_uneven_flips_cost_the_worst_of_four_ratios(p1: float, p2: float) -> None:
    plan = plan_uneven_input(p1, p2)
    ratios = [abs(math.log((1 - p1) / p2)), abs(math.log((1 - p2) / p1))]
    assert plan.epsilon == pytest.approx(max(ratios), rel=1e-8)
    assert plan.epsilon >= max(ratios) * (1 - 1e-15)
    assert plan.event == (RandomisedResponseEvent(p1) if p1 == p2 else PureEvent(flips_epsilon(p1, p2)))


def test_a_condition_on_one_side_is_not_enough() -> None:
    # The two ratios of the paper's theorem are at most e^epsilon at epsilon = ln 2 here, and the report -1 tells the sign.
    epsilon, p1, p2 = math.log(2), 0.0, 0.5
    assert (1 - p1) / p2 <= math.exp(epsilon) * (1 + 1e-15)
    assert p1 / (1 - p2) <= math.exp(epsilon)
    assert flips_epsilon(p1, p2) == math.inf
    with pytest.raises(ValueError, match=r"p1 is 0\.0 \(epsilon inf\). Allowed: \(0, 1/2\)"):
        plan_uneven_input(p1, p2)
    reports = flipped_signs(np.ones(1000), p1, p2, NoiseSource.seeded(1))
    assert (reports == 1).all()


@pytest.mark.parametrize(("p1", "p2"), [(0.2, 0.2), (0.1, 0.4), (0.0, 1.0)])
def test_signs_are_flipped_as_often_as_they_must(p1: float, p2: float) -> None:
    signs = np.repeat([1, -1], [30_000, 20_000]).astype(np.int8)
    reports = flipped_signs(signs, p1, p2, NoiseSource.seeded(2))
    assert reports.dtype == np.int8
    assert set(np.unique(reports)) <= {-1, 1}
    for sign, share in ((1, p1), (-1, p2)):
        wrong = reports[signs == sign] != sign
        assert binomtest(int(wrong.sum()), len(wrong), share).pvalue > LEVEL


def test_flips_that_are_refused() -> None:
    with pytest.raises(ValueError, match=r"p2 is 0\.6.*Allowed: \(0, 1/2\)"):
        plan_uneven_input(0.1, 0.6)
    with pytest.raises(ValueError, match=r"p1 is 1\.5.*Allowed: \[0, 1\]"):
        plan_uneven_input(1.5, 0.1)
    with pytest.raises(ValueError, match=r"epsilon is 0.*Allowed: finite"):
        plan_input(0.0)
    with pytest.raises(ValueError, match=r"Allowed: \+1 or -1"):
        flipped_signs(np.array([1.0, 0.0]), 0.1, 0.1, NoiseSource.seeded(1))
    with pytest.raises(ValueError, match=r"probability is 2.*Allowed: \[0, 1\]"):
        flipped_signs(np.array([1.0]), 2.0, 0.1, NoiseSource.seeded(1))


def test_ternary_probabilities() -> None:
    assert plan_ternary(1.0).keep == pytest.approx(0.5761168848, rel=1e-9)
    assert plan_ternary(4.0).keep == pytest.approx(0.9646631560, rel=1e-9)
    plan = plan_ternary(2.0)
    assert plan.event.epsilon == pytest.approx(2.0, rel=1e-9)
    assert plan.relation is Relation.CHANGE_ONE_RATING
    assert math.log(2 * plan.keep / (1 - plan.keep)) <= 2.0


@pytest.mark.parametrize(("epsilon", "false", "right"), [(1, 638_421, 46_089), (4, 53_222, 77_173), (8, 1_010, 79_946)])
def test_what_is_reported_of_ml_100k(epsilon: float, false: int, right: int) -> None:
    kept, turned, made_up = plan_ternary(epsilon).expected_reports(80_000, 943 * 1682)
    assert [round(kept), round(made_up)] == [right, false]
    assert turned == pytest.approx((80_000 - kept) / 2)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_every_cell_reports_by_itself(epsilon: float) -> None:
    shape = (300, 100)
    truth = np.random.default_rng(1).choice([-1, 0, 1], shape, p=[0.1, 0.7, 0.2])
    rows, columns = np.nonzero(truth)
    shuffled = np.random.default_rng(2).permutation(len(rows))
    plan = plan_ternary(epsilon)
    found = ternary_signs(
        rows[shuffled], columns[shuffled], truth[rows, columns][shuffled], shape, plan, NoiseSource.seeded(3)
    )
    reports = np.zeros(shape, dtype=np.int64)
    reports[found[0], found[1]] = found[2]
    assert np.count_nonzero(reports) == len(found[2])  # no cell twice, no zero stored
    cells = found[0] * shape[1] + found[1]
    assert (np.diff(cells) > 0).all()
    other = (1 - plan.keep) / 2
    for symbol in (-1, 0, 1):
        seen = np.array([(reports[truth == symbol] == told).sum() for told in (-1, 0, 1)])
        shares = np.array([plan.keep if told == symbol else other for told in (-1, 0, 1)])
        assert chisquare(seen, shares / shares.sum() * seen.sum()).pvalue > LEVEL


def test_an_empty_matrix_reports_too() -> None:
    none = np.zeros(0, dtype=np.int64)
    rows, columns, signs = ternary_signs(
        none, none, np.zeros(0, dtype=np.int8), (50, 40), plan_ternary(1.0), NoiseSource.seeded(4)
    )
    assert 600 < len(rows) == len(columns) == len(signs) < 1100
    assert signs.dtype == np.int8


def test_ratings_that_are_no_cells_are_refused() -> None:
    plan, noise = plan_ternary(1.0), NoiseSource.seeded(1)
    one, two = np.array([1]), np.array([1, 1])
    for shape in ((1, 3), (3, 1)):
        with pytest.raises(ValueError, match="A rating is outside the public grid of"):
            ternary_signs(one, one, np.array([1.0]), shape, plan, noise)
    with pytest.raises(ValueError, match="A rating is outside the public grid of"):
        ternary_signs(-one, one, np.array([1.0]), (3, 3), plan, noise)
    with pytest.raises(ValueError, match="An entry has several signs"):
        ternary_signs(two, two, np.array([1.0, -1.0]), (3, 3), plan, noise)
    with pytest.raises(ValueError, match=r"Allowed: \+1 or -1"):
        ternary_signs(one, one, np.array([0.5]), (3, 3), plan, noise)
    with pytest.raises(ValueError, match=r"epsilon is -1.*Allowed: finite"):
        plan_ternary(-1.0)
