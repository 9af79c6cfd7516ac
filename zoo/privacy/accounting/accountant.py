"""Accounting: what a ledger of events costs. Reads events alone, and refuses what it does not know."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np

from zoo.privacy.accounting.events import (
    ComposedEvent,
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
)
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.gaussian_mixture import mixture_epsilon
from zoo.privacy.accounting.pure import flips_epsilon, repeated_epsilon
from zoo.privacy.accounting.relation import Relation, Unit

__all__ = ["ACCOUNTANT", "Accountant", "Relation", "Unit", "UnsupportedEventError", "epsilon_of", "mu_of"]

ACCOUNTANT = "zoo.privacy.accounting/1"
"""Name and version of the accountant, for records. The version rises when an epsilon it gives changes."""

_KNOWN = (
    NoOpEvent,
    NonPrivateEvent,
    GaussianEvent,
    GaussianProjectionEvent,
    PoissonSampledGaussianEvent,
    RandomisedResponseEvent,
    LaplaceEvent,
    PureEvent,
)

_INTERVAL = 1e-3  # between privacy losses that are told apart; coarser where there are very large ones
_POINTS = 2**19
_WIDEST = 1e4  # range of losses, kinds and repetitions beyond which adding up must do, however a ledger was made up
_MOST_KINDS = 64
_MOST_TIMES = 1e7


class UnsupportedEventError(ValueError):
    """An event that the accountant cannot account for."""


class Accountant:
    """Adds up events on the same data and says what they cost together.

    Exact for Gaussian releases (``mu^2`` adds up, also when each is chosen after seeing the ones before; Dong, Roth &
    Su, JRSS B 2022, Corollary 2) and for one release through a Gaussian matrix besides them. Several such releases are
    bounded from above for any dependence of their matrices, a shared one included; see
    `zoo.privacy.accounting.gaussian_mixture.mixture_delta`.

    Events without delta (flipped bits, Laplace noise) add up at delta 0. At a delta above 0 they, and steps on a Poisson
    sample, are composed by their privacy loss distributions, rounded up (`dp_accounting`; Doroshenko et al., PoPETs
    2022), where that gives less than adding up does: the epsilons without delta, and that of the Gaussian releases with
    every sampled step taken for one on all users, which hides less. Losses beside releases through a Gaussian matrix
    have half of delta each, since one distribution cannot hold both.

    Args:
        relation: Neighbouring relation that the events' sensitivities were measured under; None leaves it unchecked, and
            a sampled step then costs what it does under ``replace_one_user``, which is the most.
    """

    def __init__(self, relation: Relation | None = None) -> None:
        self.relation = relation
        self._private = True
        self._square = 0.0  # sum of mu^2 over Gaussian events
        self._projections: dict[int, float] = {}  # width of the matrix -> sum of s^2
        self._num_projections = 0.0
        # How often each of these happened:
        self._bits: dict[float, float] = {}  # by epsilon; a flipped bit is the worst that a pure epsilon can stand for
        self._laplace: dict[float, float] = {}  # by noise multiplier
        self._sampled: dict[tuple[float, float], float] = {}  # by noise multiplier, halved for replacement, and rate

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
            UnsupportedEventError: If there was a release that no single mu describes: through a Gaussian matrix, on a
                sample, or without Gaussian noise.
        """
        if not self._private:
            return math.inf
        if self._projections:
            raise UnsupportedEventError(
                "A GaussianProjectionEvent has no mu, because its sensitivity is random. Ask for epsilon at a delta."
            )
        if self._sampled:
            raise UnsupportedEventError(
                "A PoissonSampledGaussianEvent has no mu, because its sample is random. Ask for epsilon at a delta."
            )
        if self._bits or self._laplace:
            raise UnsupportedEventError(
                "A release with a pure epsilon has no mu, because its noise is not Gaussian. Ask for epsilon."
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
        pure = self._pure_epsilon()
        gaussian = bool(self._square or self._projections or self._sampled)
        if not gaussian and (delta == 0 or pure == 0):
            return pure
        if delta == 0:
            return math.inf
        unsampled = sum(count / sigma / sigma for (sigma, _), count in self._sampled.items())
        added = pure + self._gaussian_epsilon(delta, self._square + unsampled)
        if not (self._bits or self._laplace or self._sampled):
            return added
        return min(added, self._epsilon_of_losses(delta))

    def _pure_epsilon(self) -> float:
        """The sum of the epsilons without delta; what is not so private has none."""
        terms = [epsilon * count for epsilon, count in self._bits.items()]
        terms += [count / multiplier for multiplier, count in self._laplace.items()]
        total = math.fsum(terms) if max(terms, default=0.0) < math.inf else math.inf
        once = len(terms) == 1 and total in self._bits
        return total if once or total == 0 else math.nextafter(total, math.inf)

    def _gaussian_epsilon(self, delta: float, square: float) -> float:
        """Of the Gaussian releases, those through a matrix included, if those of fixed sensitivity have this mu^2."""
        if not self._projections:
            return gauss_epsilon(delta, math.sqrt(square)) if square else 0.0
        coupled = self._num_projections > 1
        return mixture_epsilon(delta, math.sqrt(square), self._projections, coupled=coupled)

    def _epsilon_of_losses(self, delta: float) -> float:
        """Of all events by their privacy loss distributions; infinite where they are of no use."""
        if len(self._bits) == 1 and not (self._laplace or self._sampled or self._square or self._projections):
            ((epsilon, count),) = self._bits.items()
            return repeated_epsilon(epsilon, int(count), delta) if count <= _MOST_TIMES else math.inf
        apart, square = 0.0, self._square
        if self._projections:
            delta /= 2
            if delta < 1e-12:
                return math.inf
            apart, square = self._gaussian_epsilon(delta, self._square), 0.0
        losses = _Losses(_sorted(self._bits), _sorted(self._laplace), _sorted(self._sampled), square)
        return apart + _loss_epsilon(losses, self.relation is Relation.ZERO_OUT_ONE_USER, delta)

    def _check(self, event: PrivacyEvent, whole: PrivacyEvent) -> None:
        # Exact types: a subclass may mean something else, and an unknown meaning must not be billed as a known one.
        kind = type(event)
        where = kind.__name__ if event is whole else f"{kind.__name__} inside {type(whole).__name__}"
        if kind is ComposedEvent and isinstance(event, ComposedEvent):
            for part in event.events:
                self._check(part, whole)
        elif kind is SelfComposedEvent and isinstance(event, SelfComposedEvent):
            self._check(event.event, whole)
        elif kind not in _KNOWN:
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
            case PoissonSampledGaussianEvent():
                self._add_sampled(event, count)
            case RandomisedResponseEvent():
                epsilon = flips_epsilon(event.flip_probability, event.flip_probability)
                self._bits[epsilon] = self._bits.get(epsilon, 0.0) + count
            case PureEvent():
                self._bits[event.epsilon] = self._bits.get(event.epsilon, 0.0) + count
            case LaplaceEvent():
                multiplier = event.noise_multiplier
                self._laplace[multiplier] = self._laplace.get(multiplier, 0.0) + count
            case SelfComposedEvent():
                self._add(event.event, count * event.count)
            case ComposedEvent():
                for part in event.events:
                    self._add(part, count)

    def _add_sampled(self, event: PoissonSampledGaussianEvent, count: float) -> None:
        # The noise over the sensitivity, which is the clip norm for zeroing out and twice that for replacement.
        moves = 1 if self.relation is Relation.ZERO_OUT_ONE_USER else 2
        sigma = event.noise_multiplier / moves
        if event.rate == 1:  # everybody: no sample, a Gaussian release
            self._square += count / sigma / sigma
        else:
            key = (sigma, event.rate)
            self._sampled[key] = self._sampled.get(key, 0.0) + count


@dataclass(frozen=True)
class _Losses:
    """Events whose privacy loss distributions can be composed: what they are, and how often they happened."""

    bits: tuple[tuple[float, float], ...]
    laplace: tuple[tuple[float, float], ...]
    sampled: tuple[tuple[tuple[float, float], float], ...]
    square: float

    @property
    def kinds(self) -> int:
        """Different events."""
        return len(self.bits) + len(self.laplace) + len(self.sampled) + (self.square > 0)

    @property
    def times(self) -> float:
        """Events."""
        return sum(count for _, count in (*self.bits, *self.laplace, *self.sampled)) + 1

    @property
    def width(self) -> float:
        """About the range of their joint loss, as far as it is kept."""
        total = self.square + 20 * math.sqrt(self.square)
        for epsilon, count in (*self.bits, *((1 / multiplier, count) for multiplier, count in self.laplace)):
            usual = epsilon * count * math.tanh(epsilon / 2) + 20 * epsilon * math.sqrt(count)
            total += min(2 * epsilon * count, usual)
        for (sigma, rate), count in self.sampled:
            square, single = sigma**-2, _range(sigma**-2)
            spread = count * min(square, rate * rate * math.expm1(min(square, 500.0)))
            total += single + spread + 20 * math.sqrt(spread)
        return total

    @property
    def interval(self) -> float:
        """Between losses that are told apart: fine beside those of one event, and not too fine to compute."""
        ranges = [2 / multiplier for multiplier, _ in self.laplace]
        ranges += [_range(sigma**-2) for (sigma, _), _ in self.sampled] + [_range(self.square)]
        fine = min(_INTERVAL, min(filter(None, ranges), default=1.0) / 10_000)
        return max(fine, max(ranges) * self.kinds / 200_000, self.width / _POINTS)


def _range(square: float) -> float:
    """Of the losses of one Gaussian release that are kept apart, given mu^2."""
    return square + 20 * math.sqrt(square)


def _sorted(counts: Mapping[Any, float]) -> tuple[tuple[Any, float], ...]:
    return tuple(sorted(counts.items()))


@lru_cache(maxsize=256)  # a release is accounted for whenever it is read
def _loss_epsilon(losses: _Losses, zeroed_out: bool, delta: float) -> float:
    """Epsilon by privacy loss distributions, rounded up; infinite where it would take too long or too small a delta."""
    # Convolution by FFT errs by about the precision of floats times the powers taken: so much less delta is used.
    slack = 1e-12 + 1e-15 * losses.times
    if losses.kinds > _MOST_KINDS or losses.times > _MOST_TIMES or losses.width > _WIDEST or delta <= 2 * slack:
        return math.inf
    composed = _composed_losses(losses, zeroed_out)
    if composed is None:
        return 0.0
    try:
        return float(composed.get_epsilon_for_delta(delta - slack)) * (1 + 1e-9)
    except OverflowError:  # e to the power of a loss beyond 709
        return math.inf


@lru_cache(maxsize=4)  # a curve asks for many deltas of one distribution
def _composed_losses(losses: _Losses, zeroed_out: bool) -> Any:  # noqa: ANN401  dp_accounting has no types
    """The distribution of all losses together; None if there is none."""
    composed = None
    with np.errstate(over="ignore"):  # e to the power of a gap between very large losses: its inverse is 0
        for single, count in _distributions(losses, zeroed_out):
            repeated = _repeated(single, int(count))
            composed = repeated if composed is None else composed.compose(repeated)
    return composed


def _repeated(single: Any, count: int) -> Any:  # noqa: ANN401  dp_accounting has no types
    """A distribution composed with itself; in two stages if often, so that neither has to keep too wide a range."""
    if count <= 1000:
        return single.self_compose(count)
    stage = math.isqrt(count)
    repeated = single.self_compose(stage).self_compose(count // stage)
    return repeated.compose(single.self_compose(count % stage)) if count % stage else repeated


def _distributions(losses: _Losses, zeroed_out: bool) -> Iterable[tuple[Any, float]]:
    """Each kind of event as a `dp_accounting` distribution of its privacy loss, never too small, and how often."""
    from dp_accounting import NeighboringRelation  # imported here: it takes a second, and few releases need it
    from dp_accounting.pld import privacy_loss_distribution as pld

    # Not dp_accounting's own accountant: it composes a repeated randomised response once.
    step = {"value_discretization_interval": losses.interval}
    for epsilon, count in losses.bits:
        yield _bit_distribution(epsilon, losses.interval), count
    for multiplier, count in losses.laplace:
        yield pld.from_laplace_mechanism(multiplier, **step), count
    if losses.square:
        yield pld.from_gaussian_mechanism(1 / math.sqrt(losses.square), **step), 1
    relation = NeighboringRelation.REPLACE_SPECIAL if zeroed_out else NeighboringRelation.REPLACE_ONE
    for (sigma, rate), count in losses.sampled:
        sigma = sigma if zeroed_out else 2 * sigma  # theirs is over the clip norm whatever the relation
        yield pld.from_gaussian_mechanism(sigma, sampling_prob=rate, neighboring_relation=relation, **step), count


def _bit_distribution(epsilon: float, interval: float) -> Any:  # noqa: ANN401  dp_accounting has no types
    """Of a flipped bit, on the points around ``-epsilon`` and ``epsilon``: connecting its curve's dots lies above it."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    sides = (-epsilon / interval, epsilon / interval)
    points = sorted({round_off(side) for side in sides for round_off in (math.floor, math.ceil)})
    stay = 1 / (1 + math.exp(-epsilon))
    grid = [point * interval for point in points]
    deltas = [max(0.0, -math.expm1(at) if at <= -epsilon else -stay * math.expm1(at - epsilon)) for at in grid]
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, points, deltas))


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
        UnsupportedEventError: If the ledger holds an unknown event, or one that no mu describes.
    """
    return _composed(events, None).mu


def _composed(events: Iterable[PrivacyEvent], relation: Relation | None) -> Accountant:
    accountant = Accountant(relation)
    for event in events:
        accountant.compose(event)
    return accountant
