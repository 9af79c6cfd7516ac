"""Pure epsilon: flips of randomised response, scale of Laplace noise, and the cost of repetitions.

Rounded to the safe side: the probability of a false report is never too small, a reported epsilon never too low.
"""

import math

import numpy as np
from scipy.special import gammaln

from zoo.privacy.accounting.gaussian import CALIBRATION_MARGIN, EPSILON_MARGIN, check_epsilon, check_sensitivity

_UNIT = 2.0**-53  # probabilities are multiples of it, so 53 random bits draw them exactly
_LARGEST_COUNT = 100_000  # above it, repeated_epsilon adds up; its sum has one term per count


def flip_probability(epsilon: float) -> float:
    """Return the probability that randomised response reports a bit wrongly: ``1/(1 + e^epsilon)``, a multiple of 2^-53.

    Protects one bit: the two neighbours differ in it. Its report is epsilon-private with no delta, and tightly so (Kairouz, Oh &
    Viswanath, ICML 2015). Above an epsilon of 36.7 the result stays at 2^-53. Rounded up.

    Examples:
        >>> round(flip_probability(2.0), 4)
        0.1192
    """
    check_epsilon(epsilon)
    small = math.exp(-epsilon * (1 - CALIBRATION_MARGIN))
    units = max(1, math.ceil(small / (1 + small) * (1 + 2.0**-51) / _UNIT))
    if units * _UNIT >= 0.5:
        raise ValueError(f"epsilon is {epsilon!r}. Allowed: >= about 1e-15, so that reports depend on bits.")
    return units * _UNIT


def flips_epsilon(p1: float, p2: float) -> float:
    """Return epsilon of a bit that is flipped with probability ``p1`` if set and ``p2`` if not, both in [0, 1]; no delta.

    The largest of four log-ratios: either report, either way, rounded up. *One-Bit Matrix Completion with Differential Privacy*,
    Theorem 1, misses two of them: at ``p1 = 0, p2 = 1/2`` it gives ln 2, although the report "unset" has probability 0 for a set
    bit. Infinite if a report is possible for one bit only; 0 if the report does not depend on the bit.
    """
    for name, value in (("p1", p1), ("p2", p2)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} is {value!r}. Allowed: [0, 1].")
    difference = math.fsum((1, -p1, -p2))  # between the probabilities of one report for either bit; for both reports
    return max(_log_ratio(1 - p1, p2, difference), _log_ratio(1 - p2, p1, difference)) * (1 + EPSILON_MARGIN)


def _log_ratio(first: float, second: float, difference: float) -> float:
    """Return ``|ln(first/second)|`` of two probabilities, accurate for a ratio near 1."""
    if difference == 0:
        return 0.0
    if first <= 0 or second <= 0:
        return math.inf
    if abs(difference) < second / 2:
        return abs(math.log1p(difference / second))
    return abs(math.log(first) - math.log(second))


def ternary_keep(epsilon: float) -> float:
    """Return the probability of a true report of three symbols: ``e^epsilon/(e^epsilon + 2)``, rounded down.

    Protects one entry with one of three symbols, such as a sign or no rating; neighbours differ in it in any way. The two other
    symbols are reported equally often. Epsilon-private with no delta.
    """
    check_epsilon(epsilon)
    keep = 1 / (1 + 2 * math.exp(-epsilon * (1 - CALIBRATION_MARGIN)))
    keep = math.floor(keep * (1 - 2.0**-51) / _UNIT) * _UNIT
    if 3 * keep <= 1:
        raise ValueError(f"epsilon is {epsilon!r}. Allowed: >= about 1e-14, so that reports depend on entries.")
    return keep


def laplace_scale(epsilon: float, l1_sensitivity: float) -> float:
    """Return the scale of Laplace noise that makes a vector epsilon-private, ``l1_sensitivity / epsilon``, rounded up."""
    check_epsilon(epsilon)
    check_sensitivity(l1_sensitivity)
    return l1_sensitivity / epsilon * (1 + CALIBRATION_MARGIN)


def repeated_epsilon(epsilon: float, count: int, delta: float = 0.0) -> float:
    """Return epsilon of ``count`` mechanisms with a pure epsilon each, rounded up.

    At delta 0, and for very many, it is their sum. Else it is the exact cost of ``count`` flipped bits, which other such
    mechanisms cannot exceed (Kairouz, Oh & Viswanath, ICML 2015, Theorem 3.3). Delta is the largest ``P(A) - e^epsilon Q(A)``,
    and the best events A are "at most j bits were flipped".
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon is {epsilon!r}. Allowed: >= 0.")
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"count is {count!r}. Allowed: integers >= 1.")
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta!r}. Allowed: [0, 1), e.g. 1e-5.")
    basic = epsilon if count == 1 else math.nextafter(epsilon * count, math.inf)
    if delta == 0 or count > _LARGEST_COUNT or not 0 < basic < math.inf:
        return basic
    flips = np.arange(count + 1)
    ways = gammaln(count + 1) - gammaln(flips + 1) - gammaln(count - flips + 1)
    log_flip, log_stay = -np.logaddexp(0.0, epsilon), -np.logaddexp(0.0, -epsilon)
    upper = np.logaddexp.accumulate(ways + flips * log_flip + (count - flips) * log_stay)  # ln P(at most j flips)
    lower = np.logaddexp.accumulate(ways + flips * log_stay + (count - flips) * log_flip)  # the same seen from Q
    likely = upper > math.log(delta)
    losses = upper[likely] + np.log1p(-np.exp(math.log(delta) - upper[likely])) - lower[likely]
    rounding = 1e-9 + 1e-12 * basic
    return min(basic, max(0.0, float(losses.max()) + rounding))


def repeated_delta(epsilon: float, count: int, at: float) -> float:
    """Return delta at the epsilon ``at`` of ``count`` mechanisms with a pure epsilon each, rounded up.

    The inverse of `repeated_epsilon`: the mean over the numbers j of flipped bits of ``1 - e^(at - (count - 2 j) epsilon)``
    where that is positive. At 0 it is the total variation distance, for one bit ``tanh(epsilon/2)``. Very many mechanisms count
    as one with the sum of their epsilons.
    """
    basic = repeated_epsilon(epsilon, count)
    if at >= basic:
        return 0.0
    if count == 1 or count > _LARGEST_COUNT or not basic < math.inf:
        return -math.expm1(at - basic) / (1 + math.exp(-basic)) * (1 + EPSILON_MARGIN)
    flips = np.arange((count + 1) // 2)  # with more than half flipped, the report favours the other world
    ways = gammaln(count + 1) - gammaln(flips + 1) - gammaln(count - flips + 1)
    chances = np.exp(ways - flips * np.logaddexp(0.0, epsilon) - (count - flips) * np.logaddexp(0.0, -epsilon))
    gains = -np.expm1(np.minimum(at - (count - 2 * flips) * epsilon, 0.0))
    return min(1.0, float(chances @ gains) * (1 + 1e-9))
