"""Calibration: how much Gaussian noise a guarantee needs, and what guarantee a noise gives.

Everything in this room is a pure function of public numbers. The guarantee is (epsilon, delta)-differential privacy;
which change it hides (the neighbouring relation) is decided by the sensitivity that the caller measures under that
relation. All results are rounded to the safe side: a calibrated noise is never too small, a reported epsilon never too
low. An argument that is out of range raises ValueError, which says what to pass instead.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, ndtr

Floats = npt.NDArray[np.float64]

# Margins over the rounding errors of the curves. The one of what is calibrated is the larger, so that accounting for a
# calibrated mechanism never gives more than was asked for. That of delta is on the curve itself: where epsilon is small
# beside delta, no margin on epsilon would make up for a delta that is a little too low.
CALIBRATION_MARGIN = 1e-10
EPSILON_MARGIN = 1e-12
DELTA_MARGIN = 1e-12

SMALLEST = 1e-300
"""Epsilons and deltas below it are refused: their logarithms are those of no ordinary float."""

_ROUNDED = 2.0**-51  # relative; more than the errors of the two arguments of the curve
_NARROW = 0.5  # mu below which the curve is an integral, so that no digits cancel


def _unit_nodes(count: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre points and weights for means over [0, 1], each of shape ``(count,)``."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return (points + 1) / 2, weights / 2


_GAUSS = _unit_nodes(12)


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is no positive finite number."""
    if not (epsilon >= SMALLEST and math.isfinite(epsilon)):
        raise ValueError(
            f"epsilon must be a positive finite number, got {epsilon!r}. Choose how much may be lost, e.g. 1.0, and no less "
            f"than {SMALLEST:g}; "
            "to release without privacy use a publisher that says so."
        )


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    if not SMALLEST <= delta < 1:
        raise ValueError(
            f"delta must lie strictly between 0 and 1, got {delta!r}. "
            f"Choose it well below one over the number of users, e.g. 1e-5, and no less than {SMALLEST:g}."
        )


def check_sensitivity(sensitivity: float) -> None:
    """Refuse a sensitivity that is no positive finite number."""
    if not (sensitivity > 0 and math.isfinite(sensitivity)):
        raise ValueError(
            f"sensitivity must be a positive finite number, got {sensitivity!r}. "
            "Clip or clamp the data, and pass the bound that this gives."
        )


def check_curve(epsilon: float, name: str, shift: float) -> None:
    """Refuse an epsilon that is negative or infinite, and a negative ratio of sensitivity and noise."""
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be a finite number of at least 0, got {epsilon!r}.")
    if not shift >= 0:
        raise ValueError(f"{name} must be at least 0, got {shift!r}. It is the sensitivity divided by the noise.")


def gauss_delta(epsilon: float, mu: float) -> float:
    """Delta of one Gaussian release at an epsilon of at least 0, rounded up; see `gauss_curve`.

    Mu is the L2 sensitivity divided by the standard deviation of the noise; dimensionless.
    """
    check_curve(epsilon, "mu", mu)
    return float(gauss_curve(epsilon, np.array([float(mu)]))[0])


def gauss_curve(epsilon: float, mu: Floats) -> Floats:
    """``Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)`` for many mu, shape ``(n,)``, rounded up.

    The delta of a Gaussian release (Balle & Wang, ICML 2018, Theorem 8). By no more than 1e-11 of itself too much up to
    an epsilon of 1e4.
    """
    # With w and v = w + mu for the arguments turned round, e^epsilon phi(v) = phi(w), so with Mills' ratio R = (1 - Phi)/phi the
    # curve is phi(w) (R(w) - R(v)): nothing overflows. Both are taken lower by their rounding, as for a smaller epsilon.
    with np.errstate(all="ignore"):
        centre = epsilon / mu
        w = centre - _ROUNDED * (centre + mu / 2) - mu / 2
        density = np.exp(-w * w / 2) / math.sqrt(2 * math.pi)
        narrow = density * mu * _mean_slope(w, mu)
        wide = np.where(w > 0, density * _mills(np.maximum(w, 0.0)), ndtr(-w)) - density * _mills(w + mu)
    values = np.where(mu < _NARROW, narrow, np.where(np.isinf(mu), 1.0, wide))
    return np.where((mu > 0) & (density > 0), np.clip(values * (1 + DELTA_MARGIN), 0.0, 1.0), np.where(w < 0, 1.0, 0.0))


def _mills(x: Floats) -> Floats:
    """``(1 - Phi(x))/phi(x)``, which falls, without cancellation."""
    result: Floats = math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    return result


def _mean_slope(w: Floats, mu: Floats) -> Floats:
    """``(R(w) - R(w + mu))/mu`` for small mu, as the mean of ``-R'(t) = 1 - t R(t)`` between the two; shape ``(n,)``."""
    points, weights = _GAUSS
    t = w[:, None] + mu[:, None] * points
    slopes: Floats = (1 - t * _mills(t)) @ weights
    return slopes


@lru_cache(maxsize=256, typed=True)  # a release is accounted for whenever it is read
def gauss_epsilon(delta: float, mu: float) -> float:
    """Epsilon of one Gaussian release at a given delta in (0, 1), rounded up.

    The inverse of `gauss_delta` in epsilon; 0 if the release hides the change entirely at this delta. A mu beyond 1e100
    counts as infinite.
    """
    check_delta(delta)
    check_curve(0.0, "mu", mu)
    if mu > 1e100:
        return math.inf
    # Chernoff's bound on the privacy loss: safe to start from.
    tail = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    return smallest_epsilon(lambda epsilon: gauss_delta(epsilon, mu) <= delta, start=tail)


@lru_cache(maxsize=256, typed=True)  # a publisher calibrates when it is made, and again for each plan
def gauss_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose Gaussian release is (epsilon, delta)-private, rounded down.

    The noise to add has standard deviation ``L2 sensitivity / mu``. Valid at every epsilon, unlike the classical
    formula (Balle & Wang, ICML 2018, Section 3).
    """
    check_epsilon(epsilon)
    check_delta(delta)
    return largest_shift(lambda mu: gauss_delta(epsilon, mu) <= delta)


def smallest_epsilon(is_safe: Callable[[float], bool], start: float = 1.0) -> float:
    """The least epsilon from which on a claim is safe, rounded up; infinite if there is none below 1e300."""
    if is_safe(0.0):
        return 0.0
    safe = start
    while not is_safe(safe):
        safe *= 2
        if safe > 1e300:
            return math.inf
    return _bisect(is_safe, safe, 0.0) * (1 + EPSILON_MARGIN)


def largest_shift(is_safe: Callable[[float], bool]) -> float:
    """The largest ratio of sensitivity and noise up to which a claim is safe, rounded down."""
    safe = unsafe = 1.0
    while not is_safe(safe):
        safe, unsafe = safe / 2, safe
    while is_safe(unsafe):
        safe, unsafe = unsafe, unsafe * 2
    return _bisect(is_safe, safe, unsafe) * (1 - CALIBRATION_MARGIN)


def _bisect(is_safe: Callable[[float], bool], safe: float, unsafe: float) -> float:
    """The safe end of the last interval that floating point can halve; a root finder might end on the other side."""
    for _ in range(200):
        middle = (safe + unsafe) / 2
        if middle in (safe, unsafe):
            break
        if is_safe(middle):
            safe = middle
        else:
            unsafe = middle
    return safe
