"""Link functions of one-bit matrix completion: the probability of the sign +1, given the matrix entry.

An entry x of the matrix is observed as +1 with probability h(x), else as -1: a generalised linear model of binary responses,
whose link function in the strict sense is the inverse of h. The module also bounds how far one flipped sign moves a gradient
and how it changes the curvature of the likelihood. Bounds are rounded to the safe side. An alpha (the bound of the entries)
or a ridge out of range raises a ValueError.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import erfcx, expit, log_expit, log_ndtr, ndtr

Floats = npt.NDArray[np.float64]

_MARGIN = 1e-10  # over rounding errors
_FAR = -100.0
_CELL, _LOWEST = 1e-3, -40.0  # where the curvature of flipped probit signs is bounded, in units of its scale


class Link(ABC):
    """The probability h of the sign +1, rising from 0 to 1.

    All methods that take ``x`` accept arrays of any shape, use float64, and stay accurate where h is near 0 or 1.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for records and tables."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """Upper bound of ``|(log h)''|`` and ``|(log(1 - h))''|`` over all x."""

    @abstractmethod
    def probability(self, x: npt.ArrayLike) -> Floats:
        """``h(x)``."""

    @abstractmethod
    def log_likelihood(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:
        """``log h(x)`` and ``log(1 - h(x))``."""

    @abstractmethod
    def slopes(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:
        """``(log h)' = h'/h`` and ``-(log(1 - h))' = h'/(1 - h)`` at x, both at least 0."""


class ConvexLink(Link):
    """A link whose ``-log h`` and ``-log(1 - h)`` are convex, so that noise can be calibrated for it."""

    @abstractmethod
    def sensitivity(self, alpha: float) -> float:
        """Return how far one flipped sign moves the gradient at its entry: ``max h'/h + h'/(1 - h)`` over ``|x| <= alpha``."""

    def pull(self, alpha: float, apart: Floats) -> Floats:
        """Return how far one flipped sign moves the gradient at its entry, which is larger by ``apart`` in the +1 world.

        ``B(t) = max h'/h (x) + h'/(1 - h) (x - t)`` over x and x - t within alpha, t from 0 to 2 alpha, ``(n,)``. It
        falls with t and equals `sensitivity` at t = 0. The maximum is at x = alpha, and by symmetry also at x - t = -alpha. For
        probit both terms are convex in x (see `Probit`). For logistic the sum is ``1 - (h(x) - h(x - t))``, whose difference is
        least at the ends, because h' rises up to 0 and falls from there.
        """
        falling, _ = self.slopes(alpha)
        _, rising = self.slopes(alpha - apart)
        pulled: Floats = (falling + rising) * (1 + _MARGIN)
        return pulled

    @abstractmethod
    def log_curvature_ratio(self, alpha: float, ridge: float = 0.0) -> float:
        """Return the change of curvature by one flipped sign: ``max |ln((c+ + ridge)/(c- + ridge))|`` over ``|x| <= alpha``.

        ``c+ = -(log h)''`` and ``c- = -(log(1 - h))''``. Infinite if the smaller one is 0 as a float.
        """


@dataclass(frozen=True)
class Logistic(ConvexLink):
    """``h(x) = 1/(1 + e^-x)``. A sign enters its likelihood linearly."""

    name = "logistic"
    smoothness = 0.25

    def probability(self, x: npt.ArrayLike) -> Floats:  # noqa: D102  as in the base
        result: Floats = expit(_floats(x))
        return result

    def log_likelihood(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:  # noqa: D102
        values = _floats(x)
        return log_expit(values), log_expit(-values)

    def slopes(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:
        """``1 - h`` and ``h``."""
        values = _floats(x)
        return expit(-values), expit(values)

    def sensitivity(self, alpha: float) -> float:
        """Return ``(1 - h) + h = 1``, for every alpha, infinite included."""
        _check_alpha(alpha, infinite=True)
        return 1.0

    def log_curvature_ratio(self, alpha: float, ridge: float = 0.0) -> float:
        """Return 0, because ``c+ = c- = h (1 - h)``."""
        _check_alpha(alpha, infinite=True)
        check_ridge(ridge)
        return 0.0


@dataclass(frozen=True)
class Probit(ConvexLink):
    """``h(x) = Phi(x/scale)``: the sign of x plus normal noise of standard deviation ``scale``, which is positive.

    With ``z = x/scale`` and ``m(z) = phi(z)/Phi(z)``, slopes are ``m(z)/scale`` and ``m(-z)/scale``, and the curvature of
    ``-log h`` is ``-m'(z)/scale^2``. m is convex and falls (Sampford, Annals of Mathematical Statistics 1953), so
    ``m(z) + m(-z)`` is largest at the ends of an interval. ``-m'`` falls from 1 to 0, so its ratio to that of the other sign is
    most extreme there too.
    """

    scale: float = 1.0

    name = "probit"

    def __post_init__(self) -> None:
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise ValueError(f"scale must be finite and positive, got {self.scale!r}.")

    @property
    def smoothness(self) -> float:
        """``1/scale^2``, the limit far on the side that contradicts a sign."""
        return 1 / self.scale**2

    def probability(self, x: npt.ArrayLike) -> Floats:  # noqa: D102
        result: Floats = ndtr(_floats(x) / self.scale)
        return result

    def log_likelihood(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:  # noqa: D102
        z = _floats(x) / self.scale
        return log_ndtr(z), log_ndtr(-z)

    def slopes(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:
        """``m(z)/scale`` and ``m(-z)/scale``."""
        z = _floats(x) / self.scale
        return _mills(z) / self.scale, _mills(-z) / self.scale

    def sensitivity(self, alpha: float) -> float:
        """Return ``(m(a) + m(-a))/scale`` with ``a = alpha/scale``; unbounded in alpha, so alpha must be finite."""
        _check_alpha(alpha)
        falling, rising = self.slopes(alpha)
        return float(falling + rising) * (1 + _MARGIN)

    def log_curvature_ratio(self, alpha: float, ridge: float = 0.0) -> float:
        """Return ``ln((-m'(-a)/scale^2 + ridge)/(-m'(a)/scale^2 + ridge))`` with ``a = alpha/scale``."""
        _check_alpha(alpha)
        check_ridge(ridge)
        smaller, larger = (_curvature(side * alpha / self.scale) / self.scale**2 + ridge for side in (1, -1))
        return math.log(larger / smaller) * (1 + _MARGIN) + _MARGIN if smaller > 0 else math.inf


@dataclass(frozen=True)
class Flipped(Link):
    """The link of signs after randomised response: ``c = (1 - p1) h + p2 (1 - h)``.

    Its likelihood is that of the reported signs, so a fit with it estimates the entries of the true ones. ``-log c`` is not
    convex where a flip explains a sign better than the entry does. No noise is calibrated for it: flips are private, and a fit
    to flipped signs is post-processing.
    """

    link: Link  # of the true signs
    p1: float  # probability that a +1 is reported as -1, in [0, 1/2)
    p2: float  # probability that a -1 is reported as +1, in [0, 1/2)

    def __post_init__(self) -> None:
        if isinstance(self.link, Flipped):
            raise TypeError("link is Flipped. Pass the link without flips.")
        for name in ("p1", "p2"):
            if not 0 <= getattr(self, name) < 0.5:
                raise ValueError(f"{name} must lie in [0, 1/2), got {getattr(self, name)!r}. See the plan.")

    @property
    def name(self) -> str:  # noqa: D102
        return f"{self.link.name}, flipped"

    @property
    def smoothness(self) -> float:
        """1/4 for logistic links, as without flips; larger for probit links, the rarer flips are.

        An entry far on the wrong side has the slope of its own link, up to where flips dominate.
        """
        if isinstance(self.link, Probit):
            largest = max(_flipped_curvature(self.p1, self.p2), _flipped_curvature(self.p2, self.p1))
            return largest * self.link.smoothness
        return self.link.smoothness

    @property
    def _share(self) -> float:
        """``1 - p1 - p2``: c runs from p2 to p2 plus this."""
        return 1 - self.p1 - self.p2

    def probability(self, x: npt.ArrayLike) -> Floats:  # noqa: D102
        result: Floats = self.p2 + self._share * self.link.probability(x)
        return result

    def log_likelihood(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return ``log(p2 + share h)`` and ``log(p1 + share (1 - h))``, by logarithms of the parts."""
        above, below = self.link.log_likelihood(x)
        share = math.log(self._share)
        return np.logaddexp(_log(self.p2), share + above), np.logaddexp(_log(self.p1), share + below)

    def slopes(self, x: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Return ``h'/h`` times ``share h/c``, the probability that a reported +1 is a true one; and the same of -1."""
        logs, slopes = self.link.log_likelihood(x), self.link.slopes(x)
        with np.errstate(over="ignore"):  # far out flips dominate: 1/inf is the intended 0
            falling, rising = (
                slope / (1 + np.exp(_log(p) - math.log(self._share) - log))
                for slope, log, p in zip(slopes, logs, (self.p2, self.p1), strict=True)
            )
        return falling, rising


def check_ridge(ridge: float) -> None:
    """Check that a ridge is a finite number of at least 0."""
    if not 0 <= ridge < math.inf:
        raise ValueError(f"ridge must be finite and >= 0, got {ridge!r}.")


def _check_alpha(alpha: float, *, infinite: bool = False) -> None:
    if not (alpha > 0 and (infinite or alpha < math.inf)):
        allowed = "a positive number" if infinite else "a positive finite number"
        raise ValueError(f"alpha must be {allowed}, got {alpha!r}. Take a public number, e.g. 1.0.")


def _floats(x: npt.ArrayLike) -> Floats:
    return np.asarray(x, dtype=np.float64)


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def _mills(z: Floats) -> Floats:
    """``m(z) = phi(z)/Phi(z)``, without cancellation on either side."""
    result: Floats = math.sqrt(2 / math.pi) / erfcx(-z / math.sqrt(2))
    return result


def _curvature(z: float) -> float:
    """``-(log Phi)'' = -m' = m (m + z)``; 1 far below, which it approaches and where its digits cancel."""
    if z < _FAR:
        return 1.0
    slope = float(_mills(_floats(z)))
    return slope * (slope + z)


@lru_cache(maxsize=64)
def _flipped_curvature(miss: float, false: float) -> float:
    """Return an upper bound of ``|(log c)''|`` over all z, for ``c = false + (1 - miss - false) Phi(z)``.

    With ``w = c'/c`` it is ``|w (w + z)|``. That is at most 1 where w + z >= 0, because w is at most the slope of log Phi.
    Elsewhere z < 0, and ``w (|z| - w)`` is bounded on short intervals, by the extremes of w there. Below them all w is 0,
    except for flips too rare for a float.
    """
    if false == 0:
        return 1.0
    share = 1 - miss - false
    ends = np.linspace(_LOWEST, 0.0, round(-_LOWEST / _CELL) + 1)
    density, mass = share * np.exp(-ends * ends / 2) / math.sqrt(2 * math.pi), false + share * ndtr(ends)
    least, most = density[:-1] / mass[1:], density[1:] / mass[:-1]  # both rise up to 0
    far = -ends[:-1]
    slope = np.clip(far / 2, least, most)  # the maximum of w (|z| - w) over the possible w
    return max(1.0, float((slope * (far - slope)).max())) * (1 + _MARGIN)
