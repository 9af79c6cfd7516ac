"""Ledgers of somebody else: what they cost is computed, or they are refused in words, however odd their numbers."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.damage import cases, refusal_of
from zoo.privacy.accounting.accountant import Accountant, UnsupportedEventError
from zoo.privacy.accounting.events import EventError, event_from_dict
from zoo.privacy.accounting.relation import Relation

NUMBERS = st.one_of(
    st.sampled_from([0, -0.0, 1, -1, 2, 0.5, 1e-300, 1e300, 1e-9, 1e9, 2**53, 2**70, math.nan, math.inf]),
    st.floats(),
    st.integers(),
    st.floats(1e-3, 1e3),
)
ODD = st.one_of(NUMBERS, st.sampled_from([None, True, "", "1", [], {}, [1], {"type": "NoOpEvent"}]))
USUAL: dict[str, st.SearchStrategy[float]] = {
    "noise_multiplier": st.floats(1e-3, 1e3),
    "flip_probability": st.floats(1e-6, 0.5),
    "epsilon": st.floats(1e-3, 50),
    "dim": st.integers(1, 10**6),
    "rate": st.floats(1e-6, 1),
    "count": st.one_of(st.integers(1, 100), st.integers(1, 2**53)),
}
#: Mostly the fields that an event has, and now and then one too few or too many.
SINGLE = {
    "NoOpEvent": (),
    "NonPrivateEvent": (),
    "GaussianEvent": ("noise_multiplier",),
    "GaussianProjectionEvent": ("noise_multiplier", "dim"),
    "PoissonSampledGaussianEvent": ("noise_multiplier", "rate"),
    "RandomisedResponseEvent": ("flip_probability",),
    "LaplaceEvent": ("noise_multiplier",),
    "PureEvent": ("epsilon",),
}


@st.composite
def value(draw: st.DrawFn, name: str) -> Any:  # noqa: ANN401  any JSON
    """One that a field may have, or in one case of ten any other."""
    return draw(ODD if draw(st.integers(0, 9)) == 7 else USUAL[name])


@st.composite
def events(draw: st.DrawFn, depth: int = 0) -> Any:  # noqa: ANN401  any JSON
    """An event as its JSON says it, some inside others."""
    kind = draw(st.sampled_from([*SINGLE, *(("SelfComposedEvent", "ComposedEvent") if depth < 3 else ())]))
    if kind == "SelfComposedEvent":
        return {"type": kind, "event": draw(events(depth + 1)), "count": draw(value("count"))}
    if kind == "ComposedEvent":
        return {"type": kind, "events": draw(st.lists(events(depth + 1), max_size=3))}
    made = {"type": kind, **{name: draw(value(name)) for name in SINGLE[kind]}}
    if draw(st.integers(0, 29)) == 7:
        made[draw(st.sampled_from(sorted(USUAL)))] = draw(ODD)
    return made


LEDGERS = {"ledger": st.lists(events(), max_size=3), "relation": st.sampled_from([None, *Relation])}


def costs_or_is_refused(ledger: Any, relation: Relation | None) -> None:  # noqa: ANN401  any JSON
    """As a reader does it: JSON, events, a curve that falls."""
    read = json.loads(json.dumps(ledger))
    try:
        accountant = Accountant(relation, [event_from_dict(event) for event in read])
    except (EventError, UnsupportedEventError) as refused:
        refusal_of(refused, "")
        return
    epsilon = accountant.epsilon(1e-5)
    assert epsilon >= 0
    assert 0 <= accountant.delta(1.0) <= 1
    # From 709 on e to the power of a loss is too large a number, and what costs more in sum takes the place of the distribution.
    assert epsilon > 700 or epsilon <= accountant.epsilon(1e-9)


@pytest.mark.thorough
@cases(40, 3_000)
@given(**LEDGERS)
def test_a_ledger_costs_something_or_is_refused(ledger: Any, relation: Relation | None) -> None:  # noqa: ANN401
    costs_or_is_refused(ledger, relation)
