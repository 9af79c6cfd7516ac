"""JLT: the noise it adds, the record it writes, what it refuses, and the paper's form."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chi2

from tests.samples import binary
from zoo import JLT, SJLT, Ratings
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.gaussian_mixture import max_w, mix_w, paper_w
from zoo.privacy.mechanisms.jlt import Calibration
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import PrivacyRecord, RecordError, warn_once
from zoo.privacy.rows.public_matrix import GaussianMatrix
from zoo.publishers.base import PublicSizes


def wide() -> Ratings:
    """More items than users."""
    return Ratings(binary().matrix[:4], binary().user_ids[:4], binary().item_ids)


def empty(users: int, items: int = 6) -> Ratings:
    ids = np.array([f"u{i}" for i in range(users)]), np.array([f"i{i}" for i in range(items)])
    return Ratings(csr_array((users, items), dtype=np.float32), *ids)


@pytest.mark.parametrize(
    ("settings", "w"),
    [
        ({"delta": 1e-5}, max_w(math.sqrt(50), 2.0, 1e-5)),
        ({"calibration": "gaussian", "delta": 1e-5}, mix_w(50, 2.0, 1e-5)),
        ({"calibration": "paper", "delta": 1e-5}, paper_w(50, 2.0, 1e-5)),
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
    publisher = JLT(epsilon=2.0, num_components=20, delta=1e-5, calibration="max")
    matrix = publisher.drawn_matrix(30)
    norms = np.linalg.norm(GaussianMatrix(20, 30, matrix.seed).transposed(), axis=1)
    assert publisher.projection(PublicSizes(100, 30), matrix).w == pytest.approx(
        norms.max() / gauss_mu(2.0, 1e-5), rel=1e-9
    )


def test_a_release_with_entropy_of_the_system_is_proved() -> None:
    release = JLT(epsilon=2.0, num_components=5).publish(binary(), "book")
    record = release.record
    assert (record.unit, record.relation, record.epsilon, record.delta) == ("rating", "change_one_rating", 2.0, 1e-5)
    assert record.summary() == "rating (change one rating), eps 2.00, delta 1e-05, proved"
    assert record.noise_scale == pytest.approx(1 / gauss_mu(2.0, 1e-5))
    assert "not proved against floating-point" in str(record)
    again = JLT(epsilon=2.0, num_components=5).publish(binary(), "book")
    assert again.digest != release.digest


def test_the_papers_noise_states_what_it_gives() -> None:
    record = JLT(epsilon=8.0, num_components=400, calibration="paper").publish(binary(), "book").record
    assert record.requested_epsilon == 8.0
    assert record.epsilon == pytest.approx(0.0636, rel=1e-3)
    assert "requested      epsilon 8 in the paper's formula" in str(record)


def test_users_are_protected_by_clipping() -> None:
    publisher = JLT(epsilon=8.0, num_components=400, calibration="gaussian", relation="replace_one_user", clip=1.0)
    record = publisher.publish(binary(), "book").record
    assert (record.unit, record.clip, record.sensitivity) == ("user", 1.0, 2.0)
    assert publisher.projection(PublicSizes(9, 7), publisher.drawn_matrix(7)).w == pytest.approx(24.32, rel=1e-3)


def test_rows_are_centred_after_the_noise() -> None:
    rows = JLT(epsilon=2.0, num_components=5).publish(binary(), "book").tensors["rows"]
    assert np.abs(rows.mean(0).numpy()).max() < 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta"),
        ({"epsilon": 1.0, "num_components": 0}, "dim|component"),
        ({"epsilon": 1.0, "clip": 1.0}, "clip"),
        ({"epsilon": 1.0, "relation": "zero_out_one_user", "clip": 1.0}, "Use 'gaussian'"),
        ({"epsilon": 1.0, "relation": "friends"}, "friends"),
    ],
)
def test_bad_settings_are_refused_before_data(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        JLT(**settings)


def test_a_delta_that_gives_a_user_away_is_refused() -> None:
    with pytest.raises(ValueError, match="Allowed: below 1/9"):
        JLT(epsilon=1.0, delta=0.2).publish(binary(), "book")


def test_ratings_beyond_the_range_are_refused() -> None:
    ratings = binary()
    ratings.matrix.data[0] = 5
    with pytest.raises(ValueError, match=r"lie in \[1, 5\], beyond \[0, 1\].*filters.threshold"):
        JLT(epsilon=1.0).publish(ratings, "book")
    assert JLT(epsilon=1.0, rating_range=5.0).publish(ratings, "book").record.sensitivity == 5.0
    ratings.matrix.data[0] = 1.25
    with pytest.raises(ValueError, match=r"lie in \[1, 1.25\], beyond \[0, 1\]"):
        JLT(epsilon=1.0).publish(ratings, "book")


def test_the_papers_form_states_what_it_gives_where_it_holds() -> None:
    """Items at least users: the law of noise with the paper's w, and a secret M."""
    publisher = JLT(epsilon=8.0, num_components=20, paper_faithful=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = publisher.publish(wide(), "book")
    record, ours = (
        release.record,
        JLT(epsilon=8.0, num_components=20, calibration="paper").publish(wide(), "book").record,
    )
    assert (record.guarantee, record.epsilon, record.requested_epsilon) == ("proved", ours.epsilon, 8.0)
    assert record.epsilon is not None
    assert record.epsilon < 0.2
    assert release.ledger == tuple(publisher.plan(4, 7))
    assert "projection_seed" not in record.public_inputs, "M is secret"
    assert not any("depend on the projection" in text for text in record.sentences("assumptions"))
    assert "requested      epsilon 8 in the paper's formula" in str(record)
    assert publisher.publish(wide(), "book").digest != release.digest


def test_the_papers_form_protects_nobody_where_users_outnumber_items() -> None:
    warn_once.cache_clear()
    publisher = JLT(epsilon=8.0, num_components=20, paper_faithful=True)
    with pytest.warns(UserWarning, match="JLT with paper_faithful has no guarantee here: the lift of 7 items misses"):
        release = publisher.publish(binary(), "book")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        publisher.publish(binary(), "book")  # once a run
    record = release.record
    assert (record.guarantee, record.epsilon, record.delta, record.mu, record.requested_epsilon) == (
        "none",
        *[None] * 4,
    )
    assert record.reason == "the lift of 7 items misses directions of 9 users, and the rows show which"
    assert "epsilon" not in str(record)
    assert release.ledger == tuple(publisher.plan(9, 7)) == (NonPrivateEvent(),)


@pytest.mark.parametrize(("items", "holds"), [(30, True), (12, True), (11, False), (8, False)])
def test_the_papers_form_holds_with_as_many_items_as_users(items: int, holds: bool) -> None:
    publisher = JLT(epsilon=8.0, num_components=20, paper_faithful=True)
    assert publisher.forecast(12, items).claims is holds


@pytest.mark.parametrize("of", [JLT, SJLT])
def test_a_secret_matrix_cannot_be_claimed_where_it_has_no_guarantee(of: type[JLT | SJLT]) -> None:
    """The printed form's rows times 3 vary enough for the noise of any such record, so the record itself is refused."""
    plan: Any = of(8.0, num_components=16).forecast(9, 7).mechanism
    printed = {"calibration": "paper", "largest_norm": None, "asked": 8.0}
    for stated in (printed, {"num_items": 9}, {"calibration": "max", "largest_norm": 1e-3}):
        with pytest.raises(RecordError, match="has no guarantee here"):
            PrivacyRecord.of(replace(plan, seed=None, **stated), NoiseSource.os())


def test_the_papers_form_lies_in_the_row_space_of_the_ratings() -> None:
    """What makes the record say none: components outside the space of the 7 items have probability 0."""
    rows = JLT(epsilon=8.0, num_components=50, paper_faithful=True).publish(binary(), "book").tensors["rows"].double()
    centred = binary().matrix.toarray() - binary().matrix.toarray().mean(axis=0)
    space = np.linalg.svd(centred.T, full_matrices=False)[2]
    outside = rows.numpy() - space.T @ (space @ rows.numpy())
    assert np.linalg.norm(outside) < 1e-3 * np.linalg.norm(rows.numpy())


def test_seeded_noise_has_no_guarantee_in_the_papers_form_either() -> None:
    publisher = JLT(epsilon=8.0, num_components=20, paper_faithful=True, noise_seed=1)
    release = publisher.publish(wide(), "book")
    assert release.record.summary() == "none (seeded noise)"
    assert publisher.publish(wide(), "book").digest == release.digest


@pytest.mark.parametrize("calibration", ["gaussian", "max", "best"])
def test_the_papers_form_takes_the_papers_noise(calibration: Calibration) -> None:
    with pytest.raises(ValueError, match=f"takes the paper's noise, and calibration is '{calibration}'. Choose one"):
        JLT(epsilon=1.0, calibration=calibration, paper_faithful=True)
    with pytest.raises(ValueError, match="Use 'gaussian'"):
        JLT(epsilon=1.0, relation="zero_out_one_user", clip=1.0, paper_faithful=True)


def test_a_release_with_seeded_noise_is_repeated_whole() -> None:
    """Its projection too, which nobody is to rely on: it claims nothing anyway."""
    first, second = (JLT(epsilon=4.0, num_components=8, noise_seed=1).publish(binary(), "book") for _ in range(2))
    assert first.tensors["rows"].equal(second.tensors["rows"])
    assert first.record == second.record
    assert first.record.public_inputs["projection_seed"] == 0
