"""Worst pairs of published rows and vectors: one entry that is 0 or 1, or all data of a user.

Many users with the same data give independent runs in one release, because noise is drawn for each user.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.two_world import Audit, Floats, Residuals, Worlds, worlds_of
from zoo.privacy.mechanisms.flipped_rows import FlippedRows, flipped_rows
from zoo.privacy.mechanisms.noisy_rows import NoisyRows, noisy_rows, noisy_rows_above
from zoo.privacy.mechanisms.vectors import UserVectors, noisy_vectors
from zoo.privacy.randomness.noise import NoiseSource

Mechanism = Callable[[csr_array, NoiseSource], Floats]
"""Map rows ``(users, items)`` and noise to published rows ``(users, width)``, independent between users."""
Score = Callable[[Floats], Floats]
"""Map published rows ``(users, width)`` to a score per user ``(users,)``."""

CHUNK = 2**20
"""Published numbers in memory at a time."""

_ITEMS = 6
_CELL = 2  # the item whose rating differs
_USER_ITEMS = 4  # items of a changed user: twice as long as the clip of 1 allows
_VECTOR_WIDTH, _VECTOR_CLIPS = 3, 3.0  # numbers of a vector, its length in clips
_VECTORS_AT_ONCE = 2**18  # numbers in memory


def same_rows(row: npt.ArrayLike, count: int) -> csr_array:
    """Return a row ``(items,)`` as ``count`` users, ``(count, items)``."""
    values = np.asarray(row, dtype=np.float64)
    items = np.flatnonzero(values)
    pointers = np.arange(count + 1) * len(items)
    return csr_array((np.tile(values[items], count), np.tile(items, count), pointers), shape=(count, len(values)))


def own_rows(row: Floats, count: int) -> csr_array:
    """Return a row ``(items,)`` as ``count`` users, each with items of its own, ``(count, count * items)``."""
    items = np.flatnonzero(row)
    columns = (np.arange(count)[:, None] * len(row) + items).ravel()
    shape = (count, count * len(row))
    return csr_array((np.tile(row[items], count), columns, np.arange(count + 1) * len(items)), shape=shape)


def row_worlds(mechanism: Mechanism, row0: npt.ArrayLike, row1: npt.ArrayLike, score: Score, width: int) -> Worlds:
    """Return worlds of a mechanism that treats users independently, of many users with one of two rows ``(items,)``.

    The mechanism must not compare users, so it must not centre over users. ``width`` is that of a published row.
    """

    def scores(row: npt.ArrayLike, users: int, noise: NoiseSource) -> Floats:
        return score(mechanism(same_rows(row, users), noise))

    return worlds_of(scores, row0, row1, at_once=max(1, CHUNK // width))


def row_residuals(mechanism: Mechanism, row: npt.ArrayLike, clean: npt.ArrayLike) -> Residuals:
    """Return what a mechanism adds to a row ``(items,)`` whose published row without noise is ``clean`` ``(width,)``."""
    expected = np.asarray(clean, dtype=np.float64)
    return lambda count, noise: mechanism(same_rows(row, -(-count // len(expected))), noise) - expected


def noisy_rows_audit(name: str, plan: NoisyRows) -> Audit:
    """Return the audit of Gaussian noise on rows, or on the entries above a threshold.

    For one rating the score is the noisy value of its entry, and the least value if that is below the threshold. For one
    user it is the sum over the entries that differ. Two clipped rows of ones are at most ``sqrt(2)`` clips apart, so of a
    replaced user only ``1/sqrt(2)`` of mu is attained.
    """
    (row0, row1), clean, attained = _rows_of_a_cell(), None, None
    if per_user := plan.relation.unit is Unit.USER:
        if plan.threshold is not None or plan.clip is None:
            raise ValueError(f"Audit {name!r} has threshold {plan.threshold!r}. Users allow none.")
        row0, row1 = np.zeros(2 * _USER_ITEMS), np.repeat([1.0, 0.0], _USER_ITEMS)
        clean = row1 * min(1.0, plan.clip / math.sqrt(_USER_ITEMS))
        if plan.relation is Relation.REPLACE_ONE_USER:
            row0, attained = 1.0 - row1, 1 / (plan.noise_multiplier * math.sqrt(2))

    def noisy(rows: csr_array, noise: NoiseSource) -> Floats:
        if plan.threshold is None:
            return noisy_rows(rows, plan, noise).astype(np.float64)
        values = noisy_rows_above(rows, plan, noise).toarray()
        return np.where(values > 0, values, -math.inf)

    def score(published: Floats) -> Floats:
        return published @ (row1 - row0) if per_user else published[:, _CELL]

    worlds = row_worlds(noisy, row0, row1, score, len(row0))
    residuals = None if plan.threshold is not None else row_residuals(noisy, row1, row1 if clean is None else clean)
    return Audit.of(name, plan, worlds, attained=attained, residuals=residuals)


def flipped_rows_audit(name: str, plan: FlippedRows) -> Audit:
    """Return the audit of flipped entries: whether one entry is reported. The claim has no delta and is attained."""

    def flipped(rows: csr_array, noise: NoiseSource) -> Floats:
        return flipped_rows(rows, plan, noise).toarray().astype(np.float64)

    worlds = row_worlds(flipped, *_rows_of_a_cell(), lambda published: published[:, _CELL], _ITEMS)
    return Audit(name, plan.epsilon, 0.0, worlds, attained=plan.epsilon, relation=Relation.CHANGE_ONE_RATING)


def vectors_audit(name: str, plan: UserVectors) -> Audit:
    """Return the audit of Gaussian noise on clipped vectors: opposite vectors, or vectors and none, longer than the clip.

    A mechanism that clips all layers together, or none, is detected.
    """
    direction = np.ones((plan.num_layers, _VECTOR_WIDTH)) / np.sqrt(_VECTOR_WIDTH)
    other = -direction if plan.relation is Relation.REPLACE_ONE_USER else np.zeros_like(direction)
    data0, data1 = (_VECTOR_CLIPS * plan.clip * vectors for vectors in (other, direction))

    def noisy(vectors: Floats, count: int, noise: NoiseSource) -> Floats:
        return noisy_vectors(np.broadcast_to(vectors, (count, *vectors.shape)), plan, noise).astype(np.float64)

    def scores(vectors: Floats, count: int, noise: NoiseSource) -> Floats:
        return np.asarray((noisy(vectors, count, noise) * direction).sum(axis=(1, 2)))

    def residuals(count: int, noise: NoiseSource) -> Floats:
        return np.asarray(noisy(data1, -(-count // direction.size), noise) - plan.clip * direction)

    worlds = worlds_of(scores, data0, data1, at_once=max(1, _VECTORS_AT_ONCE // direction.size))
    return Audit.of(name, plan, worlds, residuals=residuals)


def row_noise_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Return audits of noisy and flipped rows, whole and sparse, for ratings and users."""
    planned = partial(NoisyRows.calibrate, epsilon=epsilon, delta=delta)
    noisy = {"NoisyRows": planned(), "NoisyRows above a threshold": planned(threshold=0.5)}
    for relation in (relation for relation in Relation if relation.unit is Unit.USER):
        noisy[f"NoisyRows, {relation.value.replace('_', ' ')}"] = planned(relation=relation, clip=1.0)
    audits = [noisy_rows_audit(name, plan) for name, plan in noisy.items()]
    for name, keep in {"FlippedRows": 1.0, "FlippedRows, half kept": 0.5}.items():
        plan = FlippedRows.calibrate(epsilon=epsilon, num_users=1, num_items=_ITEMS, keep=keep)
        audits.append(flipped_rows_audit(name, plan))
    return audits


def vector_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Return audits of vectors of one layer and of several, under both relations."""
    planned = partial(UserVectors.calibrate, epsilon=epsilon, delta=delta, clip=0.5)
    plans = {
        "EmbeddingPublisher": planned(num_layers=1),
        "EmbeddingPublisher, 3 layers": planned(num_layers=3),
        "EmbeddingPublisher, zero out one user": planned(num_layers=2, relation=Relation.ZERO_OUT_ONE_USER),
    }
    return [vectors_audit(name, plan) for name, plan in plans.items()]


def _rows_of_a_cell() -> tuple[Floats, Floats]:
    row0 = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    row1 = row0.copy()
    row1[_CELL] = 1.0
    return row0, row1
