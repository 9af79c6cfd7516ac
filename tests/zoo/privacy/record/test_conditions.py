"""Conditional guarantees: what a record says of them, that they are not lost, and what older records become."""

from dataclasses import replace

import pytest

from tests.zoo.privacy.record.stated import earlier_file
from tests.zoo.privacy.record.test_derived import honest
from tests.zoo.privacy.record.test_record import proved
from zoo.privacy.accounting.events import GaussianEvent
from zoo.privacy.record.record import Guarantee, PrivacyRecord, RecordError
from zoo.privacy.record.selection import chosen_among

LISTED, COUNTED = "who is a user is public", "no rating decides who is frequent"


def conditional(*conditions: str) -> PrivacyRecord:
    return replace(proved(), provisos=conditions or (LISTED, COUNTED))


def test_an_epsilon_is_never_shown_without_its_conditions() -> None:
    text = str(conditional())
    assert "guarantee      conditional" in text
    assert "epsilon        8.00 at delta 1e-05, assuming the conditions below" in text
    for condition in (LISTED, COUNTED):
        assert f"condition      {condition}" in text
    standing = f"conditional (assumes that {LISTED}; that {COUNTED})"
    assert conditional().standing == standing
    assert conditional().summary() == f"rating (change one rating), eps 8.00, delta 1e-05, {standing}"


def test_a_claim_withdrawn_has_no_conditions_left() -> None:
    record = conditional().without_guarantee("seeded noise")
    assert (record.guarantee, record.conditions, record.epsilon) == (Guarantee.NONE, (), None)


def test_a_record_of_the_first_schema_is_conditional() -> None:
    """It says proved, and what was done to the data before stands among its assumptions alone."""
    old = {key: value for key, value in earlier_file(schema=1).items() if key != "conditions"}
    read = PrivacyRecord.from_dict(old)
    assert (read.guarantee, read.conditions) == (Guarantee.CONDITIONAL, ("unstated",))
    assert "this old record does not state such steps" in read.standing
    silent = old | {"guarantee": "none", "reason": "seeded noise", "epsilon": None, "delta": None}
    assert PrivacyRecord.from_dict(silent).standing == "none (seeded noise)"
    with pytest.raises(RecordError, match="has exactly"):
        PrivacyRecord.from_dict(old | {"schema": 2})
    with pytest.raises(RecordError, match="Allowed: in schema 1 and 2"):
        PrivacyRecord.from_dict(replace(honest("noisy rows")[0], provisos=("unstated",)).to_dict())
    with pytest.raises(RecordError, match="A release is of schema 1"):
        chosen_among((proved(), ()), [(read, ())])


def test_a_release_chosen_among_others_is_under_the_conditions_of_all() -> None:
    ledger = (GaussianEvent(0.6002290722),)
    for first, second, both in (
        (conditional(LISTED), conditional(COUNTED), (LISTED, COUNTED)),
        (conditional(LISTED), proved(), (LISTED,)),
        (proved(), conditional(LISTED), (LISTED,)),
        (proved(), proved(), ()),
    ):
        record, _ = chosen_among((first, ledger), [(second, ledger)])
        assert record.conditions == both
        assert record.guarantee is (Guarantee.CONDITIONAL if both else Guarantee.PROVED)
