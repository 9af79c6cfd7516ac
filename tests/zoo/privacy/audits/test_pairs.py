from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array

import zoo.privacy.rows.projection as projection_module
from zoo.data.ratings import Ratings
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.pairs import (
    projection_audit,
    projection_audits,
    random_projection_audit,
    row_worlds,
    same_rows,
)
from zoo.privacy.audits.two_world import Audit, Result, run_audit, two_world
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.projection import Calibration, ProjectionPlan, plan_projection, release_rows
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix
from zoo.publisher import PublicSizes, Publisher
from zoo.publishers.jlt import JLT

Floats = npt.NDArray[np.float64]
BETA = (
    1e-4  # a fresh seed fails a sound mechanism with probability at most 1.1e-3 (two worlds and scale); these are fixed
)


def audited(audit: Audit, seed: int, runs: int = 40_000) -> Result:
    return run_audit(audit, runs, BETA, NoiseSource.seeded(seed))


def plan(calibration: Calibration = "unit", epsilon: float = 2.0) -> ProjectionPlan:
    return plan_projection(epsilon=epsilon, delta=1e-5, dim=16, calibration=calibration)


def user_plan(relation: Relation) -> ProjectionPlan:
    return plan_projection(epsilon=2.0, delta=1e-5, dim=16, calibration="gaussian", relation=relation, clip=2.0)


GAUSSIAN = GaussianMatrix(16, 40, 0)
UNIT = GaussianMatrix(16, 40, 0, unit=True)


def test_audits_claim_what_the_plan_claims() -> None:
    named = {audit.name: audit for audit in projection_audits(2.0)}
    for name in ("JLT unit", "SJLT unit", "JLT max", "JLT gaussian", "JLT gaussian, replace one user"):
        assert named[name].epsilon == 2.0
    for name in ("JLT unit", "SJLT unit", "JLT max"):
        assert named[name].mu == pytest.approx(0.5015516892, rel=1e-9)
    length = GAUSSIAN.column_norms()[0]
    assert named["JLT gaussian, matrix fixed"].mu == pytest.approx(length / plan("gaussian").w, rel=1e-12)


# Implementations that differ from the proof: each is one line of what could go wrong.


def test_too_little_noise_is_caught() -> None:
    broken = replace(plan(), w=0.5 * plan().w)  # event and noise_std are those of the whole w
    result = audited(projection_audit("half the noise", broken, UNIT), 2)
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == "violation"


def test_slightly_too_little_noise_is_caught_by_its_scale() -> None:
    broken = replace(plan(), w=0.98 * plan().w)
    result = audited(projection_audit("2 % too little", broken, UNIT), 4)
    assert result.two_world.verdict == "pass"
    assert result.verdict == "violation"


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_that_are_not_rescaled_are_caught(sparse: bool) -> None:
    matrix: PublicMatrix = SparseMatrix(16, 2000, 0, unit=False) if sparse else GaussianMatrix(16, 2000, 0)
    item = int(np.argmax(matrix.column_norms()))
    with pytest.raises(ValueError, match="longest column"):
        audited(projection_audit("unit", plan(epsilon=8.0), matrix, item=item), 5)
    unchecked = replace(plan(epsilon=8.0), largest_norm=None)
    result = audited(projection_audit("unit", unchecked, matrix, item=item), 5)
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == "pass"


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
    broken = replace(replaced, w=zero_out.w, noise_std=zero_out.noise_std, event=zero_out.event)
    result = audited(projection_audit("replace", broken, GAUSSIAN), 7)
    assert result.two_world.verdict == "violation"
    assert result.scale is not None
    assert result.scale.verdict == "pass"
    # Without a mu the audit is coarser: half of that noise is seen.
    coarse = random_projection_audit("replace", replace(broken, w=broken.w / 2))
    assert audited(coarse, 7).verdict == "violation"


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


def test_same_rows_are_the_same() -> None:
    row = np.array([0.0, 2.0, 0.0, -1.0])
    assert (same_rows(row, 3).toarray() == row).all()
    assert same_rows(0 * row, 2).toarray().shape == (2, 4)


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
    with pytest.raises(ValueError, match="use projection_audit"):
        random_projection_audit("unit", plan())


# The publishers, end to end: ratings in, the tensors of a release out.


def published(publisher: Publisher, row: Floats, users: int) -> Floats:
    """The rows that are published for many users with the same ratings."""
    ids = [f"u{user}" for user in range(users)]
    ratings = Ratings(same_rows(row, users), ids, [f"i{item}" for item in range(len(row))])
    return publisher.publish(ratings, "books").tensors["rows"].numpy().astype(np.float64)


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
        JLT(2.0, num_components=16, delta=1e-6, centre=False, noise_seed=seed, **settings) for seed in (10, 11)
    ]
    settled = publishers[0].projection(PublicSizes(40_000, 40))
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
