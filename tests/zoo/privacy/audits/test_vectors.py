"""Audits of vectors: sound noise passes, and what differs from the proof is caught."""

from dataclasses import replace

import numpy as np
import pytest

import zoo.privacy.mechanisms.vectors as rows_of_vectors
from tests.zoo.privacy.audits.lying import lying
from zoo.privacy.audits.rows import vectors_audit
from zoo.privacy.audits.two_world import run_audit
from zoo.privacy.mechanisms.vectors import UserVectors
from zoo.privacy.randomness.noise import NoiseSource

BETA = 1e-4  # a fresh seed fails a sound mechanism with at most this probability; the seeds here are fixed


def planned(num_layers: int = 2) -> UserVectors:
    return UserVectors.calibrate(epsilon=2.0, delta=1e-5, clip=0.5, num_layers=num_layers)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_less_noise_is_caught(share: float) -> None:
    plan = planned()
    audit = vectors_audit("less noise", lying(plan, noise_std=share * plan.noise_std))
    assert (
        run_audit(replace(audit, sigma=plan.noise_std), beta=BETA, noise=NoiseSource.seeded(3)).verdict == "violation"
    )


def test_vectors_that_are_not_clipped_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_of_vectors, "clip_vectors", lambda vectors, _: np.array(vectors, dtype=np.float64))
    assert run_audit(vectors_audit("no clip", planned()), beta=BETA, noise=NoiseSource.seeded(4)).verdict == "violation"


def test_noise_for_one_layer_of_four_is_caught() -> None:
    plan, one = planned(4), planned(1)
    audit = vectors_audit("one layer's noise", lying(plan, noise_std=one.noise_std))
    assert run_audit(audit, beta=BETA, noise=NoiseSource.seeded(5)).verdict == "violation"
