"""Audits of a mechanism's claim by the scores of independent runs on two neighbouring data sets.

An audit catches code that differs from its proof. It gives lower bounds: a bound above the claim refutes the claim, a bound
below proves nothing. `two_world` compares scores, `scale_test` measures noise, and `run_audit` does both for an `Audit`.
`zoo.privacy.audits.one_run` audits from one release.

The other files define a worst pair of data sets for each mechanism and a score, the likelihood ratio where it is known.
Runs call the mechanism's own functions with values beyond its bounds, so missing clipping is caught. Few items, rows and
steps suffice, because the privacy loss does not depend on their number.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, gammainccinv, gammaincinv, ndtri

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import Mechanism
from zoo.privacy.randomness.noise import NoiseSource

Floats = npt.NDArray[np.float64]
Data = TypeVar("Data")
Worlds = Callable[[int, NoiseSource], tuple[Floats, Floats]]
"""Map a number of runs and noise to the scores ``(runs,)`` of each world; all runs are independent."""
Residuals = Callable[[int, NoiseSource], Floats]
"""Map a number and noise to at least that many coordinates of what a mechanism adds to a fixed input."""
Verdict = Literal["pass", "violation", "blind", "over-noised"]

RUNS = 40_000
"""Default number of runs per world."""
COORDINATES = 100_000
"""Coordinates of noise in a scale test: enough for an error of 1 % in sigma."""

_THRESHOLDS = 200
_FEWEST_RUNS = 200
_REACH = 0.6  # share of the attained claim that an audit must see
_AGAIN = 4  # factor of runs for an audit that was blind


@dataclass(frozen=True)
class TwoWorld:
    """Result of `two_world`."""

    epsilon: float
    delta: float
    mu: float | None
    beta: float
    runs: int  # in the smaller world
    eps_lower: float  # lower bound of the epsilon at delta; 0 if nothing was seen
    mu_lower: float | None  # lower bound of mu; None if no mu is claimed
    # Share of the attained claim that the bound reaches; None if unknown, or too small to be seen with these runs.
    power: float | None

    @property
    def verdict(self) -> Verdict:
        """``violation`` if a bound exceeds its claim, ``blind`` if the power check fails, else ``pass``.

        A blind audit has the wrong score, the wrong neighbour or a wrong claim.
        """
        if self.eps_lower > self.epsilon or (self.mu is not None and (self.mu_lower or 0.0) > self.mu):
            return "violation"
        return "blind" if self.power is not None and self.power < _REACH else "pass"


def clopper_pearson(successes: npt.ArrayLike, trials: int, level: float) -> tuple[Floats, Floats]:
    """Return exact one-sided lower and upper bounds of a probability (Clopper & Pearson, Biometrika 1934).

    Args:
        successes: Number of successes in ``trials`` independent runs, of any shape.
        trials: Number of runs.
        level: Error probability of each bound, in (0, 1/2]; both form an interval of confidence ``1 - 2 level``.

    Returns:
        Both bounds, with the shape of ``successes``.
    """
    count = np.asarray(successes, dtype=np.float64)
    if trials < 1 or (count.size and not (count.min() >= 0 and count.max() <= trials)):
        raise ValueError(f"successes is {successes!r} of {trials!r} trials. Allowed: [0, trials].")
    if not 0 < level <= 0.5:
        raise ValueError(f"level is {level!r}. Allowed: (0, 1/2].")
    lower = np.where(count > 0, betaincinv(np.maximum(count, 1), trials - count + 1, level), 0.0)
    failures = trials - count
    upper = np.where(failures > 0, 1 - betaincinv(np.maximum(failures, 1), count + 1, level), 1.0)
    return lower, upper


def two_world(
    scores0: npt.ArrayLike,
    scores1: npt.ArrayLike,
    epsilon: float,
    delta: float,
    *,
    mu: float | None = None,
    beta: float = 1e-3,
    attained: float | None = None,
) -> TwoWorld:
    """Audit a claim by the scores of independent runs on two neighbouring data sets.

    The first halves choose an event (the score is above or below one of 200 pooled quantiles) and its likelier world. The
    second halves bound both probabilities of the event (`clopper_pearson`), each with error at most ``beta/4``. Then
    ``eps_lower = ln((TP - delta)/FP)`` and ``mu_lower = Phi^-1(1 - FP) - Phi^-1(1 - TP)``, each with its own event. A true
    claim is called a violation with probability at most ``beta``. ``eps_lower`` cannot exceed about ``ln(runs/15)``; beyond
    an epsilon of 8 use mu and `scale_test`.

    The power check requires 0.6 of the attained claim, where that is known and at least `visible_claim`: 0.25 with 40,000
    runs at beta 0.001. A sound audit fails the check in 2 to 3 % of cases at this limit, and hardly ever at twice the limit.

    Args:
        scores0: Scores ``(runs,)`` of the first data set, at least 200; may be infinite.
        scores1: Scores ``(runs,)`` of the second data set, at least 200; may be infinite.
        epsilon: Claimed epsilon at ``delta``.
        delta: 0 for a pure claim.
        mu: Claimed mu, of Gaussian releases.
        beta: Largest probability of a false alarm.
        attained: Actual mu of these two data sets, or actual epsilon if ``mu`` is None. None: ``mu``, or unknown.
    """
    _check_claim(epsilon, delta, mu)
    check_beta(beta)
    worlds = [_checked_scores(scores) for scores in (scores0, scores1)]
    choosing = [np.sort(scores[: len(scores) // 2]) for scores in worlds]
    judging = [np.sort(scores[len(scores) // 2 :]) for scores in worlds]
    pooled = np.sort(np.concatenate(choosing))
    at = (np.arange(_THRESHOLDS) + 0.5) / _THRESHOLDS * len(pooled)
    thresholds = np.unique(pooled[at.astype(np.int64)])

    # The first halves choose the event with the largest bound; the second halves give the bound of that event.
    chosen, judged = (_event_bounds(halves, thresholds, beta / 4) for halves in (choosing, judging))
    eps_lower = max(0.0, float(_eps_bound(*judged, delta)[np.argmax(_eps_bound(*chosen, delta))]))
    mu_lower = None if mu is None else max(0.0, float(_mu_bound(*judged)[np.argmax(_mu_bound(*chosen))]))
    runs = min(len(scores) for scores in worlds)
    attained = (mu or 0.0) if attained is None else attained
    seen = eps_lower if mu_lower is None else mu_lower
    power = seen / attained if attained >= visible_claim(runs, beta) else None
    return TwoWorld(epsilon, delta, mu, beta, runs, eps_lower, mu_lower, power)


def visible_claim(runs: int, beta: float) -> float:
    """Return the least mu, or small pure epsilon, for which an audit with ``runs`` per world must find 60 % of the claim.

    A test in the middle loses ``2 z sqrt(pi/2)`` to its two bounds and three standard deviations of its two rates, in
    units of the root of the judged half; z is the normal quantile at ``1 - beta/4``.
    """
    loss = math.sqrt(math.pi / 2) * (2 * float(ndtri(1 - beta / 4)) + 3 * math.sqrt(2))
    return loss / math.sqrt(runs / 2) / (1 - _REACH)


def check_beta(beta: float) -> None:
    """Check that a probability of a false alarm lies in (0, 1)."""
    if not 0 < beta < 1:
        raise ValueError(f"beta is {beta!r}. Allowed: (0, 1).")


def _check_claim(epsilon: float, delta: float, mu: float | None) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon is {epsilon!r}. Allowed: finite, > 0.")
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta!r}. Allowed: [0, 1); 0 is pure.")
    if mu is not None and not (mu > 0 and math.isfinite(mu)):
        raise ValueError(f"mu is {mu!r}. Allowed: finite and > 0, or None.")


def _checked_scores(scores: npt.ArrayLike) -> Floats:
    result = np.asarray(scores, dtype=np.float64)
    if result.ndim != 1 or len(result) < _FEWEST_RUNS:
        raise ValueError(f"scores has the shape {result.shape}. Allowed: (runs,) with {_FEWEST_RUNS} runs or more.")
    if np.isnan(result).any():
        raise ValueError("A score is NaN. Give such runs their own score.")
    return result


def _event_bounds(worlds: list[Floats], thresholds: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the lower bound in one world and the upper bound in the other of each event's probability, ``(4 thresholds,)``.

    The events are: score above a threshold, score below it; each with either world as the likelier one.
    """
    bounds = []
    for scores in worlds:
        above = len(scores) - np.searchsorted(scores, thresholds, side="right")
        below = np.searchsorted(scores, thresholds, side="left")
        bounds.append(clopper_pearson(np.concatenate([above, below]), len(scores), level))
    (lower0, upper0), (lower1, upper1) = bounds
    return np.concatenate([lower1, lower0]), np.concatenate([upper0, upper1])


def _eps_bound(likely: Floats, unlikely: Floats, delta: float) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(likely - delta, 0.0)) - np.log(unlikely))


def _mu_bound(likely: Floats, unlikely: Floats) -> Floats:
    # ndtri is infinite at 0 and 1; an upper bound is never 0 and a lower one never 1, so the difference is defined.
    return np.asarray(ndtri(likely) - ndtri(unlikely))


@dataclass(frozen=True)
class ScaleTest:
    """Result of `scale_test`."""

    sigma: float
    measured: float  # root mean square of the coordinates
    low: float  # smallest measured value that the claim allows
    high: float
    count: int  # of coordinates
    alpha: float

    @property
    def verdict(self) -> Verdict:
        """``violation`` if there is too little noise, ``over-noised`` if there is too much, else ``pass``."""
        if not self.measured >= self.low:
            return "violation"
        return "pass" if self.measured <= self.high else "over-noised"


def scale_test(noise: npt.ArrayLike, sigma: float, alpha: float = 1e-3) -> ScaleTest:
    """Test the standard deviation of Gaussian noise by its chi-square interval.

    With 1e5 coordinates an error of 1 % in sigma is detected in 9 of 10 cases, one of 2 % almost surely. A shift of the mean
    fails too.

    Args:
        noise: Output less the output without noise, of any shape.
        sigma: Claimed standard deviation.
        alpha: Probability that a true claim fails, half of it on either side.
    """
    values = np.asarray(noise, dtype=np.float64).ravel()
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(f"noise has {len(values)} values. Allowed: one or more, all finite.")
    if not (sigma > 0 and math.isfinite(sigma)):
        raise ValueError(f"sigma is {sigma!r}. Allowed: finite, > 0.")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha!r}. Allowed: (0, 1).")
    half = len(values) / 2
    low, high = float(gammaincinv(half, alpha / 2)), float(gammainccinv(half, alpha / 2))
    measured = math.sqrt(float(values @ values) / len(values))
    return ScaleTest(sigma, measured, sigma * math.sqrt(low / half), sigma * math.sqrt(high / half), len(values), alpha)


@dataclass(frozen=True)
class Audit:
    """A mechanism's claim and its test. Epsilon, delta, mu and ``attained`` are those of `two_world`."""

    name: str  # for a table
    epsilon: float
    delta: float
    worlds: Worlds  # runs the mechanism on both of two neighbouring data sets and scores the outputs
    mu: float | None = None
    attained: float | None = None
    holds: bool = True  # False for a published claim that does not hold: the audit must find the violation
    residuals: Residuals | None = None  # noise of the mechanism on a fixed input, for `scale_test`
    sigma: float | None = None  # claimed standard deviation of the residuals; required with them
    relation: Relation | None = None  # neighbouring relation of the claim

    def __post_init__(self) -> None:
        _check_claim(self.epsilon, self.delta, self.mu)
        if (self.residuals is None) != (self.sigma is None):
            raise ValueError(f"Audit {self.name!r}: give residuals and sigma together.")

    @classmethod
    def of(
        cls,
        name: str,
        plan: Mechanism,
        worlds: Worlds,
        *,
        residuals: Residuals | None = None,
        attained: float | None = None,
    ) -> "Audit":
        """Return the audit of what a mechanism claims: its epsilon, delta, mu, relation and noise."""
        sigma = None if residuals is None else plan.noise_std
        return cls(
            name, plan.epsilon, plan.delta, worlds, plan.mu, attained, residuals=residuals, sigma=sigma, relation=plan.relation
        )  # fmt: skip


def worlds_of(
    scores: Callable[[Data, int, NoiseSource], Floats], data0: Data, data1: Data, at_once: int | None = None
) -> Worlds:
    """Return worlds from a function that scores independent runs ``(runs,)`` on one data set, at most ``at_once`` a call."""

    def world(data: Data, runs: int, noise: NoiseSource) -> Floats:
        step = at_once or runs
        return np.concatenate([scores(data, min(step, runs - start), noise) for start in range(0, runs, step)])

    return lambda runs, noise: (world(data0, runs, noise), world(data1, runs, noise))


def worst(*verdicts: Verdict) -> Verdict:
    """Return the worst verdict: ``violation``, ``blind``, ``over-noised`` or ``pass``."""
    order: tuple[Verdict, ...] = ("violation", "blind", "over-noised")
    return next((verdict for verdict in order if verdict in verdicts), "pass")


@dataclass(frozen=True)
class Result:
    """Result of an audit: of the two worlds, and of the scale test if there is one."""

    audit: Audit
    two_world: TwoWorld
    scale: ScaleTest | None

    @property
    def verdict(self) -> Verdict:
        """The worst of both tests: ``violation``, ``blind``, ``over-noised`` or ``pass``."""
        return worst(self.two_world.verdict, "pass" if self.scale is None else self.scale.verdict)

    @property
    def as_expected(self) -> bool:
        """Whether a claim that holds passed, or one that does not was caught."""
        return self.verdict == ("pass" if self.audit.holds else "violation")


def run_audit(audit: Audit, runs: int = RUNS, beta: float = 1e-3, noise: NoiseSource | None = None) -> Result:
    """Run an audit: both worlds, and the scale test if there is one.

    A blind audit is run once more with four times as many runs; only its power is taken from the second run.

    Args:
        audit: The claim and its test.
        runs: Number of runs in each world.
        beta: Largest probability of a false alarm of the two worlds, and of the scale test.
        noise: One stream for all runs; None: the operating system. A seeded one repeats the verdict.

    Examples:
        >>> from zoo.privacy.audits.rows import noisy_rows_audit
        >>> from zoo.privacy.mechanisms.noisy_rows import NoisyRows
        >>> audit = noisy_rows_audit("rows", NoisyRows.calibrate(epsilon=1.0, delta=1e-5))
        >>> run_audit(audit, noise=NoiseSource.seeded(1)).verdict
        'pass'
    """
    noise = NoiseSource.os() if noise is None else noise

    def compared(runs: int) -> TwoWorld:
        worlds = audit.worlds(runs, noise)
        return two_world(*worlds, audit.epsilon, audit.delta, mu=audit.mu, beta=beta, attained=audit.attained)

    comparison, scale = compared(runs), None
    if comparison.verdict == "blind":
        # Small sound audits are blind at times. Bounds of both runs would double the rate of false alarms.
        comparison = replace(comparison, power=compared(_AGAIN * runs).power)
    if audit.residuals is not None and audit.sigma is not None:
        scale = scale_test(audit.residuals(COORDINATES, noise), audit.sigma, beta)
    return Result(audit, comparison, scale)
