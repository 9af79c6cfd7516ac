"""Worst pair of a published map: a user whose row and whose projection are as long as they may be, or one rating of it."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.two_world import Audit, Floats, worlds_of
from zoo.privacy.mechanisms.bridge import Bridge, NoisyMap, noisy_map
from zoo.privacy.randomness.noise import NoiseSource

_LONGER = 2  # squared length of a user's row, in those allowed
_WAY = np.array([3.0, 4.0]) / 5  # of the projection, of length 1
_BEYOND = 2.0  # length of the projection that is handed in, in those allowed
_AT_ONCE = 2**13


Mapped = Callable[[csr_array, Floats, Bridge, NoiseSource], NoisyMap]
"""Rows (users, items) and projections (users, directions) in, the published map out."""


def bridge_audit(name: str, plan: Bridge, mapped: Mapped = noisy_map) -> Audit:
    """Audit of a map and its counts, in two worlds that are as far apart as one change lets them be.

    Every user is a run, with items of its own, for noise is drawn item by item; all items are kept, so that runs do not meet. The
    score is the likelihood ratio of both releases. The user has more items than ``clip`` allows and a projection twice as long as
    is allowed, so a mechanism that does not clip is seen. Of users replaced, two 0/1 rows are at most ``sqrt(2)`` clips apart.
    ``mapped`` makes the map.
    """
    items = math.ceil(_LONGER * plan.clip**2) if plan.relation.unit is Unit.USER else 1
    row0, row1, attained = np.zeros(items), np.ones(items), None
    if plan.relation is Relation.REPLACE_ONE_USER:
        row0, row1, attained = (
            np.repeat([0.0, 1.0], items),
            np.repeat([1.0, 0.0], items),
            (plan.mu or 0.0) / math.sqrt(2),
        )
    length = min(1.0, plan.clip / math.sqrt(items))
    moved = (row1 - row0) * length
    whole = replace(plan, kept_items=None)

    def made(row: Floats, count: int, noise: NoiseSource) -> tuple[Floats, Floats]:
        found = np.flatnonzero(row)
        columns = (np.arange(count)[:, None] * len(row) + found).ravel()
        starts = np.arange(count + 1) * len(found)
        rows = csr_array((np.ones(len(columns)), columns, starts), shape=(count, count * len(row)))
        released = mapped(rows, np.tile(_BEYOND * _WAY, (count, 1)), whole, noise)
        shape = (count, len(row))
        return released.map.astype(np.float64).reshape(*shape, -1), released.counts.astype(np.float64).reshape(shape)

    def scores(row: Floats, count: int, noise: NoiseSource) -> Floats:
        table, counts = made(row, count, noise)
        found: Floats = (table @ _WAY) @ moved / plan.noise_std**2 + counts @ moved / plan.counts_std**2
        return found

    def residuals(count: int, noise: NoiseSource) -> Floats:
        users = -(-count // (len(row1) * len(_WAY)))
        added: Floats = made(row1, users, noise)[0] - length * row1[:, None] * _WAY
        return added

    worlds = worlds_of(scores, row0, row1, at_once=_AT_ONCE)
    return Audit(
        name,
        plan.epsilon,
        plan.delta,
        worlds,
        mu=plan.mu,
        attained=attained,
        relation=plan.relation,
        residuals=residuals if mapped is noisy_map else None,  # others, such as one that encrypts, take too long
        sigma=plan.noise_std if mapped is noisy_map else None,
    )


def bridge_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of maps under every relation that they protect."""
    return [
        bridge_audit("BridgePublisher", Bridge.calibrate(epsilon=epsilon, delta=delta)),
        bridge_audit(
            "BridgePublisher, replace one user",
            Bridge.calibrate(epsilon=epsilon, delta=delta, relation=Relation.REPLACE_ONE_USER),
        ),
        bridge_audit(
            "BridgePublisher, one rating",
            Bridge.calibrate(epsilon=epsilon, delta=delta, relation=Relation.CHANGE_ONE_RATING, clip=3.0),
        ),
    ]
