"""Worst pairs of published rows, and of projections with noise: one rating that differs, or a user's row.

Many users with the same row give as many independent runs in one release, for noise is drawn user by user.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.accountant import mu_of
from zoo.privacy.accounting.events import GaussianProjectionEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.two_world import Audit, Floats, Residuals, Worlds, worlds_of
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.projection import ProjectionPlan, plan_projection, release_rows
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix

Mechanism = Callable[[csr_array, NoiseSource], Floats]
"""Rows ``(users, items)`` and noise in, the published rows ``(users, width)`` out, user by user independent."""
Score = Callable[[Floats], Floats]
"""Published rows ``(users, width)`` in, a score per user ``(users,)`` out."""

_ITEMS = 40
_USER_ITEMS = 4  # items of the user who is changed
_CHUNK = 2**20  # published numbers in memory at a time


def same_rows(row: npt.ArrayLike, count: int) -> csr_array:
    """A row ``(items,)`` as ``count`` users, shape ``(count, items)``."""
    values = np.asarray(row, dtype=np.float64)
    items = np.flatnonzero(values)
    pointers = np.arange(count + 1) * len(items)
    return csr_array((np.tile(values[items], count), np.tile(items, count), pointers), shape=(count, len(values)))


def row_worlds(mechanism: Mechanism, row0: npt.ArrayLike, row1: npt.ArrayLike, score: Score, width: int) -> Worlds:
    """Worlds of a mechanism that treats users independently: many users with one row ``(items,)``, many with the other.

    The mechanism must not compare users, so centring over users is left out. ``width`` is that of a published row.
    """

    def scores(row: npt.ArrayLike, users: int, noise: NoiseSource) -> Floats:
        return score(mechanism(same_rows(row, users), noise))

    return worlds_of(scores, row0, row1, at_once=max(1, _CHUNK // width))


def row_residuals(mechanism: Mechanism, row: npt.ArrayLike, clean: npt.ArrayLike) -> Residuals:
    """What a mechanism adds to a user's row ``(items,)``, of which it would publish ``clean`` ``(width,)`` without noise."""
    expected = np.asarray(clean, dtype=np.float64)
    return lambda count, noise: mechanism(same_rows(row, -(-count // len(expected))), noise) - expected


def worst_rows(plan: ProjectionPlan, item: int, num_items: int) -> tuple[Floats, Floats]:
    """Two rows ``(items,)`` that differ by more than the plan's relation allows, before its clipping or clamping.

    The rating of ``item`` changes; for users those of four items from there.
    """
    row0, row1 = np.zeros(num_items), np.zeros(num_items)
    if plan.relation.unit is not Unit.USER:
        row1[item] = 3.0 * (plan.rating_range or 0.0)
        return row0, row1
    row1[item : item + _USER_ITEMS] = 3.0 * (plan.clip or 0.0)
    return (-row1 if plan.relation is Relation.REPLACE_ONE_USER else row0), row1


def _admitted(plan: ProjectionPlan, row: Floats) -> Floats:
    """A row ``(items,)`` as the plan admits it; computed apart from the mechanism, whose bounds are what is audited."""
    if plan.clip is not None:
        length = float(np.linalg.norm(row))
        return row * (plan.clip / length) if length > plan.clip else row
    return np.clip(row, 0.0, plan.rating_range)


def projection_audit(name: str, plan: ProjectionPlan, matrix: PublicMatrix, *, item: int = 0) -> Audit:
    """Audit of a projection with noise, the public matrix fixed.

    Given the matrix the release is Gaussian, and its event says with which mu: its own for the calibrations ``unit`` and
    ``max``; for a Gaussian matrix the length of what the matrix makes of the change, a unit vector here, over the noise
    multiplier. That mu is audited, with the plan's epsilon or else the one that this mu gives at the plan's delta. What a
    plan claims over matrices is audited by `random_projection_audit`. What changes is said in `worst_rows`.
    """
    row0, row1 = worst_rows(plan, item, matrix.num_items)
    columns = matrix.transposed()
    change = _admitted(plan, row1) - _admitted(plan, row0)
    direction = (change / np.linalg.norm(change)) @ columns
    if isinstance(plan.event, GaussianProjectionEvent):
        mu = float(np.linalg.norm(direction)) / plan.event.noise_multiplier
        epsilon = gauss_epsilon(plan.delta, mu)
    else:
        mu, epsilon = mu_of([plan.event]), plan.epsilon

    def mechanism(rows: csr_array, noise: NoiseSource) -> Floats:
        return release_rows(rows, plan, matrix, noise)

    return Audit(
        name,
        epsilon,
        plan.delta,
        row_worlds(mechanism, row0, row1, lambda published: published @ direction, plan.dim),
        mu=mu,
        residuals=row_residuals(mechanism, row1, _admitted(plan, row1) @ columns / math.sqrt(plan.dim)),
        sigma=plan.noise_std,
        relation=plan.relation,
    )


def random_projection_audit(name: str, plan: ProjectionPlan) -> Audit:
    """Audit of what a projection through a Gaussian matrix claims over matrices: the plan's epsilon.

    Every user has items of their own, whose columns are independent, so one release gives many runs, each with a matrix
    of its own that the score reads: it is the logarithm of the likelihood ratio given the matrix, for worlds centred at
    0 and M c ``(<M c, x> - |M c|^2/2) / w^2``. No single mu describes such a release, and a bound
    of epsilon alone sees errors of a factor of three in w: use it beside `projection_audit`.
    """
    if plan.mu is not None:
        raise ValueError(f"Calibration {plan.calibration!r} claims a mu for each matrix: use projection_audit.")
    each = 1 if plan.relation.unit is not Unit.USER else _USER_ITEMS
    rows = worst_rows(plan, 0, each)
    change = _admitted(plan, rows[1]) - _admitted(plan, rows[0])
    # Half of what the squares of the two worlds' means differ by, in units of |M c|^2.
    offset = 0.0 if plan.relation is Relation.REPLACE_ONE_USER else 0.5

    def scores(own: Floats, runs: int, seed: int, noise: NoiseSource) -> Floats:
        parts = (np.tile(own, runs), np.arange(runs * each), np.arange(runs + 1) * each)
        matrix = GaussianMatrix(plan.dim, runs * each, seed)
        published = release_rows(csr_array(parts, shape=(runs, runs * each)), plan, matrix, noise)
        moved = np.einsum("e,red->rd", change, matrix.transposed().reshape(runs, each, plan.dim))  # M c, (runs, dim)
        square = np.einsum("rd,rd->r", moved, moved)
        seen = np.einsum("rd,rd->r", published, moved) * math.sqrt(plan.dim)
        return np.asarray((seen - offset * square) / plan.w**2)

    def worlds(runs: int, noise: NoiseSource) -> tuple[Floats, Floats]:
        # Not by `worlds_of`: both worlds of some runs are published through the same matrix.
        chunk = max(1, _CHUNK // plan.dim // each)
        parts = []
        for start in range(0, runs, chunk):
            count, seed = min(chunk, runs - start), int(noise.integers(2**62, 1)[0])
            parts.append([scores(own, count, seed, noise) for own in rows])
        scores0, scores1 = np.concatenate(parts, axis=1)
        return scores0, scores1

    return Audit(name, plan.epsilon, plan.delta, worlds, relation=plan.relation)


def projection_audits(epsilon: float = 1.0, delta: float = 1e-5, dim: int = 16) -> list[Audit]:
    """Audits of the projection with noise under every matrix, calibration and relation.

    Where columns are bounded, the rating that changes is that of the item whose column is the longest before they are.
    The paper's formula is asked for 200 times the epsilon, or its noise would hide everything.
    """
    planned = partial(plan_projection, delta=delta, dim=dim)
    gaussian, sparse = GaussianMatrix(dim, _ITEMS, 0), SparseMatrix(dim, _ITEMS, 0, unit=False)
    longest, longest_sparse = (int(np.argmax(matrix.column_norms())) for matrix in (gaussian, sparse))
    largest = float(gaussian.column_norms().max())
    unit, most = planned(epsilon=epsilon), planned(epsilon=epsilon, calibration="max", largest_norm=largest)
    audits = [
        projection_audit("JLT unit", unit, GaussianMatrix(dim, _ITEMS, 0, unit=True), item=longest),
        projection_audit("SJLT unit", unit, SparseMatrix(dim, _ITEMS, 0), item=longest_sparse),
        projection_audit("JLT max", most, gaussian, item=longest),
    ]
    plans = {
        "JLT gaussian": planned(epsilon=epsilon, calibration="gaussian"),
        "JLT paper": planned(epsilon=200 * epsilon, calibration="paper"),
    }
    for relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER):
        name = f"JLT gaussian, {relation.value.replace('_', ' ')}"
        plans[name] = planned(epsilon=epsilon, calibration="gaussian", relation=relation, clip=2.0)
    for name, plan in plans.items():
        audits.append(random_projection_audit(name, plan))
        audits.append(projection_audit(f"{name}, matrix fixed", plan, gaussian))
    return audits
