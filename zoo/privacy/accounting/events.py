"""Privacy events: frozen descriptions of what a mechanism did, which an accountant reads.

A noise multiplier is over the sensitivity under the relation at hand, so most events mean the same under every relation.
The meaning of an event never changes, because releases written long ago are accounted for anew whenever they are read.
A new mechanism gets a new class; an existing class may gain optional fields whose default means what it meant before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from zoo.privacy.accounting.gaussian_mixture import check_dim
from zoo.privacy.accounting.relation import Relation

_MAX_DEPTH = 16
_MAX_COUNT = 2**53
_MAX_DIM = 2**31
_SMALLEST, _LARGEST = 1e-100, 1e100
_SMALLEST_RATE = 1e-12


class EventError(ValueError):
    """A description of an event that cannot be read."""


@dataclass(frozen=True)
class PrivacyEvent:
    """Base of all events."""

    relations: ClassVar[frozenset[Relation]] = frozenset(Relation)  # under which it means something; others are refused


@dataclass(frozen=True)
class NoOpEvent(PrivacyEvent):
    """Nothing that depends on the data was released: costs nothing, under every relation."""


@dataclass(frozen=True)
class NonPrivateEvent(PrivacyEvent):
    """Something was released without protection: costs infinity, under every relation."""


@dataclass(frozen=True)
class GaussianEvent(PrivacyEvent):
    """One release of a vector with independent Gaussian noise on every coordinate."""

    noise_multiplier: float  # standard deviation of the noise over the L2 sensitivity; dimensionless; its inverse is mu

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)


@dataclass(frozen=True)
class GaussianProjectionEvent(PrivacyEvent):
    """One release of ``M x + w N``, where M and N have independent standard normal entries and M is public.

    What a change of x moves is itself random: its squared norm is that of the change times a chi-square variable with
    ``dim`` degrees of freedom. Requires that the data do not depend on M: M is drawn when they are settled, or else what changes
    may be a direction that M stretches. Within one release M may be shared with other events, for the accountant assumes nothing
    of how the matrices of several events depend on each other. Once M is public, data may have changed with it at hand, and
    another event through the same M costs more than is counted here: `zoo.privacy.record.shared_projection` refuses it.
    """

    noise_multiplier: float  # w divided by the L2 sensitivity of x, before projection; dimensionless
    dim: int  # rows of M

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)
        check_dim(self.dim)
        if self.dim > _MAX_DIM:
            raise EventError(f"dim must be at most 2**31, got {self.dim}.")


@dataclass(frozen=True)
class PoissonSampledGaussianEvent(PrivacyEvent):
    """One step of DP-SGD: a sum over users, each in it independently with probability ``rate``, with Gaussian noise.

    Who was in the sum stays secret. Means something for whole users alone: of a zeroed-out user nothing is in the sum,
    a replaced one may move it by twice the clip norm. The accountant counts that, so the event is the same under both: its
    noise multiplier is the standard deviation of the noise over the L2 norm that one user's part of the sum is clipped to,
    not over the sensitivity, which is twice that under ``replace_one_user``; dimensionless.
    """

    relations: ClassVar[frozenset[Relation]] = frozenset({Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER})

    noise_multiplier: float
    rate: float  # probability of each user to be in the sum, independent of all others

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)
        if not _SMALLEST_RATE <= self.rate <= 1:
            raise EventError(f"rate must lie in [{_SMALLEST_RATE}, 1], got {self.rate!r}; for none use NoOpEvent.")


@dataclass(frozen=True)
class RandomisedResponseEvent(PrivacyEvent):
    """One bit, reported wrongly with a known probability whatever it is; the change at hand moves this bit alone.

    A change that moves k bits is this event k times, so a whole user, of as many bits as there are items, is that many events:
    a record that claims more is refused (`zoo.privacy.mechanisms.claimed`). Costs ``ln((1 - p)/p)`` with no delta. Tight.
    """

    flip_probability: float  # of a wrong report; more than 0, less than 1/2

    def __post_init__(self) -> None:
        if not _SMALLEST <= self.flip_probability < 0.5:
            raise EventError(
                f"flip_probability must lie in [{_SMALLEST}, 0.5), got {self.flip_probability!r}. A report without "
                "flips is a NonPrivateEvent, one that ignores the bit a NoOpEvent."
            )


@dataclass(frozen=True)
class LaplaceEvent(PrivacyEvent):
    """One release of a vector with independent Laplace noise on every coordinate.

    Costs the inverse of the multiplier, with no delta. The scale is the standard deviation over the square root of 2.
    """

    noise_multiplier: float  # scale of the noise over the L1 sensitivity; dimensionless

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)


@dataclass(frozen=True)
class PureEvent(PrivacyEvent):
    """One release of which no more is known than that it costs epsilon, with no delta, under the relation at hand."""

    epsilon: float  # what it costs at most

    def __post_init__(self) -> None:
        if not _SMALLEST <= self.epsilon <= _LARGEST:
            raise EventError(
                f"epsilon must lie in [{_SMALLEST}, {_LARGEST}], got {self.epsilon!r}. "
                "A release that costs everything is a NonPrivateEvent, one that costs nothing a NoOpEvent."
            )


@dataclass(frozen=True)
class SelfComposedEvent(PrivacyEvent):
    """The same event several times, with fresh noise each time."""

    event: PrivacyEvent
    count: int  # at least 1

    def __post_init__(self) -> None:
        if not isinstance(self.event, PrivacyEvent):
            raise TypeError(f"event must be a PrivacyEvent, got {type(self.event).__name__}.")
        if type(self.count) is not int or not 1 <= self.count <= _MAX_COUNT:
            raise EventError(f"count must be an integer from 1 to 2**53, got {self.count!r}; for none use NoOpEvent.")


@dataclass(frozen=True)
class ComposedEvent(PrivacyEvent):
    """Several events on the same data in order, each with its own noise."""

    events: tuple[PrivacyEvent, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            if not isinstance(event, PrivacyEvent):
                raise TypeError(f"events must be PrivacyEvents, got {type(event).__name__}.")


_EVENTS: dict[str, type[PrivacyEvent]] = {
    kind.__name__: kind
    for kind in (
        NoOpEvent,
        NonPrivateEvent,
        GaussianEvent,
        GaussianProjectionEvent,
        PoissonSampledGaussianEvent,
        RandomisedResponseEvent,
        LaplaceEvent,
        PureEvent,
        SelfComposedEvent,
        ComposedEvent,
    )
}


def event_to_dict(event: PrivacyEvent) -> dict[str, Any]:
    """An event as plain JSON values: its class name under ``type``, and its fields."""
    name = type(event).__name__
    if _EVENTS.get(name) is not type(event):
        raise EventError(f"{name} cannot be written; the known events are {sorted(_EVENTS)}.")
    return {"type": name} | {field.name: _plain(getattr(event, field.name)) for field in fields(event)}


def event_from_dict(values: Mapping[str, Any], depth: int = 0) -> PrivacyEvent:
    """The event that `event_to_dict` wrote, ``depth`` deep in others. The values may come from another party: all is checked.

    An `EventError` says which class or field is unknown, which field is missing or of another type, or which value out of range.
    """
    if depth > _MAX_DEPTH:
        raise EventError(f"Events may be nested at most {_MAX_DEPTH} deep.")
    if not isinstance(values, Mapping):
        raise EventError(f"An event must be a mapping, got {type(values).__name__}.")
    name = values.get("type")
    kind = _EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise EventError(
            f"Unknown event {str(name)[:80]!r}; this version knows {sorted(_EVENTS)}. "
            "Upgrade cdr-zoo if the release is newer."
        )
    expected = {field.name for field in fields(kind)}
    given = {key for key in values if key != "type"}
    if given != expected:
        raise EventError(f"{name} must have exactly the fields {sorted(expected)}, got {sorted(map(str, given))}.")
    try:
        return kind(**{key: _read_field(f"{name}.{key}", key, values[key], depth) for key in expected})
    except EventError:
        raise
    except ValueError as error:
        raise EventError(f"{name}: {error}") from error


def _check_multiplier(value: float) -> None:
    if not _SMALLEST <= value <= _LARGEST:
        raise EventError(
            f"noise_multiplier must lie in [{_SMALLEST}, {_LARGEST}], got {value!r}. "
            "A release without noise is a NonPrivateEvent, one without data a NoOpEvent."
        )


def _plain(value: Any) -> Any:  # noqa: ANN401  # any field of any event
    if isinstance(value, PrivacyEvent):
        return event_to_dict(value)
    if isinstance(value, tuple):
        return [event_to_dict(event) for event in value]
    return float(value) if isinstance(value, float) else int(value)


def _read_field(label: str, key: str, value: Any, depth: int) -> PrivacyEvent | tuple[PrivacyEvent, ...] | float:  # noqa: ANN401  # plain JSON
    if key == "event":
        return event_from_dict(value, depth + 1)
    if key == "events":
        if not isinstance(value, list):
            raise EventError(f"{label} must be a list, got {type(value).__name__}.")
        return tuple(event_from_dict(event, depth + 1) for event in value)
    if key in ("count", "dim"):
        if type(value) is not int:
            raise EventError(f"{label} must be an integer, got {value!r}.")
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise EventError(f"{label} must be a number, got {value!r}.")
    if not abs(value) <= _LARGEST:  # also refuses NaN, and integers beyond any float
        raise EventError(f"{label} must be a finite number of ordinary size.")
    return float(value)
