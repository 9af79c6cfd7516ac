"""Releases through a public matrix: the noise for each calibration of the matrix, and the cost of random matrices."""

import math
from collections.abc import Mapping
from functools import cache, lru_cache

import numpy as np
from scipy.special import gammainccinv, gammaincinv, ndtr

from zoo.privacy.accounting.gaussian import (
    DELTA_MARGIN,
    Floats,
    check_above_delta,
    check_curve,
    check_delta,
    check_epsilon,
    check_sensitivity,
    check_target,
    gauss_curve,
    largest_shift,
    smallest_epsilon,
    target_mu,
)

_NODES, _PANELS = 400, 1 << 16
_STEEP = 256.0  # epsilon from which on the curve is a step between nodes, and its largest value in each panel counts;
_STEEP_BY_WIDTH = 10.0  # for few rows, whose Q is often near 0, times the square of their number
_REACH = 8.8  # standard normal quantile beyond which the mixture's tails are bounded, not integrated
_TAIL = 2e-18  # more than the mass of both tails
_SMALLEST_DELTA = 1e-15
LARGEST_SQUARE = 1e12
"""A sum of mu^2 and s^2 from here on counts as infinite: the integral cannot resolve it, and no use needs it."""


def check_dim(dim: int) -> None:
    """Refuse a width that is no positive integer."""
    if not isinstance(dim, int | np.integer) or isinstance(dim, bool) or dim < 1:
        raise ValueError(f"dim is {dim!r}. Allowed: integers >= 1.")


def mixture_delta(epsilon: float, mu: float, projections: Mapping[int, float], *, coupled: bool) -> float:
    """Return an upper bound of delta of Gaussian releases, some with a random, public sensitivity.

    For a fixed matrix, a release through a public Gaussian matrix of ``dim`` rows is a Gaussian release with ``mu^2 = s^2 Q``.
    Q follows the chi-square law with ``dim`` degrees of freedom. Given all matrices, releases compose to ``mu^2 + sum
    s_k^2 Q_k``, and delta is the mean of the Gaussian curve over the Q. Tails outside the integral count as lost entirely.

    With one projection this is exact. With several, nothing is assumed about the dependence of the matrices: the curve is
    replaced by a convex function above it, whose mean over a sum is largest when all summands rise together (Dhaene et al.,
    Insurance: Mathematics and Economics 2002). In x = mu^2 the curve is convex up to ``2 sqrt(1 + epsilon^2) - 2`` and concave
    after, so its tangent there is the second branch. At epsilon 0 the curve is concave throughout, so its value at the mean of
    x bounds delta at every epsilon. All of it is for changes that do not depend on a matrix.

    Args:
        epsilon: At least 0.
        mu: Total mu of all releases with a fixed sensitivity.
        projections: ``{dim: sum of s^2}``; s is the L2 norm of the change before projection over the noise deviation.
        coupled: Whether there is more than one projection.
    """
    steep = epsilon > min([_STEEP, *(_STEEP_BY_WIDTH * dim * dim for dim in projections)])
    nodes, weights = _normal_panels() if steep else _normal_nodes()
    # All Q rise together with one standard normal z, so the mean over all of them is one integral over z.
    total = np.full(nodes.shape, float(mu * mu))
    for dim, square in projections.items():
        total += square * _chi_square(dim, steep)
    if not coupled:
        return min(1.0, float(weights @ gauss_curve(epsilon, np.sqrt(total))) + _TAIL)
    convex, slope = convex_curve(epsilon, total)
    mean = mu * mu + sum(square * dim for dim, square in projections.items())
    least = float(gauss_curve(0.0, np.array([math.sqrt(mean)]))[0])
    return min(least, float(weights @ convex) + _TAIL * (1 + 2 * slope * float(total[-1])))


def convex_curve(epsilon: float, squares: Floats) -> tuple[Floats, float]:
    """Return a convex function above the Gaussian curve as a function of mu^2, shape ``(n,)``, and its largest slope."""
    bend = 2 * epsilon * epsilon / (math.hypot(1.0, epsilon) + 1.0)  # 2 sqrt(1 + epsilon^2) - 2, keeping its digits
    if bend == 0:  # concave throughout, with an infinite slope at 0
        return np.ones_like(squares), 0.0
    # The derivative of delta in mu is phi(mu/2 - epsilon/mu); in x = mu^2 it is that over 2 mu.
    slope = math.exp(-0.5 * (epsilon / math.sqrt(bend) - math.sqrt(bend) / 2) ** 2) / math.sqrt(8 * math.pi * bend)
    slope *= 1 + DELTA_MARGIN
    below = gauss_curve(epsilon, np.sqrt(np.minimum(squares, bend)))
    return below + slope * np.maximum(squares - bend, 0.0), slope


def mixture_epsilon(delta: float, mu: float, projections: Mapping[int, float], *, coupled: bool) -> float:
    """Return epsilon at delta for the releases of `mixture_delta`, rounded up."""
    _check_mixture_delta(delta)
    if not mu * mu + sum(projections.values()) < LARGEST_SQUARE:
        return math.inf
    return _least_epsilon(delta, mu, tuple(projections.items()), coupled)


@lru_cache(maxsize=256)  # a release is accounted for whenever it is read
def _least_epsilon(delta: float, mu: float, projections: tuple[tuple[int, float], ...], coupled: bool) -> float:
    squares = dict(projections)
    return smallest_epsilon(lambda epsilon: mixture_delta(epsilon, mu, squares, coupled=coupled) <= delta)


def mix_delta(epsilon: float, s: float, dim: int) -> float:
    """Return delta of one release through a public Gaussian matrix of ``dim`` rows; s as in `mixture_delta`."""
    check_curve(epsilon, "s", s)
    check_dim(dim)
    return mixture_delta(epsilon, 0.0, {int(dim): s * s}, coupled=False)


def mix_epsilon(delta: float, s: float, dim: int) -> float:
    """Return epsilon of one release through a public Gaussian matrix of ``dim`` rows, rounded up; s as in `mixture_delta`."""
    check_curve(0.0, "s", s)
    check_dim(dim)
    return mixture_epsilon(delta, 0.0, {int(dim): s * s}, coupled=False)


# Typed, because True would otherwise be taken for width 1.
@lru_cache(maxsize=256, typed=True)  # a publisher calibrates when it is created, and again for each plan
def mix_w(
    dim: int, epsilon: float | None, delta: float, sensitivity: float = 1.0, attack_success: float | None = None
) -> float:
    """Return the noise deviation that makes a release through a public Gaussian matrix of ``dim`` rows private, rounded up.

    ``sensitivity`` is the L2 norm of the change before projection. The target is epsilon at delta, or an attack success.
    """
    check_dim(dim)
    check_target(epsilon, attack_success)
    _check_mixture_delta(delta)
    check_sensitivity(sensitivity)
    if attack_success is not None:
        check_above_delta(attack_success, delta)
        epsilon, delta = 0.0, 2 * attack_success - 1
    else:
        check_epsilon(epsilon or 0.0)
    at = epsilon or 0.0
    shift = largest_shift(lambda s: mix_delta(at, s, dim) <= delta)
    if not shift * shift < LARGEST_SQUARE:
        raise ValueError(f"At width {dim} the epsilon of this target cannot be computed. Lower it, or raise the width.")
    return sensitivity / shift


def max_w(
    largest_norm: float,
    epsilon: float | None,
    delta: float,
    sensitivity: float = 1.0,
    attack_success: float | None = None,
) -> float:
    """Return the noise deviation for a matrix whose columns have at most the given L2 norm, rounded up."""
    check_sensitivity(sensitivity)
    if not (largest_norm > 0 and math.isfinite(largest_norm)):
        raise ValueError(f"largest_norm is {largest_norm!r}. Allowed: finite, > 0.")
    return largest_norm * sensitivity / target_mu(epsilon, delta, attack_success)


def paper_w(dim: int, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the w of PriCDR's Algorithm 1, ``sqrt(32 dim ln(2/delta)) / epsilon * ln(4 dim/delta)`` times the sensitivity.

    It is far larger than its epsilon needs: it guarantees `mix_epsilon` of ``sensitivity / w`` (Blocki et al., FOCS 2012; Chen et
    al., WWW 2022).
    """
    check_dim(dim)
    check_epsilon(epsilon)
    check_delta(delta)
    check_sensitivity(sensitivity)
    return sensitivity * math.sqrt(32 * dim * math.log(2 / delta)) / epsilon * math.log(4 * dim / delta)


def _check_mixture_delta(delta: float) -> None:
    check_delta(delta)
    if delta < _SMALLEST_DELTA:
        raise ValueError(
            f"delta is {delta!r}. Allowed: >= {_SMALLEST_DELTA} with a Gaussian matrix. Or calibrate 'unit'."
        )


@cache
def _normal_nodes() -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes and weights for means over a standard normal, each of shape ``(nodes,)``."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    nodes = nodes * _REACH
    return nodes, weights * _REACH * np.exp(-nodes * nodes / 2) / math.sqrt(2 * math.pi)


@cache
def _normal_panels() -> tuple[Floats, Floats]:
    """Return the right ends of equal panels and their mass under a standard normal, each of shape ``(panels,)``."""
    ends = np.linspace(-_REACH, _REACH, _PANELS + 1)
    return ends[1:], np.abs(np.diff(ndtr(-np.abs(ends))))


@lru_cache(maxsize=64)
def _chi_square(dim: int, steep: bool) -> Floats:
    """Return chi-square quantiles at the normal nodes, shape ``(nodes,)``; each tail from its own side, for precision."""
    nodes, _ = _normal_panels() if steep else _normal_nodes()
    lower = gammaincinv(dim / 2, ndtr(np.minimum(nodes, 0.0)))
    upper = gammainccinv(dim / 2, ndtr(-np.maximum(nodes, 0.0)))
    return 2 * np.where(nodes < 0, lower, upper)
