"""Rows that a projection stretches: what a user looks like who is chosen for a matrix that is known, and what this costs.

A guarantee that is a mean over projections (calibrations `gaussian` and `paper`) is for rows that do not depend on the matrix.
Of one that was known before, a row of ones can be chosen that it stretches far beyond the mean: at epsilon 8, delta 1e-5, 3,916
items and width 400, greedily chosen rows of 25, 100 and 400 ones have epsilons of 13.7 to 14.1, 18.5 to 19.1 and 25.9 to 26.0
(matrices of three seeds). So the matrix is drawn for each release, and a row that is greedy for another matrix is like any other.
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
"""Ones of an audited row: what more of them would add is not needed to see that a mean does not hold."""

_UNLIKELY = 1e-6  # with which a matrix that nobody knew before stretches a row by more than an audit allows


def greedy_items(matrix: PublicMatrix, ones: int) -> list[int]:
    """Items of a row of ones that M stretches, in the order in which a greedy search takes them.

    The first k are a row of k ones, whatever ``ones`` is. Each step takes the item that makes ``|M x|^2``, the sum of the Gram
    matrix of M's columns over the items of the row, the largest. It needs the product of M with what the row gives so far and no
    Gram matrix: ``ones`` products of ``(items, dim)`` with a vector, beside M itself in memory (2 s for 400 of 18,467 items).
    """
    if not 1 <= ones <= matrix.num_items:
        raise ValueError(f"ones must lie in [1, {matrix.num_items}], the number of items, got {ones!r}.")
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
    """Mu of changing what a plan protects at these items to somebody who knew M before: ``|M c| / w``, exact.

    For users c is a row that is as long as their clip allows (twice that where they are replaced) and equal at the items; for
    ratings it is the largest rating of the first item.
    """
    return float(np.linalg.norm(changed(plan, items, matrix.num_items) @ matrix.transposed())) / plan.w


def known_epsilon(plan: JLT, matrix: PublicMatrix, items: Sequence[int]) -> float:
    """Epsilon at the plan's delta that `known_mu` means."""
    return gauss_epsilon(plan.delta, known_mu(plan, matrix, items))


def likely_mu(plan: JLT) -> float:
    """Mu that a change which does not depend on M exceeds with probability 1e-6 over M, whose stretch is chi-square."""
    return plan.sensitivity / plan.w * math.sqrt(2 * float(gammainccinv(plan.dim / 2, _UNLIKELY)))


def greedy_audit(name: str, plan: JLT, matrix: PublicMatrix, items: Sequence[int]) -> Audit:
    """Audit of a claim over matrices by one of them, and a row of ones at ``items``.

    The claim is the plan's epsilon and, since an epsilon much above 5 is never refuted by runs alone, `likely_mu`. It passes
    where the items do not depend on the matrix, and but for 1e-6 of all matrices; for items that are greedy for the matrix it
    does not hold.
    """
    if plan.mu is not None:
        raise ValueError(f"Calibration {plan.calibration!r} claims a mu for each matrix: use projection_audit.")
    given = projection_audit(name, plan, matrix, items=items)
    return replace(given, epsilon=plan.epsilon, mu=likely_mu(plan), attained=given.mu)


def greedy_audits(
    epsilon: float = 1.0, delta: float = 1e-5, *, dim: int = FULL_WIDTH, num_items: int = FULL_ITEMS
) -> list[Audit]:
    """Audits of JLT's claims over matrices by rows that are greedy: for another matrix than the release's, and for its own.

    The last is the claim of a release for users whose matrix has a constant seed, as those of cdr-zoo 0.2.0: it does not hold.
    Its epsilon is 8 whatever is asked for, where few runs see it.
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
