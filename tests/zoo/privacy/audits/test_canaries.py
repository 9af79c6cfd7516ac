from collections.abc import Iterator
from dataclasses import replace
from math import sqrt

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.stats import norm

import zoo.privacy.audits.canaries as canaries_module
import zoo.privacy.rows.projection as projection_module
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.canaries import canary_audit, canary_audits, canary_sizes
from zoo.privacy.audits.one_run import OneRunResult, run_once
from zoo.privacy.audits.two_world import COORDINATES
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.projection import Calibration, ProjectionPlan, plan_projection
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix

Floats = npt.NDArray[np.float64]

# A fresh seed fails a sound release by its noise with probability 1e-3, and by its guesses practically never: what a
# Gaussian release lets be guessed lies far below what its epsilon allows. The seeds here are fixed.


def plan(calibration: Calibration, epsilon: float, dim: int, items: int, rating_range: float = 1.0) -> ProjectionPlan:
    largest = float(GaussianMatrix(dim, items, 0).column_norms().max()) if calibration == "max" else None
    return plan_projection(
        epsilon=epsilon,
        delta=1e-5,
        dim=dim,
        calibration=calibration,
        rating_range=rating_range,
        largest_norm=largest,
    )


def audited(
    settings: ProjectionPlan, matrix: PublicMatrix, canaries: int, seed: int, beta: float = 1e-3
) -> OneRunResult:
    return run_once(canary_audit("canaries", settings, matrix, canaries), beta, NoiseSource.seeded(seed))


@pytest.mark.parametrize("calibration", ["unit", "gaussian", "max"])
def test_a_small_projection_passes_and_leaks_what_it_may(calibration: Calibration) -> None:
    # About nine in ten of 100 guesses are right at epsilon 8; below 75 or refuting 8 has probability below 1e-5.
    settings = plan(calibration, 8.0, 30, 60, 5.0)
    result = audited(settings, GaussianMatrix(30, 60, 0, unit=calibration == "unit"), 500, 1, beta=0.05)
    found = result.one_run
    assert (found.guesses, found.canaries, result.verdict) == (100, 500, "pass")
    assert found.correct >= 75
    assert 0.5 < found.eps_lower < 8
    assert (result.scale.count, result.scale.sigma) == (500 * 30, settings.noise_std)


def matrix_of(kind: str, dim: int, items: int) -> PublicMatrix:
    return SparseMatrix(dim, items, 0) if kind == "sparse" else GaussianMatrix(dim, items, 0, unit=True)


@pytest.mark.parametrize("really", [8.0, 8000.0])
@pytest.mark.parametrize("kind", ["unit", "sparse"])
def test_a_plan_with_too_little_noise_is_caught_by_the_guesses(kind: str, really: float) -> None:
    # The claim is 1, and what is added is what the plan says. With the noise of 8 more than nine in ten of 200 guesses are
    # right, and 167 refute the claim: missed with probability below 1e-4; with that of 8000 all are right.
    w = plan("unit", really, 30, 60).w
    leaking = replace(plan("unit", 1.0, 30, 60), w=w, noise_std=w / sqrt(30))
    result = audited(leaking, matrix_of(kind, 30, 60), 1000, 2)
    assert (result.one_run.verdict, result.scale.verdict) == ("violation", "pass")
    assert result.one_run.eps_lower > 1


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("kind", ["unit", "sparse"])
def test_a_quarter_of_the_claimed_noise_is_caught_at_full_size(kind: str, epsilon: float) -> None:
    # At epsilon 1, 266 of 300 guesses are right in the mean, with a deviation of 5.5; 246 refute the claim, missed by a
    # fresh seed with probability 2e-4. At 8 no number of guesses would, and the scale of the noise does.
    broken = replace(plan("unit", epsilon, 400, 600), w=plan("unit", epsilon, 400, 600).w / 4)
    result = audited(broken, matrix_of(kind, 400, 600), 1500, 3)
    assert result.verdict == "violation"
    assert result.scale.verdict == "violation"
    assert result.scale.count == COORDINATES
    assert (result.one_run.verdict == "violation") == (epsilon == 1.0)


def test_ratings_that_are_not_bounded_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, matrix = plan("unit", 1.0, 30, 60), GaussianMatrix(30, 60, 0, unit=True)
    assert audited(settings, matrix, 500, 4).verdict == "pass"
    monkeypatch.setattr(projection_module, "bounded_rows", lambda rows, plan: rows)
    assert audited(settings, matrix, 500, 4).verdict != "pass"


def test_an_audit_of_other_users_rows_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = projection_module.release_chunks

    def turned(rows: csr_array, plan: ProjectionPlan, matrix: PublicMatrix, noise: NoiseSource) -> Iterator[Floats]:
        return (chunk[::-1] for chunk in honest(rows, plan, matrix, noise))

    monkeypatch.setattr(canaries_module, "release_chunks", turned)
    assert audited(plan("unit", 8.0, 30, 60), GaussianMatrix(30, 60, 0, unit=True), 500, 5).verdict == "over-noised"


def test_chunks_do_not_change_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, matrix = plan("unit", 4.0, 30, 60), GaussianMatrix(30, 60, 0, unit=True)
    whole = audited(settings, matrix, 200, 6)
    monkeypatch.setattr(projection_module, "_CHUNK", 100)
    chunks = audited(settings, matrix, 200, 6)
    assert chunks.one_run == whole.one_run
    assert chunks.scale.count == whole.scale.count == 6000
    assert chunks.scale.measured == pytest.approx(whole.scale.measured, rel=1e-12)


def test_wide_rows_are_audited_with_fewer_canaries_and_items() -> None:
    assert canary_sizes(1) == canary_sizes(400) == canary_sizes(5000) == (1500, 600)
    assert canary_sizes(20_000) == (419, 419)
    assert canary_sizes(10**6) == (100, 64)
    for dim in (5000, 20_000, 80_000):
        canaries, items = canary_sizes(dim)
        assert max(canaries, items) * dim <= 2**23
        assert canaries >= 100


def test_the_catalogue_has_what_is_published_at_full_width() -> None:
    for audit in canary_audits(2.0):
        assert (audit.epsilon, audit.canaries, audit.guesses, audit.relation) == (2.0, 1500, 300, "change_one_rating")
        assert audit.name.endswith(", one run")


def test_plans_for_users_and_no_canaries_are_refused() -> None:
    users = plan_projection(
        epsilon=1.0, delta=1e-5, dim=8, calibration="gaussian", relation=Relation.ZERO_OUT_ONE_USER, clip=1.0
    )
    matrix = GaussianMatrix(8, 10, 0, unit=True)
    with pytest.raises(ValueError, match="plan for ratings"):
        canary_audit("users", users, matrix)
    with pytest.raises(ValueError, match="canaries must be at least 1, got 0"):
        canary_audit("none", plan("unit", 1.0, 8, 10), matrix, 0)


def expected_accuracy(mu: float) -> float:
    """Of the fifth that is guessed, when scores are ``+-1/2 + N(0, 1/mu^2)``: by symmetry those of coins that are 1."""
    threshold = brentq(lambda c: norm.sf(mu * (c - 0.5)) + norm.cdf(-mu * (c + 0.5)) - 0.2, 0, 10)
    return float(norm.sf(mu * (threshold - 0.5)) / 0.2)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "reference", "seen"), [(2.0, 219, 0.77), (8.0, 288, 2.68)])
@pytest.mark.parametrize("kind", ["unit", "gaussian", "sparse"])
def test_full_size(kind: str, epsilon: float, reference: int, seen: float) -> None:
    # 20 releases of 300 guesses each. The mean lies within 5 standard errors of what the noise allows (an error of 1e-6
    # for fresh seeds), and the reference measurement, one release, within 3 standard deviations of it.
    calibration: Calibration = "gaussian" if kind == "gaussian" else "unit"
    public = SparseMatrix(400, 600, 0) if kind == "sparse" else GaussianMatrix(400, 600, 0, unit=calibration == "unit")
    settings = plan(calibration, epsilon, 400, 600)
    found = [audited(settings, public, 1500, seed, beta=0.05) for seed in range(20)]
    assert all(result.verdict == "pass" for result in found)
    accuracy = expected_accuracy(sqrt(400) / settings.w)
    spread = sqrt(300 * accuracy * (1 - accuracy))
    assert np.mean([result.one_run.correct for result in found]) == pytest.approx(
        300 * accuracy, abs=5 * spread / sqrt(20)
    )
    assert reference == pytest.approx(300 * accuracy, abs=3 * spread)
    bounds = [result.one_run.eps_lower for result in found]
    assert min(bounds) - 0.1 < seen < max(bounds) + 0.1
