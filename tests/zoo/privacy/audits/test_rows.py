from math import log

import numpy as np
import numpy.typing as npt
import pytest

import zoo.privacy.audits.rows as audit_rows
import zoo.privacy.mechanisms.noisy_rows as row_noise
import zoo.privacy.rows.entries as row_cells
from tests.zoo.privacy.audits.lying import lying
from zoo.data.ratings import Ratings
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.rows import flipped_rows_audit, noisy_rows_audit, same_rows
from zoo.privacy.audits.two_world import Audit, Result, run_audit, two_world
from zoo.privacy.mechanisms.flipped_rows import FlippedRows as Flips
from zoo.privacy.mechanisms.noisy_rows import NoisyRows as Noisy
from zoo.privacy.randomness.noise import NoiseSource
from zoo.publishers.base import Publisher
from zoo.publishers.rows import FlippedRows, NoisyRows

Floats = npt.NDArray[np.float64]
BETA = 1e-4  # a fresh seed fails a sound mechanism with at most this probability; the seeds here are fixed


def audited(audit: Audit, seed: int) -> Result:
    return run_audit(audit, beta=BETA, noise=NoiseSource.seeded(seed))


def noisy(threshold: float | None = None) -> Noisy:
    return Noisy.calibrate(epsilon=2.0, delta=1e-5, threshold=threshold)


def flips(epsilon: float = 2.0, keep: float = 1.0) -> Flips:
    return Flips.calibrate(epsilon=epsilon, num_users=1, num_items=6, keep=keep)


def test_same_rows_are_the_same() -> None:
    row = np.array([0.0, 2.0, 0.0, -1.0])
    assert (same_rows(row, 3).toarray() == row).all()
    assert same_rows(0 * row, 2).toarray().shape == (2, 4)


@pytest.mark.parametrize("threshold", [None, 0.5, 1.0])
def test_too_little_noise_is_caught(threshold: float | None) -> None:
    broken = lying(noisy(threshold), noise_std=noisy().noise_std / 2)
    assert audited(noisy_rows_audit("half the noise", broken), 1).verdict == "violation"


def test_ones_that_are_kept_too_often_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = row_noise.kept_probability

    def eager(value: float | Floats, threshold: float, sigma: float) -> Floats:
        return np.minimum(1.0, honest(value, threshold, sigma) * np.where(np.asarray(value) > 0, 1.5, 1.0))

    audit = noisy_rows_audit("eager", noisy(1.0))
    monkeypatch.setattr(row_noise, "kept_probability", eager)
    assert audited(audit, 2).verdict == "violation"


def test_rows_that_are_not_clipped_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER):
        plan = Noisy.calibrate(epsilon=2.0, delta=1e-5, relation=relation, clip=1.0)
        audit = noisy_rows_audit("unclipped", plan)
        assert audited(audit, 3).verdict == "pass"
        with monkeypatch.context() as patch:
            patch.setattr(row_cells, "clip_rows", lambda rows, clip: rows)
            assert audited(audit, 3).verdict != "pass"


@pytest.mark.parametrize("keep", [1.0, 0.1])
def test_too_few_flips_are_caught(keep: float) -> None:
    broken = lying(flips(2.0, keep), flip_probability=flips(2.5).flip_probability)
    assert audited(flipped_rows_audit("the flips of 2.5", broken), 4).verdict == "violation"


def test_an_audit_of_another_cell_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.eye(6)[0], np.eye(6)[0] + np.eye(6)[3]
    monkeypatch.setattr(audit_rows, "_rows_of_a_cell", lambda: rows)
    for audit in (noisy_rows_audit("noisy", noisy()), flipped_rows_audit("flipped", flips())):
        assert audited(audit, 5).two_world.verdict == "blind"


def test_a_threshold_is_for_ratings() -> None:
    plan = Noisy.calibrate(epsilon=2.0, delta=1e-5, relation=Relation.ZERO_OUT_ONE_USER, clip=1.0, threshold=1.0)
    with pytest.raises(ValueError, match="Users allow none"):
        noisy_rows_audit("users", plan)


def published(publisher: Publisher, row: Floats) -> Floats:
    ids = [f"u{user}" for user in range(40_000)]
    ratings = Ratings(same_rows(row, len(ids)), ids, [f"i{item}" for item in range(len(row))])
    return publisher.publish(ratings, "books").tensors["rows"].numpy().astype(np.float64)


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_what_noisy_rows_hand_over_keeps_its_claim(threshold: float | None) -> None:
    mu = gauss_mu(2.0, 1e-6)
    publishers = [NoisyRows(2.0, delta=1e-6, threshold=threshold, noise_seed=seed) for seed in (6, 7)]
    scores = [published(publishers[world], world * np.eye(3)[1])[:, 1] for world in (0, 1)]
    assert two_world(scores[0], scores[1], 2.0, 1e-6, mu=mu, beta=BETA).verdict == "pass"
    half = two_world(scores[0], scores[1], gauss_epsilon(1e-6, mu / 2), 1e-6, mu=mu / 2, beta=BETA)
    assert half.verdict == "violation"


@pytest.mark.parametrize("keep", [None, 0.3])
def test_what_flipped_rows_hand_over_keeps_its_claim(keep: float | None) -> None:
    publishers = [FlippedRows(log(9), keep=keep, noise_seed=seed) for seed in (8, 9)]
    scores = [published(publishers[world], world * np.eye(3)[1])[:, 1] for world in (0, 1)]
    assert two_world(scores[0], scores[1], log(9), 0.0, beta=BETA, attained=log(9)).verdict == "pass"
    assert two_world(scores[0], scores[1], log(9) / 2, 0.0, beta=BETA).verdict == "violation"
