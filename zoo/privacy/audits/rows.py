"""Worst pairs of published rows: one cell that is 0 or 1, or a whole user's row.

Many users with the same row give as many independent runs in one release, for noise is drawn user by user.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.two_world import Audit, Floats, Residuals, Worlds, worlds_of
from zoo.privacy.mechanisms.flipped_rows import FlippedRows, flipped_rows
from zoo.privacy.mechanisms.noisy_rows import NoisyRows, noisy_rows, noisy_rows_above
from zoo.privacy.randomness.noise import NoiseSource

Mechanism = Callable[[csr_array, NoiseSource], Floats]
"""Rows ``(users, items)`` and noise in, the published rows ``(users, width)`` out, user by user independent."""
Score = Callable[[Floats], Floats]
"""Published rows ``(users, width)`` in, a score per user ``(users,)`` out."""

CHUNK = 2**20
"""Published numbers in memory at a time."""

_ITEMS = 6
_CELL = 2  # the item whose rating differs; others are rated on both data sets
_USER_ITEMS = 4  # of a user who is changed: twice as long as the clip of 1 allows


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

    return worlds_of(scores, row0, row1, at_once=max(1, CHUNK // width))


def row_residuals(mechanism: Mechanism, row: npt.ArrayLike, clean: npt.ArrayLike) -> Residuals:
    """What a mechanism adds to a user's row ``(items,)``, of which it would publish ``clean`` ``(width,)`` without noise."""
    expected = np.asarray(clean, dtype=np.float64)
    return lambda count, noise: mechanism(same_rows(row, -(-count // len(expected))), noise) - expected


def noisy_rows_audit(name: str, plan: NoisyRows) -> Audit:
    """Audit of Gaussian noise on rows; of the cells above a threshold, if the plan has one.

    For one rating the score is the noisy value of its cell, for one user the sum over the cells that differ. A cell
    that is not above the threshold has no value, which counts as the least. Two clipped rows of ones are at most
    ``sqrt(2)`` clips apart, so of what replacing a user may move that share of a half is all there is to see.
    """
    (row0, row1), clean, attained = _rows_of_a_cell(), None, None
    if per_user := plan.relation.unit is Unit.USER:
        if plan.threshold is not None or plan.clip is None:
            raise ValueError(f"Audit {name!r}: of users, all cells are audited. Plan without a threshold.")
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
    audit = Audit(name, plan.epsilon, plan.delta, worlds, mu=plan.mu, attained=attained, relation=plan.relation)
    if plan.threshold is not None:
        return audit
    return replace(audit, residuals=row_residuals(noisy, row1, row1 if clean is None else clean), sigma=plan.noise_std)


def flipped_rows_audit(name: str, plan: FlippedRows) -> Audit:
    """Audit of flipped cells: whether one cell is reported, and kept. The claim has no delta and is attained."""

    def flipped(rows: csr_array, noise: NoiseSource) -> Floats:
        return flipped_rows(rows, plan, noise).toarray().astype(np.float64)

    worlds = row_worlds(flipped, *_rows_of_a_cell(), lambda published: published[:, _CELL], _ITEMS)
    return Audit(name, plan.epsilon, 0.0, worlds, attained=plan.epsilon, relation=Relation.CHANGE_ONE_RATING)


def row_noise_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of noisy and flipped rows, whole and sparse, for ratings and users."""
    planned = partial(NoisyRows.calibrate, epsilon=epsilon, delta=delta)
    noisy = {"NoisyRows": planned(), "NoisyRows above a threshold": planned(threshold=0.5)}
    for relation in (relation for relation in Relation if relation.unit is Unit.USER):
        noisy[f"NoisyRows, {relation.value.replace('_', ' ')}"] = planned(relation=relation, clip=1.0)
    audits = [noisy_rows_audit(name, plan) for name, plan in noisy.items()]
    for name, keep in {"FlippedRows": 1.0, "FlippedRows, half kept": 0.5}.items():
        plan = FlippedRows.calibrate(epsilon=epsilon, num_users=1, num_items=_ITEMS, keep=keep)
        audits.append(flipped_rows_audit(name, plan))
    return audits


def _rows_of_a_cell() -> tuple[Floats, Floats]:
    """Rows that differ in one cell; of the others some are ones on both."""
    row0 = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    row1 = row0.copy()
    row1[_CELL] = 1.0
    return row0, row1
