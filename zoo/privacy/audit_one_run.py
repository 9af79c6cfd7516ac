"""One-run audit: what a single release at full size says about its claim.

Many cells are set by fair coins, the release is made once, and the coins are guessed from it (Steinke, Nasr & Jagielski,
*Privacy Auditing with One (1) Training Run*, NeurIPS 2023). Weaker than two worlds, but it runs the mechanism as used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.stats import binom

from zoo.privacy.audit import Verdict
from zoo.privacy.calibration import check_epsilon
from zoo.privacy.noise import NoiseSource
from zoo.privacy.projection import ProjectionPlan, clamp_ratings, release_chunks
from zoo.privacy.public_matrix import PublicMatrix
from zoo.privacy.relation import Unit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_LARGEST = 100.0  # epsilon beyond which no number of guesses refutes anything


@dataclass(frozen=True)
class OneRun:
    """What the guesses of a one-run audit say; see `one_run`.

    Attributes:
        correct: Guesses that were right.
        guesses: Guesses made.
        canaries: Coins tossed.
        epsilon: Claimed privacy loss, None if none was given.
        delta: Its delta.
        level: Probability that a true claim is called a violation, at most.
        p_value: Largest probability of so many right guesses under the claim; None without one.
        eps_lower: Largest epsilon that is refuted at the level; 0 if none is.
    """

    correct: int
    guesses: int
    canaries: int
    epsilon: float | None
    delta: float
    level: float
    p_value: float | None
    eps_lower: float

    @property
    def verdict(self) -> Verdict:
        """``violation`` if the claim is refuted, else ``pass``."""
        return "violation" if self.p_value is not None and self.p_value < self.level else "pass"


def one_run(
    correct: int, guesses: int, canaries: int, epsilon: float | None, delta: float, level: float = 0.05
) -> OneRun:
    """Bound of epsilon by the number of coins guessed right from one release.

    Args:
        correct: Guesses that were right.
        guesses: Guesses made; a number fixed before looking at the release.
        canaries: Fair coins tossed, each deciding one unit of the data; at least as many as guesses.
        epsilon: Claimed privacy loss; None for the bound alone.
        delta: In [0, 1).
        level: Probability that a true claim is called a violation, at most.

    Raises:
        ValueError: If an argument is out of range.
    """
    if epsilon is not None:
        check_epsilon(epsilon)
    if not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}.")
    if not 0 < level < 1:
        raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}.")
    _check_counts(correct, guesses, canaries)
    p_value = None if epsilon is None else guessing_p_value(correct, guesses, canaries, epsilon, delta)
    low, high = 0.0, _LARGEST
    while high - low > 1e-6:  # low is always refuted, except where it is 0
        middle = (low + high) / 2
        if guessing_p_value(correct, guesses, canaries, middle, delta) < level:
            low = middle
        else:
            high = middle
    return OneRun(correct, guesses, canaries, epsilon, delta, level, p_value, low)


def guessing_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Largest probability that a private mechanism lets so many coins be guessed right, bounded from above.

    ``P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i`` over ``i >= 1``, where B counts the successes of r guesses of
    probability ``e^epsilon/(1 + e^epsilon)`` (Steinke, Nasr & Jagielski 2023, Theorem 5.2).

    Args:
        correct: v.
        guesses: r.
        canaries: m.
        epsilon: At least 0.
        delta: In [0, 1).

    Raises:
        ValueError: If the counts do not go together.
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


def one_run_projection(
    rows: csr_array,
    plan: ProjectionPlan,
    matrix: PublicMatrix,
    noise: NoiseSource,
    *,
    canaries: int = 1500,
    guesses: int | None = None,
    level: float = 0.05,
) -> OneRun:
    """One-run audit of a projection with noise, by one release of all rows.

    One cell in each of some users' rows is set to 0 or to the largest rating by a fair coin. A coin is guessed from
    ``<M_i, x> / |M_i|^2 - 1/2``, what the release says of the cell in units of the largest rating, where x is the
    user's published row less what it would be with the cell at 0; the largest scores in absolute value are guessed, by their signs.

    Args:
        rows: Ratings that the canaries are set into, shape ``(users, items)``.
        plan: For one rating, from `plan_projection`.
        matrix: M, with the plan's width and a column per item.
        noise: Where noise, cells and coins come from.
        canaries: Cells; no more than users.
        guesses: Cells that are guessed; None: a fifth of them.
        level: Probability that a true claim is called a violation, at most.

    Raises:
        ValueError: If the plan protects users, or there are fewer users than canaries.
    """
    if plan.rating_range is None or plan.relation.unit is Unit.USER:
        raise ValueError(f"The canaries are ratings, the plan protects {plan.relation.unit.value!r}: plan for ratings.")
    num_users, num_items = rows.shape
    if not 1 <= canaries <= num_users:
        raise ValueError(f"canaries must lie in [1, users], one cell per user; got {canaries!r} for {num_users} users.")
    guesses = max(1, canaries // 5) if guesses is None else guesses
    users = np.argsort(noise.uniform(num_users))[:canaries]
    items = noise.integers(num_items, canaries)
    coins = noise.integers(2, canaries)
    without = _without(clamp_ratings(rows, plan.rating_range), users, items)
    planted = csr_array((coins * plan.rating_range, (users, items)), shape=rows.shape)
    released = np.concatenate(list(release_chunks(csr_array(without + planted), plan, matrix, noise)))
    columns = matrix.transposed()[items]
    moved = released[users] * math.sqrt(plan.dim) - matrix.times(csr_array(without[users]))
    seen = np.einsum("cd,cd->c", moved, columns) / np.einsum("cd,cd->c", columns, columns)
    scores = seen / plan.rating_range - 0.5
    chosen = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    correct = int(((scores > 0) == (coins == 1))[chosen].sum())
    return one_run(correct, guesses, canaries, plan.epsilon, plan.delta, level)


def _without(rows: csr_array, users: Indices, items: Indices) -> csr_array:
    """The rows with the given cells at 0, shape ``(users, items)``."""
    cells = csr_array((np.ones(len(users)), (users, items)), shape=rows.shape)
    return csr_array(rows - rows.multiply(cells))
