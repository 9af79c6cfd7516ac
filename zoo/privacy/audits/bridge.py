"""Worst pair of a published mapping matrix: a user with the longest row and projection, or one rating of that user."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.rows import own_rows
from zoo.privacy.audits.two_world import Audit, Floats, worlds_of
from zoo.privacy.mechanisms.bridge import Bridge, NoisyMap, noisy_map
from zoo.privacy.randomness.noise import NoiseSource

_LONGER = 4  # squared length of a user's row, in allowed ones: two such rows are further apart than any allowed ones
_DIRECTION = np.array([3.0, 4.0]) / 5  # of the projection
_BEYOND = 2.0  # length of the projection, in allowed ones
_AT_ONCE = 2**13

Mapped = Callable[[csr_array, Floats, Bridge, NoiseSource], NoisyMap]
"""Map rows (users, items) and projections (users, directions) to the published matrix."""


def bridge_audit(name: str, plan: Bridge, mapped: Mapped = noisy_map) -> Audit:
    """Return the audit of a mapping matrix and its counts, with the two most distant neighbouring data sets.

    Each user is a run and has its own items; all items are released, so runs are independent. The score is the likelihood
    ratio of both releases. The user has more items and a longer projection than allowed, so missing clipping is detected.
    Two 0/1 rows of a replaced user are at most ``sqrt(2)`` clips apart. ``mapped`` makes the matrix.
    """
    items = math.ceil(_LONGER * plan.clip**2) if plan.relation.unit is Unit.USER else 1
    row0, row1, attained = np.zeros(items), np.ones(items), None
    if plan.relation is Relation.REPLACE_ONE_USER:
        row0, row1 = np.repeat([0.0, 1.0], items), np.repeat([1.0, 0.0], items)
        attained = (plan.mu or 0.0) / math.sqrt(2)
    length = min(1.0, plan.clip / math.sqrt(items))
    moved = (row1 - row0) * length
    whole = replace(plan, kept_items=None)

    def released(row: Floats, count: int, noise: NoiseSource) -> tuple[Floats, Floats]:
        found = mapped(own_rows(row, count), np.tile(_BEYOND * _DIRECTION, (count, 1)), whole, noise)
        shape = (count, len(row))
        return found.map.astype(np.float64).reshape(*shape, -1), found.counts.astype(np.float64).reshape(shape)

    def scores(row: Floats, count: int, noise: NoiseSource) -> Floats:
        table, counts = released(row, count, noise)
        return np.asarray((table @ _DIRECTION) @ moved / plan.noise_std**2 + counts @ moved / plan.counts_std**2)

    def residuals(count: int, noise: NoiseSource) -> Floats:
        users = -(-count // (len(row1) * (len(_DIRECTION) + 1)))
        table, counts = released(row1, users, noise)
        of_counts = (counts - length * row1) * (plan.noise_std / plan.counts_std)
        return np.concatenate([(table - length * row1[:, None] * _DIRECTION).ravel(), of_counts.ravel()])

    worlds = worlds_of(scores, row0, row1, at_once=_AT_ONCE)
    # The residuals of other functions, such as encrypted ones, take too long.
    return Audit.of(name, plan, worlds, attained=attained, residuals=residuals if mapped is noisy_map else None)


def bridge_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Return audits of mapping matrices under every relation that they protect."""
    planned = partial(Bridge.calibrate, epsilon=epsilon, delta=delta)
    plans = {
        "BridgePublisher": planned(),
        "BridgePublisher, replace one user": planned(relation=Relation.REPLACE_ONE_USER),
        "BridgePublisher, one rating": planned(relation=Relation.CHANGE_ONE_RATING, clip=3.0),
    }
    return [bridge_audit(name, plan) for name, plan in plans.items()]
