"""One-run audit: test a claim by a single release at full size.

Many entries are set by fair coins, the release is made once, and the coins are guessed from it (Steinke, Nasr & Jagielski,
*Privacy Auditing with One (1) Training Run*, NeurIPS 2023). Weaker than two worlds, but it runs the mechanism as used.
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
"""Map noise to the number of correctly guessed coins of one release, and coordinates of what the mechanism added."""

_LARGEST = 100.0  # largest epsilon that is searched


@dataclass(frozen=True)
class OneRun:
    """Result of `one_run`."""

    correct: int
    guesses: int
    canaries: int
    epsilon: float
    delta: float
    beta: float
    p_value: float  # largest probability of so many right guesses under the claim
    eps_lower: float  # largest epsilon that is refuted; 0 if none is
    reach: float  # the same if every guess were right: the limit of what these guesses can refute

    @property
    def verdict(self) -> Verdict:
        """``violation`` if the claim is refuted, else ``pass``."""
        return "violation" if self.p_value < self.beta else "pass"


def one_run(correct: int, guesses: int, canaries: int, epsilon: float, delta: float, beta: float = 1e-3) -> OneRun:
    """Bound epsilon by the number of correct guesses of one release's coins.

    If a fifth of the coins is guessed, nothing below about ``20 delta`` is ever refuted.

    Args:
        correct: Number of correct guesses.
        guesses: Number of guesses, fixed before the release is seen.
        canaries: Number of fair coins; each decides one privacy unit of the data.
        epsilon: Claimed epsilon.
        delta: Claimed delta.
        beta: Largest probability that a true claim is called a violation.

    Examples:
        >>> one_run(correct=198, guesses=200, canaries=1000, epsilon=1.0, delta=1e-5).verdict
        'violation'
    """
    check_epsilon(epsilon)
    if not 0 <= delta < 1:
        raise ValueError(f"delta is {delta!r}. Allowed: [0, 1).")
    check_beta(beta)
    p_value = guessing_p_value(correct, guesses, canaries, epsilon, delta)
    seen, reach = (_refuted(count, guesses, canaries, delta, beta) for count in (correct, guesses))
    return OneRun(correct, guesses, canaries, epsilon, delta, beta, p_value, seen, reach)


def _refuted(correct: int, guesses: int, canaries: int, delta: float, beta: float) -> float:
    """Return the largest epsilon, to 1e-6, whose p-value is below beta; 0 if there is none."""
    low, high = 0.0, _LARGEST
    while high - low > 1e-6:  # low is always refuted, except where it is 0
        middle = (low + high) / 2
        if guessing_p_value(correct, guesses, canaries, middle, delta) < beta:
            low = middle
        else:
            high = middle
    return low


def guessing_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return an upper bound of the probability that a private mechanism allows so many correct guesses.

    ``P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i`` over ``i >= 1``, where B counts the successes of r guesses of
    probability ``e^epsilon/(1 + e^epsilon)``; v is ``correct``, r ``guesses``, m ``canaries``.

    Reference: Steinke, Nasr & Jagielski 2023, Theorem 5.2.
    """
    if not 0 <= correct <= guesses or not 1 <= guesses <= canaries:
        raise ValueError(
            f"correct, guesses, canaries are {correct!r}, {guesses!r}, {canaries!r}. Allowed: 0 <= correct <= guesses "
            "<= canaries, guesses >= 1."
        )
    law = binom(guesses, 1 / (1 + math.exp(-epsilon)))
    value = float(law.sf(correct - 1))
    if delta and correct:
        below = np.cumsum(law.pmf(np.arange(correct - 1, -1, -1)))  # P[v > B >= v - i] for i = 1 .. v
        value += 2 * canaries * delta * float((below / np.arange(1, correct + 1)).max())
    return min(1.0, value)


@dataclass(frozen=True)
class OneRunAudit:
    """A mechanism's claim and its test by one release; fields as of `Audit` and `one_run`."""

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
    """Result of a one-run audit: of the guesses, and of the scale test."""

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
    """Run a one-run audit: one release, the guesses, and the scale test.

    Args:
        audit: The claim and its test.
        beta: Largest probability of a false alarm of the guesses, and of the scale test.
        noise: None: the operating system.

    Examples:
        >>> from zoo.privacy.audits.projection import canary_audit
        >>> from zoo.privacy.mechanisms.jlt import JLT
        >>> from zoo.privacy.rows.public_matrix import GaussianMatrix
        >>> plan, matrix = JLT.calibrate(epsilon=1.0, delta=1e-5, dim=32), GaussianMatrix(32, 64, 0, unit=True)
        >>> run_once(canary_audit("JLT", plan, matrix, canaries=100), noise=NoiseSource.seeded(1)).verdict
        'pass'
    """
    correct, residuals = audit.release(NoiseSource.os() if noise is None else noise)
    found = one_run(correct, audit.guesses, audit.canaries, audit.epsilon, audit.delta, beta)
    return OneRunResult(audit, found, scale_test(residuals, audit.sigma, beta))
