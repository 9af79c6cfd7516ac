"""Worst pairs of published rows, vectors and maps; many users with the same data are as many independent runs in one release."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.two_world import Audit, Floats, Residuals, Worlds, worlds_of
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.bridge import BridgePlan, NoisyMap, noisy_map, plan_bridge
from zoo.privacy.rows.row_noise import (
    NoisePlan,
    RandomisedResponsePlan,
    flipped_rows,
    noisy_rows,
    noisy_rows_above,
    plan_noise,
    plan_randomised_response,
)
from zoo.privacy.rows.vectors import VectorsPlan, noisy_vectors, plan_vectors

Mechanism = Callable[[csr_array, NoiseSource], Floats]
"""Rows ``(users, items)`` and noise in, the published rows ``(users, width)`` out, user by user independent."""
Score = Callable[[Floats], Floats]
"""Published rows ``(users, width)`` in, a score per user ``(users,)`` out."""
Mapped = Callable[[csr_array, Floats, BridgePlan, NoiseSource], NoisyMap]
"""Rows ``(users, items)`` and projections ``(users, directions)`` in, the published map out."""

CHUNK = 2**20
"""Published numbers in memory at a time."""

_ITEMS = 6
_CELL = 2  # the item whose rating differs; others are rated on both data sets
_USER_ITEMS = 4  # of a user who is changed: twice as long as the clip of 1 allows

_LAYER_WIDTH = 3
_BEYOND = 3.0  # length of a vector in clips
_VECTOR_NUMBERS = 2**18

_LONGER = 2  # squared length of a user's row in a map, in those allowed
_WAY = np.array([3.0, 4.0]) / 5  # of the projection, of length 1
_PROJECTION = 2.0  # length of the projection that is handed in, in those allowed
_MAP_USERS = 2**13


def same_rows(row: npt.ArrayLike, count: int) -> csr_array:
    """A row ``(items,)`` as ``count`` users, shape ``(count, items)``."""
    values = np.asarray(row, dtype=np.float64)
    items = np.flatnonzero(values)
    pointers = np.arange(count + 1) * len(items)
    return csr_array((np.tile(values[items], count), np.tile(items, count), pointers), shape=(count, len(values)))


def row_worlds(mechanism: Mechanism, row0: npt.ArrayLike, row1: npt.ArrayLike, score: Score, width: int) -> Worlds:
    """Worlds of a mechanism that treats users independently: many users with one row ``(items,)``, many with the other.

    Centring over users is left out. ``width`` is that of a published row.
    """

    def scores(row: npt.ArrayLike, users: int, noise: NoiseSource) -> Floats:
        return score(mechanism(same_rows(row, users), noise))

    return worlds_of(scores, row0, row1, at_once=max(1, CHUNK // width))


def row_residuals(mechanism: Mechanism, row: npt.ArrayLike, clean: npt.ArrayLike) -> Residuals:
    """What a mechanism adds to a user's row ``(items,)``, of which it would publish ``clean`` ``(width,)`` without noise."""
    expected = np.asarray(clean, dtype=np.float64)
    return lambda count, noise: mechanism(same_rows(row, -(-count // len(expected))), noise) - expected


def _audit(
    name: str,
    plan: NoisePlan | VectorsPlan | BridgePlan,
    worlds: Worlds,
    residuals: Residuals | None,
    attained: float | None = None,
) -> Audit:
    """Audit of what a plan claims; its noise is tested where there are residuals."""
    sigma = None if residuals is None else plan.noise_std
    claim = name, plan.epsilon, plan.delta, worlds
    return Audit(*claim, mu=plan.mu, attained=attained, residuals=residuals, sigma=sigma, relation=plan.relation)


def noisy_rows_audit(name: str, plan: NoisePlan) -> Audit:
    """Audit of Gaussian noise on rows; of the cells above a threshold, if the plan has one.

    For one rating the score is the noisy value of its cell, for one user the sum over the cells that differ. A cell
    below the threshold has no value, which counts as the least. Two clipped rows of ones are at most ``sqrt(2)`` clips
    apart, so replacing a user attains ``mu / sqrt(2)``.
    """
    (row0, row1), clean, attained = _rows_of_a_cell(), None, None
    if per_user := plan.relation.unit is Unit.USER:
        if plan.threshold is not None or plan.clip is None:
            raise ValueError(f"Audit {name!r}: of users, all cells are audited. Plan without a threshold.")
        row0, row1 = np.zeros(2 * _USER_ITEMS), np.repeat([1.0, 0.0], _USER_ITEMS)
        clean = row1 * min(1.0, plan.clip / math.sqrt(_USER_ITEMS))
        if plan.relation is Relation.REPLACE_ONE_USER:
            row0, attained = 1.0 - row1, plan.mu / math.sqrt(2)

    def noisy(rows: csr_array, noise: NoiseSource) -> Floats:
        if plan.threshold is None:
            return noisy_rows(rows, plan, noise).astype(np.float64)
        values = noisy_rows_above(rows, plan, noise).toarray()
        return np.where(values > 0, values, -math.inf)

    def score(published: Floats) -> Floats:
        return published @ (row1 - row0) if per_user else published[:, _CELL]

    worlds = row_worlds(noisy, row0, row1, score, len(row0))
    residuals = None if plan.threshold is not None else row_residuals(noisy, row1, row1 if clean is None else clean)
    return _audit(name, plan, worlds, residuals, attained)


def flipped_rows_audit(name: str, plan: RandomisedResponsePlan) -> Audit:
    """Audit of flipped cells: whether one cell is reported, and kept. The claim has no delta and is attained."""

    def flipped(rows: csr_array, noise: NoiseSource) -> Floats:
        return flipped_rows(rows, plan, noise).toarray().astype(np.float64)

    worlds = row_worlds(flipped, *_rows_of_a_cell(), lambda published: published[:, _CELL], _ITEMS)
    return Audit(name, plan.epsilon, 0.0, worlds, attained=plan.epsilon, relation=Relation.CHANGE_ONE_RATING)


def vectors_audit(name: str, plan: VectorsPlan) -> Audit:
    """Audit of Gaussian noise on clipped vectors, in two worlds as far apart as clipping lets them be.

    A user's vectors point one way, and the other way or, of a user zeroed out, nowhere. Vectors are longer than the clip:
    a mechanism that clips all layers together, or none, is caught.
    """
    way = np.ones((plan.num_layers, _LAYER_WIDTH)) / np.sqrt(_LAYER_WIDTH)
    vectors = _BEYOND * plan.clip * way
    other = -vectors if plan.relation is Relation.REPLACE_ONE_USER else np.zeros_like(vectors)

    def noisy(vectors: Floats, count: int, noise: NoiseSource) -> Floats:
        return noisy_vectors(np.broadcast_to(vectors, (count, *vectors.shape)), plan, noise).astype(np.float64)

    def scores(vectors: Floats, count: int, noise: NoiseSource) -> Floats:
        return np.asarray((noisy(vectors, count, noise) * way).sum(axis=(1, 2)))

    def residuals(count: int, noise: NoiseSource) -> Floats:
        return np.asarray(noisy(vectors, -(-count // way.size), noise) - plan.clip * way)

    worlds = worlds_of(scores, other, vectors, at_once=max(1, _VECTOR_NUMBERS // way.size))
    return _audit(name, plan, worlds, residuals)


def bridge_audit(name: str, plan: BridgePlan, mapped: Mapped = noisy_map) -> Audit:
    """Audit of a map and its counts, in two worlds as far apart as one change lets them be.

    Every user is a run with items of its own, because noise is drawn item by item; all items are kept, so runs do not meet.
    The score is the likelihood ratio of both releases. The user has more items than ``clip`` allows and a projection twice as
    long as allowed, so a mechanism that does not clip is caught. Two 0/1 rows are at most ``sqrt(2)`` clips apart, so
    replacing a user attains ``mu / sqrt(2)``. ``mapped`` makes the map; only the noise of the default one is tested, because
    others, such as one that encrypts, take too long.
    """
    items = math.ceil(_LONGER * plan.clip**2) if plan.relation.unit is Unit.USER else 1
    row0, row1, attained = np.zeros(items), np.ones(items), None
    if plan.relation is Relation.REPLACE_ONE_USER:
        row0, row1, attained = np.repeat([0.0, 1.0], items), np.repeat([1.0, 0.0], items), plan.mu / math.sqrt(2)
    length = min(1.0, plan.clip / math.sqrt(items))
    moved = (row1 - row0) * length
    whole = BridgePlan(**{**vars(plan), "kept_items": None})

    def made(row: Floats, count: int, noise: NoiseSource) -> tuple[Floats, Floats]:
        found = np.flatnonzero(row)
        columns = (np.arange(count)[:, None] * len(row) + found).ravel()
        starts = np.arange(count + 1) * len(found)
        rows = csr_array((np.ones(len(columns)), columns, starts), shape=(count, count * len(row)))
        released = mapped(rows, np.tile(_PROJECTION * _WAY, (count, 1)), whole, noise)
        shape = (count, len(row))
        return released.map.astype(np.float64).reshape(*shape, -1), released.counts.astype(np.float64).reshape(shape)

    def scores(row: Floats, count: int, noise: NoiseSource) -> Floats:
        table, counts = made(row, count, noise)
        return np.asarray((table @ _WAY) @ moved / plan.noise_std**2 + counts @ moved / plan.counts_std**2)

    def residuals(count: int, noise: NoiseSource) -> Floats:
        users = -(-count // (len(row1) * len(_WAY)))
        return np.asarray(made(row1, users, noise)[0] - length * row1[:, None] * _WAY)

    worlds = worlds_of(scores, row0, row1, at_once=_MAP_USERS)
    return _audit(name, plan, worlds, residuals if mapped is noisy_map else None, attained)


def row_noise_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of noisy and flipped rows, whole and sparse, for ratings and users."""
    planned = partial(plan_noise, epsilon=epsilon, delta=delta)
    noisy = {"NoisyRows": planned(), "NoisyRows above a threshold": planned(threshold=0.5)}
    for relation in (relation for relation in Relation if relation.unit is Unit.USER):
        noisy[f"NoisyRows, {relation.value.replace('_', ' ')}"] = planned(relation=relation, clip=1.0)
    audits = [noisy_rows_audit(name, plan) for name, plan in noisy.items()]
    for name, keep in {"FlippedRows": 1.0, "FlippedRows, half kept": 0.5}.items():
        plan = plan_randomised_response(epsilon=epsilon, num_users=1, num_items=_ITEMS, keep=keep)
        audits.append(flipped_rows_audit(name, plan))
    return audits


def vector_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of vectors of one layer and of several, under both relations."""
    planned, name = partial(plan_vectors, epsilon=epsilon, delta=delta, clip=0.5), "EmbeddingPublisher"
    return [
        vectors_audit(name, planned(num_layers=1)),
        vectors_audit(f"{name}, 3 layers", planned(num_layers=3)),
        vectors_audit(f"{name}, zero out one user", planned(num_layers=2, relation=Relation.ZERO_OUT_ONE_USER)),
    ]


def bridge_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of maps under every relation that they protect."""
    planned, name = partial(plan_bridge, epsilon=epsilon, delta=delta), "BridgePublisher"
    return [
        bridge_audit(name, planned()),
        bridge_audit(f"{name}, replace one user", planned(relation=Relation.REPLACE_ONE_USER)),
        bridge_audit(f"{name}, one rating", planned(relation=Relation.CHANGE_ONE_RATING, clip=3.0)),
    ]


def _rows_of_a_cell() -> tuple[Floats, Floats]:
    """Rows that differ in one cell; of the others some are ones on both."""
    row0 = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    return row0, np.where(np.arange(_ITEMS) == _CELL, 1.0, row0)
