"""Several ratings of one person through a public projection: what a page says, against all changes of small ones."""

import math
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.samples import binary
from zoo import JLT, SJLT, BridgePublisher, FlippedRows, NoisyRows, Ratings, Release
from zoo.commands.privacy import several
from zoo.commands.privacy import several as module
from zoo.commands.privacy.show import UNSEEN_CANDIDATES, parts
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import GaussianEvent, GaussianProjectionEvent, PrivacyEvent, RandomisedResponseEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.bridge import Bridge
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.words import sentence
from zoo.privacy.rows.public_matrix import GaussianMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix


def of_catalogue(items: int) -> Ratings:
    rated = csr_array(np.eye(3, items))
    return Ratings(rated, np.array(["a", "b", "c"]), np.array([f"i{item}" for item in range(items)]))


def page(release: Release) -> tuple[list[str], dict[str, float]]:
    """What the page says of several ratings, and the epsilons."""
    (part,) = (part for part in parts(release, Path("x")) if part.title == "Several ratings of one person")
    return part.lines, {name: float(said.split()[0]) for name, said in part.rows}


@pytest.mark.thorough
@pytest.mark.parametrize("of", [JLT, SJLT])
def test_a_page_says_what_the_review_found(of: Any) -> None:  # noqa: ANN401
    """33 and 72 at 5 and 10 ratings, in the place of 69 and 209; another projection is drawn each time."""
    release = of(8.0, delta=1e-5).publish(of_catalogue(3916), "books")
    lines, epsilons = page(release)
    assert several.ANALYSED in lines
    assert epsilons["1 rating"] == 8.0
    assert epsilons["5 ratings"] == pytest.approx(33, abs=1.5)
    assert epsilons["10 ratings"] == pytest.approx(72, abs=3)
    at_worst = {k: several.group_epsilon(release.record, release.ledger, k) for k in (5, 10)}
    assert at_worst == {5: pytest.approx(69.4, abs=0.1), 10: pytest.approx(209, abs=0.1)}


@pytest.mark.parametrize("calibration", ["unit", "max"])
@pytest.mark.parametrize("of", [JLT, SJLT])
def test_no_change_of_k_ratings_costs_more_than_the_page_says(of: Any, calibration: str) -> None:  # noqa: ANN401
    release = of(2.0, 6, calibration=calibration, rating_range=5.0).publish(of_catalogue(8), "books")
    record, seed = release.record, int(str(release.record.public_inputs["projection_seed"]))
    unit = calibration == "unit"
    matrix = GaussianMatrix(6, 8, seed, unit=unit) if of is JLT else SparseMatrix(6, 8, seed, unit=unit)
    found = several.stretches(record, release.ledger, several.GROUPS)
    assert found[1] == 1.0
    for k in (1, 2, 5):
        changes = np.array(list(product((-5.0, 5.0), repeat=k)))
        longest = max(
            np.linalg.norm(changes @ matrix.transposed()[list(items)], axis=1).max()
            for items in combinations(range(8), k)
        )
        really = gauss_epsilon(1e-5, float(longest) / float(str(record.public_inputs["w"])))
        said = several.group_epsilon(record, release.ledger, k, found[k])
        assert said is not None
        assert really * (1 - 1e-9) <= said <= gauss_epsilon(1e-5, k * float(record.mu or 0)) * (1 + 1e-9)
        assert k == 5 or said == pytest.approx(really, rel=0.25 if k > 1 else 1e-6 if unit or k == 1 else 0.25)


def test_a_large_projection_counts_at_worst_and_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    release = JLT(2.0, 5).publish(of_catalogue(30), "books")
    assert several.ANALYSED in page(release)[0]
    monkeypatch.setattr(module, "MOST_PRODUCTS", 30 * 30 * 5 - 1)
    lines, epsilons = page(release)
    assert several.TOO_LARGE in lines
    assert several.ANALYSED not in lines
    assert epsilons["5 ratings"] == pytest.approx(gauss_epsilon(1e-5, 5 * float(release.record.mu or 0)), rel=0.01)


def test_a_choice_costs_what_its_worst_candidate_may() -> None:
    """One rating moves one number of noisy rows, and a column of the projection: only the first adds up by squares."""
    noisy, projected = NoisyRows(1.0).publish(binary(), "books"), JLT(8.0, 5).publish(binary(), "books")
    chosen = noisy.chosen_among([projected])
    least = gauss_epsilon(1e-5, 10 * float(projected.record.mu or 0))
    assert (several.group_epsilon(chosen.record, chosen.ledger, 10) or 0) > least
    said = {part.title: part.lines for part in parts(chosen, Path("x"))}
    assert "sqrt(k)" not in " ".join(said["Not protected"])
    assert UNSEEN_CANDIDATES in said["Not checkable from files"]


def test_a_rating_moves_its_own_row_of_a_map() -> None:
    record = BridgePublisher(2.0, relation="change_one_rating").forecast(60, 40)
    assert several.group_epsilon(record, record.ledger, 9) == pytest.approx(
        gauss_epsilon(record.delta or 0, 3 * (record.mu or 0))
    )
    outside = record.claimed_by(type("Mine", (BridgePublisher,), {}))
    most = gauss_epsilon(record.delta or 0, 9 * (record.mu or 0))
    assert several.group_epsilon(outside, record.ledger, 9) == pytest.approx(most), "how it moves others is unknown"


@pytest.mark.parametrize(
    ("event", "once"), [(RandomisedResponseEvent(0.1), math.log(9)), (GaussianProjectionEvent(9.0, 30), None)]
)
def test_of_another_package_k_ratings_are_k_steps(event: PrivacyEvent, once: float | None) -> None:
    """How its ratings meet in one number is unknown: k steps of a pure epsilon cost k times as much."""
    record = PrivacyRecord.proved_unless_seeded(
        "Test", NoiseSource.of(None), Relation.CHANGE_ONE_RATING, epsilon=epsilon_of([event], 1e-5), delta=1e-5,
        sensitivity=1.0, sensitivity_norm="L1" if once else "L2", noise_scale=1.0,
    )  # fmt: skip
    least = 40 * once if once else epsilon_of([GaussianProjectionEvent(9.0 / 40, 30)], 1e-5)
    assert several.group_epsilon(record, [event], 40) == pytest.approx(least)
    assert several.group_epsilon(record, [GaussianEvent(99.0)], 40) is None, "its ledger gives less than it states"


def test_a_number_of_items_that_the_rows_cannot_show_makes_no_bound_smaller() -> None:
    release = JLT(2.0, 5).publish(of_catalogue(30), "books")
    for items, bounded in ((1, ()), (4, ()), (5, (1, 2, 5)), (30, (1, 2, 5, 10))):
        mechanism = replace(release.record.mechanism, num_items=items)
        lie = replace(release, record=replace(release.record, mechanism=mechanism))
        assert tuple(several.stretches(lie.record, lie.ledger, several.GROUPS)) == bounded
        lines, epsilons = page(lie)
        assert (several.FEW_ITEMS in lines, several.ANALYSED in lines) == (not bounded, bool(bounded))
        assert epsilons["50 ratings"] == pytest.approx(
            gauss_epsilon(1e-5, 50 * float(release.record.mu or 0)), rel=0.01
        )


def test_a_projection_that_cannot_be_held_is_not_looked_into() -> None:
    record = JLT(2.0, 5).publish(binary(), "books").record
    for items in (2**28, 10**15):
        matrix = several.projection_of(replace(record, mechanism=replace(record.mechanism, num_items=items)))
        assert matrix is not None
        assert not several.is_analysable(matrix)
    assert not several.is_analysable(GaussianMatrix(5, 7, 0, matrix_bytes=8))


@pytest.mark.parametrize("named", [{"num_items": 0}, {"calibration": "gaussian", "largest_norm": None}])
def test_what_names_no_projection_counts_at_worst(named: dict[str, Any]) -> None:
    for release in (JLT(2.0, 5).publish(binary(), "books"), SJLT(2.0, 5).publish(binary(), "books")):
        record = replace(release.record, mechanism=replace(release.record.mechanism, **named))
        assert several.stretches(record, release.ledger, several.GROUPS) == {}


def test_other_releases_and_several_have_no_projection_to_look_into() -> None:
    for publisher in (NoisyRows(2.0), JLT(2.0, 5, calibration="gaussian")):
        release = publisher.publish(binary(), "books")
        assert several.stretches(release.record, release.ledger, several.GROUPS) == {}
        assert len(page(release)[0]) == 1
    one, two = (JLT(2.0, 5).publish(binary(), "books") for _ in range(2))
    assert several.stretches(one.record, one.ledger, several.GROUPS)
    chosen = one.chosen_among([two])
    assert several.stretches(chosen.record, chosen.ledger, several.GROUPS) == {}, "the other's projection is not named"


def test_every_candidate_of_a_choice_counts_at_worst_and_a_bridge_by_its_coordinates() -> None:
    published = [of.publish(binary(), "books") for of in (NoisyRows(2.0), JLT(2.0, 5), FlippedRows(1.0))]
    for first in (0, 1):
        chosen = published[first].chosen_among([published[1 - first]])
        assert page(chosen)[1]["5 ratings"] == pytest.approx(
            gauss_epsilon(1e-5, 5 * float(chosen.record.mu or 0)), rel=0.01
        )
        assert sentence("several_chosen") in chosen.record.sentences("not_protected")
    assert page(published[2])[1]["5 ratings"] == pytest.approx(5, rel=0.01)
    assert page(published[2].chosen_among([published[2]]))[1]["5 ratings"] == pytest.approx(10, rel=0.01)
    of_map = Bridge.calibrate(epsilon=2.0, delta=1e-5, relation=Relation.CHANGE_ONE_RATING)
    record = PrivacyRecord.of(of_map, NoiseSource.os())
    found = {one.ratings: one.epsilon for one in several.several_ratings(record, record.ledger)}
    assert found[1] == pytest.approx(2.0)
    assert found[5] == pytest.approx(gauss_epsilon(1e-5, math.sqrt(5) * float(record.mu or 0)))
