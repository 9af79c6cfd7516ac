from dataclasses import replace

import numpy as np
import pytest

from zoo.privacy.audits.lift import full_lift_audit, missing_lift_audit, sparse_lift_audit
from zoo.privacy.audits.two_world import run_audit
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.randomness.noise import NoiseSource

BETA = 1e-4  # a fresh seed fails a sound claim with at most this probability; the seeds here are fixed


def plan(epsilon: float, dim: int) -> JLT:
    return JLT.calibrate(epsilon=epsilon, delta=1e-5, dim=dim, calibration="paper")


@pytest.mark.parametrize("dim", [1, 400])
def test_no_w_saves_a_lift_that_misses_directions(dim: int) -> None:
    # w is proportional to 1/epsilon: from a few hundred to millions of times the ratings.
    for epsilon in (0.01, 2.0):
        for audit in (missing_lift_audit(epsilon, plan(epsilon, dim)), sparse_lift_audit(epsilon, plan(epsilon, dim))):
            assert run_audit(audit, 4000, BETA, NoiseSource.seeded(2)).verdict == "violation"


def test_half_of_the_sparse_components_lie_on_a_line_and_of_a_dense_matrix_none() -> None:
    # Exactly one of two entries is not zero with probability 1/2; 20 000 components, within 6 standard errors.
    scores0, scores1 = sparse_lift_audit(1.0, plan(1.0, 400)).worlds(20_000, NoiseSource.seeded(3))
    assert scores0.sum() == 0
    assert abs(scores1.mean() - 0.5) < 6 * 0.5 / np.sqrt(20_000)
    assert not sparse_lift_audit(1.0, plan(1.0, 400), density=1.0).worlds(1000, NoiseSource.seeded(4))[1].any()


def test_a_full_lift_with_too_small_a_w_is_caught() -> None:
    # A w of a fiftieth is far below what the epsilon of the whole w needs.
    sound = plan(200.0, 4)
    audit = replace(full_lift_audit(replace(sound, w=sound.w / 50)), epsilon=sound.epsilon)
    assert run_audit(audit, 40_000, BETA, NoiseSource.seeded(5)).verdict == "violation"
