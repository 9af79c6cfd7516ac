"""NoisyRows and FlippedRows: what they add, how they are kept, the records they write, what they refuse."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.stats import binomtest, chi2, norm

from tests.samples import binary
from zoo import FlippedRows, NoisyRows, Ratings, Release
from zoo.privacy.accounting.events import GaussianEvent, RandomisedResponseEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.pure import flip_probability
from zoo.privacy.audits.two_world import run_audit
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.publishers import rows as module


def empty(users: int, items: int = 40) -> Ratings:
    ids = np.array([f"u{i}" for i in range(users)]), np.array([f"i{i}" for i in range(items)])
    return Ratings(csr_array((users, items), dtype=np.float32), *ids)


@pytest.mark.parametrize(
    ("settings", "sigma"),
    [
        ({"delta": 1e-5}, 1 / gauss_mu(2.0, 1e-5)),
        ({"delta": 1e-7}, 1 / gauss_mu(2.0, 1e-7)),
        ({"relation": "zero_out_one_user", "clip": 3.0}, 3 / gauss_mu(2.0, 1e-5)),
        ({"relation": "replace_one_user", "clip": 3.0}, 6 / gauss_mu(2.0, 1e-5)),
    ],
)
def test_the_noise_has_the_scale_of_its_guarantee(settings: dict[str, Any], sigma: float) -> None:
    """On no ratings the release is noise alone; outside the interval with probability below 1e-6."""
    release = NoisyRows(epsilon=2.0, noise_seed=7, **settings).publish(empty(1000), "book")
    rows = release.tensors["rows"].double().numpy()
    ratio = (rows**2).sum() / sigma**2
    assert chi2.ppf(5e-7, rows.size) < ratio < chi2.isf(5e-7, rows.size)
    assert (rows / lattice_spacing(sigma) == np.rint(rows / lattice_spacing(sigma))).all()
    assert release.record.noise_scale == pytest.approx(sigma)


@pytest.mark.parametrize("small", [True, False])
def test_what_is_above_the_threshold_is_kept_in_either_layout(small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Binomial test; fails with probability 1e-6.
    if not small:
        monkeypatch.setattr(module, "_SMALL", 10)
    release = NoisyRows(epsilon=4.0, threshold=2.0, noise_seed=3).publish(empty(3000), "book")
    assert release.sparse is not small
    kept = release.tensors["rows" if small else "weights"].numpy()
    threshold, sigma = release.record.public_inputs["threshold"], release.record.public_inputs["sigma"]
    assert isinstance(threshold, float)
    assert isinstance(sigma, float)
    assert (kept[kept != 0] > threshold).all()
    assert binomtest(int((kept != 0).sum()), 3000 * 40, norm.sf(threshold / sigma)).pvalue > 1e-6
    assert (release.width, release.num_users) == (40, 3000)


@pytest.mark.parametrize("small", [True, False])
def test_flips_in_either_layout(small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not small:
        monkeypatch.setattr(module, "_SMALL", 10)
    release = FlippedRows(epsilon=3.0, keep=0.5, noise_seed=3).publish(empty(3000), "book")
    assert release.sparse is not small
    ones = int(release.tensors["rows" if small else "weights"].sum())
    assert binomtest(ones, 3000 * 40, 0.5 / (1 + math.exp(3))).pvalue > 1e-6  # fails with probability 1e-6


def test_both_layouts_hold_the_same_flips(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = FlippedRows(epsilon=2.0, noise_seed=3).publish(binary(), "book")
    monkeypatch.setattr(module, "_SMALL", 10)
    sparse = FlippedRows(epsilon=2.0, noise_seed=3).publish(binary(), "book")
    index = torch.arange(9)
    assert torch.equal(sparse.rows(index), dense.rows(index))


def test_a_release_of_noisy_rows_is_proved() -> None:
    release = NoisyRows(epsilon=2.0, threshold=1.0).publish(binary(), "book")
    record, sigma = release.record, 1 / gauss_mu(2.0, 1e-5)
    assert record.summary() == "rating (change one rating), eps 2.00, delta 1e-05, proved"
    assert (record.sensitivity, record.sensitivity_norm, record.clip) == (1.0, "L2", None)
    inputs = {"sigma": sigma, "grid": lattice_spacing(sigma), "num_users": 9, "num_items": 7}
    assert {**inputs, "threshold": record.public_inputs["threshold"]} == record.public_inputs
    assert record.public_inputs["threshold"] == pytest.approx(sigma, abs=lattice_spacing(sigma))
    assert release.ledger == (GaussianEvent(sigma),)
    assert "several_ratings_sqrt" in record.not_protected
    assert "public_sets" in record.assumptions
    assert NoisyRows(epsilon=2.0, threshold=1.0).publish(binary(), "book").digest != release.digest
    assert "threshold" not in NoisyRows(epsilon=2.0).publish(binary(), "book").record.public_inputs


def test_a_release_of_flipped_rows_is_proved_without_delta() -> None:
    release = FlippedRows(epsilon=4.0).publish(binary(), "book")
    record, p = release.record, flip_probability(4.0)
    assert record.summary() == "rating (change one rating), eps 4.00, delta 0, proved"
    assert "epsilon        4.00 at delta 0" in str(record)
    assert (record.sensitivity, record.sensitivity_norm, record.mu) == (1.0, "L1", None)
    assert record.public_inputs == {
        "flip_probability": p,
        "keep": 1.0,
        "draws": "exact, from integers",
        "num_users": 9,
        "num_items": 7,
    }
    assert release.ledger == (RandomisedResponseEvent(p),)
    assert "several_ratings_linear" in record.not_protected


def test_users_are_protected_by_clipping() -> None:
    record = NoisyRows(epsilon=8.0, relation="replace_one_user", clip=1.0).publish(binary(), "book").record
    assert (record.unit, record.clip, record.sensitivity) == ("user", 1.0, 2.0)
    assert "rows are clipped to an L2 norm of 1 before the noise" in record.sentences("assumptions")
    assert not any("several ratings" in text for text in record.not_protected)


@pytest.mark.parametrize("publisher", [FlippedRows(epsilon=4.0), NoisyRows(epsilon=4.0, threshold=1.0)])
def test_a_proved_release_is_read_without_the_large_library(
    publisher: FlippedRows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SMALL", 10)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)  # importing it takes a second
    release = publisher.publish(binary(), "book")
    assert release.sparse
    assert Release.load(release.save(tmp_path / "book")).digest == release.digest


def test_releases_chosen_among_count_together() -> None:
    flips, noise = FlippedRows(epsilon=1.0).publish(binary(), "book"), NoisyRows(epsilon=1.0).publish(binary(), "book")
    assert flips.chosen_among([flips]).record.epsilon == pytest.approx(2.0)
    both = flips.chosen_among([noise]).record
    assert both.delta == 1e-5
    assert both.epsilon is not None
    assert 1.0 < both.epsilon <= 2.0


@pytest.mark.parametrize("publisher", [FlippedRows(epsilon=4.0), NoisyRows(epsilon=4.0, threshold=1.0)])
def test_the_forecast_is_the_record_of_the_release(publisher: FlippedRows) -> None:
    record = publisher.publish(binary(), "book").record
    assert record == publisher.forecast(9, 7, binary().applied)
    silent = publisher.forecast(9, 7)
    assert set(record.sentences("assumptions")) - set(silent.sentences("assumptions")) == {
        "earlier step: split random2"
    }
    assert replace(record, steps=()) == silent


@pytest.mark.parametrize(
    "publisher",
    [
        FlippedRows(epsilon=1.0),
        FlippedRows(epsilon=1.0, keep=0.01),
        NoisyRows(epsilon=2.0),
        NoisyRows(epsilon=2.0, threshold=3.0),
        NoisyRows(epsilon=2.0, relation="zero_out_one_user", clip=1.5, threshold=1.0),
    ],
)
def test_audits_pass_and_see_enough(publisher: FlippedRows | NoisyRows) -> None:
    # A sound mechanism is called a violation with probability at most 1.1e-3 by a fresh seed; this one is fixed.
    (audit,) = publisher.audits()
    assert audit.epsilon == publisher.epsilon
    assert run_audit(audit, 40_000, 1e-4, NoiseSource.seeded(5)).verdict == "pass"


def test_the_plan_depends_on_public_numbers_alone() -> None:
    assert float(FlippedRows(epsilon=4.0).forecast(100_000, 100_000).public_inputs["keep"]) < 0.05
    assert FlippedRows(epsilon=4.0, keep=0.3).forecast(100_000, 100_000).public_inputs["keep"] == 0.3
    assert FlippedRows(epsilon=4.0).plan(9, 7) == [RandomisedResponseEvent(flip_probability(4.0))]
    assert NoisyRows(epsilon=1.0).forecast(10**6, 3).delta == pytest.approx(1 / (10 * 3 * 10**6))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is .*Allowed: finite"),
        ({"epsilon": 1.0, "delta": 0.0}, r"delta is .*Allowed: \[1e-300, 1\)"),
        ({"epsilon": 1.0, "threshold": -1.0}, "threshold is .*Allowed: >= 0"),
        ({"epsilon": 1.0, "clip": 1.0}, "It bounds users"),
        ({"epsilon": 1.0, "relation": "friends"}, "friends"),
    ],
)
def test_bad_settings_are_refused_before_data(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        NoisyRows(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"epsilon": 0.0}, "epsilon is .*Allowed: finite"), ({"epsilon": 1.0, "keep": 0.0}, r"keep is .*> 0, <= 1")],
)
def test_bad_flips_are_refused_before_data(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FlippedRows(**settings)


def test_ratings_that_are_no_bits_are_refused_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    ratings = binary()
    ratings.matrix.data[0] = 5
    monkeypatch.setattr(NoiseSource, "normal", None)
    monkeypatch.setattr(NoiseSource, "integers", None)
    for publisher in (NoisyRows(epsilon=1.0), FlippedRows(epsilon=1.0)):
        with pytest.raises(ValueError, match=r"'book' lie in \[1, 5\] and are not all 1.*filters.threshold"):
            publisher.publish(ratings, "book")


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="Allowed: below 1/9"):
        NoisyRows(epsilon=1.0, delta=0.2).publish(binary(), "book")
    for publisher in (NoisyRows(epsilon=1.0), FlippedRows(epsilon=1.0)):
        with pytest.raises(ValueError, match="num_users and num_items are 0 and 40"):
            publisher.publish(empty(0), "book")
        with pytest.raises(ValueError, match="are 3 and 0"):
            publisher.plan(3, 0)
    with pytest.raises(ValueError, match=r"would take 37 GiB. Set threshold, e.g. 2.0"):
        NoisyRows(epsilon=1.0).plan(100_000, 100_000)
    assert NoisyRows(epsilon=1.0, threshold=2.0).plan(100_000, 100_000)
