"""Audit: what runs of a mechanism say about its claim. Data in, verdict out.

A proof says what cannot happen; an audit catches code that differs from its proof. It gives lower bounds: a bound above
the claim refutes it, a bound below proves nothing.

`two_world` compares the scores of two neighbouring data sets; `scale_test` measures the noise; `run_audit` does both for
an `Audit`. `zoo.privacy.audits.one_run` audits from one release.

The other files have the audits of the mechanisms, each with a worst pair: two neighbouring data sets that are hardest to
hide, and the score that tells them apart, the likelihood ratio where it is known. Runs go through the mechanism's own
functions, on values beyond what it admits, so that one that forgets to bound them is caught. Few items, rows and steps do,
for what a mechanism gives away does not depend on how many there are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, gammainccinv, gammaincinv, ndtri

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource

Floats = npt.NDArray[np.float64]
Data = TypeVar("Data")
Worlds = Callable[[int, NoiseSource], tuple[Floats, Floats]]
"""Number of runs and noise in; the scores ``(runs,)`` of each world out, all from independent runs."""
Residuals = Callable[[int, NoiseSource], Floats]
"""Number and noise in; that many coordinates of what a mechanism adds to a fixed input out, at least."""
Verdict = Literal["pass", "violation", "blind", "over-noised"]

RUNS = 40_000
"""Runs per world that `run_audit` makes unless told otherwise."""
COORDINATES = 100_000
"""Coordinates of noise that a scale test reads: enough for an error of 1 % in sigma."""

_THRESHOLDS = 200
_FEWEST_RUNS = 200
_REACH = 0.6  # share of the claim that an audit must see where the claim is attained
_AGAIN = 4  # times as many runs for an audit that was blind


@dataclass(frozen=True)
class TwoWorld:
    """What the scores of two neighbouring data sets say; see `two_world`."""

    epsilon: float
    delta: float
    mu: float | None
    beta: float
    runs: int  # in the smaller world
    eps_lower: float  # lower bound of the epsilon at delta; 0 if nothing was seen
    mu_lower: float | None  # lower bound of mu; None if no mu is claimed
    # Share of what the data sets attain that the bound reaches; None if that is unknown, or too little for this many runs.
    power: float | None

    @property
    def verdict(self) -> Verdict:
        """``violation`` if a bound exceeds its claim, else ``blind`` if the power check fails, else ``pass``.

        What is blind has the wrong score, the wrong neighbour or a wrong claim.
        """
        if self.eps_lower > self.epsilon or (self.mu is not None and (self.mu_lower or 0.0) > self.mu):
            return "violation"
        return "blind" if self.power is not None and self.power < _REACH else "pass"


def clopper_pearson(successes: npt.ArrayLike, trials: int, level: float) -> tuple[Floats, Floats]:
    """Exact one-sided bounds of a probability, lower and upper, each wrong with probability at most ``level`` in (0, 1/2].

    Both have the shape of ``successes``, which says how often it happened in as many independent runs as ``trials``.
    Together they are an interval of confidence ``1 - 2 level`` (Clopper & Pearson, Biometrika 1934).
    """
    count = np.asarray(successes, dtype=np.float64)
    if trials < 1 or (count.size and not (count.min() >= 0 and count.max() <= trials)):
        raise ValueError(f"successes must lie in [0, trials] with at least 1 trial, got {successes!r} of {trials!r}.")
    if not 0 < level <= 0.5:
        raise ValueError(f"level must lie in (0, 1/2], got {level!r}.")
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
    """Audit of a claim by the scores of independent runs on two neighbouring data sets, ``(runs,)`` in the order of the runs.

    There must be 200 runs of each at least; scores may be infinite. The claim is epsilon at delta, 0 for a pure one, and mu
    for Gaussian releases. ``attained`` is what is really there to see on these data sets: of mu, or of epsilon where no mu is
    claimed, as the whole epsilon is of randomised response. None: the whole mu; without one, unknown.

    The first halves choose an event, that the score lies above or below one of 200 pooled quantiles, and which world
    makes it likelier; the second halves, which nothing else reads, bound its two probabilities (`clopper_pearson`), each
    with error at most ``beta/4``. Then ``eps_lower = ln((TP - delta)/FP)`` and
    ``mu_lower = Phi^-1(1 - FP) - Phi^-1(1 - TP)``, each with its own event. So a true claim is called a violation with
    probability at most ``beta``. ``eps_lower`` cannot exceed about ``ln(runs/15)``: beyond an epsilon of 8 rely on mu and
    on `scale_test`.

    The power check asks for 0.6 of what is attained, where that is known and large enough to be seen: 0.25 with 40 000
    runs at beta 0.001, in general `visible_claim`. A sound audit of so little fails it two or three times in a hundred,
    of twice as much hardly ever.
    """
    _check_claim(epsilon, delta, mu)
    check_beta(beta)
    worlds = [_checked_scores(scores) for scores in (scores0, scores1)]
    choosing = [np.sort(scores[: len(scores) // 2]) for scores in worlds]
    judging = [np.sort(scores[len(scores) // 2 :]) for scores in worlds]
    pooled = np.sort(np.concatenate(choosing))
    at = (np.arange(_THRESHOLDS) + 0.5) / _THRESHOLDS * len(pooled)
    thresholds = np.unique(pooled[at.astype(np.int64)])

    # Each bound of the second halves is read at the event that has the largest bound in the first halves.
    chosen, judged = (_event_bounds(halves, thresholds, beta / 4) for halves in (choosing, judging))
    eps_lower = max(0.0, float(_eps_bound(*judged, delta)[np.argmax(_eps_bound(*chosen, delta))]))
    mu_lower = None if mu is None else max(0.0, float(_mu_bound(*judged)[np.argmax(_mu_bound(*chosen))]))
    runs = min(len(scores) for scores in worlds)
    attained = (mu or 0.0) if attained is None else attained
    seen = eps_lower if mu_lower is None else mu_lower
    power = seen / attained if attained >= visible_claim(runs, beta) else None
    return TwoWorld(epsilon, delta, mu, beta, runs, eps_lower, mu_lower, power)


def visible_claim(runs: int, beta: float) -> float:
    """The least mu, or small pure epsilon, of which an audit with so many runs may be asked to see 0.6.

    A test in the middle loses ``2 z sqrt(pi/2)`` to its two bounds and three standard deviations of its two rates, in
    units of the root of the half that is judged; z is the normal quantile at ``1 - beta/4``. ``runs`` are per world.
    """
    loss = math.sqrt(math.pi / 2) * (2 * float(ndtri(1 - beta / 4)) + 3 * math.sqrt(2))
    return loss / math.sqrt(runs / 2) / (1 - _REACH)


def check_beta(beta: float) -> None:
    """Refuse a probability of a false alarm outside (0, 1)."""
    if not 0 < beta < 1:
        raise ValueError(f"beta must lie strictly between 0 and 1, got {beta!r}. It is the chance of a false alarm.")


def _check_claim(epsilon: float, delta: float, mu: float | None) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be a positive finite number, got {epsilon!r}. It is the claim to audit.")
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}. It is 0 for a pure claim.")
    if mu is not None and not (mu > 0 and math.isfinite(mu)):
        raise ValueError(f"mu must be a positive finite number or None, got {mu!r}.")


def _checked_scores(scores: npt.ArrayLike) -> Floats:
    result = np.asarray(scores, dtype=np.float64)
    if result.ndim != 1 or len(result) < _FEWEST_RUNS:
        raise ValueError(
            f"Scores must have the shape (runs,) with at least {_FEWEST_RUNS} runs per world, got {result.shape}."
        )
    if np.isnan(result).any():
        raise ValueError("A score is NaN: it says nothing about its run. Give such runs a score of their own.")
    return result


def _event_bounds(worlds: list[Floats], thresholds: Floats, level: float) -> tuple[Floats, Floats]:
    """Lower bound in one world and upper bound in the other of the probability of each event, ``(4 thresholds,)``.

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
    # ndtri is -inf at 0 and inf at 1; an upper bound is never 0 and a lower one never 1, so nothing is undefined.
    return np.asarray(ndtri(likely) - ndtri(unlikely))


@dataclass(frozen=True)
class ScaleTest:
    """Whether noise has the standard deviation that it should; see `scale_test`."""

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
    """Test of the standard deviation of Gaussian noise by its chi-square interval.

    Sharper than a two-world audit: with 1e5 coordinates an error of 1 % in sigma is seen nine times in ten, one of
    2 % all but surely. ``noise``, of any shape, is the output less what it would be without noise; its mean should be 0, so a
    shift fails too. A true claim fails with probability ``alpha``, half of it on either side.
    """
    values = np.asarray(noise, dtype=np.float64).ravel()
    if not len(values) or not np.isfinite(values).all():
        raise ValueError(f"noise must be finite numbers, at least one of them; got {len(values)}.")
    if not (sigma > 0 and math.isfinite(sigma)):
        raise ValueError(f"sigma must be a positive finite number, got {sigma!r}.")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie strictly between 0 and 1, got {alpha!r}.")
    half = len(values) / 2
    low, high = float(gammaincinv(half, alpha / 2)), float(gammainccinv(half, alpha / 2))
    measured = math.sqrt(float(values @ values) / len(values))
    return ScaleTest(sigma, measured, sigma * math.sqrt(low / half), sigma * math.sqrt(high / half), len(values), alpha)


@dataclass(frozen=True)
class Audit:
    """A mechanism's claim, and how to put it to the test. Epsilon, delta, mu and what is attained are as of `two_world`."""

    name: str  # for a table
    epsilon: float
    delta: float
    worlds: Worlds  # runs the mechanism on both of two neighbouring data sets and scores the outputs
    mu: float | None = None
    attained: float | None = None
    holds: bool = True  # False for a published claim that does not hold: the audit must find the violation
    residuals: Residuals | None = None  # noise of the mechanism on a fixed input, for `scale_test`
    sigma: float | None = None  # claimed standard deviation of the residuals; goes with them
    relation: Relation | None = None  # which two data sets the claim keeps alike, where it says so

    def __post_init__(self) -> None:
        _check_claim(self.epsilon, self.delta, self.mu)
        if (self.residuals is None) != (self.sigma is None):
            raise ValueError(f"Audit {self.name!r}: residuals and sigma go together, state both or neither.")


def worlds_of(
    scores: Callable[[Data, int, NoiseSource], Floats], data0: Data, data1: Data, at_once: int | None = None
) -> Worlds:
    """Worlds by what scores so many independent runs on one data set, ``(runs,)``; it is asked for at most `at_once`."""

    def world(data: Data, runs: int, noise: NoiseSource) -> Floats:
        step = at_once or runs
        return np.concatenate([scores(data, min(step, runs - start), noise) for start in range(0, runs, step)])

    return lambda runs, noise: (world(data0, runs, noise), world(data1, runs, noise))


def worst(*verdicts: Verdict) -> Verdict:
    """The worst of some verdicts: ``violation``, ``blind``, ``over-noised`` or ``pass``."""
    order: tuple[Verdict, ...] = ("violation", "blind", "over-noised")
    return next((verdict for verdict in order if verdict in verdicts), "pass")


@dataclass(frozen=True)
class Result:
    """What came of an audit: of the two worlds, and of the test of the noise where there is one."""

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
    """Run an audit: both worlds, with so many runs in each, and the test of the noise if there is one.

    ``beta`` is the largest probability of a false alarm of the two worlds; the scale test has another 1e-3. Noise is one
    stream through all runs, None that of the operating system; with a seeded one the verdict repeats. An audit that is blind
    is run once more, four times as large; whether it stays so is all that is taken from there.
    """
    noise = NoiseSource.os() if noise is None else noise

    def compared(runs: int) -> TwoWorld:
        worlds = audit.worlds(runs, noise)
        return two_world(*worlds, audit.epsilon, audit.delta, mu=audit.mu, beta=beta, attained=audit.attained)

    comparison, scale = compared(runs), None
    if comparison.verdict == "blind":
        # Sound audits of little noise are so at times, larger ones hardly ever. Bounds of both would be two false alarms.
        comparison = replace(comparison, power=compared(_AGAIN * runs).power)
    if audit.residuals is not None and audit.sigma is not None:
        scale = scale_test(audit.residuals(COORDINATES, noise), audit.sigma)
    return Result(audit, comparison, scale)
