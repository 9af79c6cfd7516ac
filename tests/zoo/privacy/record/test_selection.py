"""A release that was chosen by results costs what all the releases cost among which it was chosen."""

from dataclasses import replace
from itertools import permutations
from math import exp, sqrt
from pathlib import Path

import pytest
from dp_accounting.dp_event import GaussianDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from tests.samples import binary
from tests.zoo.privacy.record.stated import stated
from tests.zoo.privacy.spending.accounts import account as spending_account
from zoo import JLT, Noise, Plaintext, Publisher, Release
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    NonPrivateEvent,
    PrivacyEvent,
    SelfComposedEvent,
)
from zoo.privacy.accounting.gaussian_mixture import mix_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.record.record import NUM_CANDIDATES, Guarantee, RecordError
from zoo.privacy.record.selection import RecordAndLedger, chosen_among

multipliers = st.floats(0.5, 50)
projections = st.builds(GaussianProjectionEvent, st.floats(20, 100), st.integers(1, 50))
events = st.builds(GaussianEvent, multipliers) | projections


def account(
    *ledger: PrivacyEvent, delta: float = 1e-5, relation: Relation = Relation.CHANGE_ONE_RATING, **more: object
) -> RecordAndLedger:
    """A proved release with these events."""
    gaussian = all(isinstance(event, GaussianEvent) for event in ledger)
    record = stated(
        mechanism="rows of somebody else",
        relation=relation,
        epsilon=epsilon_of(ledger, delta),
        delta=delta,
        mu=sqrt(sum(e.noise_multiplier**-2 for e in ledger if isinstance(e, GaussianEvent))) if gaussian else None,
        clip=1.0,
        noise_scale=2.0,
        **({"compositions": len(ledger)} | more),
    )
    return record, ledger


def gauss(multiplier: float, **more: object) -> RecordAndLedger:
    return account(GaussianEvent(multiplier), **more)


def analytic_epsilon(mu: float, delta: float) -> float:
    """From the privacy profile of a Gaussian (Balle & Wang, ICML 2018), solved by bisection."""

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - exp(epsilon + norm.logcdf(-epsilon / mu - mu / 2))) - delta

    return float(brentq(excess, 0, 200 + 10 * mu * mu, xtol=1e-12))


def test_a_release_alone_is_left_as_it_is() -> None:
    alone = gauss(2.0)
    assert chosen_among(alone, []) == alone


@pytest.mark.parametrize(("first", "second"), [(2.0, 2.0), (1.0, 5.0), (0.7, 0.4), (30.0, 50.0)])
def test_two_gaussian_releases_cost_the_root_of_the_squares(first: float, second: float) -> None:
    record, ledger = chosen_among(gauss(first), [gauss(second)])
    mu = sqrt(1 / first**2 + 1 / second**2)
    assert record.guarantee is Guarantee.PROVED
    assert record.mu == pytest.approx(mu, rel=1e-12)
    assert record.epsilon == pytest.approx(analytic_epsilon(mu, 1e-5), rel=1e-6)
    assert ledger == (GaussianEvent(first), GaussianEvent(second))
    record.check_against(ledger)


@pytest.mark.thorough
@pytest.mark.parametrize("several", [[1.0, 2.0], [3.0, 3.0, 3.0], [10.0, 4.0, 7.0, 20.0]])
def test_the_cost_is_that_of_another_accountant(several: list[float]) -> None:
    record, _ = chosen_among(gauss(several[0]), [gauss(z) for z in several[1:]])
    accountant = PLDAccountant()
    for z in several:
        accountant.compose(GaussianDpEvent(z))
    assert record.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)


def test_compositions_add_up() -> None:
    record, ledger = chosen_among(
        account(SelfComposedEvent(GaussianEvent(9.0), 4), compositions=4), [gauss(3.0), gauss(5.0)]
    )
    assert record.compositions == 6
    assert len(ledger) == 3
    assert record.epsilon == pytest.approx(analytic_epsilon(sqrt(4 / 81 + 1 / 9 + 1 / 25), 1e-5), rel=1e-6)


def test_delta_is_the_largest() -> None:
    record, _ = chosen_among(gauss(2.0, delta=1e-7), [gauss(2.0, delta=1e-4), gauss(2.0, delta=1e-6)])
    assert record.delta == 1e-4
    assert record.epsilon == pytest.approx(analytic_epsilon(sqrt(3) / 2, 1e-4), rel=1e-6)


def test_the_record_says_among_how_many_and_keeps_the_rest() -> None:
    chosen, ledger = gauss(
        2.0, public_inputs={"seed": 3}, assumptions=("a",), not_protected=("n",), requested_epsilon=9.0
    )
    record, _ = chosen_among((chosen, ledger), [gauss(1.0), gauss(1.0)])
    assert record.public_inputs == {"seed": 3, NUM_CANDIDATES: 3}
    assert record.requested_epsilon is None, "nobody asked for this one"
    same = (
        "mechanism", "unit", "relation", "sensitivity", "noise_scale", "clip", "assumptions", "not_protected",
        "noise_source",
    )  # fmt: skip
    assert [getattr(record, name) for name in same] == [getattr(chosen, name) for name in same]
    assert chosen.public_inputs == {"seed": 3}


def test_a_release_that_is_chosen_twice_over_counts_all() -> None:
    first = chosen_among(gauss(2.0), [gauss(3.0), gauss(4.0)])
    record, ledger = chosen_among(first, [gauss(5.0)])
    assert record.compositions == len(ledger) == 4
    assert record.mu == pytest.approx(sqrt(1 / 4 + 1 / 9 + 1 / 16 + 1 / 25), rel=1e-12)
    assert record.public_inputs[NUM_CANDIDATES] == 4, "and says so"


def test_it_counts_at_least_two_candidates_and_no_more_than_it_has_events() -> None:
    record, _ = chosen_among(gauss(2.0), [gauss(3.0)])
    for number in (-4, 1, 3):
        with pytest.raises(RecordError, match=f"num_candidates is {number}. Allowed: 2 to 2"):
            replace(record, selection=replace(record.selection, num_candidates=number))  # type: ignore[type-var]
    of_others = spending_account("b")
    with pytest.raises(RecordError, match="states more than its ledger"):
        chosen_among(gauss(2.0), [(of_others.record, (GaussianEvent(9.0),))])


# Releases through a Gaussian matrix, which have no mu.


def test_a_projection_among_them_takes_the_mu_away() -> None:
    projection = GaussianProjectionEvent(50.0, 400)
    for chosen, others in ((gauss(2.0), [account(projection)]), (account(projection), [gauss(2.0)])):
        record, ledger = chosen_among(chosen, others)
        assert record.mu is None
        assert record.epsilon == pytest.approx(epsilon_of([projection, GaussianEvent(2.0)], 1e-5), rel=1e-9)
        record.check_against(ledger)


def test_two_projections_cost_at_least_one_with_the_squares_added() -> None:
    record, _ = chosen_among(account(GaussianProjectionEvent(50.0, 30)), [account(GaussianProjectionEvent(40.0, 30))])
    assert record.epsilon is not None
    assert record.epsilon >= mix_epsilon(1e-5, sqrt(50.0**-2 + 40.0**-2), 30) * (1 - 1e-9)


def without() -> RecordAndLedger:
    record, ledger = gauss(2.0)
    return record.without_guarantee("seeded noise"), ledger


@pytest.mark.parametrize("position", [0, 1])
def test_one_without_a_guarantee_takes_it_from_all(position: int) -> None:
    others = [gauss(3.0), gauss(4.0)]
    others[position] = without()
    record, ledger = chosen_among(gauss(2.0), others)
    assert record.guarantee is Guarantee.NONE
    assert record.reason == "chosen among releases without guarantee (seeded noise)"
    assert (record.epsilon, record.delta, record.mu, record.requested_epsilon) == (None, None, None, None)
    assert "epsilon" not in str(record)
    assert len(ledger) == record.compositions == 3


def test_a_chosen_one_without_a_guarantee_keeps_its_own_reason() -> None:
    record, ledger = chosen_among(without(), [gauss(3.0)])
    assert record.guarantee is Guarantee.NONE
    assert record.reason == "seeded noise"
    assert record.public_inputs[NUM_CANDIDATES] == 2
    assert len(ledger) == 2


def test_other_relations_are_refused() -> None:
    other = gauss(2.0, relation=Relation.ZERO_OUT_ONE_USER)
    with pytest.raises(
        RecordError, match=r"relations are \['change_one_rating', 'zero_out_one_user'\].*compose under one only"
    ):
        chosen_among(gauss(2.0), [gauss(3.0), other])
    record, _ = chosen_among(other, [gauss(3.0, relation=Relation.ZERO_OUT_ONE_USER)])
    assert record.relation is Relation.ZERO_OUT_ONE_USER


@pytest.mark.thorough
@settings(max_examples=20)
@given(ledgers=st.lists(st.lists(events, min_size=1, max_size=2), min_size=2, max_size=4), data=st.data())
def test_the_order_does_not_matter(ledgers: list[list[PrivacyEvent]], data: st.DataObject) -> None:
    accounts = [account(*ledger) for ledger in ledgers]
    order = data.draw(st.permutations(range(len(accounts))))
    record, _ = chosen_among(accounts[0], accounts[1:])
    other, ledger = chosen_among(accounts[order[0]], [accounts[i] for i in order[1:]])
    assert other.epsilon == pytest.approx(record.epsilon, rel=1e-9)
    assert other.compositions == record.compositions
    other.check_against(ledger)


@pytest.mark.thorough
@settings(max_examples=60)
@given(ledgers=st.lists(st.lists(events, min_size=1, max_size=2), min_size=1, max_size=3), more=events)
def test_another_release_never_lowers_it(ledgers: list[list[PrivacyEvent]], more: PrivacyEvent) -> None:
    accounts = [account(*ledger) for ledger in ledgers]
    before, _ = chosen_among(accounts[0], accounts[1:])
    after, ledger = chosen_among(accounts[0], [*accounts[1:], account(more)])
    assert after.epsilon is not None
    assert before.epsilon is not None
    assert after.epsilon >= before.epsilon * (1 - 1e-9)
    assert after.epsilon >= epsilon_of([more], 1e-5) * (1 - 1e-9)
    after.check_against(ledger)


def test_every_order_of_three_gives_one_epsilon() -> None:
    accounts = [gauss(1.5), gauss(4.0), account(GaussianProjectionEvent(30.0, 20))]
    epsilons = [chosen_among(a, others)[0].epsilon for a, *others in permutations(accounts)]
    assert epsilons == pytest.approx([epsilons[0]] * 6, rel=1e-9)


def test_a_chosen_release_survives_its_file(tmp_path: Path) -> None:
    releases = [JLT(epsilon=e, num_components=5).publish(binary(), "book") for e in (1.0, 2.0, 4.0)]
    chosen = releases[1].chosen_among([releases[0], releases[2]])
    assert chosen.tensors["rows"].equal(releases[1].tensors["rows"])
    assert list(chosen.user_ids) == list(releases[1].user_ids)
    assert chosen.digest != releases[1].digest
    loaded = Release.load(chosen.save(tmp_path / "book"))
    assert loaded.record == chosen.record
    assert loaded.ledger == chosen.ledger
    assert loaded.record.epsilon is not None
    assert loaded.record.epsilon > 4.0
    assert releases[1].chosen_among([]).digest == releases[1].digest


def test_understating_a_choice_is_refused() -> None:
    first, second = (JLT(epsilon=2.0, num_components=5).publish(binary(), "book") for _ in range(2))
    chosen = first.chosen_among([second])
    with pytest.raises(ValueError, match=r"epsilon is .*The ledger gives"):
        replace(chosen, record=first.record)


@pytest.mark.parametrize("publisher", [Plaintext(), Noise(JLT(epsilon=2.0, num_components=5))])
def test_a_release_among_unprotected_ones_claims_nothing(publisher: Publisher) -> None:
    chosen = JLT(epsilon=2.0, num_components=5).publish(binary(), "book")
    record = chosen.chosen_among([publisher.publish(binary(), "book")]).record
    assert record.guarantee is Guarantee.NONE
    assert record.summary().startswith("none (chosen among releases without guarantee (")
    among = publisher.publish(binary(), "book").chosen_among([chosen])
    assert among.record.guarantee is Guarantee.NONE
    assert any(isinstance(event, NonPrivateEvent) for event in among.ledger)
