"""Conditional guarantees: what a record says of them, that they are not lost, and what older records become."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.zoo.privacy.record.test_record import proved
from zoo.privacy.accounting.events import GaussianEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import UNSTATED, Guarantee, PrivacyRecord, RecordError
from zoo.privacy.record.selection import chosen_among

LISTED, COUNTED = "who is a user is public", "no rating decides who is frequent"


def conditional(*conditions: str, **changes: Any) -> PrivacyRecord:  # noqa: ANN401  of any field
    return replace(proved(**changes), guarantee=Guarantee.CONDITIONAL, conditions=conditions or (LISTED, COUNTED))


def test_an_epsilon_is_never_shown_without_its_conditions() -> None:
    text = str(conditional())
    assert "guarantee      conditional" in text
    assert "epsilon        8.00 at delta 1e-05, if the conditions below are true" in text
    for condition in (LISTED, COUNTED):
        assert f"condition      {condition}" in text
    standing = f"conditional (if {LISTED}; and if {COUNTED})"
    assert conditional().standing == standing
    assert conditional().summary() == f"rating, eps 8.00, delta 1e-05, {standing}"


def test_it_survives_json() -> None:
    record = conditional()
    assert PrivacyRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


@pytest.mark.parametrize(
    ("guarantee", "conditions"),
    [(Guarantee.PROVED, (LISTED,)), (Guarantee.CONDITIONAL, ()), (Guarantee.NONE, (LISTED,))],
)
def test_conditions_and_a_conditional_guarantee_go_together(guarantee: Guarantee, conditions: tuple[str, ...]) -> None:
    with pytest.raises(RecordError, match=f"conditions go with guarantee 'conditional'.*got '{guarantee.value}' with"):
        proved(guarantee=guarantee, conditions=conditions)


def test_a_claim_withdrawn_has_no_conditions_left() -> None:
    record = conditional().without_guarantee("seeded noise")
    assert (record.guarantee, record.conditions, record.epsilon) == (Guarantee.NONE, (), None)


@pytest.mark.parametrize("conditions", [(), (LISTED,)])
def test_noise_makes_it_proved_or_conditional_by_its_conditions(conditions: tuple[str, ...]) -> None:
    facts: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "sensitivity": 1.0, "sensitivity_norm": "L2"}
    facts |= {"noise_scale": 0.6, "conditions": conditions}
    made = PrivacyRecord.proved_unless_seeded("NoisyRows", NoiseSource.os(), Relation.CHANGE_ONE_RATING, **facts)
    assert made.guarantee is (Guarantee.CONDITIONAL if conditions else Guarantee.PROVED)
    assert made.conditions == conditions
    seeded = PrivacyRecord.proved_unless_seeded("NoisyRows", NoiseSource.seeded(1), Relation.CHANGE_ONE_RATING, **facts)
    assert (seeded.guarantee, seeded.conditions) == (Guarantee.NONE, ())


def test_a_record_of_the_first_schema_is_conditional() -> None:
    """It says proved, and what was done to the data before stands among its assumptions alone."""
    old = proved().to_dict() | {"schema": 1}
    del old["conditions"]
    read = PrivacyRecord.from_dict(old)
    assert read == replace(proved(), guarantee=Guarantee.CONDITIONAL, conditions=(UNSTATED,))
    nothing = proved().without_guarantee("seeded noise")
    silent = nothing.to_dict() | {"schema": 1}
    del silent["conditions"]
    assert PrivacyRecord.from_dict(silent) == nothing
    with pytest.raises(RecordError, match=r"lacks the fields \['conditions'\]"):
        PrivacyRecord.from_dict(old | {"schema": 2})


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
