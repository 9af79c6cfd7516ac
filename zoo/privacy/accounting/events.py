"""Privacy events: frozen descriptions of what a mechanism did, for an accountant.

A noise multiplier is noise over sensitivity under the current relation, so most events mean the same under every relation. The
meaning of an event never changes, because old releases are accounted for whenever they are read. A new mechanism gets a new
class; an existing class may gain optional fields whose default keeps the earlier meaning.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from zoo.privacy.accounting.gaussian_mixture import check_dim
from zoo.privacy.accounting.relation import Relation

MAX_COUNT = 2**53
"""Largest number of repetitions, or of users."""

_MAX_DEPTH = 16
_MAX_DIFFERENT = 1_000  # a sampled step takes some 40 milliseconds, a projection more
_MAX_DIM = 2**31
_SMALLEST, _LARGEST = 1e-100, 1e100
_SMALLEST_RATE = 1e-12


class EventError(ValueError):
    """An invalid description of an event.

    Examples:
        >>> event_from_dict({"type": "FreeLunchEvent"})
        Traceback (most recent call last):
        ...
        zoo.privacy.accounting.events.EventError: type of the event is 'FreeLunchEvent'...
    """


@dataclass(frozen=True)
class PrivacyEvent:
    """Base of all events.

    Examples:
        >>> issubclass(GaussianEvent, PrivacyEvent)
        True
    """

    relations: ClassVar[frozenset[Relation]] = frozenset(Relation)  # relations with a meaning; others are refused


@dataclass(frozen=True)
class NoOpEvent(PrivacyEvent):
    """No release that depends on the data: costs nothing, under every relation.

    Examples:
        >>> from zoo.privacy.accounting.accountant import epsilon_of
        >>> epsilon_of([NoOpEvent()], delta=1e-5)
        0.0
    """


@dataclass(frozen=True)
class NonPrivateEvent(PrivacyEvent):
    """A release without protection: costs infinity, under every relation.

    Examples:
        >>> from zoo.privacy.accounting.accountant import epsilon_of
        >>> epsilon_of([NonPrivateEvent()], delta=1e-5)
        inf
    """


@dataclass(frozen=True)
class GaussianEvent(PrivacyEvent):
    """One release of a vector with independent Gaussian noise on every coordinate.

    Examples:
        >>> from zoo.privacy.accounting.accountant import epsilon_of
        >>> round(epsilon_of([GaussianEvent(noise_multiplier=2.0)], delta=1e-5), 3)
        1.993
    """

    noise_multiplier: float  # standard deviation of the noise over the L2 sensitivity, dimensionless; its inverse is mu

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)


@dataclass(frozen=True)
class GaussianProjectionEvent(PrivacyEvent):
    """One release of ``M x + w N``, where M and N have independent standard normal entries and M is public.

    A change of x moves the release by a random distance. Its square is that of the change times a chi-square variable with
    ``dim`` degrees of freedom. The data must not depend on M: M is drawn after they are settled. Within one release other events
    may share M, because the accountant assumes nothing about the dependence of matrices. Another event through the same M after
    it is public costs more than is counted here, so `zoo.privacy.record.shared_projection` refuses it.

    Examples:
        >>> from zoo.privacy.accounting.accountant import epsilon_of
        >>> round(epsilon_of([GaussianProjectionEvent(noise_multiplier=20.0, dim=16)], delta=1e-5), 3)
        0.849
    """

    noise_multiplier: float  # w over the L2 sensitivity of x before projection, dimensionless
    dim: int  # number of rows of M

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)
        check_dim(self.dim)
        if self.dim > _MAX_DIM:
            raise EventError(f"dim is {self.dim}. Allowed: <= 2**31.")


@dataclass(frozen=True)
class PoissonSampledGaussianEvent(PrivacyEvent):
    """One step of DP-SGD: a sum with Gaussian noise over users, each in it independently with probability ``rate``.

    The sample stays secret. The event is for whole users only: a zeroed-out user adds nothing to the sum, a replaced one moves it
    by up to twice the clip norm. The accountant counts that, so the event is the same under both relations.

    Examples:
        >>> from zoo.privacy.accounting.accountant import epsilon_of
        >>> step = PoissonSampledGaussianEvent(noise_multiplier=2.0, rate=0.01)
        >>> round(epsilon_of([SelfComposedEvent(step, 100)], 1e-5, Relation.ZERO_OUT_ONE_USER), 2)
        0.19
    """

    relations: ClassVar[frozenset[Relation]] = frozenset({Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER})

    noise_multiplier: float  # noise deviation over the L2 norm that one user's part is clipped to, dimensionless
    rate: float  # probability that a user is in the sum, independent for each user

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)
        if not _SMALLEST_RATE <= self.rate <= 1:
            raise EventError(f"rate is {self.rate!r}. Allowed: [{_SMALLEST_RATE}, 1]. For 0 use NoOpEvent.")


@dataclass(frozen=True)
class RandomisedResponseEvent(PrivacyEvent):
    """One bit, reported wrongly with a known probability; the change affects this bit only.

    A change that moves k bits is k such events. A whole user has as many bits as there are items, so a record that claims to
    protect a user by fewer events is refused (`zoo.privacy.mechanisms.third_party`). Costs ``ln((1 - p)/p)`` with no delta, tight.

    Examples:
        >>> from zoo.privacy.accounting.accountant import epsilon_of
        >>> round(epsilon_of([RandomisedResponseEvent(flip_probability=0.25)], delta=0.0), 3)
        1.099
    """

    flip_probability: float  # of a wrong report, in (0, 1/2)

    def __post_init__(self) -> None:
        if not _SMALLEST <= self.flip_probability < 0.5:
            raise EventError(
                f"flip_probability is {self.flip_probability!r}. Allowed: [{_SMALLEST}, 0.5). Or use NonPrivateEvent "
                "(0), NoOpEvent (0.5)."
            )


@dataclass(frozen=True)
class LaplaceEvent(PrivacyEvent):
    """One release of a vector with independent Laplace noise on every coordinate; costs 1 / multiplier, with no delta.

    Examples:
        >>> from zoo.privacy.accounting.accountant import epsilon_of
        >>> round(epsilon_of([LaplaceEvent(noise_multiplier=0.5)], delta=0.0), 6)
        2.0
    """

    noise_multiplier: float  # scale of the noise over the L1 sensitivity, dimensionless

    def __post_init__(self) -> None:
        _check_multiplier(self.noise_multiplier)


@dataclass(frozen=True)
class PureEvent(PrivacyEvent):
    """One release that costs at most epsilon with no delta, with nothing else known about it.

    Examples:
        >>> from zoo.privacy.accounting.accountant import epsilon_of
        >>> round(epsilon_of([PureEvent(0.5), PureEvent(0.5)], delta=0.0), 6)
        1.0
    """

    epsilon: float  # upper bound of the privacy loss

    def __post_init__(self) -> None:
        if not _SMALLEST <= self.epsilon <= _LARGEST:
            raise EventError(f"epsilon is {self.epsilon!r}. Allowed: [{_SMALLEST}, {_LARGEST}]. For 0 use NoOpEvent.")


@dataclass(frozen=True)
class SelfComposedEvent(PrivacyEvent):
    """The same event ``count`` times, with fresh noise each time.

    Examples:
        >>> from zoo.privacy.accounting.accountant import mu_of
        >>> mu_of([SelfComposedEvent(GaussianEvent(2.0), 4)])
        1.0
    """

    event: PrivacyEvent
    count: int

    def __post_init__(self) -> None:
        if not isinstance(self.event, PrivacyEvent):
            raise TypeError(f"event is of type {type(self.event).__name__}, not PrivacyEvent.")
        if type(self.count) is not int or not 1 <= self.count <= MAX_COUNT:
            raise EventError(f"count is {self.count!r}. Allowed: integers from 1 to 2**53. For 0 use NoOpEvent.")


@dataclass(frozen=True)
class ComposedEvent(PrivacyEvent):
    """Several events on the same data in order, each with its own noise.

    Examples:
        >>> from zoo.privacy.accounting.accountant import mu_of
        >>> round(mu_of([ComposedEvent((GaussianEvent(1.0), GaussianEvent(0.75)))]), 3)
        1.667
    """

    events: tuple[PrivacyEvent, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))
        for event in self.events:
            if not isinstance(event, PrivacyEvent):
                raise TypeError(f"An event is of type {type(event).__name__}, not PrivacyEvent.")


#: Events that are not compositions of others.
SINGLE_EVENTS: tuple[type[PrivacyEvent], ...] = (
    NoOpEvent,
    NonPrivateEvent,
    GaussianEvent,
    GaussianProjectionEvent,
    PoissonSampledGaussianEvent,
    RandomisedResponseEvent,
    LaplaceEvent,
    PureEvent,
)
_EVENTS: dict[str, type[PrivacyEvent]] = {
    kind.__name__: kind for kind in (*SINGLE_EVENTS, SelfComposedEvent, ComposedEvent)
}


def event_to_dict(event: PrivacyEvent) -> dict[str, Any]:
    """Return an event as plain JSON: its class name under ``type``, and its fields.

    Examples:
        >>> event_to_dict(GaussianEvent(2.0))
        {'type': 'GaussianEvent', 'noise_multiplier': 2.0}
    """
    name = type(event).__name__
    if _EVENTS.get(name) is not type(event):
        raise EventError(f"{name} cannot be written. Known: {sorted(_EVENTS)}.")
    return {"type": name} | {field.name: _plain(getattr(event, field.name)) for field in fields(event)}


def event_from_dict(values: Mapping[str, Any], depth: int = 0) -> PrivacyEvent:
    """Return the event that `event_to_dict` wrote; ``values`` may come from another party, so all fields are checked.

    Args:
        values: Plain JSON.
        depth: Number of events around this one.

    Raises:
        EventError: A class or field is unknown, a field is missing or of another type, or a value is out of range.

    Examples:
        >>> event_from_dict({"type": "GaussianEvent", "noise_multiplier": 2.0})
        GaussianEvent(noise_multiplier=2.0)
    """
    if depth > _MAX_DEPTH:
        raise EventError(f"Events are nested more than {_MAX_DEPTH} deep.")
    if not isinstance(values, Mapping):
        raise EventError(f"An event is of type {type(values).__name__}, not a mapping.")
    name = values.get("type")
    kind = _EVENTS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise EventError(f"type of the event is {str(name)[:80]!r}. Known: {sorted(_EVENTS)}. Or upgrade cdr-zoo.")
    expected, found = {field.name for field in fields(kind)}, values.keys() - {"type"}
    if found != expected:
        raise EventError(f"{name} has the fields {sorted(map(str, found))}. Allowed: {sorted(expected)}.")
    try:
        return kind(**{key: _read_field(f"{name}.{key}", key, values[key], depth) for key in expected})
    except EventError:
        raise
    except ValueError as error:
        raise EventError(f"{name}: {error}") from error


def read_ledger(values: Iterable[Mapping[str, Any]]) -> tuple[PrivacyEvent, ...]:
    """Return the events of a ledger from plain JSON, which may come from another party.

    Raises:
        EventError: An event is invalid (`event_from_dict`), or more than 1,000 events differ: each takes time to account for.

    Examples:
        >>> read_ledger([event_to_dict(GaussianEvent(2.0))])
        (GaussianEvent(noise_multiplier=2.0),)
    """
    ledger = tuple(map(event_from_dict, values))
    different, left = set(), [*ledger]
    while left:
        event = left.pop()
        if isinstance(event, ComposedEvent):
            left += event.events
        elif isinstance(event, SelfComposedEvent):
            left.append(event.event)
        else:
            different.add(event)
    if len(different) > _MAX_DIFFERENT:
        raise EventError(f"The ledger has {len(different):,} different events. Allowed: {_MAX_DIFFERENT:,}.")
    return ledger


def _check_multiplier(value: float) -> None:
    if not _SMALLEST <= value <= _LARGEST:
        raise EventError(f"noise_multiplier is {value!r}. Allowed: [{_SMALLEST}, {_LARGEST}]. Or use NonPrivateEvent.")


def _plain(value: Any) -> Any:  # noqa: ANN401  any field of any event
    if isinstance(value, PrivacyEvent):
        return event_to_dict(value)
    if isinstance(value, tuple):
        return [event_to_dict(event) for event in value]
    return float(value) if isinstance(value, float) else int(value)


def _read_field(label: str, key: str, value: Any, depth: int) -> PrivacyEvent | tuple[PrivacyEvent, ...] | float:  # noqa: ANN401
    if key == "event":
        return event_from_dict(value, depth + 1)
    if key == "events":
        if not isinstance(value, list):
            raise EventError(f"{label} is of type {type(value).__name__}, not a list.")
        return tuple(event_from_dict(event, depth + 1) for event in value)
    if key in ("count", "dim"):
        if type(value) is not int:
            raise EventError(f"{label} is {value!r}, not an integer.")
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise EventError(f"{label} is {value!r}, not a number.")
    if not abs(value) <= _LARGEST:  # also refuses NaN, and integers that exceed floats
        raise EventError(f"{label} is out of range. Allowed: finite, <= {_LARGEST:g}.")
    return float(value)
