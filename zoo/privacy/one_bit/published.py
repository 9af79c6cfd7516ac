"""Scales of one-bit matrix completion as published that do not hold, kept for measurements and refutation.

Reference: *One-Bit Matrix Completion with Differential Privacy*, Sections 4.2 and 4.4. A record says ``guarantee: none``
where the loss exceeds the claim. The privacy unit is the value of one rating, with Omega public
(`Relation.CHANGE_ONE_RATING_VALUE`). Epsilon is the claim, alpha the finite bound of the entries.
"""

import math
from dataclasses import dataclass

import numpy as np

from zoo.privacy.accounting.gaussian import check_epsilon
from zoo.privacy.one_bit.link_functions import Floats, Link, Logistic, Probit
from zoo.privacy.randomness.noise import NoiseSource, laplace_noise, round_to_lattice


@dataclass(frozen=True)
class PublishedScale:
    """Laplace noise as printed, whose claim does not hold."""

    scale: float  # of the Laplace noise, in the units of the values that get it
    claimed_epsilon: float  # the paper's epsilon
    reason: str  # why there is no guarantee; for a record


def paper_sensitivity(link: Link, alpha: float) -> float:
    """Return the paper's bound of how far one flipped sign moves a gradient: 1 for logistic, ``2 h'(0)/h(-alpha)`` for probit.

    `ConvexLink.sensitivity` is the least bound, far below this one for probit. Privacy unit, relation and norm are the same.
    """
    if not isinstance(link, Logistic | Probit):
        raise ValueError(f"link is {link.name!r}. Allowed: 'logistic', 'probit'.")
    exact = link.sensitivity(alpha)
    if isinstance(link, Logistic):
        return exact
    rare = float(link.probability(-alpha))
    if rare == 0:
        raise ValueError(f"alpha must be at most 37 scales of a probit link, got {alpha!r}.")
    return 2 / (math.sqrt(2 * math.pi) * link.scale) / rare


def published_objective(link: Link, epsilon: float, alpha: float) -> PublishedScale:
    """Return noise in the objective as printed: H of Laplace scale ``Delta/epsilon``. Not epsilon-private.

    H is inside the factor ``-1/2`` of the objective, so the gradient, which one flipped sign moves by Delta (L1), gets half of
    it: the added term is ``-<N, X>`` with N = H/2, and ``scale`` is that of N, ``Delta/(2 epsilon)``. With one logistic entry
    bounded by alpha, the output alpha has probability ``P(H >= -2 (1 - h(alpha)))`` from +1 and ``P(H >= 2 h(alpha))`` from -1:
    a loss near 2 epsilon. At a probit link the curvature is left out as well.

    With a logistic link the scale is the same for every alpha, and the noisy bits cost exactly twice the claim, which is
    `plan_objective` at that epsilon.
    """
    _check_claim(epsilon, alpha)
    if isinstance(link, Logistic):
        reason = (
            "the published noise is half of what its epsilon needs: the factor 1/2 of the objective is before it, too"
        )
    else:
        reason = "the published proof lacks a factor of 2 and what the curvature of the objective tells"
    return PublishedScale(paper_sensitivity(link, alpha) / (2 * epsilon), epsilon, reason)


def published_output(epsilon: float, alpha: float) -> PublishedScale:
    """Return noise on every entry of the completed matrix as printed: Laplace of scale ``2 alpha/epsilon``. Not epsilon-private.

    One entry moves by ``2 alpha`` at most, but one flipped sign can move all entries (`cross_solutions`): in L1 by
    ``2 alpha d`` on a square matrix of d rows, a loss of d epsilon.
    """
    _check_claim(epsilon, alpha)
    reason = "the published noise is for one entry, and one sign can move all entries of the completed matrix"
    return PublishedScale(2 * alpha / epsilon, epsilon, reason)


def _check_claim(epsilon: float, alpha: float) -> None:
    check_epsilon(epsilon)
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be finite and positive, got {alpha!r}.")


def cross_solutions(size: int, alpha: float) -> tuple[Floats, Floats]:
    """Return the completed matrices ``(size, size)``, size >= 2, of two neighbours that published output noise cannot hide.

    The first row and column of a square matrix are observed, all +1 except for the corner: +1 in the first data set and -1 in
    the second. Entries are bounded by alpha and the nuclear norm by ``2 alpha sqrt(size - 1)``. No observed sign is likelier
    than at alpha, and exactly one matrix within the bounds has all of them there: its other entries are ``alpha/(size - 1)``,
    or minus that.
    """

    def completed(corner: float) -> Floats:
        matrix = np.full((size, size), corner / (size - 1))
        matrix[0], matrix[:, 0] = alpha, alpha
        matrix[0, 0] = corner
        return matrix

    return completed(alpha), completed(-alpha)


def published_noise(values: Floats, published: PublishedScale, noise: NoiseSource) -> Floats:
    """Add Laplace noise as printed to values and round them to the lattice. No guarantee.

    Values are bits ``(1 + sign)/2`` for `published_objective` with a logistic link, and matrices for `published_output`.
    """
    noisy = values + laplace_noise(noise, published.scale, values.shape)
    return round_to_lattice(noisy, math.sqrt(2) * published.scale)
