from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.stats import norm

import zoo.privacy.audits.projection as audit_projection
import zoo.privacy.mechanisms.jlt as projection_module
from tests.zoo.privacy.audits.lying import lying
from zoo.data.ratings import Ratings
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.one_run import OneRunResult, run_once
from zoo.privacy.audits.projection import (
    canary_audit,
    canary_audits,
    canary_sizes,
    projection_audit,
    projection_audits,
    random_projection_audit,
)
from zoo.privacy.audits.rows import row_worlds, same_rows
from zoo.privacy.audits.two_world import COORDINATES, Audit, Result, run_audit, two_world
from zoo.privacy.mechanisms.jlt import JLT as Projection
from zoo.privacy.mechanisms.jlt import Calibration, release_rows
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix
from zoo.publishers.base import PublicSizes, Publisher
from zoo.publishers.jlt import JLT

Floats = npt.NDArray[np.float64]
BETA = (
    1e-4  # a fresh seed fails a sound mechanism with probability at most 1.1e-3 (two worlds and scale); these are fixed
)


def audited(audit: Audit, seed: int, runs: int = 40_000) -> Result:
    return run_audit(audit, runs, BETA, NoiseSource.seeded(seed))


def plan(calibration: Calibration = "unit", epsilon: float = 2.0) -> Projection:
    return Projection.calibrate(epsilon=epsilon, delta=1e-5, dim=16, calibration=calibration)


def user_plan(relation: Relation) -> Projection:
    return Projection.calibrate(epsilon=2.0, delta=1e-5, dim=16, calibration="gaussian", relation=relation, clip=2.0)


GAUSSIAN = GaussianMatrix(16, 40, 0)
UNIT = GaussianMatrix(16, 40, 0, unit=True)


def test_audits_claim_what_the_plan_claims() -> None:
    named = {audit.name: audit for audit in projection_audits(2.0, dim=16, num_items=40)}
    for name in ("JLT unit", "SJLT unit", "JLT max", "JLT gaussian", "JLT gaussian, replace one user"):
        assert named[name].epsilon == 2.0
    for name in ("JLT unit", "SJLT unit", "JLT max"):
        assert named[name].mu == pytest.approx(0.5015516892, rel=1e-9)
    length = GAUSSIAN.column_norms()[0]
    assert named["JLT gaussian, matrix fixed"].mu == pytest.approx(length / plan("gaussian").w, rel=1e-12)


# Implementations that differ from the proof: each is one line of what could go wrong.


def test_too_little_noise_is_caught_and_slightly_too_little_by_its_scale() -> None:
    broken = lying(plan(), w=0.5 * plan().w)  # event and noise_std are those of the whole w
    result = audited(projection_audit("half the noise", broken, UNIT), 2)
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == "violation"
    broken = lying(plan(), w=0.98 * plan().w)
    result = audited(projection_audit("2 % too little", broken, UNIT), 4)
    assert result.two_world.verdict == "pass"
    assert result.verdict == "violation"


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_that_are_not_rescaled_are_caught(sparse: bool) -> None:
    matrix: PublicMatrix = SparseMatrix(16, 2000, 0, unit=False) if sparse else GaussianMatrix(16, 2000, 0)
    item = int(np.argmax(matrix.column_norms()))
    with pytest.raises(ValueError, match="longest column"):
        audited(projection_audit("unit", plan(epsilon=8.0), matrix, items=[item]), 5)
    unchecked = lying(plan(epsilon=8.0), largest_norm=None)
    result = audited(projection_audit("unit", unchecked, matrix, items=[item]), 5)
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == "pass"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("bound", "audit"),
    [
        ("clamp_ratings", projection_audit("rating", plan(), UNIT)),
        ("clamp_ratings", random_projection_audit("rating", plan("gaussian"))),
        ("clip_rows", projection_audit("user", user_plan(Relation.ZERO_OUT_ONE_USER), GAUSSIAN)),
        ("clip_rows", random_projection_audit("user", user_plan(Relation.REPLACE_ONE_USER))),
    ],
)
def test_rows_that_are_not_bounded_are_caught(bound: str, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection_module, bound, lambda rows, limit: rows.astype(float))
    assert audited(audit, 6).two_world.verdict == "violation"


def test_a_replaced_user_is_no_zeroed_one() -> None:
    # A replacement moves a row by twice the clip; noise and event are those of once.
    zero_out, replaced = (user_plan(relation) for relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER))
    broken = lying(replaced, w=zero_out.w, noise_std=zero_out.noise_std, event=zero_out.event)
    result = audited(projection_audit("replace", broken, GAUSSIAN), 7)
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == "pass"
    # Without a mu the audit is coarser: half of that noise is seen.
    coarse = random_projection_audit("replace", replace(broken, w=broken.w / 2))
    assert audited(coarse, 7).verdict == "violation"


@pytest.mark.thorough
@pytest.mark.parametrize("mistake", ["other item", "other user"])
def test_an_audit_that_looks_elsewhere_is_blind(mistake: str) -> None:
    def mechanism(rows: csr_array, noise: NoiseSource) -> Floats:
        published = release_rows(rows, plan(), UNIT, noise)
        return published if mistake == "other item" else published[::-1]

    columns = UNIT.transposed()
    # Orthogonal to the right column: the score of an item that does not change.
    wrong = columns[1] - columns[0] * (columns[0] @ columns[1]) / 16
    row = np.zeros(40)
    row[0] = 1.0
    audit = projection_audit("blind", plan(), UNIT)
    if mistake == "other item":
        worlds = row_worlds(mechanism, 0 * row, row, lambda published: published @ wrong, 16)
    else:  # the user before the one who changes

        def worlds(runs: int, noise: NoiseSource) -> tuple[Floats, Floats]:
            rows = csr_array(np.kron(np.eye(2)[:, [1]], row))
            scores = [
                (mechanism(csr_array(np.tile(data, (runs, 1))), noise) @ columns[0])[1::2]
                for data in (0 * rows.toarray(), rows.toarray())
            ]
            return scores[0], scores[1]

    assert audited(replace(audit, worlds=worlds), 8).verdict == "blind"


def test_chunks_do_not_change_the_scores() -> None:
    def mechanism(rows: csr_array, noise: NoiseSource) -> Floats:
        return release_rows(rows, plan(), UNIT, noise)

    row = np.eye(40)[0]
    scores = [
        row_worlds(mechanism, 0 * row, row, lambda published: published[:, 0], width)(999, NoiseSource.seeded(9))
        for width in (16, 2**15)
    ]
    assert (np.concatenate(scores[0]) == np.concatenate(scores[1])).all()


def test_a_random_matrix_is_audited_where_there_is_one() -> None:
    with pytest.raises(ValueError, match="Use projection_audit"):
        random_projection_audit("unit", plan())


# The publishers, end to end: ratings in, the tensors of a release out.


def published(publisher: Publisher, row: Floats, users: int) -> Floats:
    """The rows that are published for many users with the same ratings."""
    ids = [f"u{user}" for user in range(users)]
    ratings = Ratings(same_rows(row, users), ids, [f"i{item}" for item in range(len(row))])
    return publisher.publish(ratings, "books").tensors["rows"].numpy().astype(np.float64)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "rating"),
    [
        ({}, 1.0),
        ({"calibration": "max"}, 1.0),
        ({"calibration": "gaussian", "rating_range": 5.0}, 5.0),
        ({"calibration": "gaussian", "relation": "zero_out_one_user", "clip": 2.0}, 7.0),
    ],
)
def test_what_a_publisher_hands_over_keeps_its_claim(settings: dict[str, Any], rating: float) -> None:
    # Not centred: the mean over users who are all alike would take the change away.
    publishers = [
        JLT(2.0, num_components=16, delta=1e-6, centre=False, seed=0, noise_seed=seed, **settings) for seed in (10, 11)
    ]
    settled = publishers[0].projection(PublicSizes(40_000, 40), publishers[0].drawn_matrix(40))
    row = rating * np.eye(40)[3]
    direction = GaussianMatrix(16, 40, 0, unit=settled.calibration == "unit").transposed()[3]
    mu = settled.mu or float(np.linalg.norm(direction)) * settled.sensitivity / settled.w
    scores = [
        published(publisher, data, 40_000) @ direction
        for publisher, data in zip(publishers, (0 * row, row), strict=True)
    ]
    found = two_world(scores[0], scores[1], gauss_epsilon(1e-6, mu), 1e-6, mu=mu, beta=BETA)
    assert found.verdict == "pass"
    assert found.power is not None
    assert (
        two_world(scores[0], scores[1], gauss_epsilon(1e-6, mu / 2), 1e-6, mu=mu / 2, beta=BETA).verdict == "violation"
    )


# Canaries.

# A fresh seed fails a sound release by its noise with probability 1e-3, and by its guesses practically never: what a
# Gaussian release lets be guessed lies far below what its epsilon allows. The seeds here are fixed.


def canary_plan(
    calibration: Calibration, epsilon: float, dim: int, items: int, rating_range: float = 1.0
) -> Projection:
    largest = float(GaussianMatrix(dim, items, 0).column_norms().max()) if calibration == "max" else None
    return Projection.calibrate(
        epsilon=epsilon, delta=1e-5, dim=dim, calibration=calibration, rating_range=rating_range, largest_norm=largest
    )


def guessed(settings: JLT, matrix: PublicMatrix, canaries: int, seed: int, beta: float = 1e-3) -> OneRunResult:
    return run_once(canary_audit("canaries", settings, matrix, canaries), beta, NoiseSource.seeded(seed))


@pytest.mark.parametrize("calibration", ["unit", "gaussian", "max"])
def test_a_small_projection_passes_and_leaks_what_it_may(calibration: Calibration) -> None:
    # About nine in ten of 100 guesses are right at epsilon 8; below 75 or refuting 8 has probability below 1e-5.
    settings = canary_plan(calibration, 8.0, 30, 60, 5.0)
    result = guessed(settings, GaussianMatrix(30, 60, 0, unit=calibration == "unit"), 500, 1, beta=0.05)
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
    w = canary_plan("unit", really, 30, 60).w
    leaking = lying(canary_plan("unit", 1.0, 30, 60), w=w, noise_std=w / sqrt(30))
    result = guessed(leaking, matrix_of(kind, 30, 60), 1000, 2)
    assert (result.one_run.verdict, result.scale.verdict) == ("violation", "pass")
    assert result.one_run.eps_lower > 1


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("kind", ["unit", "sparse"])
def test_a_quarter_of_the_claimed_noise_is_caught_at_full_size(kind: str, epsilon: float) -> None:
    # At epsilon 1, 266 of 300 guesses are right in the mean, with a deviation of 5.5; 246 refute the claim, missed by a
    # fresh seed with probability 2e-4. At 8 no number of guesses would, and the scale of the noise does.
    broken = lying(canary_plan("unit", epsilon, 400, 600), w=canary_plan("unit", epsilon, 400, 600).w / 4)
    result = guessed(broken, matrix_of(kind, 400, 600), 1500, 3)
    assert result.verdict == "violation"
    assert result.scale.verdict == "violation"
    assert result.scale.count == COORDINATES
    assert (result.one_run.verdict == "violation") == (epsilon == 1.0)


def test_ratings_that_are_not_bounded_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, matrix = canary_plan("unit", 1.0, 30, 60), GaussianMatrix(30, 60, 0, unit=True)
    assert guessed(settings, matrix, 500, 4).verdict == "pass"
    monkeypatch.setattr(projection_module, "bounded_rows", lambda rows, plan: rows)
    assert guessed(settings, matrix, 500, 4).verdict != "pass"


def test_an_audit_of_other_users_rows_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = projection_module.release_chunks

    def turned(rows: csr_array, plan: Projection, matrix: PublicMatrix, noise: NoiseSource) -> Iterator[Floats]:
        return (chunk[::-1] for chunk in honest(rows, plan, matrix, noise))

    monkeypatch.setattr(audit_projection, "release_chunks", turned)
    assert (
        guessed(canary_plan("unit", 8.0, 30, 60), GaussianMatrix(30, 60, 0, unit=True), 500, 5).verdict == "over-noised"
    )


def test_chunks_do_not_change_what_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, matrix = canary_plan("unit", 4.0, 30, 60), GaussianMatrix(30, 60, 0, unit=True)
    whole = guessed(settings, matrix, 200, 6)
    monkeypatch.setattr(projection_module, "_CHUNK", 100)
    chunks = guessed(settings, matrix, 200, 6)
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
    users = Projection.calibrate(
        epsilon=1.0, delta=1e-5, dim=8, calibration="gaussian", relation=Relation.ZERO_OUT_ONE_USER, clip=1.0
    )
    matrix = GaussianMatrix(8, 10, 0, unit=True)
    with pytest.raises(ValueError, match="Plan for ratings"):
        canary_audit("users", users, matrix)
    with pytest.raises(ValueError, match="canaries is 0"):
        canary_audit("none", canary_plan("unit", 1.0, 8, 10), matrix, 0)


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
    settings = canary_plan(calibration, epsilon, 400, 600)
    found = [guessed(settings, public, 1500, seed, beta=0.05) for seed in range(20)]
    assert all(result.verdict == "pass" for result in found)
    accuracy = expected_accuracy(sqrt(400) / settings.w)
    spread = sqrt(300 * accuracy * (1 - accuracy))
    assert np.mean([result.one_run.correct for result in found]) == pytest.approx(
        300 * accuracy, abs=5 * spread / sqrt(20)
    )
    assert reference == pytest.approx(300 * accuracy, abs=3 * spread)
    bounds = [result.one_run.eps_lower for result in found]
    assert min(bounds) - 0.1 < seen < max(bounds) + 0.1
