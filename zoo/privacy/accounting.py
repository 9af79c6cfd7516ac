"""Accounting: what a ledger of events costs. Reads events alone, and refuses what it does not know."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Self

from zoo.privacy.calibration import gauss_epsilon, mixture_epsilon
from zoo.privacy.events import (
    ComposedEvent,
    GaussianEvent,
    GaussianProjectionEvent,
    NonPrivateEvent,
    NoOpEvent,
    PrivacyEvent,
    SelfComposedEvent,
)
from zoo.privacy.relation import Relation, Unit

__all__ = ["ACCOUNTANT", "Accountant", "Relation", "Unit", "UnsupportedEventError", "epsilon_of", "mu_of"]

ACCOUNTANT = "zoo.privacy.accounting/1"
"""Name and version of the accountant, for records. The version rises when an epsilon it gives changes."""


class UnsupportedEventError(ValueError):
    """An event that the accountant cannot account for."""


class Accountant:
    """Adds up events on the same data and says what they cost together.

    Exact for Gaussian releases (``mu^2`` adds up, also when each is chosen after seeing the ones before; Dong, Roth &
    Su, JRSS B 2022, Corollary 2) and for one release through a Gaussian matrix besides them. Several such releases are
    bounded from above for any dependence of their matrices, a shared one included; see
    `zoo.privacy.calibration.mixture_delta`.

    Args:
        relation: Neighbouring relation that the events' sensitivities were measured under; None leaves it unchecked.
    """

    def __init__(self, relation: Relation | None = None) -> None:
        self.relation = relation
        self._private = True
        self._square = 0.0  # sum of mu^2 over Gaussian events
        self._projections: dict[int, float] = {}  # width of the matrix -> sum of s^2
        self._num_projections = 0.0

    def compose(self, event: PrivacyEvent, count: int = 1) -> Self:
        """Add an event, ``count`` times with fresh noise.

        Raises:
            UnsupportedEventError: If it, or an event inside it, is unknown or means nothing under the relation. Then
                nothing of it is added.
        """
        if type(count) is not int or count < 1:
            raise ValueError(f"count must be an integer of at least 1, got {count!r}.")
        self._check(event, event)
        self._add(event, float(count))
        return self

    @property
    def mu(self) -> float:
        """The mu of one Gaussian release that equals all events together; infinite after a non-private one.

        Raises:
            UnsupportedEventError: If there was a release through a Gaussian matrix, which no single mu describes.
        """
        if not self._private:
            return math.inf
        if self._projections:
            raise UnsupportedEventError(
                "A GaussianProjectionEvent has no mu, because its sensitivity is random. Ask for epsilon at a delta."
            )
        return math.sqrt(self._square)

    def epsilon(self, delta: float) -> float:
        """Epsilon of all events together, rounded up: 0.0 for nothing, infinite after a non-private event.

        Args:
            delta: In [0, 1); at 0 every Gaussian release costs infinity.

        Raises:
            ValueError: If delta is out of range.
        """
        if not 0 <= delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {delta!r}. Choose it, e.g., 1e-5.")
        if not self._private:
            return math.inf
        if self._square == 0 and not self._projections:
            return 0.0
        if delta == 0:
            return math.inf
        if not self._projections:
            return gauss_epsilon(delta, math.sqrt(self._square))
        coupled = self._num_projections > 1
        return mixture_epsilon(delta, math.sqrt(self._square), self._projections, coupled=coupled)

    def _check(self, event: PrivacyEvent, whole: PrivacyEvent) -> None:
        # Exact types: a subclass may mean something else, and an unknown meaning must not be billed as a known one.
        kind = type(event)
        where = kind.__name__ if event is whole else f"{kind.__name__} inside {type(whole).__name__}"
        if kind is ComposedEvent and isinstance(event, ComposedEvent):
            for part in event.events:
                self._check(part, whole)
        elif kind is SelfComposedEvent and isinstance(event, SelfComposedEvent):
            self._check(event.event, whole)
        elif kind not in (NoOpEvent, NonPrivateEvent, GaussianEvent, GaussianProjectionEvent):
            raise UnsupportedEventError(
                f"{where} is not known to this accountant, which must not guess what it costs. "
                "Upgrade cdr-zoo if the release is newer."
            )
        if self.relation is not None and self.relation not in kind.relations:
            raise UnsupportedEventError(
                f"{where} means nothing under {self.relation.value!r}; "
                f"it does under {sorted(relation.value for relation in kind.relations)}."
            )

    def _add(self, event: PrivacyEvent, count: float) -> None:
        match event:
            case NonPrivateEvent():
                self._private = False
            case GaussianEvent():
                self._square += count / event.noise_multiplier / event.noise_multiplier
            case GaussianProjectionEvent():
                square = count / event.noise_multiplier / event.noise_multiplier
                self._projections[event.dim] = self._projections.get(event.dim, 0.0) + square
                self._num_projections += count
            case SelfComposedEvent():
                self._add(event.event, count * event.count)
            case ComposedEvent():
                for part in event.events:
                    self._add(part, count)


def epsilon_of(events: Iterable[PrivacyEvent], delta: float, relation: Relation | None = None) -> float:
    """Epsilon of a ledger at a given delta, rounded up; see `Accountant`.

    Args:
        events: What happened on the same data, in any order.
        delta: In [0, 1).
        relation: Neighbouring relation that the events' sensitivities were measured under; None leaves it unchecked.

    Raises:
        UnsupportedEventError: If an event is unknown or means nothing under the relation.
        ValueError: If delta is out of range.
    """
    return _composed(events, relation).epsilon(delta)


def mu_of(events: Iterable[PrivacyEvent]) -> float:
    """The mu of one Gaussian release that equals a ledger of Gaussian releases; 0 for nothing.

    Raises:
        UnsupportedEventError: If the ledger holds an unknown event or a release through a Gaussian matrix.
    """
    return _composed(events, None).mu


def _composed(events: Iterable[PrivacyEvent], relation: Relation | None) -> Accountant:
    accountant = Accountant(relation)
    for event in events:
        accountant.compose(event)
    return accountant
