"""Accounting: what a ledger of events costs. Reads events alone, and refuses what it does not know."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Self

from zoo.privacy.accounting.events import (
    SINGLE_EVENTS,
    ComposedEvent,
    GaussianEvent,
    GaussianProjectionEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    PureEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
)
from zoo.privacy.accounting.gaussian import EPSILON_MARGIN, check_curve, gauss_delta, gauss_epsilon
from zoo.privacy.accounting.gaussian_mixture import LARGEST_SQUARE, mixture_delta, mixture_epsilon
from zoo.privacy.accounting.losses import MOST_TIMES, Losses, loss_delta, loss_epsilon
from zoo.privacy.accounting.pure import flips_epsilon, repeated_delta, repeated_epsilon
from zoo.privacy.accounting.relation import Relation

ACCOUNTANT = "zoo.privacy.accounting/2"
"""Name and version of the accountant, for records. The version rises when an epsilon it gives changes."""


class UnsupportedEventError(ValueError):
    """An event that the accountant cannot account for."""


class Accountant:
    """Adds up events on the same data and says what they cost together.

    Exact for Gaussian releases (``mu^2`` adds up, also when each is chosen after seeing the ones before; Dong, Roth & Su, JRSS
    B 2022, Corollary 2) and for one release through a Gaussian matrix besides them. Several of those are bounded from above for
    any dependence of their matrices, as long as the data and what is released of them depend on none
    (`zoo.privacy.accounting.gaussian_mixture.mixture_delta`): each may be chosen after seeing the ones before if its matrix is
    drawn after them. Events through a public matrix are for `zoo.privacy.record.shared_projection`, which knows the seeds.

    Events without delta (flipped bits, Laplace noise) add up at delta 0. At a delta above 0 they, and steps on a Poisson
    sample, are composed by their privacy loss distributions (`zoo.privacy.accounting.losses`) where that gives less than the
    sum of the epsilons without delta and of the Gaussian releases with every sampled step counted as one on all users. Losses
    beside releases through a Gaussian matrix have half of delta each, since one distribution cannot hold both.

    Args:
        relation: Neighbouring relation that the events' sensitivities were measured under; None leaves it unchecked, and
            a sampled step then costs what it does under ``replace_one_user``, which is the most.
        ledger: Events to begin with, in any order.
    """

    def __init__(self, relation: Relation | None = None, ledger: Iterable[PrivacyEvent] = ()) -> None:
        self.relation = relation
        self._private = True
        self._square = 0.0  # sum of mu^2 over Gaussian events
        self._projections: dict[int, float] = defaultdict(float)  # width of the matrix -> sum of s^2
        self._num_projections = 0.0
        # How often each of these happened; a pure epsilon is at worst a flipped bit:
        self._bits: dict[float, float] = defaultdict(float)  # by epsilon
        self._laplace: dict[float, float] = defaultdict(float)  # by noise multiplier
        self._sampled: dict[tuple[float, float], float] = defaultdict(float)  # by noise over sensitivity, and rate
        for event in ledger:
            self.compose(event)

    def compose(self, event: PrivacyEvent, count: int = 1) -> Self:
        """Add an event, ``count`` times with fresh noise.

        Raises:
            UnsupportedEventError: It, or an event inside it, is unknown or means nothing under the relation; none of it is added.
        """
        if type(count) is not int or count < 1:
            raise ValueError(f"count must be an integer of at least 1, got {count!r}.")
        singles = list(flattened(event, float(count)))
        for single, _ in singles:
            self._check(single, event)
        for single, times in singles:
            self._add(single, times)
        return self

    @property
    def mu(self) -> float:
        """The mu of one Gaussian release that equals all events together; infinite after a non-private one.

        Raises:
            UnsupportedEventError: No single mu describes an event.
        """
        if not self._private:
            return math.inf
        for there, what, why in (
            (self._projections, "GaussianProjectionEvent", "its sensitivity is random. Ask for epsilon at a delta."),
            (self._sampled, "PoissonSampledGaussianEvent", "its sample is random. Ask for epsilon at a delta."),
            (self._bits or self._laplace, "release with a pure epsilon", "its noise is not Gaussian. Ask for epsilon."),
        ):
            if there:
                raise UnsupportedEventError(f"A {what} has no mu, because {why}")
        return math.sqrt(self._square)

    def epsilon(self, delta: float) -> float:
        """Epsilon of all events together at a delta in [0, 1), rounded up; at delta 0 infinite after a Gaussian one."""
        if not 0 <= delta < 1:
            raise ValueError(f"delta must lie in [0, 1), got {delta!r}. Choose it, e.g., 1e-5.")
        if not self._private:
            return math.inf
        pure = self._pure_epsilon()
        gaussian = self._square or self._projections or self._sampled
        if delta == 0:
            return math.inf if gaussian else pure
        added = pure + self._gaussian_epsilon(delta, self._unsampled_square())
        if added == 0 or not (self._bits or self._laplace or self._sampled):
            return added
        return min(added, self._epsilon_of_losses(delta))

    def delta(self, epsilon: float) -> float:
        """Delta of all events together at an epsilon of at least 0, rounded up: the curve of `epsilon`, read the other way."""
        check_curve(epsilon, "mu", 0.0)
        if not self._private:
            return 1.0
        added = self._delta_added_up(epsilon)
        if added == 0 or not (self._bits or self._laplace or self._sampled):
            return min(1.0, added)
        return min(1.0, added, self._delta_of_losses(epsilon))

    @property
    def best_guess(self) -> float:
        """How often a yes-or-no fact with even odds can be guessed from all releases at most, rounded up: (1 + delta(0))/2."""
        return (1 + self.delta(0.0)) / 2

    def _delta_added_up(self, epsilon: float) -> float:
        """What the epsilons without delta leave to the Gaussian releases, every sampled step taken for one on all users."""
        pure, square = self._pure_epsilon(), self._unsampled_square()
        if epsilon >= pure:
            return self._gaussian_delta(epsilon - pure, square)
        # All together are (pure, delta(0))-private: at worst everything shows with probability delta(0), else a flipped bit.
        bit, shown = repeated_delta(pure, 1, epsilon), self._gaussian_delta(0.0, square)
        return bit + shown * (1 - bit)

    def _gaussian_delta(self, epsilon: float, square: float) -> float:
        """As `_gaussian_epsilon`, read the other way; rounded up."""
        if not self._projections:
            exact = gauss_delta(epsilon, math.sqrt(square))
        elif square + sum(self._projections.values()) < LARGEST_SQUARE:
            coupled = self._num_projections > 1
            exact = mixture_delta(epsilon, math.sqrt(square), self._projections, coupled=coupled)
        else:
            return 1.0
        return exact * (1 + EPSILON_MARGIN)  # over the rounding of mu

    def _delta_of_losses(self, epsilon: float) -> float:
        """As `_epsilon_of_losses`, read the other way."""
        if len(self._bits) == 1 and not (self._laplace or self._sampled or self._square or self._projections):
            ((once, count),) = self._bits.items()
            return repeated_delta(once, int(count), epsilon) if count <= MOST_TIMES else 1.0
        losses = self._losses()
        if not self._projections:
            return loss_delta(losses, epsilon)
        # Losses at one part of epsilon and matrices at the other: any split holds, and where both deltas are alike the sum is
        # what `epsilon` finds. Nothing to split at 0, where neither shows with the product of both chances.
        first, second = loss_delta(losses, 0.0), self._gaussian_delta(0.0, self._square)
        best, low, high = first + second * (1 - first), 0.0, epsilon
        for _ in range(60 if epsilon > 0 else 0):
            middle = (low + high) / 2
            first = loss_delta(losses, middle)
            second = self._gaussian_delta(max(0.0, epsilon - middle), self._square)
            best = min(best, first + second)
            low, high = (middle, high) if first > second else (low, middle)
        return best

    def _unsampled_square(self) -> float:
        """Mu^2 of the Gaussian releases of fixed sensitivity if every sampled step were one on all users."""
        return self._square + sum(count / sigma / sigma for (sigma, _), count in self._sampled.items())

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
            ((epsilon, count),) = self._bits.items()  # in closed form, without the large library
            return repeated_epsilon(epsilon, int(count), delta) if count <= MOST_TIMES else math.inf
        apart = 0.0
        if self._projections:
            delta /= 2
            if delta < 1e-12:
                return math.inf
            apart = self._gaussian_epsilon(delta, self._square)
        return apart + loss_epsilon(self._losses(), delta)

    def _losses(self) -> Losses:
        """What one distribution holds: all but matrices, and the Gaussian releases beside these."""
        return Losses(
            bits=tuple(sorted(self._bits.items())),
            laplace=tuple(sorted(self._laplace.items())),
            sampled=tuple(sorted(self._sampled.items())),
            square=0.0 if self._projections else self._square,
            zeroed_out=self.relation is Relation.ZERO_OUT_ONE_USER,
        )

    def _check(self, single: PrivacyEvent, whole: PrivacyEvent) -> None:
        # Exact types: a subclass may mean something else, and an unknown meaning must not be billed as a known one.
        kind = type(single)
        where = kind.__name__ if single is whole else f"{kind.__name__} inside {type(whole).__name__}"
        if kind not in SINGLE_EVENTS:
            raise UnsupportedEventError(
                f"{where} is not known to this accountant. Upgrade cdr-zoo if the release is newer."
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
            case GaussianEvent(noise_multiplier=sigma):
                self._square += count / sigma / sigma
            case GaussianProjectionEvent(noise_multiplier=sigma, dim=dim):
                self._projections[dim] += count / sigma / sigma
                self._num_projections += count
            case PoissonSampledGaussianEvent(noise_multiplier=multiplier, rate=rate):
                # Noise over clip norm; the sensitivity is the clip norm for zeroing out and twice that for replacement.
                sigma = multiplier / (1 if self.relation is Relation.ZERO_OUT_ONE_USER else 2)
                if rate == 1:  # everybody: no sample, a Gaussian release
                    self._square += count / sigma / sigma
                else:
                    self._sampled[sigma, rate] += count
            case RandomisedResponseEvent(flip_probability=p):
                self._bits[flips_epsilon(p, p)] += count
            case PureEvent(epsilon=epsilon):
                self._bits[epsilon] += count
            case LaplaceEvent(noise_multiplier=multiplier):
                self._laplace[multiplier] += count


def flattened(event: PrivacyEvent, count: float) -> Iterator[tuple[PrivacyEvent, float]]:
    """The single events inside an event, in order, each with how often it happened: nested counts multiply."""
    if type(event) is SelfComposedEvent:
        yield from flattened(event.event, count * event.count)
    elif type(event) is ComposedEvent:
        for part in event.events:
            yield from flattened(part, count)
    else:
        yield event, count


def epsilon_of(events: Iterable[PrivacyEvent], delta: float, relation: Relation | None = None) -> float:
    """Epsilon of a ledger at a given delta, rounded up; arguments and errors as of `Accountant`."""
    return Accountant(relation, events).epsilon(delta)


def guess_of(events: Iterable[PrivacyEvent], relation: Relation | None = None) -> float:
    """How often a yes-or-no fact can be guessed at most by whoever sees a ledger's releases; see `Accountant.best_guess`."""
    return Accountant(relation, events).best_guess


def mu_of(events: Iterable[PrivacyEvent]) -> float:
    """The mu of one Gaussian release that equals a ledger of Gaussian releases, 0 for nothing; see `Accountant.mu`."""
    return Accountant(ledger=events).mu
