"""Canaries: ratings that coins decide, planted in one release of a projection at full width and guessed from it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.relation import Unit
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.two_world import COORDINATES, Floats
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.projection import ProjectionPlan, bounded_rows, plan_projection, release_chunks
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix

_CANARIES, _ITEMS, _WIDTH = 1500, 600, 400
_FEWEST_CANARIES, _FEWEST_ITEMS = 100, 64
_NUMBERS = 2**23  # published numbers, and those of the matrix, that an audit makes unless its rows are very wide
_DENSITY = 0.1  # of the ratings around the canaries
_BEYOND = 3.0  # ratings in units of the range


def canary_sizes(dim: int) -> tuple[int, int]:
    """Canaries and items of an audit of rows of width ``dim``: fewer where they are wide, for it to take seconds and 100 MiB."""
    many = _NUMBERS // dim
    return min(_CANARIES, max(_FEWEST_CANARIES, many)), min(_ITEMS, max(_FEWEST_ITEMS, many))


def canary_audit(name: str, plan: ProjectionPlan, matrix: PublicMatrix, canaries: int = _CANARIES) -> OneRunAudit:
    """One-run audit of a projection with noise, by one release of as many users as there are canaries.

    One cell in each user's row is set to 0 or to the largest rating by a fair coin, among other ratings. A coin is
    guessed from ``<M_i, x> / |M_i|^2 - 1/2``, what the release says of the cell in units of the largest rating, where x
    is the user's published row less what it would be with the cell at 0; the fifth of the scores that is largest in
    absolute value is guessed, by their signs.
    """
    if plan.rating_range is None or plan.relation.unit is Unit.USER:
        raise ValueError(f"The canaries are ratings, the plan protects {plan.relation.unit.value!r}: plan for ratings.")
    if canaries < 1:
        raise ValueError(f"canaries must be at least 1, got {canaries!r}. A fifth of them is guessed.")
    guesses = max(1, canaries // 5)

    def release(noise: NoiseSource) -> tuple[int, Floats]:
        items = noise.integers(matrix.num_items, canaries)
        coins = noise.integers(2, canaries)
        scores, residuals = _released(items, coins, plan, matrix, noise)
        chosen = np.argsort(-np.abs(scores), kind="stable")[:guesses]
        return int(((scores > 0) == (coins == 1))[chosen].sum()), residuals

    return OneRunAudit(name, plan.epsilon, plan.delta, canaries, guesses, release, plan.noise_std, plan.relation)


def _released(
    items: npt.NDArray[np.int64],
    coins: npt.NDArray[np.int64],
    plan: ProjectionPlan,
    matrix: PublicMatrix,
    noise: NoiseSource,
) -> tuple[Floats, Floats]:
    """Publishes once; a score per canary ``(canaries,)``, and coordinates of the noise, enough for a scale test.

    With b the canary's coin, a user's row times ``sqrt(dim)``, less the product of the row without it, is ``b range M_i + w N``.
    """
    largest, users = plan.rating_range or 0.0, np.arange(len(items))
    ratings = _BEYOND * largest * (noise.uniform((len(items), matrix.num_items)) < _DENSITY)
    ratings[users, items] = 0.0
    without = bounded_rows(csr_array(ratings), plan)
    ratings[users, items] = _BEYOND * largest * coins
    scores: list[Floats] = []
    residuals: list[Floats] = []
    start, wanted = 0, COORDINATES
    for published in release_chunks(csr_array(ratings), plan, matrix, noise):
        chunk = slice(start, start + len(published))
        columns = largest * matrix.transposed()[items[chunk]]
        moved = published * math.sqrt(plan.dim) - matrix.times(without[chunk])
        scores.append(np.einsum("cd,cd->c", moved, columns) / np.einsum("cd,cd->c", columns, columns) - 0.5)
        added = (moved - coins[chunk, None] * columns) / math.sqrt(plan.dim)
        residuals.append(added.ravel()[:wanted])
        start, wanted = chunk.stop, wanted - len(residuals[-1])
    return np.concatenate(scores), np.concatenate(residuals)


def canary_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[OneRunAudit]:
    """One-run audits of the projection with noise at the width that PriCDR publishes, 400, for one rating."""
    unit = plan_projection(epsilon=epsilon, delta=delta, dim=_WIDTH)
    gaussian = plan_projection(epsilon=epsilon, delta=delta, dim=_WIDTH, calibration="gaussian")
    return [
        canary_audit("JLT unit, one run", unit, GaussianMatrix(_WIDTH, _ITEMS, 0, unit=True)),
        canary_audit("SJLT unit, one run", unit, SparseMatrix(_WIDTH, _ITEMS, 0)),
        canary_audit("JLT gaussian, one run", gaussian, GaussianMatrix(_WIDTH, _ITEMS, 0)),
    ]
