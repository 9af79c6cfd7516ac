"""Privacy loss distributions: the joint cost of randomised response, Laplace noise and sampled steps, rounded up.

`dp_accounting` composes them (Doroshenko et al., PoPETs 2022); its own accountant composes a repeated randomised response once, and
its Renyi accountant is too low by up to a factor of two for replacement. Renyi bounds of our own (`renyi`) take over where a
convolution has too large an error, such as for a tiny delta after many steps, or would take too long. The smaller bound counts.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from zoo.privacy.accounting.renyi import Floats, divergences_of, renyi_delta, renyi_epsilon

_INTERVAL = 1e-3  # grid of privacy losses; coarser for very large losses
_POINTS = 2**19
_WIDEST = 1e4  # range of losses beyond which epsilons are added up, as for too many kinds or repetitions
_MOST_KINDS = 64
_MARGIN = 1e-9  # of epsilon, above rounding errors
MOST_TIMES = 1e7


@dataclass(frozen=True)
class Losses:
    """Events whose privacy loss distributions can be composed, with their counts."""

    bits: tuple[tuple[float, float], ...]  # randomised responses, or events bounded by one: (epsilon, count)
    laplace: tuple[tuple[float, float], ...]  # Laplace noises: (noise multiplier, count)
    # Gaussian sums over Poisson samples: ((noise over sensitivity, rate), count).
    sampled: tuple[tuple[tuple[float, float], float], ...]
    square: float  # mu^2 of all Gaussian releases together
    zeroed_out: bool  # whether sampled sums zero a user out, or replace the user

    @property
    def kinds(self) -> int:
        """Number of different events."""
        return len(self.bits) + len(self.laplace) + len(self.sampled) + (self.square > 0)

    @property
    def times(self) -> float:
        """Number of events."""
        return sum(count for _, count in (*self.bits, *self.laplace, *self.sampled)) + 1

    @property
    def width(self) -> float:
        """Approximate range of their joint loss, without negligible tails."""
        total = _range(self.square)
        for epsilon, count in (*self.bits, *((1 / multiplier, count) for multiplier, count in self.laplace)):
            usual = epsilon * count * math.tanh(epsilon / 2) + 20 * epsilon * math.sqrt(count)
            total += min(2 * epsilon * count, usual)
        for (sigma, rate), count in self.sampled:
            square, single = sigma**-2, _range(sigma**-2)
            spread = count * min(square, rate * rate * math.expm1(min(square, 500.0)))
            total += single + spread + 20 * math.sqrt(spread)
        return total

    @property
    def too_many(self) -> bool:
        """Whether composition would take too long, or too wide a range."""
        return self.kinds > _MOST_KINDS or self.times > MOST_TIMES or self.width > _WIDEST

    @property
    def slack(self) -> float:
        """Error of delta: that of an FFT convolution is about the precision of floats times the powers taken."""
        return 1e-12 + 1e-15 * self.times

    @property
    def interval(self) -> float:
        """Grid of losses: fine compared with the losses of one event, and not too fine to compute."""
        ranges = [2 / multiplier for multiplier, _ in self.laplace]
        ranges += [_range(sigma**-2) for (sigma, _), _ in self.sampled] + [_range(self.square)]
        fine = min(_INTERVAL, min(filter(None, ranges), default=1.0) / 10_000)
        return max(fine, max(ranges) * self.kinds / 200_000, self.width / _POINTS)


def _range(square: float) -> float:
    return square + 20 * math.sqrt(square)


def loss_epsilon(losses: Losses, delta: float) -> float:
    """Return epsilon of the events at a delta in (0, 1), rounded up: the smaller of two bounds."""
    return min(convolved_epsilon(losses, delta), renyi_epsilon(_divergences(losses), delta))


def loss_delta(losses: Losses, epsilon: float) -> float:
    """Return delta of the events at an epsilon of at least 0, rounded up: the smaller of two bounds."""
    return min(_convolved_delta(losses, epsilon), renyi_delta(_divergences(losses), epsilon))


@lru_cache(maxsize=64)  # a curve needs many deltas of one ledger
def _divergences(losses: Losses) -> Floats:
    return divergences_of(losses)


@lru_cache(maxsize=256)  # a release is accounted for whenever it is read
def convolved_epsilon(losses: Losses, delta: float) -> float:
    """Return epsilon by privacy loss distributions, rounded up; infinite for too many events or too small a delta."""
    if losses.too_many or delta <= 2 * losses.slack:
        return math.inf
    try:
        return float(_composed(losses).get_epsilon_for_delta(delta - losses.slack)) * (1 + _MARGIN)
    except OverflowError:  # e to the power of a loss above 709
        return math.inf


@lru_cache(maxsize=256)
def _convolved_delta(losses: Losses, epsilon: float) -> float:
    """Return delta by privacy loss distributions, rounded up; 1.0 for too many events."""
    if losses.too_many:
        return 1.0
    try:
        found = float(_composed(losses).get_delta_for_epsilon(epsilon / (1 + _MARGIN)))
    except OverflowError:
        return 1.0
    return min(1.0, found + losses.slack) if math.isfinite(found) else 1.0


@lru_cache(maxsize=4)  # a curve needs many deltas of one distribution
def _composed(losses: Losses) -> Any:  # noqa: ANN401  dp_accounting has no types
    with np.errstate(over="ignore"):  # e to the power of a gap between very large losses: its inverse is 0
        repeated = (_repeated(single, int(count)) for single, count in _distributions(losses))
        return reduce(lambda composed, other: composed.compose(other), repeated)


def _repeated(single: Any, count: int) -> Any:  # noqa: ANN401  dp_accounting has no types
    """Return a distribution composed with itself; in two stages if often, to limit the range of each."""
    if count <= 1000:
        return single.self_compose(count)
    stage = math.isqrt(count)
    repeated = single.self_compose(stage).self_compose(count // stage)
    return repeated.compose(single.self_compose(count % stage)) if count % stage else repeated


def _distributions(losses: Losses) -> Iterator[tuple[Any, float]]:
    """Yield each kind of event as a `dp_accounting` distribution of its privacy loss, rounded up, with its count."""
    from dp_accounting import NeighboringRelation  # imported here: it takes a second, and few releases need it
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = {"value_discretization_interval": losses.interval}
    for epsilon, count in losses.bits:
        yield _bit_distribution(epsilon, losses.interval), count
    for multiplier, count in losses.laplace:
        yield pld.from_laplace_mechanism(multiplier, **step), count
    if losses.square:
        yield pld.from_gaussian_mechanism(1 / math.sqrt(losses.square), **step), 1
    relation = NeighboringRelation.REPLACE_SPECIAL if losses.zeroed_out else NeighboringRelation.REPLACE_ONE
    for (sigma, rate), count in losses.sampled:
        sigma = sigma if losses.zeroed_out else 2 * sigma  # theirs is over the clip norm under every relation
        yield _sampled_distribution(sigma, rate, relation, losses.interval), count


@lru_cache(maxsize=8)  # a training needs the cost of several numbers of the same step
def _sampled_distribution(sigma: float, rate: float, relation: Any, interval: float) -> Any:  # noqa: ANN401  as above
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(
        sigma, sampling_prob=rate, neighboring_relation=relation, value_discretization_interval=interval
    )


def _bit_distribution(epsilon: float, interval: float) -> Any:  # noqa: ANN401  dp_accounting has no types
    """Return that of a flipped bit, on the grid around ``-epsilon`` and ``epsilon``; linear interpolation is above its curve."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    sides = (-epsilon / interval, epsilon / interval)
    points = sorted({round_off(side) for side in sides for round_off in (math.floor, math.ceil)})
    stay = 1 / (1 + math.exp(-epsilon))
    # delta(x) of the bit: 1 - e^x up to -epsilon, and stay (1 - e^(x - epsilon)) from there to epsilon.
    losses = [point * interval for point in points]
    deltas = [max(0.0, -math.expm1(x) if x <= -epsilon else -stay * math.expm1(x - epsilon)) for x in losses]
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, points, deltas))
