"""Accounting: the cost of a ledger of events. Unknown events are refused."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Self

from scipy.optimize import minimize_scalar
from scipy.special import erfinv, expit, ndtr, ndtri

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
from zoo.privacy.accounting.losses import MOST_TIMES, Losses, convolved_epsilon, loss_delta, loss_epsilon
from zoo.privacy.accounting.pure import flips_epsilon, repeated_delta, repeated_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.runtime.renamed import OldName

ACCOUNTANT = "zoo.privacy.accounting/3"
"""Name and version of the accountant, for records. The version rises when one of its epsilons changes."""

FALSE_ALARM_RATES = (0.001, 0.01, 0.1)
"""Rates at which a record shows the largest detection rate."""
_STEEPEST = 40.0  # logarithm of the steepest tangent of a trade-off curve that is tried


class UnsupportedEventError(ValueError):
    """An event that the accountant cannot account for."""


class Accountant:
    """Adds up events on the same data and returns their total cost.

    Gaussian releases are exact: ``mu^2`` adds up, also if each is chosen after seeing earlier ones (Dong, Roth & Su, JRSS B 2022,
    Corollary 2). One release through a Gaussian matrix besides them is exact too. Several are bounded from above for any
    dependence of their matrices, if the data and other releases depend on no matrix
    (`zoo.privacy.accounting.gaussian_mixture.mixture_delta`). Each may be chosen after seeing earlier ones if its matrix is drawn
    later. Events through a public matrix are for `zoo.privacy.record.shared_projection`, which knows the seeds.

    Events without delta (flipped bits, Laplace noise) add up at delta 0. At a delta above 0 there are two bounds, and the smaller
    one counts. The first composes the losses of all events, sampled steps included, by their distributions or Renyi divergences
    (`zoo.privacy.accounting.losses`). The second adds the pure epsilons to the cost of the Gaussian releases, where a sampled step
    counts as a step on all users. Each kind has half of delta if there are losses and Gaussian matrices.

    Args:
        relation: Neighbouring relation of the events' sensitivities. None leaves it unchecked; a sampled step then has its cost
            under ``replace_one_user``, which is the largest.
        ledger: First events, in any order.

    Examples:
        >>> accountant = Accountant(Relation.CHANGE_ONE_RATING, [GaussianEvent(2.0)])
        >>> round(accountant.epsilon(delta=1e-5), 3), accountant.mu
        (1.993, 0.5)
        >>> round(accountant.compose(GaussianEvent(2.0), count=3).epsilon(1e-5), 3)
        4.377
        >>> round(accountant.max_attack_success, 3)  # at most, between two neighbours
        0.691
    """

    best_guess = OldName("max_attack_success")

    def __init__(self, relation: Relation | None = None, ledger: Iterable[PrivacyEvent] = ()) -> None:
        self.relation = relation
        self._private = True
        self._square = 0.0  # sum of mu^2 over Gaussian events
        self._projections: dict[int, float] = defaultdict(float)  # width of the matrix -> sum of s^2
        self._num_projections = 0.0
        # Counts of these events; a pure epsilon is at worst a flipped bit:
        self._bits: dict[float, float] = defaultdict(float)  # by epsilon
        self._laplace: dict[float, float] = defaultdict(float)  # by noise multiplier
        self._sampled: dict[tuple[float, float], float] = defaultdict(float)  # by noise over sensitivity, and rate
        for event in ledger:
            self.compose(event)

    def compose(self, event: PrivacyEvent, count: int = 1) -> Self:
        """Add an event, ``count`` times with fresh noise, and return the accountant.

        Raises:
            UnsupportedEventError: The event, or one inside it, is unknown or has no meaning under the relation; nothing is added.
        """
        if type(count) is not int or count < 1:
            raise ValueError(f"count is {count!r}. Allowed: integers >= 1.")
        singles = list(flattened(event, float(count)))
        for single, _ in singles:
            self._check(single, event)
        for single, times in singles:
            self._add(single, times)
        return self

    @property
    def mu(self) -> float:
        """Parameter of the Gaussian release that equals all events together; infinite after a non-private event.

        Raises:
            UnsupportedEventError: No single mu describes an event.
        """
        if not self._private:
            return math.inf
        for present, what in (
            (self._projections, "GaussianProjectionEvent has no mu: its sensitivity is random"),
            (self._sampled, "PoissonSampledGaussianEvent has no mu: its sample is random"),
            (self._bits or self._laplace, "release with a pure epsilon has no mu: its noise is not Gaussian"),
        ):
            if present:
                raise UnsupportedEventError(f"A {what}. Use epsilon at a delta.")
        return math.sqrt(self._square)

    def epsilon(self, delta: float) -> float:
        """Return epsilon of all events at a delta in [0, 1), rounded up; at delta 0 it is infinite after a Gaussian event."""
        if not 0 <= delta < 1:
            raise ValueError(f"delta is {delta!r}. Allowed: [0, 1), e.g. 1e-5.")
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
        """Return delta of all events at an epsilon of at least 0, rounded up: the inverse of `epsilon`."""
        check_curve(epsilon, "mu", 0.0)
        if not self._private:
            return 1.0
        added = self._delta_added_up(epsilon)
        if added == 0 or not (self._bits or self._laplace or self._sampled):
            return min(1.0, added)
        return min(1.0, added, self._delta_of_losses(epsilon))

    def falls_back(self, delta: float) -> bool:
        """Return whether epsilon at a delta is not from privacy loss distributions, although there are sampled steps."""
        return bool(self._sampled) and convolved_epsilon(self._losses(), delta) > self.epsilon(delta)

    @property
    def max_attack_success(self) -> float:
        """Largest success rate of an attack that tells two neighbours apart, with even odds, rounded up: (1 + delta(0))/2."""
        return (1 + self.delta(0.0)) / 2

    def max_detection_rate(self, false_alarm_rate: float) -> float:
        """Return the largest detection rate of a test between two neighbours with this rate of false alarms, rounded up.

        Each epsilon bounds it by ``delta(epsilon) + e^epsilon a`` and by ``1 - e^-epsilon (1 - delta(epsilon) - a)`` for a false
        alarm rate a. The least bound is the trade-off curve (Dong, Roth & Su, JRSS B 2022, Proposition 2.12). Gaussian releases
        have the closed form ``Phi(Phi^-1(a) + mu)``.

        Examples:
            >>> round(Accountant(ledger=[GaussianEvent(2.0)]).max_detection_rate(0.01), 4)
            0.0339
        """
        a = false_alarm_rate
        if not 0 < a < 1:
            raise ValueError(f"false_alarm_rate is {a!r}. Allowed: (0, 1), e.g. 0.01.")
        if not self._private:
            return 1.0
        if not (self._projections or self._sampled or self._bits or self._laplace):
            return min(1.0, float(ndtr(ndtri(a) + math.sqrt(self._square))) * (1 + EPSILON_MARGIN))

        def bound(slope: float) -> float:  # any slope of a tangent is valid; the best one is searched
            epsilon = abs(slope)
            missed = 1 - self.delta(epsilon)
            return 1 - missed + math.exp(epsilon) * a if slope > 0 else 1 - math.exp(-epsilon) * (missed - a)

        pure = min(self._pure_epsilon(), _STEEPEST)
        corners = () if self._square or self._projections or self._sampled else (bound(pure), bound(-pure))
        best = minimize_scalar(bound, bounds=(-_STEEPEST, _STEEPEST), method="bounded", options={"xatol": 1e-4}).fun
        return min(1.0, bound(0.0), float(best), *corners)

    def _delta_added_up(self, epsilon: float) -> float:
        """Return delta of the sum of pure epsilons and Gaussian releases, with a sampled step counted as one on all users."""
        pure, square = self._pure_epsilon(), self._unsampled_square()
        if epsilon >= pure:
            return self._gaussian_delta(epsilon - pure, square)
        # All together are (pure, delta(0))-private: at worst everything is revealed with probability delta(0), else a flipped bit.
        bit, shown = repeated_delta(pure, 1, epsilon), self._gaussian_delta(0.0, square)
        return bit + shown * (1 - bit)

    def _gaussian_delta(self, epsilon: float, square: float) -> float:
        """Return delta of the Gaussian releases, rounded up: the inverse of `_gaussian_epsilon`."""
        if not self._projections:
            exact = gauss_delta(epsilon, math.sqrt(square))
        elif square + sum(self._projections.values()) < LARGEST_SQUARE:
            coupled = self._num_projections > 1
            exact = mixture_delta(epsilon, math.sqrt(square), self._projections, coupled=coupled)
        else:
            return 1.0
        return exact * (1 + EPSILON_MARGIN)  # above the rounding of mu

    def _delta_of_losses(self, epsilon: float) -> float:
        """Return delta by privacy loss distributions: the inverse of `_epsilon_of_losses`."""
        if len(self._bits) == 1 and not (self._laplace or self._sampled or self._square or self._projections):
            ((once, count),) = self._bits.items()
            return repeated_delta(once, int(count), epsilon) if count <= MOST_TIMES else 1.0
        losses = self._losses()
        if not self._projections:
            return loss_delta(losses, epsilon)
        # Losses use one part of epsilon and matrices the other. Any split is valid; at equal deltas the sum is what `epsilon`
        # finds. There is nothing to split at 0, where neither is revealed with the product of both probabilities.
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
        """Return mu^2 of the Gaussian releases of fixed sensitivity, with a sampled step counted as one on all users."""
        return self._square + sum(count / sigma / sigma for (sigma, _), count in self._sampled.items())

    def _pure_epsilon(self) -> float:
        """Return the sum of the pure epsilons."""
        terms = [epsilon * count for epsilon, count in self._bits.items()]
        terms += [count / multiplier for multiplier, count in self._laplace.items()]
        total = math.fsum(terms) if max(terms, default=0.0) < math.inf else math.inf
        once = len(terms) == 1 and total in self._bits
        return total if once or total == 0 else math.nextafter(total, math.inf)

    def _gaussian_epsilon(self, delta: float, square: float) -> float:
        """Return epsilon of the Gaussian releases, those through a matrix included; ``square`` is mu^2 of the others."""
        if not self._projections:
            return gauss_epsilon(delta, math.sqrt(square)) if square else 0.0
        coupled = self._num_projections > 1
        return mixture_epsilon(delta, math.sqrt(square), self._projections, coupled=coupled)

    def _epsilon_of_losses(self, delta: float) -> float:
        """Return epsilon of all events by the distributions or divergences of their losses."""
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
        """Return the events for one distribution: all except matrices, and except Gaussian releases if there are matrices."""
        return Losses(
            bits=tuple(sorted(self._bits.items())),
            laplace=tuple(sorted(self._laplace.items())),
            sampled=tuple(sorted(self._sampled.items())),
            square=0.0 if self._projections else self._square,
            zeroed_out=self.relation is Relation.ZERO_OUT_ONE_USER,
        )

    def _check(self, single: PrivacyEvent, whole: PrivacyEvent) -> None:
        # Exact types: a subclass may mean something else, and an unknown meaning must not get a known cost.
        kind = type(single)
        where = kind.__name__ if single is whole else f"{kind.__name__} inside {type(whole).__name__}"
        if kind not in SINGLE_EVENTS:
            raise UnsupportedEventError(f"{where} is unknown. Upgrade cdr-zoo.")
        if self.relation is not None and self.relation not in kind.relations:
            allowed = sorted(relation.value for relation in kind.relations)
            raise UnsupportedEventError(f"{where} has no meaning under {self.relation.value!r}. Allowed: {allowed}.")

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
                if rate == 1:  # all users: a Gaussian release without sampling
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
    """Yield the single events inside an event in order, with their counts; nested counts multiply."""
    if type(event) is SelfComposedEvent:
        yield from flattened(event.event, count * event.count)
    elif type(event) is ComposedEvent:
        for part in event.events:
            yield from flattened(part, count)
    else:
        yield event, count


def epsilon_of(events: Iterable[PrivacyEvent], delta: float, relation: Relation | None = None) -> float:
    """Return epsilon of a ledger at a delta, rounded up; arguments and errors as for `Accountant`.

    Examples:
        >>> round(epsilon_of([GaussianEvent(2.0)], delta=1e-5), 3)
        1.993
    """
    return Accountant(relation, events).epsilon(delta)


def adaptive_epsilon(
    ledgers: Sequence[Iterable[PrivacyEvent]], delta: float, relation: Relation | None = None
) -> float:
    """Return epsilon of releases that were each chosen after seeing earlier ones, rounded up; infinite if no bound is known.

    Refusing all above a cap keeps the cap, whatever the choices (Rogers, Roth, Ullman & Vadhan, NeurIPS 2016). One release has its
    exact epsilon. Of several the smallest of these counts:

    - Equal ledgers: the exact epsilon, because choices only end a fixed sequence.
    - Pure events: their plain sum, which is the largest loss on any path.
    - Gaussian and pure events: that of the sum of mu^2 (Smith & Thakurta, 2022). The convex curve of a Gaussian release is below
      that of a pure event if both meet where the two errors are equal (Dong, Roth & Su, JRSS B 2022).

    After a first pure release, what it shows may decide between the first way and the third, so each has half of delta.
    """
    first, whole = Accountant(relation, ledgers[0]), Accountant(relation, chain.from_iterable(ledgers))
    if len(ledgers) == 1 or not whole._private:
        return whole.epsilon(delta)
    unbounded = whole._projections or whole._sampled
    if (first._bits or first._laplace) and not (first._projections or first._sampled):
        delta *= 0.5
    bounds = [whole.epsilon(delta)] if all(tuple(ledger) == tuple(ledgers[0]) for ledger in ledgers) else []
    if not unbounded and not whole._square:
        bounds.append(whole._pure_epsilon())
    if not unbounded and delta:
        pure = [*whole._bits.items(), *((1 / scale, count) for scale, count in whole._laplace.items())]
        # Of the two forms of mu one is accurate for small losses and one for large.
        mus = [max(2**1.5 * erfinv(math.tanh(once / 2)), -2 * ndtri(expit(-once))) for once, _ in pure]
        square = whole._square + sum(count * mu * mu for mu, (_, count) in zip(mus, pure, strict=True))
        bounds.append(gauss_epsilon(delta, math.sqrt(square)))
    return min(bounds, default=math.inf)


def attack_success_of(events: Iterable[PrivacyEvent], relation: Relation | None = None) -> float:
    """Return the largest success rate of an attack that sees a ledger's releases; see `Accountant.max_attack_success`."""
    return Accountant(relation, events).max_attack_success


def detection_rates_of(events: Iterable[PrivacyEvent], relation: Relation | None = None) -> dict[float, float]:
    """Return the largest detection rate at each of `FALSE_ALARM_RATES`; see `Accountant.max_detection_rate`.

    Examples:
        >>> {a: round(rate, 3) for a, rate in detection_rates_of([GaussianEvent(2.0)]).items()}
        {0.001: 0.005, 0.01: 0.034, 0.1: 0.217}
    """
    accountant = Accountant(relation, events)
    return {rate: accountant.max_detection_rate(rate) for rate in FALSE_ALARM_RATES}


def mu_of(events: Iterable[PrivacyEvent]) -> float:
    """Return mu of the Gaussian release that equals a ledger of Gaussian releases, 0 for nothing; see `Accountant.mu`."""
    return Accountant(ledger=events).mu
