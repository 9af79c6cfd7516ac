"""One-run audit: what a single release at full size says about its claim.

Many cells are set by fair coins, the release is made once, and the coins are guessed from it (Steinke, Nasr & Jagielski,
*Privacy Auditing with One (1) Training Run*, NeurIPS 2023). Weaker than two worlds, but it runs the mechanism as used.
`one_run` judges the guesses; `run_once` does so for a `OneRunAudit` and tests the release's noise as well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from zoo.privacy.accounting.gaussian import check_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.two_world import Floats, ScaleTest, Verdict, check_beta, scale_test, worst
from zoo.privacy.randomness.noise import NoiseSource

GuessedRelease = Callable[[NoiseSource], tuple[int, Floats]]
"""Noise in; out, of one release, how many coins were guessed right, and coordinates of what the mechanism added."""

_LARGEST = 100.0  # epsilon beyond which no number of guesses refutes anything


@dataclass(frozen=True)
class OneRun:
    """What the guesses of a one-run audit say; see `one_run`."""

    correct: int
    guesses: int
    canaries: int
    epsilon: float
    delta: float
    beta: float
    p_value: float  # largest probability of so many right guesses under the claim
    eps_lower: float  # largest epsilon that is refuted; 0 if none is
    reach: float  # the same had every guess been right: no audit of so few guesses sees beyond

    @property
    def verdict(self) -> Verdict:
        """``violation`` if the claim is refuted, else ``pass``."""
        return "violation" if self.p_value < self.beta else "pass"


def one_run(correct: int, guesses: int, canaries: int, epsilon: float, delta: float, beta: float = 1e-3) -> OneRun:
    """Bound of epsilon by the number of guesses that are correct, of coins of one release.

    Of the canaries, fair coins that decide one unit of the data each, as many are guessed as was fixed before looking at the
    release. ``beta`` is the largest probability that a true claim is called a violation. Where a fifth of the coins is
    guessed, nothing is ever refuted at less than about ``20 delta``.
    """
    check_epsilon(epsilon)
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}.")
    check_beta(beta)
    p_value = guessing_p_value(correct, guesses, canaries, epsilon, delta)
    seen, reach = (_refuted(count, guesses, canaries, delta, beta) for count in (correct, guesses))
    return OneRun(correct, guesses, canaries, epsilon, delta, beta, p_value, seen, reach)


def _refuted(correct: int, guesses: int, canaries: int, delta: float, beta: float) -> float:
    """Largest epsilon, to 1e-6, of which the p-value is below beta; 0 if there is none."""
    low, high = 0.0, _LARGEST
    while high - low > 1e-6:  # low is always refuted, except where it is 0
        middle = (low + high) / 2
        if guessing_p_value(correct, guesses, canaries, middle, delta) < beta:
            low = middle
        else:
            high = middle
    return low


def guessing_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Largest probability that a private mechanism lets so many coins be guessed right, bounded from above.

    ``P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i`` over ``i >= 1``, where B counts the successes of r guesses of
    probability ``e^epsilon/(1 + e^epsilon)`` (Steinke, Nasr & Jagielski 2023, Theorem 5.2; v is ``correct``, r ``guesses``, m
    ``canaries``).
    """
    _check_counts(correct, guesses, canaries)
    law = binom(guesses, 1 / (1 + math.exp(-epsilon)))
    value = float(law.sf(correct - 1))
    if delta and correct:
        below = np.cumsum(law.pmf(np.arange(correct - 1, -1, -1)))  # P[v > B >= v - i] for i = 1 .. v
        value += 2 * canaries * delta * float((below / np.arange(1, correct + 1)).max())
    return min(1.0, value)


def _check_counts(correct: int, guesses: int, canaries: int) -> None:
    if not 0 <= correct <= guesses or not 1 <= guesses <= canaries:
        raise ValueError(
            "0 <= correct <= guesses <= canaries must hold, with at least one guess; "
            f"got {correct!r}, {guesses!r} and {canaries!r}."
        )


@dataclass(frozen=True)
class OneRunAudit:
    """A mechanism's claim, and how to put it to the test by one release; fields as of `Audit` and `one_run`."""

    name: str
    epsilon: float
    delta: float
    canaries: int
    guesses: int
    release: GuessedRelease  # tosses the coins, runs the mechanism once and guesses
    sigma: float  # claimed standard deviation of what the mechanism adds
    relation: Relation
    holds: bool = True


@dataclass(frozen=True)
class OneRunResult:
    """What came of a one-run audit: of the guesses, and of the test of the noise."""

    audit: OneRunAudit
    one_run: OneRun
    scale: ScaleTest

    @property
    def verdict(self) -> Verdict:
        """The worst of both tests: ``violation``, ``over-noised`` or ``pass``."""
        return worst(self.one_run.verdict, self.scale.verdict)

    @property
    def as_expected(self) -> bool:
        """Whether a claim that holds passed, or one that does not was caught."""
        return self.verdict == ("pass" if self.audit.holds else "violation")


def run_once(audit: OneRunAudit, beta: float = 1e-3, noise: NoiseSource | None = None) -> OneRunResult:
    """Run a one-run audit: one release, the guesses, and the test of the noise; arguments as of `run_audit`."""
    correct, residuals = audit.release(NoiseSource.os() if noise is None else noise)
    found = one_run(correct, audit.guesses, audit.canaries, audit.epsilon, audit.delta, beta)
    return OneRunResult(audit, found, scale_test(residuals, audit.sigma))
