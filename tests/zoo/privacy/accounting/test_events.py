import json
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.privacy.accounting.events import (
    ComposedEvent,
    EventError,
    GaussianEvent,
    GaussianProjectionEvent,
    LaplaceEvent,
    NonPrivateEvent,
    NoOpEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    PureEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
    event_from_dict,
    event_to_dict,
)
from zoo.privacy.accounting.relation import Relation

leaves = st.one_of(
    st.just(NoOpEvent()),
    st.just(NonPrivateEvent()),
    st.builds(GaussianEvent, st.floats(1e-3, 1e3)),
    st.builds(GaussianProjectionEvent, st.floats(1e-3, 1e3), st.integers(1, 5000)),
    st.builds(PoissonSampledGaussianEvent, st.floats(1e-3, 1e3), st.floats(1e-9, 1)),
    st.builds(RandomisedResponseEvent, st.floats(1e-15, 0.49)),
    st.builds(LaplaceEvent, st.floats(1e-3, 1e3)),
    st.builds(PureEvent, st.floats(1e-3, 1e3)),
)
events = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(SelfComposedEvent, inner, st.integers(1, 10**9)),
        st.builds(ComposedEvent, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@dataclass(frozen=True)
class UnheardOfEvent(PrivacyEvent):
    pass


@given(event=events)
def test_events_survive_json(event: PrivacyEvent) -> None:
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event), allow_nan=False))) == event


def test_the_written_form_stays_readable() -> None:
    # Never change these lines: releases in the world look like this.
    written = {
        "type": "ComposedEvent",
        "events": [
            {"type": "SelfComposedEvent", "event": {"type": "GaussianEvent", "noise_multiplier": 2.0}, "count": 3},
            {"type": "GaussianProjectionEvent", "noise_multiplier": 75.2, "dim": 400},
            {"type": "NoOpEvent"},
            {"type": "NonPrivateEvent"},
            {"type": "PoissonSampledGaussianEvent", "noise_multiplier": 1.5, "rate": 0.25},
            {"type": "RandomisedResponseEvent", "flip_probability": 0.125},
            {"type": "LaplaceEvent", "noise_multiplier": 0.5},
            {"type": "PureEvent", "epsilon": 3.0},
        ],
    }
    event = ComposedEvent(
        (
            SelfComposedEvent(GaussianEvent(2.0), 3),
            GaussianProjectionEvent(75.2, 400),
            NoOpEvent(),
            NonPrivateEvent(),
            PoissonSampledGaussianEvent(1.5, 0.25),
            RandomisedResponseEvent(0.125),
            LaplaceEvent(0.5),
            PureEvent(3.0),
        )
    )
    assert event_from_dict(written) == event
    assert event_to_dict(event) == written


def test_an_unknown_class_is_not_written() -> None:
    with pytest.raises(EventError, match=r"UnheardOfEvent cannot be written. Known:"):
        event_to_dict(ComposedEvent((UnheardOfEvent(),)))


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([], "is of type list, not a mapping"),
        ({}, "type of the event is 'None'.*upgrade cdr-zoo"),
        ({"type": "UnheardOfEvent"}, "type of the event is 'UnheardOfEvent'"),
        ({"type": ["GaussianEvent"]}, "type of the event is"),
        ({"type": "GaussianEvent"}, r"has the fields \[\]. Allowed: \['noise_multiplier'\]"),
        ({"type": "GaussianEvent", "noise_multiplier": 1.0, "extra": 1}, "has the fields .*'extra'"),
        ({"type": "GaussianEvent", "noise_multiplier": "1"}, "noise_multiplier is '1', not a number"),
        ({"type": "GaussianEvent", "noise_multiplier": True}, "noise_multiplier is True, not a number"),
        ({"type": "GaussianEvent", "noise_multiplier": float("nan")}, "out of range. Allowed: finite"),
        ({"type": "GaussianEvent", "noise_multiplier": 10**400}, "out of range. Allowed: finite"),
        ({"type": "GaussianEvent", "noise_multiplier": 0.0}, r"is 0\.0.*NonPrivateEvent"),
        ({"type": "GaussianProjectionEvent", "noise_multiplier": 1.0, "dim": 2.0}, "dim is .*not an integer"),
        ({"type": "GaussianProjectionEvent", "noise_multiplier": 1.0, "dim": 0}, "dim is .*Allowed: integers >= 1"),
        ({"type": "GaussianProjectionEvent", "noise_multiplier": 1.0, "dim": 2**40}, r"dim is .*Allowed: <= 2\*\*31"),
        ({"type": "SelfComposedEvent", "event": {"type": "NoOpEvent"}, "count": 0}, "count is .*integers from 1"),
        ({"type": "SelfComposedEvent", "event": {"type": "NoOpEvent"}, "count": True}, "count is .*not an integer"),
        ({"type": "ComposedEvent", "events": {"type": "NoOpEvent"}}, "events is of type dict, not a list"),
        ({"type": "RandomisedResponseEvent", "flip_probability": 0.5}, r"is 0.5. Allowed: \[1e-100, 0.5\).*NoOp"),
        ({"type": "RandomisedResponseEvent", "flip_probability": 0.0}, r"is 0\.0\..* use NonPrivateEvent"),
        ({"type": "LaplaceEvent", "noise_multiplier": 0.0}, r"noise_multiplier is 0\.0. Allowed:"),
        ({"type": "PureEvent", "epsilon": 0.0}, r"epsilon is 0\.0. Allowed: .* use NoOpEvent"),
        ({"type": "PoissonSampledGaussianEvent", "noise_multiplier": 1.0, "rate": 0}, r"rate is 0\.0. Allowed:"),
        ({"type": "PoissonSampledGaussianEvent", "noise_multiplier": 1.0, "rate": 1.01}, r"rate is 1\.01. Allowed:"),
        (
            {"type": "PoissonSampledGaussianEvent", "noise_multiplier": 0.0, "rate": 0.1},
            "noise_multiplier is .*Allowed: ",
        ),
    ],
)
def test_hostile_descriptions_are_refused(values: object, match: str) -> None:
    with pytest.raises(EventError, match=match):
        event_from_dict(values)  # type: ignore[arg-type]


def test_a_sampled_step_means_something_for_users_alone() -> None:
    assert PoissonSampledGaussianEvent.relations == {Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER}
    assert RandomisedResponseEvent.relations == LaplaceEvent.relations == PureEvent.relations == set(Relation)


def test_deep_nesting_is_refused() -> None:
    values: dict[str, Any] = {"type": "NoOpEvent"}
    for _ in range(5000):
        values = {"type": "ComposedEvent", "events": [values]}
    with pytest.raises(EventError, match="nested more than 16 deep"):
        event_from_dict(values)


def test_only_events_compose() -> None:
    with pytest.raises(TypeError, match=r"is of type str, not PrivacyEvent"):
        ComposedEvent(("GaussianEvent",))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"event is of type int, not PrivacyEvent"):
        SelfComposedEvent(3, 2)  # type: ignore[arg-type]


def test_events_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        GaussianEvent(1.0).noise_multiplier = 9.0  # type: ignore[misc]
