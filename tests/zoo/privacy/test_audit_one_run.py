from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.stats import binom, norm

from zoo.privacy.audit_one_run import guessing_p_value, one_run, one_run_projection
from zoo.privacy.noise import NoiseSource
from zoo.privacy.projection import Calibration, ProjectionPlan, plan_projection, public_matrix
from zoo.privacy.relation import Relation
from zoo.privacy.sparse_projection import SparseMatrix


def ratings(users: int, items: int, seed: int = 0) -> csr_array:
    return csr_array((np.random.default_rng(seed).random((users, items)) < 0.1).astype(float))


@pytest.mark.parametrize(("correct", "epsilon", "seen"), [(219, 2.0, 0.7735), (288, 8.0, 2.6773)])
def test_bounds_of_the_reference_counts(correct: int, epsilon: float, seen: float) -> None:
    found = one_run(correct, 300, 1500, epsilon, 1e-5)
    assert found.eps_lower == pytest.approx(seen, abs=1e-3)
    assert found.verdict == "pass"
    # At the bound the p-value crosses the level.
    assert guessing_p_value(correct, 300, 1500, found.eps_lower, 1e-5) < 0.05
    assert guessing_p_value(correct, 300, 1500, found.eps_lower + 1e-5, 1e-5) >= 0.05
    assert one_run(correct, 300, 1500, found.eps_lower * 0.99, 1e-5).verdict == "violation"


def test_p_value_is_the_sum_that_the_theorem_states() -> None:
    correct, guesses, canaries, epsilon, delta = 9, 12, 40, 0.7, 1e-3
    law = binom(guesses, exp(epsilon) / (1 + exp(epsilon)))
    largest = max(sum(law.pmf(k) for k in range(correct - i, correct)) / i for i in range(1, correct + 1))
    expected = sum(law.pmf(k) for k in range(correct, guesses + 1)) + 2 * canaries * delta * largest
    assert guessing_p_value(correct, guesses, canaries, epsilon, delta) == pytest.approx(expected, rel=1e-12)


def test_pure_claims_have_the_binomial_tail() -> None:
    assert guessing_p_value(8, 10, 50, 1.0, 0.0) == pytest.approx(binom(10, 1 / (1 + exp(-1))).sf(7), rel=1e-12)
    assert one_run(0, 10, 50, 1.0, 1e-5).eps_lower == 0
    assert one_run(5, 10, 50, None, 1e-5).p_value is None


@pytest.mark.parametrize("counts", [(11, 10, 50), (5, 51, 50), (0, 0, 50), (-1, 10, 50)])
def test_counts_that_do_not_go_together_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="correct <= guesses <= canaries"):
        one_run(*counts, 1.0, 1e-5)


@pytest.mark.parametrize(
    ("settings", "message"), [({"delta": 1.0}, "delta"), ({"level": 0.0}, "level"), ({"epsilon": -1.0}, "epsilon")]
)
def test_claims_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one_run(5, 10, 50, **({"epsilon": 1.0, "delta": 1e-5} | settings))


def plan(calibration: Calibration, epsilon: float, dim: int, items: int, rating_range: float = 1.0) -> ProjectionPlan:
    largest = float(public_matrix("max", dim, items, 0).column_norms().max()) if calibration == "max" else None
    return plan_projection(
        epsilon=epsilon,
        delta=1e-5,
        dim=dim,
        calibration=calibration,
        rating_range=rating_range,
        largest_norm=largest,
    )


@pytest.mark.parametrize("calibration", ["unit", "gaussian", "max"])
def test_a_small_projection_passes_and_leaks_what_it_may(calibration: Calibration) -> None:
    # About nine in ten of 100 guesses are right at epsilon 8; below 75 or refuting 8 has probability below 1e-5.
    matrix = public_matrix(calibration, 30, 60, 0)
    settings = plan(calibration, 8.0, 30, 60, 5.0)
    found = one_run_projection(5 * ratings(500, 60), settings, matrix, NoiseSource.seeded(1), canaries=500)
    assert (found.guesses, found.canaries, found.verdict) == (100, 500, "pass")
    assert found.correct >= 75
    assert 0.5 < found.eps_lower < 8


@pytest.mark.parametrize("really", [8.0, 8000.0])
def test_a_projection_with_too_little_noise_is_caught(really: float) -> None:
    # The claim is 1. With the noise of 8 about nine in ten of 200 guesses are right, and 159 refute it: missed with
    # probability below 1e-4; with that of 8000 all are right.
    w = plan("unit", really, 30, 60).w
    leaking = replace(plan("unit", 1.0, 30, 60), w=w, noise_std=w / sqrt(30))
    matrix = public_matrix("unit", 30, 60, 0)
    found = one_run_projection(ratings(1000, 60), leaking, matrix, NoiseSource.seeded(2), canaries=1000)
    assert found.verdict == "violation"
    assert found.eps_lower > 1


def test_plans_for_users_and_too_many_canaries_are_refused() -> None:
    users = plan_projection(
        epsilon=1.0, delta=1e-5, dim=8, calibration="gaussian", relation=Relation.ZERO_OUT_ONE_USER, clip=1.0
    )
    matrix = public_matrix("unit", 8, 10, 0)
    with pytest.raises(ValueError, match="plan for ratings"):
        one_run_projection(ratings(20, 10), users, matrix, NoiseSource.seeded(3), canaries=5)
    with pytest.raises(ValueError, match="canaries must lie"):
        one_run_projection(ratings(20, 10), plan("unit", 1.0, 8, 10), matrix, NoiseSource.seeded(3), canaries=21)


def expected_accuracy(mu: float) -> float:
    """Of the fifth that is guessed, when scores are ``+-1/2 + N(0, 1/mu^2)``: by symmetry those of coins that are 1."""
    threshold = brentq(lambda c: norm.sf(mu * (c - 0.5)) + norm.cdf(-mu * (c + 0.5)) - 0.2, 0, 10)
    return float(norm.sf(mu * (threshold - 0.5)) / 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "reference", "seen"), [(2.0, 219, 0.77), (8.0, 288, 2.68)])
@pytest.mark.parametrize("matrix", ["unit", "gaussian", "sparse"])
def test_full_size(matrix: str, epsilon: float, reference: int, seen: float) -> None:
    # 20 releases of 300 guesses each. The mean lies within 5 standard errors of what the noise allows (an error of 1e-6
    # for fresh seeds), and the reference measurement, one release, within 3 standard deviations of it.
    rows = ratings(1500, 600)
    calibration: Calibration = "gaussian" if matrix == "gaussian" else "unit"
    public = SparseMatrix(400, 600, 0) if matrix == "sparse" else public_matrix(calibration, 400, 600, 0)
    settings = plan(calibration, epsilon, 400, 600)
    found = [one_run_projection(rows, settings, public, NoiseSource.seeded(seed)) for seed in range(20)]
    assert all(run.verdict == "pass" for run in found)
    accuracy = expected_accuracy(sqrt(400) / settings.w)
    spread = sqrt(300 * accuracy * (1 - accuracy))
    assert np.mean([run.correct for run in found]) == pytest.approx(300 * accuracy, abs=5 * spread / sqrt(20))
    assert reference == pytest.approx(300 * accuracy, abs=3 * spread)
    bounds = [run.eps_lower for run in found]
    assert min(bounds) - 0.1 < seen < max(bounds) + 0.1
