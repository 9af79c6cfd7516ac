"""Random projection with noise: what PriCDR's Johnson-Lindenstrauss publishing amounts to, for every shape of data.

PriCDR (Chen et al., WWW 2022, Algorithm 1) lifts the singular values of the items x users matrix to ``sqrt(S^2 + w^2)`` and
multiplies by a Gaussian M. With at least as many items as users each published row then follows ``N(0, R^T R + w^2 I)``,
which is the law of a row of ``M R + w N`` with Gaussian N. With fewer items than users the lift misses directions and
protects nobody. So ``M R + w N`` is what is released here: no decomposition, every shape, and a guarantee that holds although
M is public. Arrays are users x items here, so a release is ``(R M^T + w N) / sqrt(dim)`` with M of shape ``(dim, items)``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.events import GaussianEvent, GaussianProjectionEvent, PrivacyEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.gaussian_mixture import check_dim, max_w, mix_epsilon, mix_w, paper_w
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.bounds import clamp_ratings, clip_rows, l2_sensitivity
from zoo.privacy.rows.plan import RowsPlan
from zoo.privacy.rows.public_matrix import PublicMatrix

Floats = npt.NDArray[np.float64]
Calibration = Literal["unit", "gaussian", "max", "paper"]

_CHUNK = 2**20  # published numbers made at a time
_LARGE_CHUNK = 2**26  # the same where M is computed anew for each chunk


@dataclass(frozen=True, kw_only=True)
class ProjectionPlan(RowsPlan):
    """Projection with noise; see `plan_projection`."""

    calibration: Calibration  # how w was chosen
    dim: int  # width of the published rows
    w: float  # standard deviation of the noise on R M^T; on each published number it is w / sqrt(dim)
    rating_range: float | None  # ratings are clamped to [0, rating_range] (unit rating); None for unit user
    largest_norm: float | None  # of a column of M, up to which w is enough; None where M is Gaussian and unbounded


def plan_projection(
    *,
    epsilon: float,
    delta: float,
    dim: int,
    calibration: Calibration = "unit",
    relation: Relation = Relation.CHANGE_ONE_RATING,
    rating_range: float = 1.0,
    clip: float | None = None,
    largest_norm: float | None = None,
) -> ProjectionPlan:
    """How much noise a projection adds for an epsilon at delta. Opens no data. For the bounds see `l2_sensitivity`.

    Calibrations, all with the same meaning of epsilon:

    * ``unit``: columns of M are rescaled to norm ``sqrt(dim)``; exact, the least noise. Holds whatever the data are.
    * ``gaussian``: M as the paper has it; its column norms are random and accounted for as such. Holds if the data do
      not depend on M. The only one for whole users.
    * ``max``: Gaussian M, noise for its largest column norm, which is passed. Holds whatever the data are.
    * ``paper``: Gaussian M and the paper's w. The plan's epsilon is the one that this w really gives, far below the one
      asked for.
    """
    check_dim(dim)
    if calibration not in get_args(Calibration):
        raise ValueError(f"calibration must be one of {get_args(Calibration)}, got {calibration!r}.")
    if (calibration == "max") != (largest_norm is not None):
        raise ValueError(
            f"largest_norm goes with calibration 'max' alone, got {largest_norm!r} with {calibration!r}. "
            "Pass column_norms(M).max() of the M that will be used, or leave it out."
        )
    per_user = relation.unit is Unit.USER
    if per_user and calibration != "gaussian":
        raise ValueError(
            f"calibration {calibration!r} does not protect a whole user: it bounds what M makes of one rating, and a "
            "user's row may lie in a direction that M stretches far more. Use calibration 'gaussian'."
        )
    sensitivity = l2_sensitivity(relation, rating_range, clip)
    mu = requested = None
    event: PrivacyEvent
    if calibration in ("unit", "max"):
        # Given M, a rating moves R M^T by its item's column: at most largest_norm x sensitivity, under noise of w.
        largest_norm = math.sqrt(dim) if largest_norm is None else largest_norm
        w = max_w(largest_norm, epsilon, delta, sensitivity)
        mu, event = gauss_mu(epsilon, delta), GaussianEvent(w / (largest_norm * sensitivity))
    else:
        # A fixed change c gives M c of squared norm |c|^2 chi2(dim), whatever its direction; delta is a mean over M.
        w = (mix_w if calibration == "gaussian" else paper_w)(dim, epsilon, delta, sensitivity)
        event = GaussianProjectionEvent(w / sensitivity, dim)
    if calibration == "paper":
        requested, epsilon = epsilon, mix_epsilon(delta, sensitivity / w, dim)
    return ProjectionPlan(
        relation=relation,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        requested_epsilon=requested,
        sensitivity=sensitivity,
        clip=clip,
        noise_std=w / math.sqrt(dim),
        event=event,
        calibration=calibration,
        dim=dim,
        w=w,
        rating_range=None if per_user else rating_range,
        largest_norm=largest_norm,
    )


def bounded_rows(rows: csr_array, plan: ProjectionPlan) -> csr_array:
    """Rows ``(users, items)`` bounded as a plan says: users clipped or ratings clamped, float64. Not to be released.

    Afterwards one change under ``plan.relation`` moves them by at most ``plan.sensitivity`` (L2).
    """
    if plan.clip is not None:
        return clip_rows(rows, plan.clip)
    if plan.rating_range is not None:
        return clamp_ratings(rows, plan.rating_range)
    raise ValueError("The plan bounds neither users nor ratings; make it with plan_projection.")


def release_chunks(rows: csr_array, plan: ProjectionPlan, matrix: PublicMatrix, noise: NoiseSource) -> Iterator[Floats]:
    """``(R M^T + w N) / sqrt(dim)`` of bounded rows R ``(users, items)``, some users at a time and in their order.

    Protects what ``plan.relation`` says, with the L2 sensitivity ``plan.sensitivity`` before projection. Whatever is
    done with the rows is post-processing; centring them over users is too. Taken to the end it is one release. Going
    through it draws the noise: twice is two releases. N is drawn user by user, so neither the chunks' size nor M's blocks
    change it. What comes is ``(some users, dim)``, float64, rounded to the public lattice of its noise. An M of another width or
    with longer columns than the plan allows for is refused, and later what is not finite.
    """
    if rows.shape[1] != matrix.num_items:
        raise ValueError(
            f"The rows have {rows.shape[1]} items, the projection {matrix.num_items}; they must be the same items."
        )
    if not (plan.w > 0 and math.isfinite(plan.w)):
        raise ValueError(f"w must be a positive finite number, got {plan.w!r}. Take it from plan_projection.")
    if matrix.dim != plan.dim:
        raise ValueError(f"The projection has width {matrix.dim}, the plan {plan.dim}. Plan with the same width.")
    if plan.largest_norm is not None:
        longest = float(matrix.column_norms().max())
        if longest > plan.largest_norm * (1 + 1e-12):
            raise ValueError(
                f"The projection's longest column has norm {longest:.6g}, the plan allows {plan.largest_norm:.6g}. "
                "Plan with the same seed, width and number of items."
            )
    bounded_rows(rows[:0], plan)  # refuses a plan without a bound before anything is made
    # A chunk of users bounds the memory beside M. Where M is not held, each chunk computes all of it: fewer, larger ones.
    users = max(1, (_CHUNK if matrix.fits else _LARGE_CHUNK) // plan.dim)
    starts = range(0, rows.shape[0], users)
    return (_noisy(bounded_rows(rows[start : start + users], plan), matrix, plan.w, noise) for start in starts)


def _noisy(rows: csr_array, matrix: PublicMatrix, w: float, noise: NoiseSource) -> Floats:
    """``(R M^T + w N) / sqrt(dim)``, rounded: R ``(users, items)`` sparse, M ``(dim, items)``, N and result ``(users, dim)``.

    The product is sparse times dense, so its cost is that of the ratings, ``dim`` additions each. N is added in place and in
    parts that stay small beside the result: the noise costs most of the time, and must not double the memory.
    """
    scale = math.sqrt(matrix.dim)
    noisy = matrix.times(rows)
    users = max(1, _CHUNK // matrix.dim)
    for start in range(0, len(noisy), users):
        part = noisy[start : start + users]
        part += w * noise.normal(part.shape)
        part /= scale
        part[...] = round_to_lattice(part, w / scale)
    return noisy


def release_rows(rows: csr_array, plan: ProjectionPlan, matrix: PublicMatrix, noise: NoiseSource) -> Floats:
    """The release of `release_chunks` in one array, shape ``(users, dim)``, float64."""
    result = np.empty((rows.shape[0], plan.dim))
    start = 0
    for chunk in release_chunks(rows, plan, matrix, noise):
        result[start : start + len(chunk)] = chunk
        start += len(chunk)
    return result
