"""JLT: the noise it adds, the record it writes, what it refuses."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chi2

from tests.samples import binary
from zoo import JLT, Ratings
from zoo.privacy.calibration import gauss_mu, mix_w, paper_w, unit_w
from zoo.privacy.projection import projection_matrix
from zoo.privacy.record import UnderstatedPrivacyError


def empty(users: int, items: int = 6) -> Ratings:
    ids = np.array([f"u{i}" for i in range(users)]), np.array([f"i{i}" for i in range(items)])
    return Ratings(csr_array((users, items), dtype=np.float32), *ids)


@pytest.mark.parametrize(
    ("settings", "w"),
    [
        ({}, unit_w(50, 2.0, 1e-5)),
        ({"calibration": "gaussian"}, mix_w(50, 2.0, 1e-5)),
        ({"calibration": "paper"}, paper_w(50, 2.0, 1e-5)),
        ({"calibration": "gaussian", "relation": "zero_out_one_user", "clip": 3.0}, mix_w(50, 2.0, 1e-5, 3.0)),
        ({"calibration": "gaussian", "relation": "replace_one_user", "clip": 3.0}, mix_w(50, 2.0, 1e-5, 6.0)),
    ],
)
def test_the_noise_has_the_scale_of_its_calibration(settings: dict[str, Any], w: float) -> None:
    """On no ratings the release is noise alone; outside the interval with probability below 1e-6."""
    publisher = JLT(epsilon=2.0, num_components=50, centre=False, noise_seed=7, **settings)
    rows = publisher.publish(empty(1000), "book").tensors["rows"].double().numpy()
    ratio = rows.size * rows.var() / (w**2 / 50)
    assert chi2.ppf(5e-7, rows.size) < ratio < chi2.isf(5e-7, rows.size)


def test_the_noise_of_max_is_enough_for_the_longest_column() -> None:
    publisher = JLT(epsilon=2.0, num_components=20, calibration="max")
    norms = np.linalg.norm(projection_matrix("max", 20, 30, 0), axis=0)
    assert publisher.projection(100, 30).w == pytest.approx(norms.max() / gauss_mu(2.0, 1e-5), rel=1e-9)


def test_a_release_with_entropy_of_the_system_is_proved() -> None:
    release = JLT(epsilon=2.0, num_components=5).publish(binary(), "book")
    record = release.record
    assert (record.unit, record.relation, record.epsilon, record.delta) == ("rating", "change_one_rating", 2.0, 1e-5)
    assert record.summary() == "rating, eps 2.00, delta 1e-05, proved"
    assert record.noise_scale == pytest.approx(1 / gauss_mu(2.0, 1e-5))
    assert "not proved against floating-point" in str(record)
    again = JLT(epsilon=2.0, num_components=5).publish(binary(), "book")
    assert again.digest != release.digest


def test_the_papers_noise_states_what_it_gives() -> None:
    record = JLT(epsilon=8.0, num_components=400, calibration="paper").publish(binary(), "book").record
    assert record.requested_epsilon == 8.0
    assert record.epsilon == pytest.approx(0.0636, rel=1e-3)
    assert "the paper's epsilon 8; the proved one is above" in str(record)


def test_users_are_protected_by_clipping() -> None:
    publisher = JLT(epsilon=8.0, num_components=400, calibration="gaussian", relation="replace_one_user", clip=1.0)
    record = publisher.publish(binary(), "book").record
    assert (record.unit, record.clip, record.sensitivity) == ("user", 1.0, 2.0)
    assert publisher.projection(9, 7).w == pytest.approx(24.32, rel=1e-3)


def test_rows_are_centred_after_the_noise() -> None:
    rows = JLT(epsilon=2.0, num_components=5).publish(binary(), "book").tensors["rows"]
    assert np.abs(rows.mean(0).numpy()).max() < 1e-6


def test_understating_is_noticed() -> None:
    release = JLT(epsilon=8.0, num_components=5).publish(binary(), "book")
    stronger = JLT(epsilon=1.0, num_components=5).publish(binary(), "book")
    with pytest.raises(UnderstatedPrivacyError, match=r"states epsilon 1 at delta 1e-05, its ledger gives 8"):
        stronger.record.check_against(release.ledger)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1.0, "num_components": 0}, "dim|component"),
        ({"epsilon": 1.0, "clip": 1.0}, "clip"),
        ({"epsilon": 1.0, "calibration": "gaussian", "relation": "zero_out_one_user"}, "needs clip"),
        ({"epsilon": 1.0, "calibration": "gaussian", "relation": "zero_out_one_user", "clip": 0.0}, "positive"),
        ({"epsilon": 1.0, "relation": "zero_out_one_user", "clip": 1.0}, "Use calibration 'gaussian'"),
        (
            {"epsilon": 1.0, "calibration": "max", "relation": "zero_out_one_user", "clip": 1.0},
            "Use calibration 'gaussian'",
        ),
        ({"epsilon": 1.0, "calibration": "best"}, "calibration must be one of"),
        ({"epsilon": 1.0, "relation": "friends"}, "friends"),
    ],
)
def test_bad_settings_are_refused_before_data(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JLT(**settings)


def test_a_delta_that_gives_a_user_away_is_refused() -> None:
    with pytest.raises(ValueError, match="not below one over the 9 users"):
        JLT(epsilon=1.0, delta=0.2).publish(binary(), "book")


def test_ratings_beyond_the_range_are_refused() -> None:
    ratings = binary()
    ratings.matrix.data[0] = 5
    with pytest.raises(ValueError, match=r"lie in \[1, 5\], beyond \[0, 1\].*filters.threshold"):
        JLT(epsilon=1.0).publish(ratings, "book")
    assert JLT(epsilon=1.0, rating_range=5.0).publish(ratings, "book").record.sensitivity == 5.0
