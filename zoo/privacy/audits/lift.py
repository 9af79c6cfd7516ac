"""Worst pairs of PriCDR's publishing as printed (`zoo.privacy.rows.svd_lift`): which forms are private, and which are not.

The published components of one release are independent and identically distributed, so a wide release gives many runs of a
release of one component. A loss of one component is a loss of the whole release.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from zoo.privacy.audits.rows import Score
from zoo.privacy.audits.two_world import Audit, Floats, Worlds, worlds_of
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.hadamard import hadamard_transform, padded_size
from zoo.privacy.rows.svd_lift import lifted_ratings, lifted_release, sparse_lifted_release

_Release = Callable[[Floats, JLT, NoiseSource], Floats]

_WIDTH = 400  # the paper's n', for which its w is computed
_LARGEST_CLAIM = 4.0  # a bound of 40 000 runs ends at about 7


def lift_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Return audits of the published forms: with at least as many items as users, with fewer, and sparse-aware.

    The first has a guarantee far below its claim, so its claim is 200 epsilon. The others claim at most 4 and must be caught.
    """
    claim = min(epsilon, _LARGEST_CLAIM)
    plan = JLT.calibrate(epsilon=claim, delta=delta, dim=_WIDTH, calibration="paper")
    weak = JLT.calibrate(epsilon=200 * epsilon, delta=delta, dim=4, calibration="paper")
    return [full_lift_audit(weak), missing_lift_audit(claim, plan), sparse_lift_audit(claim, plan)]


def full_lift_audit(plan: JLT) -> Audit:
    """Return the audit of the lift with as many items as users, which holds; a run has the width of the plan.

    Two users and two items; one rating differs. The score is the log-likelihood ratio of all components.
    """
    pair = [_lifted(rows, plan) for rows in ([[1, 0], [0, 0]], [[1, 0], [1, 0]])]
    # A component has the law N(0, R1^T R1), up to the scale 1/dim.
    forms = [np.linalg.inv(lifted.T @ lifted) for lifted in pair]
    difference = (forms[0] - forms[1]) * plan.dim / 2

    def score(components: Floats) -> Floats:
        each = np.einsum("cu,uv,cv->c", components, difference, components)
        return np.asarray(each.reshape(-1, plan.dim).sum(axis=1))

    worlds = _component_worlds(pair, plan, lifted_release, score)
    return Audit("published JLT, items >= users", plan.epsilon, plan.delta, worlds, relation=plan.relation)


def missing_lift_audit(epsilon: float, plan: JLT) -> Audit:
    """Return the audit of the lift with fewer items than users, which holds for no w: it reveals the ratings' row space.

    One item, rated by the first of three users or by the first two. The score is the distance of a component from the row
    space of the latter, relative to its length and negated.
    """
    pair = [_lifted(rows, plan) for rows in ([[1], [0], [0]], [[1], [1], [0]])]
    space = np.linalg.svd(pair[1], full_matrices=False)[2]

    def score(components: Floats) -> Floats:
        outside = components - components @ space.T @ space
        return np.asarray(-np.linalg.norm(outside, axis=1) / np.maximum(np.linalg.norm(components, axis=1), 1e-300))

    worlds = _component_worlds(pair, replace(plan, dim=1), lifted_release, score)
    return Audit("published JLT, items < users", epsilon, plan.delta, worlds, holds=False, relation=plan.relation)


def sparse_lift_audit(epsilon: float, plan: JLT, density: float = 0.5) -> Audit:
    """Return the audit of the sparse-aware lift, which holds for no w: a component lies on one of few lines.

    Two items and two users, each user with an item of their own; then one has both. A component of one non-zero lies on a
    row of ``H D R1``. The score says whether it lies on one of the second data set's, for any signs D. Its law does not
    depend on D, so the components of one release, which share D, are independent runs.
    """
    # Not centred: with two users that would leave one direction, the same for all data.
    pair = [_lifted(rows, plan, centre=False) for rows in ([[1, 0], [0, 1]], [[1, 0], [1, 1]])]
    every_sign = itertools.product([-1.0, 1.0], repeat=padded_size(len(pair[1])))
    lines = np.concatenate([hadamard_transform(np.array(signs)[:, None] * pair[1]) for signs in every_sign])
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)

    def score(components: Floats) -> Floats:
        length = np.linalg.norm(components, axis=1)
        nearest = np.abs(components @ lines.T).max(axis=1)
        return np.asarray(((length > 0) & (nearest >= length * (1 - 1e-12))).astype(np.float64))

    def release(lifted: Floats, wide: JLT, noise: NoiseSource) -> Floats:
        return sparse_lifted_release(lifted, wide, density, noise)

    worlds = _component_worlds(pair, replace(plan, dim=1), release, score)
    return Audit("published SJLT", epsilon, plan.delta, worlds, holds=False, relation=plan.relation)


def _lifted(rows: list[list[int]], plan: JLT, *, centre: bool = True) -> Floats:
    """Return R1 of ratings ``(users, items)``, ``(items, users)``."""
    return lifted_ratings(csr_array(np.array(rows, dtype=np.float64)), plan, centre=centre)


def _component_worlds(pair: list[Floats], plan: JLT, release: _Release, score: Score) -> Worlds:
    """Return runs of ``plan.dim`` components each; the score takes components ``(runs * dim, users)``."""

    def scores(lifted: Floats, runs: int, noise: NoiseSource) -> Floats:
        wide = replace(plan, dim=runs * plan.dim)
        return score(release(lifted, wide, noise).T * math.sqrt(runs))  # scaled as in a release of plan.dim

    return worlds_of(scores, pair[0], pair[1])
