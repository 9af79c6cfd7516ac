"""What several releases cost together, against closed forms and another accountant."""

import math
import re
import unicodedata
from dataclasses import replace

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from tests.zoo.privacy.record.stated import earlier_file
from tests.zoo.privacy.spending.accounts import RATING, USER, account, made
from zoo.privacy.accounting.events import GaussianEvent, PureEvent, event_to_dict
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms import NoisyRows
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.fields import RecordError
from zoo.privacy.record.record import InconsistentRecordError, PrivacyRecord, UnderstatedPrivacyError
from zoo.privacy.spending.total import DISTINCT, Account, entry_of, normalize_domain, record_of, total_of, total_of_run


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle & Wang (2018), equation 6, solved for epsilon."""
    return float(brentq(lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - delta, 0, 100))


def test_releases_of_one_domain_compose_at_the_largest_delta() -> None:
    """Whatever version of the ratings they are of, and however many."""
    twenty = [account(f"r{number}", delta=1e-6 if number else 1e-5) for number in range(20)]
    total = total_of(twenty)
    assert total.reason is None
    assert total.delta == 1e-5
    assert (total.unit, total.relation) == (Unit.RATING, Relation.CHANGE_ONE_RATING)
    assert total.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(20) / 2, 1e-5), rel=1e-9)
    (book,) = total.domains
    assert (book.domain, book.epsilon, len(book.names)) == ("book", total.epsilon, 20)
    single = twenty[0].record.epsilon or 0.0
    assert single < (total.epsilon or 0.0) < 20 * single


@pytest.mark.thorough
@pytest.mark.parametrize("relation", [RATING, Relation.CHANGE_ONE_RATING_VALUE, USER])
@pytest.mark.parametrize("stated", [False, True])
def test_domains_add_up_unless_ratings_are_stated_to_be_distinct(relation: Relation, stated: bool) -> None:
    """Two domains may hold one (user, item) pair, as they may one user; to say that no user is in two helps nobody."""
    given = [account("a", 1.0, relation=relation), account("c", 3.0, "music", relation=relation)]
    reference = PLDAccountant(value_discretization_interval=1e-4).compose(GaussianDpEvent(1.0))
    if not stated or relation is USER:
        reference.compose(GaussianDpEvent(3.0))
    total = total_of(given, distinct_ratings=stated)
    assert total.epsilon == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)
    assert total.conditions.get(DISTINCT) == (("a", "c") if stated and relation is not USER else None)
    assert {d.domain: d.epsilon for d in total.domains} == {
        "book": pytest.approx(gaussian_epsilon(1.0, 1e-5), rel=1e-9),
        "music": pytest.approx(gaussian_epsilon(1 / 3, 1e-5), rel=1e-9),
    }
    assert DISTINCT not in total_of(given[:1], distinct_ratings=stated).conditions, "one domain needs no statement"


@pytest.mark.parametrize("name", ["book ", "bo ok", "Book", " BOOK", "\N{FULLWIDTH LATIN SMALL LETTER B}ook"])
def test_names_that_look_alike_are_of_one_domain(name: str) -> None:
    """Else a rating's loss would be that of the larger release alone."""
    total = total_of([account("a"), account("b", domain=name)], distinct_ratings=True)
    assert total.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(2) / 2, 1e-5), rel=1e-9)
    assert [domain.domain for domain in total.domains] == ["book"]


@given(st.text(min_size=1))
def test_case_and_form_of_a_name_make_no_other_domain(name: str) -> None:
    name = name.replace("\N{LATIN SMALL LETTER DOTLESS I}", "")  # whose capital is that of i
    others = (name.upper(), name.casefold(), *(unicodedata.normalize(form, name) for form in ("NFD", "NFKC", "NFKD")))
    assert {normalize_domain(other) for other in others} == {normalize_domain(name)}
    greek = "\N{GREEK SMALL LETTER IOTA WITH DIALYTIKA AND TONOS}"
    assert normalize_domain(greek.upper()) == normalize_domain(greek)
    assert normalize_domain("\N{BLACK-LETTER CAPITAL H}") == "h", "a capital that has no small letter of its own kind"


def test_flips_and_noise_compose() -> None:
    total = total_of([account("a", flips=0.1), account("b", flips=0.1)])
    assert total.epsilon is not None
    assert total.epsilon == pytest.approx(2 * math.log(9), rel=1e-3)
    assert total_of([account("a", flips=0.1), account("b", 2.0)], delta=0.0).reason == (
        "the joint epsilon is infinite at delta 0"
    )


def test_one_folder_counts_once_and_equal_content_again() -> None:
    """Independent draws of a small release may coincide, so equal digests show no copy."""
    one, other = made(account("a"), "f" * 64, "a"), made(account("b"), "e" * 64, "b")
    total = total_of([one, other, made(account("link to a"), "f" * 64, "a"), one])
    assert total.epsilon == total_of([one, other]).epsilon
    assert (total.copies, total.same_content) == ({"link to a": "a", "a": "a"}, {})
    total = total_of([one, made(account("c"), "f" * 64, "c")])
    assert total.epsilon == total_of([one, other]).epsilon
    assert (total.copies, total.same_content) == ({}, {"c": "a"})
    unknown = account("c")
    assert total_of([unknown, unknown]).epsilon == total_of([one, other]).epsilon, "two that are not made are two"


def test_conditions_of_all_are_listed_with_whose_they_are() -> None:
    total = total_of([account("a", conditions=("it rains", "it pours")), account("b", conditions=("it rains",))])
    assert total.conditions == {
        "it rains": ("a", "b"),
        "it pours": ("a",),
        "the claim of 'Test' is true, not audited here": ("a", "b"),
    }
    assert total.epsilon is not None


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ([account("b", seed=1)], r"b has no guarantee \(seeded noise\)"),
        ([account("b", domain="music", seed=1)], r"b has no guarantee \(seeded noise\)"),
        ([account("b", relation=USER)], "the relations differ .*a change_one_rating, b zero_out_one_user"),
        ([account("b", domain="music", relation=Relation.CHANGE_ONE_RATING_VALUE)], "the relations differ"),
        ([replace(account("b"), ledger=(GaussianEvent(9.0),))], "b states a larger epsilon than its ledger gives"),
        (
            [replace(account("b"), ledger=(PureEvent(account("b").record.epsilon),))],
            "b states a larger epsilon than its ledger gives",
        ),
        ([account("b", delta=1e-3, num_users=500)], "delta 0.001 is not below one over the 900,000 users of a"),
    ],
)
def test_where_there_is_no_total_it_says_why(others: list[Account], reason: str) -> None:
    users = 900_000 if "900,000" in reason else 900
    total = total_of([account("a", delta=1e-7, num_users=users), *others])
    assert (total.epsilon, total.delta, total.unit, total.relation) == (None, None, None, None)
    assert re.search(reason, total.reason or "")


def test_domains_that_have_a_total_say_it_beside_one_that_has_none() -> None:
    total = total_of([account("a"), account("b", domain="music", seed=1)])
    assert [domain.epsilon is None for domain in total.domains] == [False, True]
    assert total.epsilon is None


@pytest.mark.parametrize("domain", ["book", "music"])
def test_a_projection_that_was_known_before_is_refused(domain: str) -> None:
    """The first release of it made it public, in whichever domain."""

    def projected(name: str, domain: str, seed: int) -> Account:
        return account(name, domain=domain, projection_seed=seed, calibration="gaussian")

    shared = total_of([projected("a", "book", 5), projected("b", domain, 5)])
    assert shared.epsilon is None
    assert "share the projection with seed 5" in (shared.reason or "")
    assert total_of([projected("a", "book", 5), projected("b", domain, 6)]).epsilon is not None


def test_nothing_costs_nothing_that_could_be_said() -> None:
    total = total_of([])
    assert (total.domains, total.epsilon, total.reason) == ((), None, "there are none")


@pytest.mark.parametrize("ledger", [(), (GaussianEvent(40.0),)], ids=["empty", "another"])
def test_an_entry_of_a_run_has_the_ledger_of_its_record(ledger: tuple[GaussianEvent, ...]) -> None:
    """The total is that of the ledger, and the summary that of the record."""
    given = account("a")
    entry = given.record.to_dict() | {"ledger": [event_to_dict(event) for event in given.ledger], "num_users": 900}
    assert total_of_run({"book": entry}).epsilon == given.record.epsilon
    with pytest.raises((InconsistentRecordError, UnderstatedPrivacyError)):
        total_of_run({"book": entry | {"ledger": [event_to_dict(event) for event in ledger]}})


@pytest.mark.parametrize("stated", [0, 900])
def test_an_entry_of_a_run_has_at_least_the_users_of_its_mechanism(stated: int) -> None:
    rows = NoisyRows.calibrate(epsilon=2.0, delta=1e-4, num_users=900, num_items=40)
    record = PrivacyRecord.of(rows, NoiseSource.os())
    entry = entry_of(record, record.ledger, stated)
    assert record_of(entry) == record
    few = PrivacyRecord.of(NoisyRows.calibrate(epsilon=2.0, delta=0.01, num_users=10, num_items=40), NoiseSource.os())
    total = total_of_run({"a": entry, "b": entry_of(few, few.ledger, 10)})
    assert total.reason == "delta 0.01 is not below one over the 900 users of a"
    entry["num_users"] = 10**4
    with pytest.raises(RecordError, match=r"delta is 0\.0001\. Allowed: below one over the 10,000 users"):
        record_of(entry)
    large = PrivacyRecord.of(replace(rows, num_users=10**4), NoiseSource.os())
    with pytest.raises(RecordError, match=r"below one over the 10,000 users"):
        record_of(entry_of(large, large.ledger, stated))


def test_an_earlier_entry_costs_at_least_its_epsilon_whatever_its_mu() -> None:
    """Without a ledger nothing else is known of it."""
    given = account("a")
    other = given.record.to_dict() | {"ledger": [event_to_dict(event) for event in given.ledger]}
    entry = earlier_file(epsilon=8.0, mu=0.05)
    assert (total_of_run({"a": other, "b": entry}).epsilon or 0.0) >= 8.0
