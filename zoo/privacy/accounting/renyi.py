"""Renyi divergences: a second bound on composed losses, for deltas and step counts that privacy loss distributions cannot resolve.

Divergences add up over releases (Mironov, CSF 2017). Each order gives a bound, so a coarse grid of orders is safe.

A step on a Poisson sample is dominated by a pair of mixtures of ``N(0, s^2)`` with weight ``1 - q`` and a shifted normal with
weight q, where q is the rate and s the noise over the clip. Zeroing a user out compares the shift 1 with no user, and the mixture
comes first (Mironov, Talwar & Zhang 2019, Theorem 5). Replacement compares the shifts 1 and -1: its sensitivity is twice the clip.

Proof for replacement by any x' of norm at most 1: for t >= 1 the hockey-stick divergence is q times that of ``N(x)`` at
``T = 1 + (t - 1)/q`` from the mixture of ``N(x')`` with weight ``t/T`` and ``N(0)``. That is the mean of a convex function of a
sum of lognormals, which is largest if all rise together (Dhaene et al., Insurance: Mathematics and Economics 2002), and grows with
``|x - x'| <= 2`` and ``|x| <= 1``: opposite shifts. The pair is symmetric, which gives t < 1 and all Renyi divergences.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ORDERS: Floats = 1 + np.geomspace(0.05, 1e6, 240)
"""Orders of divergence, above 1, shape ``(orders,)``; neighbours differ by 7 %."""

_MOST_POINTS = 2**14  # of one integral; higher orders are left out
_REACH = 12  # standard deviations around the outermost peaks; the rest is below 1e-31
_SMALL = 0.05  # powers of losses below which a series replaces a difference
_MARGIN = 1e-9  # relative, above the error of sums and integrals


@lru_cache(maxsize=64)  # a training needs the cost of several numbers of the same step
def sampled_divergences(multiplier: float, rate: float, zeroed_out: bool) -> Floats:
    """Return the divergences of one Gaussian sum over a Poisson sample, shape ``(orders,)``; infinite where not computed.

    Args:
        multiplier: Noise over clip.
        rate: Probability of a user to be in the sample, in (0, 1].
        zeroed_out: Whether a user is zeroed out; else replaced.
    """
    # The logarithm of the densities' ratio has its nearest poles at an imaginary part of pi s^2: the trapezoid rule is exact to
    # about exp(-2 pi^2 s^2 / step).
    step, square = min(multiplier / 4, multiplier**2 / 4), multiplier * multiplier
    first = -1 - _REACH * multiplier
    lasts = (ORDERS if zeroed_out else 2 * ORDERS - 1) + _REACH * multiplier
    lasts = lasts[lasts - first < _MOST_POINTS * step]
    z = np.arange(
        first, lasts.max(initial=first) + step, step
    )  # for the highest order; lower ones need the first of them
    weights = -z * z / (2 * square) + math.log(step / (multiplier * math.sqrt(2 * math.pi)))
    ratio = _log_mixture((2 * z - 1) / (2 * square), rate)
    if not zeroed_out:
        other = _log_mixture(-(2 * z + 1) / (2 * square), rate)
        ratio, weights = ratio - other, weights + other
    found = np.full(ORDERS.shape, np.inf)
    for place, count in enumerate(np.ceil((lasts + step - first) / step).astype(int)):
        found[place] = _divergence(weights[:count], ratio[:count], float(ORDERS[place]))
    found.setflags(write=False)
    return found


def _divergence(weights: Floats, ratio: Floats, order: float) -> float:
    """Return one divergence of the pair of mixtures, rounded up, by the trapezoid rule at equidistant points."""
    powers = weights + order * ratio
    if (highest := float(powers.max())) > 0:
        return (highest + math.log(np.exp(powers - highest).sum())) * (1 + _MARGIN) / (order - 1) + _MARGIN
    # The mean of ratio - 1 is 0. Subtracted, it leaves terms that are never negative and keep their digits.
    base = np.exp(weights)
    near = base * np.polyval([*((order**k - order) / math.factorial(k) for k in range(8, 1, -1)), 0, 0], ratio)
    far = np.exp(powers) - base - order * (np.exp(weights + ratio) - base)
    excess = float(np.where(np.abs(order * ratio) < _SMALL, near, far).sum())
    return math.log1p(max(excess, 0.0) * (1 + _MARGIN)) / (order - 1)


def _log_mixture(loss: Floats, rate: float) -> Floats:
    """Return ``ln(1 - rate + rate e^loss)``, accurate near 0."""
    least = -1 if rate > 0.5 else -math.inf  # below it, the logarithm of a rate near 1 would cancel
    near = np.log1p(rate * np.expm1(np.clip(loss, least, 1)))
    stay = math.log1p(-rate) if rate < 1 else -math.inf
    return np.where((loss >= least) & (loss <= 1), near, np.logaddexp(stay, math.log(rate) + loss))


def gaussian_divergences(square: float) -> Floats:
    """Return the divergences of Gaussian releases with this sum of mu^2, shape ``(orders,)``."""
    return ORDERS * square / 2


def bit_divergences(epsilon: float) -> Floats:
    """Return the divergences of a flipped bit, which bound those of every mechanism with this pure epsilon."""
    stay, flip = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
    powers = np.logaddexp(ORDERS * stay + (1 - ORDERS) * flip, ORDERS * flip + (1 - ORDERS) * stay)
    return np.asarray(np.maximum(powers, 0.0) * (1 + _MARGIN) / (ORDERS - 1) + 1e-15)


def laplace_divergences(multiplier: float) -> Floats:
    """Return the divergences of Laplace noise of this scale over the sensitivity (Mironov, CSF 2017, Proposition 6)."""
    rise = np.log(ORDERS / (2 * ORDERS - 1)) + (ORDERS - 1) / multiplier
    fall = np.log((ORDERS - 1) / (2 * ORDERS - 1)) - ORDERS / multiplier
    return np.asarray(np.maximum(np.logaddexp(rise, fall), 0.0) * (1 + _MARGIN) / (ORDERS - 1) + 1e-15)


def divergences_of(losses: Any) -> Floats:  # noqa: ANN401  Losses, whose module imports this one
    """Return the divergences of all events together, shape ``(orders,)``."""
    total = gaussian_divergences(losses.square)
    for epsilon, count in losses.bits:
        total = total + count * bit_divergences(epsilon)
    for multiplier, count in losses.laplace:
        total = total + count * laplace_divergences(multiplier)
    for (sigma, rate), count in losses.sampled:
        # Sigma is over the sensitivity: the clip, or twice that.
        multiplier = sigma if losses.zeroed_out else 2 * sigma
        total = total + count * sampled_divergences(multiplier, rate, losses.zeroed_out)
    return total


def renyi_epsilon(divergences: Floats, delta: float) -> float:
    """Return epsilon at a delta in (0, 1) from divergences at `ORDERS` (Canonne, Kamath & Steinke 2020, Proposition 12).

    Examples:
        >>> round(renyi_epsilon(gaussian_divergences(1.0), 1e-5), 3)
        4.729
    """
    bounds = divergences + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    return max(0.0, float(bounds.min()) * (1 + _MARGIN))


def renyi_delta(divergences: Floats, epsilon: float) -> float:
    """Return delta at an epsilon of at least 0 from divergences at `ORDERS`: the inverse of `renyi_epsilon`."""
    exponents = (ORDERS - 1) * (divergences - epsilon / (1 + _MARGIN) + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    return float(np.exp(min(0.0, float(exponents.min()))))
