"""Worst pairs of projections with noise (one rating, or one user's row), and canaries for one run."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from zoo.privacy.accounting.accountant import mu_of
from zoo.privacy.accounting.events import GaussianProjectionEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.rows import CHUNK, own_rows, row_residuals, row_worlds
from zoo.privacy.audits.two_world import COORDINATES, Audit, Floats
from zoo.privacy.mechanisms.jlt import JLT, bounded_rows, release_chunks, release_rows
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix

FULL_WIDTH, FULL_ITEMS = 400, 3916
"""Width and items of PriCDR's smaller domain: the sizes of audits of one public matrix."""

_DIM, _ITEMS = 16, 40  # of matrices that are drawn for each run
_FIRST = (0, 1, 2, 3)  # items at which a user changes by default; for ratings the first
_BEYOND = 3.0  # ratings in units of the range, rows in clips

_CANARIES, _CANARY_ITEMS = 1500, 600
_FEWEST_CANARIES, _FEWEST_ITEMS = 100, 64
_NUMBERS = 2**23  # published numbers of an audit, and those of the matrix, unless rows are very wide
_DENSITY = 0.1  # of the ratings around the canaries


def projection_audits(
    epsilon: float = 1.0, delta: float = 1e-5, *, dim: int = FULL_WIDTH, num_items: int = FULL_ITEMS
) -> list[Audit]:
    """Return audits of the projection with noise under every matrix, calibration and relation.

    Claims for every matrix are audited at full size with the matrix known; the rating that changes is that of the item with
    the longest column before columns are bounded. Claims over matrices are audited with many small matrices here, and at
    full size in `zoo.privacy.audits.greedy_rows`. The paper's formula claims 200 epsilon; its noise hides everything else.
    """
    gaussian, sparse = GaussianMatrix(dim, num_items, 0), SparseMatrix(dim, num_items, 0, unit=False)
    largest = float(gaussian.column_norms().max())
    bounded = partial(JLT.calibrate, epsilon=epsilon, delta=delta, dim=dim)
    unit, most = bounded(), bounded(calibration="max", largest_norm=largest)
    longest, longest_sparse = longest_column(gaussian), longest_column(sparse)
    audits = [
        projection_audit("JLT unit", unit, GaussianMatrix(dim, num_items, 0, unit=True), items=longest),
        projection_audit("SJLT unit", unit, SparseMatrix(dim, num_items, 0), items=longest_sparse),
        projection_audit("JLT max", most, gaussian, items=longest),
    ]
    planned, small = partial(JLT.calibrate, delta=delta, dim=_DIM), GaussianMatrix(_DIM, _ITEMS, 0)
    plans = {
        "JLT gaussian": planned(epsilon=epsilon, calibration="gaussian"),
        "JLT paper": planned(epsilon=200 * epsilon, calibration="paper"),
    }
    for relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER):
        name = f"JLT gaussian, {relation.value.replace('_', ' ')}"
        plans[name] = planned(epsilon=epsilon, calibration="gaussian", relation=relation, clip=2.0)
    for name, plan in plans.items():
        audits.append(random_projection_audit(name, plan))
        audits.append(projection_audit(f"{name}, matrix fixed", plan, small))
    return audits


def longest_column(matrix: PublicMatrix) -> tuple[int]:
    """Return the item whose rating M stretches most."""
    return (int(np.argmax(matrix.column_norms())),)


def canary_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[OneRunAudit]:
    """Return one-run audits of the projection with noise at PriCDR's width, 400, for one rating."""
    unit = JLT.calibrate(epsilon=epsilon, delta=delta, dim=FULL_WIDTH)
    gaussian = JLT.calibrate(epsilon=epsilon, delta=delta, dim=FULL_WIDTH, calibration="gaussian")
    return [
        canary_audit("JLT unit, one run", unit, GaussianMatrix(FULL_WIDTH, _CANARY_ITEMS, 0, unit=True)),
        canary_audit("SJLT unit, one run", unit, SparseMatrix(FULL_WIDTH, _CANARY_ITEMS, 0)),
        canary_audit("JLT gaussian, one run", gaussian, GaussianMatrix(FULL_WIDTH, _CANARY_ITEMS, 0)),
    ]


def worst_rows(plan: JLT, items: Sequence[int], num_items: int) -> tuple[Floats, Floats]:
    """Return two rows ``(items,)`` that differ by more than the plan's relation allows, before clipping or clamping.

    The rating of the first of ``items`` changes; for users those of all of them.
    """
    row0, row1 = np.zeros(num_items), np.zeros(num_items)
    if plan.relation.unit is not Unit.USER:
        row1[items[0]] = _BEYOND * (plan.rating_range or 0.0)
        return row0, row1
    row1[list(items)] = _BEYOND * (plan.clip or 0.0)
    return (-row1 if plan.relation is Relation.REPLACE_ONE_USER else row0), row1


def _admitted(plan: JLT, row: Floats) -> Floats:
    """Return a row ``(items,)`` as the plan bounds it, computed independently of the audited mechanism."""
    if plan.clip is not None:
        length = float(np.linalg.norm(row))
        return row * (plan.clip / length) if length > plan.clip else row
    return np.clip(row, 0.0, plan.rating_range)


def changed(plan: JLT, items: Sequence[int], num_items: int) -> Floats:
    """Return the difference of `worst_rows` after bounding, ``(items,)``; it has the length that the plan allows."""
    row0, row1 = worst_rows(plan, items, num_items)
    return _admitted(plan, row1) - _admitted(plan, row0)


def projection_audit(name: str, plan: JLT, matrix: PublicMatrix, *, items: Sequence[int] = _FIRST) -> Audit:
    """Return the audit of a projection with noise, the public matrix fixed.

    Given the matrix the release is Gaussian with a known mu: the plan's own for the calibrations ``unit`` and ``max``; for a
    Gaussian matrix the length of the projected unit change over the noise multiplier. The audited epsilon is the plan's, or
    that of this mu at the plan's delta. `random_projection_audit` audits claims over matrices. See `worst_rows` for the pair.
    """
    row0, row1 = worst_rows(plan, items, matrix.num_items)
    columns = matrix.transposed()
    change = changed(plan, items, matrix.num_items)
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


def random_projection_audit(name: str, plan: JLT) -> Audit:
    """Return the audit of what a projection through a Gaussian matrix claims over matrices: the plan's epsilon.

    Each user has items of its own with independent columns, so one release gives many runs, each with its own matrix. The
    score is the log-likelihood ratio given the matrix, for worlds centred at 0 and M c:
    ``(<M c, x> - |M c|^2/2) / w^2``. Such a release has no single mu, and a bound of epsilon alone detects only errors of a
    factor of three in w. Use it together with `projection_audit`.
    """
    if plan.mu is not None:
        raise ValueError(f"Calibration is {plan.calibration!r}, which claims a mu per matrix. Use projection_audit.")
    each = 1 if plan.relation.unit is not Unit.USER else len(_FIRST)
    rows, change = worst_rows(plan, range(each), each), changed(plan, range(each), each)
    # Half of the difference of the squared means of the two worlds, in units of |M c|^2.
    offset = 0.0 if plan.relation is Relation.REPLACE_ONE_USER else 0.5

    def scores(own: Floats, runs: int, seed: int, noise: NoiseSource) -> Floats:
        matrix = GaussianMatrix(plan.dim, runs * each, seed)
        published = release_rows(own_rows(own, runs), plan, matrix, noise)
        moved = np.einsum("e,red->rd", change, matrix.transposed().reshape(runs, each, plan.dim))  # M c, (runs, dim)
        square = np.einsum("rd,rd->r", moved, moved)
        seen = np.einsum("rd,rd->r", published, moved) * math.sqrt(plan.dim)
        return np.asarray((seen - offset * square) / plan.w**2)

    def worlds(runs: int, noise: NoiseSource) -> tuple[Floats, Floats]:
        # Not by `worlds_of`: both worlds of some runs share a matrix.
        chunk = max(1, CHUNK // plan.dim // each)
        parts = []
        for start in range(0, runs, chunk):
            count, seed = min(chunk, runs - start), int(noise.integers(2**62, 1)[0])
            parts.append([scores(own, count, seed, noise) for own in rows])
        scores0, scores1 = np.concatenate(parts, axis=1)
        return scores0, scores1

    return Audit(name, plan.epsilon, plan.delta, worlds, relation=plan.relation)


def audited_items(dim: int) -> int:
    """Return the number of items of the matrix of width ``dim`` that a publisher is audited with; fewer if it is wide."""
    return min(FULL_ITEMS, max(_FEWEST_ITEMS, _NUMBERS // dim))


def canary_sizes(dim: int) -> tuple[int, int]:
    """Return the numbers of canaries and items of an audit of rows of width ``dim``, for seconds and 100 MiB at most."""
    many = _NUMBERS // dim
    return min(_CANARIES, max(_FEWEST_CANARIES, many)), min(_CANARY_ITEMS, max(_FEWEST_ITEMS, many))


def canary_audit(name: str, plan: JLT, matrix: PublicMatrix, canaries: int = _CANARIES) -> OneRunAudit:
    """Return the one-run audit of a projection with noise, by one release with a user for each canary.

    A fair coin sets one entry of each user's row to 0 or to the largest rating, among other ratings. The score of a coin is
    ``<M_i, x> / |M_i|^2 - 1/2``, where x is the user's published row less what it would be with the entry at 0, in units of
    the largest rating. The fifth of the scores with the largest absolute values is guessed, by their signs.
    """
    if plan.rating_range is None or plan.relation.unit is Unit.USER:
        raise ValueError(f"The plan protects {plan.relation.unit.value!r}. Plan for ratings.")
    if canaries < 1:
        raise ValueError(f"canaries is {canaries!r}. Allowed: >= 1.")
    guesses = max(1, canaries // 5)

    def release(noise: NoiseSource) -> tuple[int, Floats]:
        scores, coins, residuals = _released(canaries, plan, matrix, noise)
        chosen = np.argsort(-np.abs(scores), kind="stable")[:guesses]
        return int(((scores > 0) == (coins == 1))[chosen].sum()), residuals

    return OneRunAudit(name, plan.epsilon, plan.delta, canaries, guesses, release, plan.noise_std, plan.relation)


def _released(canaries: int, plan: JLT, matrix: PublicMatrix, noise: NoiseSource) -> tuple[Floats, ...]:
    """Publish once; return scores and coins ``(canaries,)``, and coordinates of the noise for a scale test.

    With b the canary's coin, a user's row times ``sqrt(dim)``, less the product of the row without it, is ``b range M_i + w N``.
    """
    items = noise.integers(matrix.num_items, canaries)
    coins = noise.integers(2, canaries)
    largest, users = plan.rating_range or 0.0, np.arange(canaries)
    ratings = _BEYOND * largest * (noise.uniform((canaries, matrix.num_items)) < _DENSITY)
    ratings[users, items] = 0.0
    without = bounded_rows(csr_array(ratings), plan)
    ratings[users, items] = _BEYOND * largest * coins
    scores: list[Floats] = []
    residuals: list[Floats] = []
    start = 0
    for published in release_chunks(csr_array(ratings), plan, matrix, noise):
        chunk = slice(start, start + len(published))
        columns = largest * matrix.transposed()[items[chunk]]
        moved = published * math.sqrt(plan.dim) - matrix.times(without[chunk])
        scores.append(np.einsum("cd,cd->c", moved, columns) / np.einsum("cd,cd->c", columns, columns) - 0.5)
        residuals.append((moved - coins[chunk, None] * columns).ravel() / math.sqrt(plan.dim))
        start = chunk.stop
    return np.concatenate(scores), coins.astype(np.float64), np.concatenate(residuals)[:COORDINATES]
