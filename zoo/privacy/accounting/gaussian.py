"""Calibration: how much noise a guarantee needs, and what guarantee a noise gives.

Everything here is a pure function of public numbers. The guarantee is (epsilon, delta)-differential privacy; which
change it hides (the neighbouring relation) is decided by the sensitivity that the caller measures under that relation.
All results are rounded to the safe side: a calibrated noise is never too small, a reported epsilon never too low.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammainccinv, gammaincinv, log_ndtr, ndtr

Floats = npt.NDArray[np.float64]

DEFAULT_ORDERS: Floats = 1.0 + np.geomspace(1e-3, 1e6, 4000)

# Margins over the rounding errors of the curves. The one of calibrated noise is the larger, so that accounting for a
# calibrated noise never gives more than was asked for.
_NOISE_MARGIN = 1e-10
_EPSILON_MARGIN = 1e-12

_NODES = 400
_REACH = 8.8  # standard normal quantile beyond which the mixture's tails are bounded, not integrated
_TAIL = 2e-18  # more than the mass of both tails
_SMALLEST_MIX_DELTA = 1e-15


def check_epsilon(epsilon: float) -> None:
    """Refuse an epsilon that is no positive finite number.

    Raises:
        ValueError: If it is not.
    """
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(
            f"epsilon must be a positive finite number, got {epsilon!r}. Choose how much may be lost, e.g. 1.0; "
            "to release without privacy use a publisher that says so."
        )


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1).

    Raises:
        ValueError: If it is.
    """
    if not 0 < delta < 1:
        raise ValueError(
            f"delta must lie strictly between 0 and 1, got {delta!r}. "
            "Choose it well below one over the number of users, e.g. 1e-5."
        )


def check_dim(dim: int) -> None:
    """Refuse a width that is no positive integer.

    Raises:
        ValueError: If it is not.
    """
    if not isinstance(dim, int | np.integer) or isinstance(dim, bool) or dim < 1:
        raise ValueError(f"dim must be an integer of at least 1, got {dim!r}. It is the width of the projected rows.")


def check_sensitivity(sensitivity: float) -> None:
    """Refuse a sensitivity that is no positive finite number.

    Raises:
        ValueError: If it is not.
    """
    if not (sensitivity > 0 and math.isfinite(sensitivity)):
        raise ValueError(
            f"sensitivity must be a positive finite number, got {sensitivity!r}. "
            "Clip or clamp the data, and pass the bound that this gives."
        )


def gauss_delta(epsilon: float, mu: float) -> float:
    """Delta of one Gaussian release at a given epsilon, exactly.

    ``Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)`` (Balle & Wang, ICML 2018, Theorem 8).

    Args:
        epsilon: At least 0.
        mu: L2 sensitivity divided by the standard deviation of the noise; dimensionless.

    Raises:
        ValueError: If an argument is negative or epsilon is infinite.
    """
    _check_curve(epsilon, "mu", mu)
    return float(_gauss_curve(epsilon, np.array([float(mu)]))[0])


def gauss_epsilon(delta: float, mu: float) -> float:
    """Epsilon of one Gaussian release at a given delta, rounded up.

    The inverse of `gauss_delta` in epsilon; 0 if the release hides the change entirely at this delta.

    Args:
        delta: In (0, 1).
        mu: L2 sensitivity divided by the standard deviation of the noise; beyond 1e100 counts as infinite.

    Raises:
        ValueError: If an argument is out of range.
    """
    check_delta(delta)
    _check_curve(0.0, "mu", mu)
    if mu > 1e100:
        return math.inf
    tail = mu * mu / 2 + mu * math.sqrt(
        -2 * math.log(delta)
    )  # Chernoff's bound on the privacy loss: safe to start from
    return _smallest_epsilon(lambda epsilon: gauss_delta(epsilon, mu) <= delta, start=tail)


def gauss_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose Gaussian release is (epsilon, delta)-private, rounded down.

    The noise to add has standard deviation ``L2 sensitivity / mu``. Valid at every epsilon, unlike the classical
    formula (Balle & Wang, ICML 2018, Section 3).

    Raises:
        ValueError: If an argument is out of range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    return _largest_shift(lambda mu: gauss_delta(epsilon, mu) <= delta)


def mixture_delta(epsilon: float, mu: float, projections: Mapping[int, float], *, coupled: bool) -> float:
    """Delta of Gaussian releases of which some have a random, public sensitivity, bounded from above.

    A release through a public Gaussian matrix of ``dim`` rows is, given the matrix, a Gaussian release with
    ``mu^2 = s^2 Q``, where Q follows the chi-square law with ``dim`` degrees of freedom. Given all matrices, releases
    compose to ``mu^2 + sum s_k^2 Q_k``, and delta is the mean of the Gaussian curve over the Q.

    With one projection this is exact. With several, nothing is assumed of how the matrices depend on each other (one
    matrix may be used twice): the curve is replaced by a convex function above it, and the mean of a convex function of
    a sum is largest when all summands rise together (Dhaene et al., Insurance: Mathematics and Economics 2002). In
    x = mu^2 the curve is convex up to ``2 sqrt(1 + epsilon^2) - 2`` and concave after, so its tangent there is that
    convex function's second branch. Adding up Renyi divergences would need independent matrices.

    Args:
        epsilon: At least 0.
        mu: Of all releases with a fixed sensitivity together.
        projections: Sum of s^2 over the projections of each width: ``{dim: sum of s^2}``.
        coupled: Whether more than one projection is accounted for.
    """
    nodes, weights = _normal_nodes()
    total = np.full(nodes.shape, float(mu * mu))
    for dim, square in projections.items():
        total += square * _chi_square(dim)
    if not coupled:
        return min(1.0, float(weights @ _gauss_curve(epsilon, np.sqrt(total))) + _TAIL)
    bend = 2 * (math.hypot(1.0, epsilon) - 1.0)
    if bend == 0:
        return 1.0
    # The derivative of delta in mu is phi(mu/2 - epsilon/mu); in x = mu^2 it is that over 2 mu.
    slope = math.exp(-0.5 * (epsilon / math.sqrt(bend) - math.sqrt(bend) / 2) ** 2) / math.sqrt(8 * math.pi * bend)
    values = _gauss_curve(epsilon, np.sqrt(np.minimum(total, bend))) + slope * np.maximum(total - bend, 0.0)
    return min(1.0, float(weights @ values) + _TAIL * (1 + 2 * slope * float(total[-1])))


def mix_delta(epsilon: float, s: float, dim: int) -> float:
    """Delta of one release through a public Gaussian matrix at a given epsilon.

    The mean of `gauss_delta` at ``mu = s sqrt(Q)`` over Q, chi-square with ``dim`` degrees of freedom: the law of the
    squared norm of what the matrix makes of a fixed change of norm 1. The tails left out of the integral are counted
    as lost entirely.

    Args:
        epsilon: At least 0.
        s: L2 norm of the change before projection, divided by the standard deviation of the noise added to the product.
        dim: Rows of the matrix.

    Raises:
        ValueError: If an argument is out of range.
    """
    _check_curve(epsilon, "s", s)
    check_dim(dim)
    return mixture_delta(epsilon, 0.0, {int(dim): s * s}, coupled=False)


def mixture_epsilon(delta: float, mu: float, projections: Mapping[int, float], *, coupled: bool) -> float:
    """Epsilon at a given delta of what `mixture_delta` describes, rounded up.

    Raises:
        ValueError: If delta is out of range, or too small for the integral's precision.
    """
    _check_mix_delta(delta)
    if not mu * mu + sum(projections.values()) < 1e12:  # beyond every use, and beyond what the integral resolves
        return math.inf
    return _smallest_epsilon(lambda epsilon: mixture_delta(epsilon, mu, projections, coupled=coupled) <= delta)


def mix_epsilon(delta: float, s: float, dim: int) -> float:
    """Epsilon of one release through a public Gaussian matrix at a given delta, rounded up; see `mix_delta`.

    Raises:
        ValueError: If an argument is out of range.
    """
    _check_curve(0.0, "s", s)
    check_dim(dim)
    return mixture_epsilon(delta, 0.0, {int(dim): s * s}, coupled=False)


def mix_w(dim: int, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Standard deviation of the noise that makes a release through a public Gaussian matrix private, rounded up.

    Args:
        dim: Rows of the matrix.
        epsilon: Positive.
        delta: In (0, 1).
        sensitivity: L2 norm of the change before projection.

    Raises:
        ValueError: If an argument is out of range.
    """
    check_dim(dim)
    check_epsilon(epsilon)
    _check_mix_delta(delta)
    check_sensitivity(sensitivity)
    return sensitivity / _largest_shift(lambda s: mix_delta(epsilon, s, dim) <= delta)


def unit_w(dim: int, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Standard deviation of the noise when every column of the matrix has norm ``sqrt(dim)``, rounded up.

    Raises:
        ValueError: If an argument is out of range.
    """
    check_dim(dim)
    return max_w(math.sqrt(dim), epsilon, delta, sensitivity)


def max_w(largest_norm: float, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Standard deviation of the noise for a matrix whose columns have at most the given norm, rounded up.

    Raises:
        ValueError: If an argument is out of range.
    """
    check_sensitivity(sensitivity)
    if not (largest_norm > 0 and math.isfinite(largest_norm)):
        raise ValueError(
            f"largest_norm must be a positive finite number, got {largest_norm!r}. "
            "Pass the largest column norm of the matrix that will be used."
        )
    return largest_norm * sensitivity / gauss_mu(epsilon, delta)


def paper_w(dim: int, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The w that PriCDR's Algorithm 1 takes from its source; far larger than its epsilon needs.

    ``sqrt(32 dim ln(2/delta)) / epsilon * ln(4 dim/delta)`` (Blocki et al., FOCS 2012; Chen et al., WWW 2022,
    Algorithm 1), times the sensitivity. What it really guarantees is `mix_epsilon` of ``sensitivity / w``.

    Raises:
        ValueError: If an argument is out of range.
    """
    check_dim(dim)
    check_epsilon(epsilon)
    check_delta(delta)
    check_sensitivity(sensitivity)
    return sensitivity * math.sqrt(32 * dim * math.log(2 / delta)) / epsilon * math.log(4 * dim / delta)


def mix_rdp(order: float, s: float, dim: int) -> float:
    """Renyi divergence of one release through a public Gaussian matrix; infinite beyond the pole.

    ``-(dim/2) ln(1 - order (order - 1) s^2) / (order - 1)``, from the moment generating function of the chi-square law.
    Sums over several releases are valid only if their matrices are independent.

    Raises:
        ValueError: If an argument is out of range.
    """
    if not order > 1:
        raise ValueError(f"order must be greater than 1, got {order!r}.")
    _check_curve(0.0, "s", s)
    check_dim(dim)
    pole = order * (order - 1) * s * s
    return -dim / 2 * math.log1p(-pole) / (order - 1) if pole < 1 else math.inf


def rdp_to_epsilon(rdp: Callable[[float], float], delta: float, orders: npt.ArrayLike = DEFAULT_ORDERS) -> float:
    """Epsilon from a Renyi divergence, minimised over orders; an upper bound and a cross-check.

    ``rdp(a) + ln((a - 1)/a) - (ln delta + ln a)/(a - 1)`` (Canonne, Kamath & Steinke, NeurIPS 2020, Proposition 12).

    Args:
        rdp: The divergence at an order greater than 1.
        delta: In (0, 1).
        orders: Where to try, shape ``(orders,)``.

    Raises:
        ValueError: If delta or an order is out of range.
    """
    check_delta(delta)
    grid = np.asarray(orders, dtype=np.float64)
    if grid.size == 0 or not (grid > 1).all():
        raise ValueError(f"orders must be numbers greater than 1 and at least one of them, got {orders!r}.")
    values = np.array([rdp(float(order)) for order in grid])
    bounds = values + np.log1p(-1 / grid) - (math.log(delta) + np.log(grid)) / (grid - 1)
    return max(0.0, float(bounds.min()))


def _check_curve(epsilon: float, name: str, shift: float) -> None:
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be a finite number of at least 0, got {epsilon!r}.")
    if not shift >= 0:
        raise ValueError(f"{name} must be at least 0, got {shift!r}. It is the sensitivity divided by the noise.")


def _check_mix_delta(delta: float) -> None:
    check_delta(delta)
    if delta < _SMALLEST_MIX_DELTA:
        raise ValueError(
            f"delta must be at least {_SMALLEST_MIX_DELTA} for a Gaussian matrix, got {delta!r}: "
            "smaller values are below the integral's precision. Rescale the columns (calibration 'unit') instead."
        )


def _gauss_curve(epsilon: float, mu: Floats) -> Floats:
    """`gauss_delta` for many mu, shape ``(n,)``, through log-cdfs so that nothing overflows."""
    with np.errstate(all="ignore"):
        above = log_ndtr(mu / 2 - epsilon / mu)
        below = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        values = -np.exp(above) * np.expm1(below - above)
    return np.where((mu > 0) & (above > -np.inf), np.clip(values, 0.0, 1.0), 0.0)


@cache
def _normal_nodes() -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights for means over a standard normal, each of shape ``(nodes,)``."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes = nodes * _REACH
    return nodes, weights * _REACH * np.exp(-nodes * nodes / 2) / math.sqrt(2 * math.pi)


@lru_cache(maxsize=64)
def _chi_square(dim: int) -> Floats:
    """Chi-square quantiles at the normal nodes, shape ``(nodes,)``; each tail from its own side, to keep its digits."""
    nodes, _ = _normal_nodes()
    lower = gammaincinv(dim / 2, ndtr(np.minimum(nodes, 0.0)))
    upper = gammainccinv(dim / 2, ndtr(-np.maximum(nodes, 0.0)))
    return 2 * np.where(nodes < 0, lower, upper)


def _bisect(is_safe: Callable[[float], bool], safe: float, unsafe: float) -> float:
    """The safe end of the last interval that floating point can halve."""
    for _ in range(200):
        middle = (safe + unsafe) / 2
        if middle in (safe, unsafe):
            break
        if is_safe(middle):
            safe = middle
        else:
            unsafe = middle
    return safe


def _smallest_epsilon(is_safe: Callable[[float], bool], start: float = 1.0) -> float:
    if is_safe(0.0):
        return 0.0
    safe = start
    while not is_safe(safe):
        safe *= 2
        if safe > 1e300:
            return math.inf
    return _bisect(is_safe, safe, 0.0) * (1 + _EPSILON_MARGIN)


def _largest_shift(is_safe: Callable[[float], bool]) -> float:
    safe = unsafe = 1.0
    while not is_safe(safe):
        safe /= 2
    while is_safe(unsafe):
        unsafe *= 2
    return _bisect(is_safe, safe, unsafe) * (1 - _NOISE_MARGIN)
