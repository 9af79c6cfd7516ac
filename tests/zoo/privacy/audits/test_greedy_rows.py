"""Rows that are chosen for a known matrix: how far it stretches them, and that audits see it."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chi2, norm

from tests.samples import memory_below
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.greedy_rows import greedy_audit, greedy_items, known_epsilon, known_mu, likely_mu
from zoo.privacy.audits.projection import FULL_ITEMS, FULL_WIDTH, audited_items
from zoo.privacy.audits.two_world import run_audit
from zoo.privacy.mechanisms.jlt import JLT as Projection
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import GaussianMatrix
from zoo.publishers.jlt import JLT
from zoo.publishers.sjlt import SJLT

BETA = 1e-4  # a fresh seed fails a sound mechanism with probability at most 1.1e-3; these are fixed


def user_plan(epsilon: float = 8.0, dim: int = FULL_WIDTH, clip: float = 5.0) -> Projection:
    zero_out = Relation.ZERO_OUT_ONE_USER
    return Projection.calibrate(
        epsilon=epsilon, delta=1e-5, dim=dim, calibration="gaussian", relation=zero_out, clip=clip
    )


def epsilon_of_row(matrix: GaussianMatrix, row: np.ndarray, clip: float, w: float) -> float:
    """Of releasing one row or nothing, from the privacy profile of a Gaussian (Balle & Wang 2018), solved by bisection."""
    row = row * min(1.0, clip / np.linalg.norm(row))
    mu = np.linalg.norm(row @ matrix.transposed()) / w

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-epsilon / mu - mu / 2))) - 1e-5

    return float(brentq(excess, 0, 200, xtol=1e-9))


def ones(items: list[int], num_items: int) -> np.ndarray:
    row = np.zeros(num_items)
    row[items] = 1.0
    return row


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_known_matrix_makes_epsilon_8_what_the_review_found(seed: int) -> None:
    """13.9, 19.1 and 26.3 at 25, 100 and 400 ones; the row is as long as the clip at 25 and clipped beyond."""
    matrix, plan = GaussianMatrix(400, 3916, seed), user_plan()
    items = greedy_items(matrix, 400)
    for count, reviewed in ((25, 13.9), (100, 19.1), (400, 26.3)):
        found = known_epsilon(plan, matrix, items[:count])
        assert found == pytest.approx(reviewed, rel=0.035)
        assert found == pytest.approx(epsilon_of_row(matrix, ones(items[:count], 3916), 5.0, plan.w), rel=1e-6)


@pytest.mark.slow
def test_a_larger_catalogue_is_stretched_further() -> None:
    matrix = GaussianMatrix(400, 18_467, 0)
    rating = Projection.calibrate(epsilon=8.0, delta=1e-5, dim=400, calibration="gaussian")
    items = greedy_items(matrix, 400)
    assert known_epsilon(rating, matrix, items) == pytest.approx(9.25, abs=0.005), "one rating"
    found = [known_epsilon(user_plan(), matrix, items[:count]) for count in (25, 100, 400)]
    assert found == pytest.approx([15.0, 22.0, 35.2], rel=0.005)


def test_each_step_takes_the_item_that_stretches_most() -> None:
    matrix = GaussianMatrix(6, 30, 3)
    gram = matrix.transposed() @ matrix.transposed().T
    items = greedy_items(matrix, 8)
    assert len(set(items)) == 8
    for count in range(1, 9):
        others = [item for item in range(30) if item not in items[: count - 1]]
        sums = [gram[np.ix_([*items[: count - 1], item], [*items[: count - 1], item])].sum() for item in others]
        assert items[count - 1] == others[int(np.argmax(sums))]
        assert greedy_items(matrix, count) == items[:count]


def test_greed_is_near_the_best_of_all_rows() -> None:
    matrix = GaussianMatrix(6, 14, 4)
    columns = matrix.transposed()
    best = max(np.linalg.norm(columns[list(items)].sum(axis=0)) for items in combinations(range(14), 5))
    assert np.linalg.norm(columns[greedy_items(matrix, 5)].sum(axis=0)) > 0.9 * best


def test_items_times_items_are_never_in_memory() -> None:
    matrix = GaussianMatrix(8, 4000, 0)
    matrix.transposed()
    with memory_below(8 * 4000 * 4000 / 100):
        greedy_items(matrix, 50)


def test_no_ones_and_more_ones_than_items_are_refused() -> None:
    for count in (0, 41):
        with pytest.raises(ValueError, match=rf"ones is {count}. Allowed: \[1, 40\]"):
            greedy_items(GaussianMatrix(4, 40, 0), count)


def test_a_replaced_user_moves_twice_as_far() -> None:
    zeroed, matrix = user_plan(dim=16), GaussianMatrix(16, 100, 0)
    replaced = replace(zeroed, relation=Relation.REPLACE_ONE_USER)
    assert known_mu(replaced, matrix, [3, 5]) == pytest.approx(2 * known_mu(zeroed, matrix, [3, 5]), rel=1e-12)


def test_an_unknown_matrix_stays_below_what_is_likely() -> None:
    plan = user_plan()
    assert likely_mu(plan) == pytest.approx(5 / plan.w * math.sqrt(chi2.isf(1e-6, 400)), rel=1e-9)
    items = greedy_items(GaussianMatrix(400, 1000, 0), 100)
    found = [known_mu(plan, GaussianMatrix(400, 1000, seed), items) for seed in range(1, 30)]
    assert max(found) < likely_mu(plan) < known_mu(plan, GaussianMatrix(400, 1000, 0), items)
    # Their squares times (w/5)^2 are chi-square: the mean of 29 lies within 6 standard errors but once in 5e8.
    square = np.mean(np.square(found)) * (plan.w / 5) ** 2
    assert square == pytest.approx(400, abs=6 * math.sqrt(800 / 29))


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [4.0, 8.0])
def test_a_claim_over_matrices_is_caught_on_one_that_was_known(epsilon: float) -> None:
    """At the width of a release; by runs, and by what the row costs exactly."""
    plan = user_plan(epsilon)
    known, drawn = GaussianMatrix(400, 3916, 0), GaussianMatrix(400, 3916, 1)
    items = greedy_items(known, 100)
    assert known_epsilon(plan, known, items) > 2 * epsilon
    caught = run_audit(greedy_audit("known", plan, known, items), 2000, BETA, NoiseSource.seeded(1))
    assert caught.two_world.verdict == "violation"
    assert caught.scale is not None
    assert caught.scale.verdict == "pass", "the noise is what it should be"
    passed = run_audit(greedy_audit("drawn", plan, drawn, items), 2000, BETA, NoiseSource.seeded(2))
    assert passed.verdict == "pass"
    assert known_epsilon(plan, drawn, items) < 1.1 * epsilon


def test_what_holds_for_every_matrix_is_audited_as_such() -> None:
    with pytest.raises(ValueError, match="Calibration is 'unit', which claims a mu per matrix"):
        greedy_audit(
            "unit", Projection.calibrate(epsilon=1.0, delta=1e-5, dim=8), GaussianMatrix(8, 10, 0, unit=True), [0]
        )


# What publishers bring.

USERS = {"calibration": "gaussian", "relation": "replace_one_user", "clip": 2.0}


@pytest.mark.parametrize(
    ("publisher", "names"),
    [
        (JLT(2.0, 30), ["JLT unit", "JLT unit, one run"]),
        (SJLT(2.0, 30, calibration="max", seed=4), ["SJLT max", "SJLT max, one run"]),
        (
            JLT(2.0, 30, calibration="gaussian"),
            ["JLT gaussian, greedy for another matrix", "JLT gaussian, over matrices", "JLT gaussian, one run"],
        ),
        (JLT(2.0, 30, **USERS), ["JLT gaussian, greedy for another matrix", "JLT gaussian, over matrices"]),
        (JLT(2.0, 30, seed=4, **USERS), []),
        (JLT(2.0, 30, seed=4, calibration="paper"), []),
    ],
)
def test_publishers_are_audited_by_what_their_claim_is_of(publisher: JLT | SJLT, names: list[str]) -> None:
    """A mean over matrices is none of one with a fixed seed, and nothing is claimed of that."""
    audits = publisher.audits()
    assert [audit.name for audit in audits] == names
    for audit in audits:
        assert (audit.delta, audit.holds) == (1e-5, True)
        assert audit.epsilon == 2.0


def test_the_matrix_of_an_audit_is_drawn_as_for_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """At full size, the row chosen before the matrix is drawn that it is audited with."""
    asked: list[tuple[int, int]] = []
    of = JLT.matrix

    def matrix(self: JLT, num_items: int, seed: int) -> GaussianMatrix:
        asked.append((num_items, seed))
        made = of(self, num_items, seed)
        assert isinstance(made, GaussianMatrix)
        return made

    monkeypatch.setattr(JLT, "matrix", matrix)
    publisher = JLT(2.0, **USERS)
    audit = publisher.audits()[0]
    assert [items for items, _ in asked] == [3916, 3916]
    assert len({seed for _, seed in asked}) == 2
    assert audit.mu is not None
    assert audit.attained is not None
    # Of a row that does not depend on it: a fresh matrix lies outside with probability 1e-6.
    assert audit.attained / audit.mu == pytest.approx(400 / math.sqrt(400 * chi2.isf(1e-6, 400)), rel=0.2)


def test_wide_rows_are_audited_with_fewer_items() -> None:
    assert audited_items(1) == audited_items(400) == FULL_ITEMS
    assert audited_items(10_000) == 838
    assert audited_items(10**6) == 64


@pytest.mark.slow
@pytest.mark.parametrize(
    "publisher",
    [JLT(8.0), JLT(8.0, calibration="max"), SJLT(8.0), JLT(8.0, calibration="gaussian"), JLT(8.0, **USERS)],
    ids=lambda publisher: f"{publisher.mechanism} {publisher.calibration} {publisher.forecast(9, 9).unit}",
)
def test_what_ships_passes_at_full_size(publisher: JLT | SJLT) -> None:
    audit = publisher.audits()[0]
    result = run_audit(audit, 40_000, BETA, NoiseSource.seeded(5))  # the matrix is fresh; see likely_mu
    assert result.verdict == "pass"
    assert result.two_world.power is not None
