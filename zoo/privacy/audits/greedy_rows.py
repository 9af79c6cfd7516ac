"""Rows that a known public matrix stretches most, and what they cost.

A guarantee over random projections (calibrations `gaussian` and `paper`) covers rows that do not depend on the matrix. For a
matrix known in advance, a row of ones can be chosen that it stretches far beyond the mean: at epsilon 8, delta 1e-5, 3,916
items and width 400, greedy rows of 25, 100 and 400 ones have epsilons of 13.7 to 14.1, 18.5 to 19.1 and 25.9 to 26.0
(matrices of three seeds). So each release draws a new matrix, for which a row that is greedy for another one is ordinary.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import gammainccinv

from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.projection import FULL_ITEMS, FULL_WIDTH, changed, projection_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix

ONES = 100
"""Ones of an audited row; more are not needed to refute a mean."""

_UNLIKELY = 1e-6  # probability with which a new matrix stretches a row more than an audit allows


def greedy_items(matrix: PublicMatrix, ones: int) -> list[int]:
    """Return the items of a row of ones that M stretches, in the order of a greedy search.

    The first k are the row of k ones, whatever ``ones`` is. Each step takes the item that maximizes ``|M x|^2``. The search
    multiplies M, ``(items, dim)``, by a vector ``ones`` times and needs no Gram matrix (2 s for 400 of 18,467 items).
    """
    if not 1 <= ones <= matrix.num_items:
        raise ValueError(f"ones is {ones!r}. Allowed: [1, {matrix.num_items}] items.")
    columns = matrix.transposed()
    squares = np.einsum("id,id->i", columns, columns)
    free = squares.copy()  # -inf once taken
    total = np.zeros(matrix.dim)
    taken: list[int] = []
    for _ in range(ones):
        item = int(np.argmax(2 * (columns @ total) + free))
        taken.append(item)
        free[item] = -math.inf
        total += columns[item]
    return taken


def known_mu(plan: JLT, matrix: PublicMatrix, items: Sequence[int]) -> float:
    """Return the exact mu, given M, of changing the protected data at these items: ``|M c| / w``.

    For users c is a row of the length of their clip (twice that where they are replaced) and equal at the items; for
    ratings it is the largest rating of the first item.
    """
    return float(np.linalg.norm(changed(plan, items, matrix.num_items) @ matrix.transposed())) / plan.w


def known_epsilon(plan: JLT, matrix: PublicMatrix, items: Sequence[int]) -> float:
    """Return the epsilon at the plan's delta of `known_mu`."""
    return gauss_epsilon(plan.delta, known_mu(plan, matrix, items))


def likely_mu(plan: JLT) -> float:
    """Return the mu that a change independent of M exceeds with probability 1e-6 over M, whose stretch is chi-square."""
    return plan.sensitivity / plan.w * math.sqrt(2 * float(gammainccinv(plan.dim / 2, _UNLIKELY)))


def greedy_audit(name: str, plan: JLT, matrix: PublicMatrix, items: Sequence[int]) -> Audit:
    """Return the audit of a claim over matrices by one of them, and a row of ones at ``items``.

    The claim is the plan's epsilon and `likely_mu`, because runs alone never refute an epsilon much above 5. It passes for
    items that do not depend on the matrix, except for 1e-6 of all matrices. It fails for items that are greedy for the matrix.
    """
    if plan.mu is not None:
        raise ValueError(f"Calibration is {plan.calibration!r}, which claims a mu per matrix. Use projection_audit.")
    fixed = projection_audit(name, plan, matrix, items=items)
    return replace(fixed, epsilon=plan.epsilon, mu=likely_mu(plan), attained=fixed.mu)


def greedy_audits(
    epsilon: float = 1.0, delta: float = 1e-5, *, dim: int = FULL_WIDTH, num_items: int = FULL_ITEMS
) -> list[Audit]:
    """Return audits of JLT's claims over matrices by greedy rows: for another matrix than the release's, and for its own.

    The last claim, a release for users whose matrix has a constant seed (cdr-zoo 0.2.0), does not hold. Its epsilon is
    always 8, at which few runs refute it.
    """
    planned = partial(JLT.calibrate, epsilon=epsilon, delta=delta, dim=dim, calibration="gaussian")
    known, drawn = GaussianMatrix(dim, num_items, 0), GaussianMatrix(dim, num_items, 1)
    items = greedy_items(known, min(ONES, num_items // 2))
    audits = [greedy_audit("JLT gaussian, greedy for another matrix", planned(), drawn, items)]
    for relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER):
        name, plan = f"JLT gaussian, {relation.value.replace('_', ' ')}", planned(relation=relation, clip=2.0)
        audits.append(greedy_audit(f"{name}, greedy for another matrix", plan, drawn, items))
    constant = planned(epsilon=8.0, relation=Relation.ZERO_OUT_ONE_USER, clip=2.0)
    audits.append(
        replace(greedy_audit("JLT gaussian, zero out one user, matrix known", constant, known, items), holds=False)
    )
    return audits
