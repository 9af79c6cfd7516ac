"""Calibration of Gaussian noise: the noise that a guarantee needs, and the guarantee of a noise.

Pure functions of public numbers. The guarantee is (epsilon, delta)-differential privacy; the neighbouring relation is in the
sensitivity. All results are rounded to the safe side: a calibrated noise is never too small, a reported epsilon never too low.
Arguments out of range raise a ValueError.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, ndtr, ndtri

Floats = npt.NDArray[np.float64]

# Margins above the rounding errors of the curves. That of a calibration is larger, so that accounting for a calibrated mechanism
# never exceeds the request. At a small epsilon, a margin on epsilon cannot compensate a delta that is too low.
CALIBRATION_MARGIN = 1e-10
EPSILON_MARGIN = 1e-12
DELTA_MARGIN = 1e-12

SMALLEST = 1e-300
"""Smaller epsilons and deltas are refused: their logarithms are no ordinary floats."""

_ROUNDED = 2.0**-51  # relative; more than the errors of the two arguments of the curve
_NARROW = 0.5  # mu below which the curve is an integral, to avoid cancellation


_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(12)  # for integrals over [-1, 1], each of shape (12,)


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is no positive finite number."""
    if not (epsilon >= SMALLEST and math.isfinite(epsilon)):
        raise ValueError(f"epsilon is {epsilon!r}. Allowed: finite, >= {SMALLEST:g}, e.g. 1.0.")


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    if not SMALLEST <= delta < 1:
        raise ValueError(f"delta is {delta!r}. Allowed: [{SMALLEST:g}, 1), below 1/users, e.g. 1e-5.")


def check_sensitivity(sensitivity: float) -> None:
    """Refuse a sensitivity that is no positive finite number."""
    if not (sensitivity > 0 and math.isfinite(sensitivity)):
        raise ValueError(f"sensitivity is {sensitivity!r}. Allowed: finite, > 0. Pass the data's bound.")


def check_curve(epsilon: float, name: str, shift: float) -> None:
    """Refuse an epsilon that is negative or infinite, and a negative ratio of sensitivity and noise."""
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon is {epsilon!r}. Allowed: finite, >= 0.")
    if not shift >= 0:
        raise ValueError(f"{name} is {shift!r}. Allowed: >= 0.")


def gauss_delta(epsilon: float, mu: float) -> float:
    """Return delta of one Gaussian release at ``epsilon``, rounded up; mu is L2 sensitivity over noise deviation.

    Examples:
        >>> round(gauss_delta(1.0, 0.5), 5)
        0.00683
    """
    check_curve(epsilon, "mu", mu)
    return float(gauss_curve(epsilon, np.array([float(mu)]))[0])


def gauss_curve(epsilon: float, mu: Floats) -> Floats:
    """Return ``Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)`` for many mu, shape ``(n,)``, rounded up.

    The delta of a Gaussian release (Balle & Wang, ICML 2018, Theorem 8). Up to an epsilon of 1e4 its relative error is at most
    1e-11.
    """
    # For w = epsilon/mu - mu/2 and v = w + mu, e^epsilon phi(v) = phi(w). With Mills' ratio R = (1 - Phi)/phi the curve is
    # phi(w) (R(w) - R(v)), which cannot overflow. w and v are rounded down, as for a smaller epsilon.
    with np.errstate(all="ignore"):
        centre = epsilon / mu
        w = centre - _ROUNDED * (centre + mu / 2) - mu / 2
        density = np.exp(-w * w / 2) / math.sqrt(2 * math.pi)
        values = np.where(w > 0, density * _mills(np.maximum(w, 0.0)), ndtr(-w)) - density * _mills(w + mu)
        narrow = mu < _NARROW
        values[narrow] = (density * mu)[narrow] * _mean_slope(w[narrow], mu[narrow])
    values[np.isinf(mu)] = 1.0
    return np.where((mu > 0) & (density > 0), np.clip(values * (1 + DELTA_MARGIN), 0.0, 1.0), np.where(w < 0, 1.0, 0.0))


def _mills(x: Floats) -> Floats:
    """Return ``(1 - Phi(x))/phi(x)`` without cancellation."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


def _mean_slope(w: Floats, mu: Floats) -> Floats:
    """Return ``(R(w) - R(w + mu))/mu`` for small mu, as the mean of ``-R'(t) = 1 - t R(t)`` between the two; shape ``(n,)``."""
    t = w[:, None] + mu[:, None] * (_POINTS + 1) / 2
    slopes: Floats = (1 - t * _mills(t)) @ (_WEIGHTS / 2)
    return slopes


@lru_cache(maxsize=256, typed=True)  # a release is accounted for whenever it is read
def gauss_epsilon(delta: float, mu: float) -> float:
    """Return epsilon of one Gaussian release at a delta in (0, 1), rounded up: the inverse of `gauss_delta`.

    A mu above 1e100 counts as infinite.
    """
    check_delta(delta)
    check_curve(0.0, "mu", mu)
    if mu > 1e100:
        return math.inf
    # Start from Chernoff's bound on the privacy loss, which is safe.
    tail = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    return smallest_epsilon(lambda epsilon: gauss_delta(epsilon, mu) <= delta, start=tail)


@lru_cache(maxsize=256, typed=True)  # a publisher calibrates when it is created, and again for each plan
def gauss_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu whose Gaussian release is (epsilon, delta)-private, rounded down, at every epsilon.

    The noise has standard deviation ``L2 sensitivity / mu`` (Balle & Wang, ICML 2018, Section 3).

    Examples:
        >>> round(gauss_mu(1.0, 1e-5), 3)
        0.268
    """
    check_epsilon(epsilon)
    check_delta(delta)
    return largest_shift(lambda mu: gauss_delta(epsilon, mu) <= delta)


def check_target(epsilon: float | None, attack_success: float | None) -> None:
    """Refuse anything but one of epsilon and attack success, the latter in (1/2, 1)."""
    if (epsilon is None) == (attack_success is None):
        raise ValueError(f"epsilon is {epsilon!r} and attack_success {attack_success!r}. Pass exactly one of them.")
    if attack_success is not None and not 0.5 < attack_success < 1:
        raise ValueError(f"attack_success is {attack_success!r}. Allowed: (0.5, 1), e.g. 0.6.")


def target_mu(epsilon: float | None, delta: float, attack_success: float | None = None) -> float:
    """Return the largest mu of a Gaussian release for an epsilon at delta, or for an attack success; rounded down.

    The attack success of mu is ``(1 + delta(0))/2 = Phi(mu/2)``, and does not depend on delta.

    Examples:
        >>> round(target_mu(None, 1e-5, attack_success=0.6), 4)
        0.5067
    """
    check_target(epsilon, attack_success)
    if epsilon is not None:
        return gauss_mu(epsilon, delta)
    assert attack_success is not None
    check_above_delta(attack_success, delta)
    return 2 * float(ndtri(attack_success)) * (1 - CALIBRATION_MARGIN)


def check_above_delta(attack_success: float, delta: float) -> None:
    """Refuse an attack success that delta alone allows: epsilon would be 0."""
    if 2 * attack_success - 1 <= delta * (1 + 1e-6):
        raise ValueError(
            f"attack_success is {attack_success!r} and delta {delta:g}. Needed: attack_success > (1 + delta)/2."
        )


def smallest_epsilon(is_safe: Callable[[float], bool], start: float = 1.0) -> float:
    """Return the least epsilon from which a claim is safe, rounded up; infinite if there is none below 1e300."""
    if is_safe(0.0):
        return 0.0
    safe = start
    while not is_safe(safe):
        safe *= 2
        if safe > 1e300:
            return math.inf
    return _bisect(is_safe, safe, 0.0) * (1 + EPSILON_MARGIN)


def largest_shift(is_safe: Callable[[float], bool]) -> float:
    """Return the largest ratio of sensitivity and noise up to which a claim is safe, rounded down."""
    safe = unsafe = 1.0
    while not is_safe(safe):
        safe, unsafe = safe / 2, safe
    while is_safe(unsafe):
        safe, unsafe = unsafe, unsafe * 2
    return _bisect(is_safe, safe, unsafe) * (1 - CALIBRATION_MARGIN)


def _bisect(is_safe: Callable[[float], bool], safe: float, unsafe: float) -> float:
    """Return the safe end of the smallest interval that floats can halve; a root finder might return the other end."""
    for _ in range(200):
        middle = (safe + unsafe) / 2
        if middle in (safe, unsafe):
            break
        if is_safe(middle):
            safe = middle
        else:
            unsafe = middle
    return safe
