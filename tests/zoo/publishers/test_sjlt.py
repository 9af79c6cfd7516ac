"""SJLT: the noise it adds, the record it writes, what it refuses, and the paper's form."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.stats import chi2

from tests.samples import binary
from zoo import JLT, SJLT, Ratings
from zoo.privacy.accounting.events import GaussianEvent, NonPrivateEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.gaussian_mixture import paper_w
from zoo.privacy.record.record import warn_once
from zoo.privacy.rows.sparse_matrix import SparseMatrix
from zoo.publishers.base import PublicSizes


@pytest.mark.parametrize(
    ("width", "epsilon", "delta", "w"),
    [
        (400, 1.0, 1e-5, 74.61263269631878),
        (400, 8.0, 1e-5, 12.004581443979031),
        (100, 1.0, 1e-5, 37.30631634815939),
        (500, 2.0, 1e-6, 49.87496564573086),
    ],
)
def test_the_noise_is_that_of_the_unit_calibration(width: int, epsilon: float, delta: float, w: float) -> None:
    sizes, sparse, jlt = PublicSizes(1000, 50), SJLT(epsilon, width, delta=delta), JLT(epsilon, width, delta=delta)
    plan = sparse.projection(sizes, sparse.drawn_matrix(50))
    assert plan.w == pytest.approx(w, rel=1e-9)
    other = jlt.projection(sizes, jlt.drawn_matrix(50))
    assert (plan.w, plan.event) == (other.w, other.event)
    assert isinstance(plan.event, GaussianEvent)


def test_the_noise_has_its_scale() -> None:
    """On no ratings the release is noise alone; outside the interval with probability below 1e-6."""
    nobody = Ratings(csr_array((1000, 6), dtype=np.float32), np.arange(1000), np.arange(6))
    publisher = SJLT(epsilon=2.0, num_components=50, delta=1e-5, centre=False, noise_seed=7)
    rows = publisher.publish(nobody, "book").tensors["rows"].double().numpy()
    ratio = rows.size * rows.var() * gauss_mu(2.0, 1e-5) ** 2
    assert chi2.ppf(5e-7, rows.size) < ratio < chi2.isf(5e-7, rows.size)


def test_max_takes_its_noise_from_the_longest_column() -> None:
    publisher = SJLT(epsilon=2.0, num_components=20, delta=1e-5, calibration="max", density=0.3, seed=4)
    norms = SparseMatrix(20, 30, 4, density=0.3, unit=False).column_norms()
    plan = publisher.projection(PublicSizes(100, 30), publisher.drawn_matrix(30))
    assert plan.w == pytest.approx(norms.max() / gauss_mu(2.0, 1e-5), rel=1e-9)
    assert (
        publisher.publish(binary(), "book").record.summary()
        == "rating (change one rating), eps 2.00, delta 1e-05, proved"
    )


def test_the_rows_are_the_product_with_the_public_matrix() -> None:
    """With hardly any noise; M can be made anew from what the record says."""
    record_of = SJLT(epsilon=1e6, num_components=20, density=0.4, centre=False)
    release = record_of.publish(binary(), "book")
    inputs = release.record.public_inputs
    matrix = SparseMatrix(
        inputs["num_components"], inputs["num_items"], inputs["projection_seed"], density=inputs["density"]
    )  # type: ignore[arg-type]
    expected = binary().matrix.toarray() @ matrix.transposed() / np.sqrt(20)
    np.testing.assert_allclose(release.tensors["rows"].numpy(), expected, atol=0.02)


def test_the_record_of_a_release() -> None:
    release = SJLT(epsilon=2.0, num_components=5).publish(binary(), "book")
    record = release.record
    assert (record.mechanism.name, record.unit, record.relation) == ("SJLT", "rating", "change_one_rating")
    assert (record.epsilon, record.delta, record.mu) == (2.0, 1e-5, gauss_mu(2.0, 1e-5))
    assert record.public_inputs["density"] == 0.5
    assert not any("depend on the projection" in text for text in record.sentences("assumptions"))
    assert not torch.equal(
        release.tensors["rows"], SJLT(epsilon=2.0, num_components=5).publish(binary(), "book").tensors["rows"]
    )


def test_the_papers_form_protects_nobody() -> None:
    warn_once.cache_clear()
    publisher = SJLT(epsilon=8.0, num_components=20, paper_faithful=True)
    wide = Ratings(binary().matrix[:4], binary().user_ids[:4], binary().item_ids)
    with pytest.warns(UserWarning, match="SJLT with paper_faithful has no guarantee here: no noise is added") as warned:
        releases = [publisher.publish(ratings, "book") for ratings in (wide, binary())]
    assert len(warned) == 1, "once a run"
    for release in releases:
        record = release.record
        assert (record.guarantee, record.epsilon, record.delta, record.mu) == ("none", None, None, None)
        assert record.requested_epsilon is None
        assert record.reason == (
            "no noise is added, and a published component lies in a subspace that moves when a rating moves"
        )
        assert "epsilon" not in str(record)
        assert record.public_inputs["w"] == pytest.approx(paper_w(20, 8.0, 1e-5))
        assert release.ledger == tuple(publisher.plan(release.num_users, 7)) == (NonPrivateEvent(),)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is .*Allowed: finite"),
        ({"density": 0.0}, r"density is 0\.0.*Allowed: \(0, 1\]"),
        ({"density": 1.1}, "density is .*Allowed: "),
        ({"num_components": 0}, "dim is .*Allowed: integers >= 1"),
        ({"calibration": "gaussian"}, "calibration of SJLT must be 'unit' or 'max', got 'gaussian'. Or use JLT"),
        (
            {"relation": "zero_out_one_user"},
            "does not protect a whole user, and relation is 'zero_out_one_user'.*Use JLT",
        ),
        ({"calibration": "max", "paper_faithful": True}, "takes the paper's noise, and calibration is 'max'"),
    ],
)
def test_bad_settings_are_refused_before_data(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SJLT(**({"epsilon": 1.0} | settings))
