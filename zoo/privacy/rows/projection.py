"""Random projection with noise: what PriCDR's Johnson-Lindenstrauss publishing amounts to, for every shape of data.

PriCDR (Chen et al., WWW 2022, Algorithm 1) lifts the singular values of the items x users matrix to
``sqrt(S^2 + w^2)`` and multiplies by a Gaussian M. With at least as many items as users each published row then follows
``N(0, R^T R + w^2 I)``, which is the law of a row of ``M R + w N`` with Gaussian N. With fewer items than users the
lift misses directions and protects nobody. So ``M R + w N`` is what is released here: no decomposition, every shape,
and a guarantee that holds although M is public.

Arrays are users x items here, so a release is ``(R M^T + w N) / sqrt(dim)`` with M of shape ``(dim, items)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.events import GaussianEvent, GaussianProjectionEvent, PrivacyEvent
from zoo.privacy.accounting.gaussian import check_sensitivity, gauss_mu
from zoo.privacy.accounting.gaussian_mixture import check_dim, max_w, mix_epsilon, mix_w, paper_w
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.public_matrix import MATRIX_BYTES, GaussianMatrix, GivenMatrix, PublicMatrix
from zoo.privacy.rows.public_matrix import column_norms as column_norms
from zoo.privacy.rows.public_matrix import unit_columns as unit_columns

Floats = npt.NDArray[np.float64]
Calibration = Literal["unit", "gaussian", "max", "paper"]

_CHUNK = 2**20  # published numbers made at a time
_LARGE_CHUNK = 2**26  # the same where M is computed anew for each chunk


@dataclass(frozen=True)
class ProjectionPlan:
    """What a projection will add and what it will spend, computed from public settings alone; see `plan_projection`.

    Attributes:
        calibration: How w was chosen.
        relation: Neighbouring relation of the guarantee; its unit is who is protected.
        dim: Width of the published rows.
        w: Standard deviation of the noise on ``R M^T``.
        noise_std: Standard deviation of the noise on each published number: ``w / sqrt(dim)``.
        sensitivity: L2 norm of what one change under the relation adds to R, before projection.
        clip: L2 norm that each user's row is clipped to (unit user), else None.
        rating_range: Largest rating (unit rating); ratings are clamped to ``[0, rating_range]``. None for unit user.
        largest_norm: Largest column norm of M that w is enough for; None where M is Gaussian and unbounded.
        epsilon: Proved privacy loss at delta.
        delta: Probability beyond which nothing is promised.
        mu: Of the Gaussian release that this is; None where M is Gaussian.
        requested_epsilon: The epsilon that the paper's formula was given, where it is not the proved one.
        event: What the ledger gets.
    """

    calibration: Calibration
    relation: Relation
    dim: int
    w: float
    noise_std: float
    sensitivity: float
    clip: float | None
    rating_range: float | None
    largest_norm: float | None
    epsilon: float
    delta: float
    mu: float | None
    requested_epsilon: float | None
    event: PrivacyEvent


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
    """How much noise a projection adds for a guarantee. Opens no data.

    Calibrations, all with the same meaning of epsilon:

    * ``unit``: columns of M are rescaled to norm ``sqrt(dim)``; exact, the least noise. Holds whatever the data are.
    * ``gaussian``: M as the paper has it; its column norms are random and accounted for as such. Holds if the data do
      not depend on M. The only one for whole users.
    * ``max``: Gaussian M, noise for its largest column norm. Holds whatever the data are.
    * ``paper``: Gaussian M and the paper's w. The plan's epsilon is the one that this w really gives, far below the one
      asked for.

    Args:
        epsilon: Privacy loss asked for.
        delta: In (0, 1).
        dim: Width of the published rows.
        calibration: One of the above.
        relation: Neighbouring relation. Under a rating relation a change moves one rating by at most ``rating_range``;
            under ``zero_out_one_user`` a row moves by at most ``clip``, under ``replace_one_user`` by twice that.
        rating_range: Largest rating, the least being 0, which an absent rating also counts as; 1 for binary data.
        clip: L2 norm that rows are clipped to; needed for users, refused for ratings.
        largest_norm: Largest column norm of the M that will be used; needed for ``max``, refused otherwise.

    Raises:
        ValueError: If an argument is out of range, missing or does not go with the others.
    """
    check_dim(dim)
    if calibration not in get_args(Calibration):
        raise ValueError(f"calibration must be one of {get_args(Calibration)}, got {calibration!r}.")
    if (calibration == "max") != (largest_norm is not None):
        raise ValueError(
            f"largest_norm goes with calibration 'max' alone, got {largest_norm!r} with {calibration!r}. "
            "Pass column_norms(M).max() of the M that will be used, or leave it out."
        )
    sensitivity = _sensitivity(calibration, relation, rating_range, clip)
    requested = None
    mu: float | None = None
    event: PrivacyEvent
    if calibration in ("unit", "max"):
        largest_norm = math.sqrt(dim) if largest_norm is None else largest_norm
        w = max_w(largest_norm, epsilon, delta, sensitivity)
        mu = gauss_mu(epsilon, delta)
        event = GaussianEvent(w / (largest_norm * sensitivity))
    elif calibration == "gaussian":
        w = mix_w(dim, epsilon, delta, sensitivity)
        event = GaussianProjectionEvent(w / sensitivity, dim)
    else:
        w = paper_w(dim, epsilon, delta, sensitivity)
        requested, epsilon = epsilon, mix_epsilon(delta, sensitivity / w, dim)
        event = GaussianProjectionEvent(w / sensitivity, dim)
    per_user = relation.unit is Unit.USER
    return ProjectionPlan(
        calibration=calibration,
        relation=relation,
        dim=dim,
        w=w,
        noise_std=w / math.sqrt(dim),
        sensitivity=sensitivity,
        clip=clip,
        rating_range=None if per_user else rating_range,
        largest_norm=largest_norm,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        requested_epsilon=requested,
        event=event,
    )


def _sensitivity(calibration: Calibration, relation: Relation, rating_range: float, clip: float | None) -> float:
    if relation.unit is not Unit.USER:
        if clip is not None:
            raise ValueError(f"clip bounds a whole user and does nothing for {relation.value!r}; leave it out.")
        check_sensitivity(rating_range)
        return rating_range
    if calibration != "gaussian":
        raise ValueError(
            f"calibration {calibration!r} does not protect a whole user: it bounds what M makes of one rating, and a "
            "user's row may lie in a direction that M stretches far more. Use calibration 'gaussian'."
        )
    if clip is None:
        raise ValueError(
            f"{relation.value!r} needs clip, the L2 norm that rows are clipped to: a public number, e.g. 5.0."
        )
    check_sensitivity(clip)
    return clip if relation is Relation.ZERO_OUT_ONE_USER else 2 * clip


def gaussian_projection(dim: int, num_items: int, seed: int) -> Floats:
    """A matrix of independent standard normals from a public seed, shape ``(dim, items)``.

    The same on every machine. The column of an item depends on the seed and the item's index alone.

    Args:
        dim: Rows.
        num_items: Columns.
        seed: Public; chosen without looking at the data.

    Raises:
        ValueError: If an argument is out of range.
    """
    return GaussianMatrix(dim, num_items, seed).transposed().T


def public_matrix(
    calibration: Calibration, dim: int, num_items: int, seed: int, *, matrix_bytes: int = MATRIX_BYTES
) -> GaussianMatrix:
    """The public matrix of a calibration: Gaussian, for ``unit`` with rescaled columns; blocks where it is large.

    Raises:
        ValueError: If an argument is out of range.
    """
    return GaussianMatrix(dim, num_items, seed, unit=calibration == "unit", matrix_bytes=matrix_bytes)


def projection_matrix(calibration: Calibration, dim: int, num_items: int, seed: int) -> Floats:
    """The same as an array, shape ``(dim, items)``, whatever its size.

    Raises:
        ValueError: If an argument is out of range.
    """
    return public_matrix(calibration, dim, num_items, seed).transposed().T


def clip_rows(rows: csr_array, clip: float) -> csr_array:
    """Rows scaled down to an L2 norm of at most ``clip``, shape ``(users, items)``, float64; shorter rows stay.

    This bounds what one user can change: by ``clip`` if zeroed out, by twice that if replaced (L2).

    Raises:
        ValueError: If clip is not positive or a value is not finite.
    """
    check_sensitivity(clip)
    rows = _canonical(rows)
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    factors = np.minimum(1.0, clip / np.maximum(norms, clip))
    return csr_array(
        (rows.data * np.repeat(factors, np.diff(rows.indptr)), rows.indices, rows.indptr), shape=rows.shape
    )


def clamp_ratings(rows: csr_array, rating_range: float) -> csr_array:
    """Ratings clamped to ``[0, rating_range]``, shape ``(users, items)``, float64.

    This bounds what one rating can change, its presence included: by ``rating_range`` (L2).

    Raises:
        ValueError: If the range is not positive or a value is not finite.
    """
    check_sensitivity(rating_range)
    rows = _canonical(rows)
    return csr_array((np.clip(rows.data, 0.0, rating_range), rows.indices, rows.indptr), shape=rows.shape)


def _canonical(rows: csr_array) -> csr_array:
    """A float64 copy in which no cell is stored twice, for a bound on cells is none on halves of cells."""
    rows = rows.astype(np.float64, copy=True)
    rows.sum_duplicates()
    if not np.isfinite(rows.data).all():
        raise ValueError("The rows hold NaN or infinite values, which no bound can be put on. Remove them first.")
    return rows


def project(
    rows: csr_array,
    projection: Floats | PublicMatrix,
    w: float,
    noise: NoiseSource,
    *,
    users_per_chunk: int | None = None,
) -> Floats:
    """``(R M^T + w N) / sqrt(dim)``, rounded to the public lattice of its noise; shape ``(users, dim)``, float64.

    Protects one rating or one user, as the plan behind ``w`` says, if and only if the rows are bounded as it says:
    `release_rows` sees to that. Before noise, a change of one rating by r moves the result by r times the norm of the
    item's column over ``sqrt(dim)`` (L2). Whatever is done with the result is post-processing.

    Args:
        rows: R, shape ``(users, items)``, bounded.
        projection: M, shape ``(dim, items)``, public.
        w: Standard deviation of the noise on ``R M^T``.
        noise: Where N comes from; drawn user by user, so neither the chunks' size nor M's blocks change it.
        users_per_chunk: Users worked on at a time; None bounds the memory.

    Raises:
        ValueError: If the shapes do not match or w is not positive.
    """
    matrix = projection if isinstance(projection, PublicMatrix) else GivenMatrix(projection)
    _check_product(rows, matrix, w)
    result = np.empty((rows.shape[0], matrix.dim), dtype=np.float64)
    for start, stop in _chunks(rows.shape[0], matrix, users_per_chunk):
        result[start:stop] = _noisy(rows[start:stop].astype(np.float64), matrix, w, noise)
    return result


def _chunks(num_users: int, matrix: PublicMatrix, users_per_chunk: int | None) -> Iterator[tuple[int, int]]:
    """Ranges of users worked on at a time: more where the matrix is computed anew for each."""
    numbers = _CHUNK if matrix.fits else _LARGE_CHUNK
    step = max(1, numbers // matrix.dim) if users_per_chunk is None else users_per_chunk
    for start in range(0, num_users, step):
        yield start, min(start + step, num_users)


def _noisy(rows: csr_array, matrix: PublicMatrix, w: float, noise: NoiseSource) -> Floats:
    """What `project` says, for one chunk."""
    scale = math.sqrt(matrix.dim)
    noisy = matrix.times(rows)
    step = max(1, _CHUNK // matrix.dim)
    for start in range(0, len(noisy), step):
        part = noisy[start : start + step]
        part += w * noise.normal(part.shape)
        part /= scale
        part[...] = round_to_lattice(part, w / scale)
    return noisy


def _check_product(rows: csr_array, matrix: PublicMatrix, w: float) -> None:
    if rows.shape[1] != matrix.num_items:
        raise ValueError(
            f"The rows have {rows.shape[1]} items, the projection {matrix.num_items}; they must be the same items."
        )
    if not (w > 0 and math.isfinite(w)):
        raise ValueError(f"w must be a positive finite number, got {w!r}. Take it from plan_projection.")


def release_rows(
    rows: csr_array, plan: ProjectionPlan, seed: int, noise: NoiseSource, *, matrix: PublicMatrix | None = None
) -> tuple[Floats, PrivacyEvent]:
    """One release as planned: bounds the rows, projects them, adds the noise; and the event that happened.

    Protects what ``plan.relation`` says, with the L2 sensitivity ``plan.sensitivity`` before projection. Whatever is
    done with the result is post-processing; centring it over users is too.

    Args:
        rows: Ratings, shape ``(users, items)``.
        plan: From `plan_projection`.
        seed: Public seed of the projection.
        noise: Where the noise comes from.
        matrix: M, where it is another than the Gaussian one of the seed.

    Returns:
        The rows ``(users, dim)``, float64, and the event for the ledger.

    Raises:
        ValueError: If the matrix has longer columns than the plan allows for, or a value is not finite.
    """
    matrix = matrix or public_matrix(plan.calibration, plan.dim, rows.shape[1], seed)
    result = np.empty((rows.shape[0], plan.dim), dtype=np.float64)
    start = 0
    for chunk in release_chunks(rows, plan, matrix, noise):
        result[start : start + len(chunk)] = chunk
        start += len(chunk)
    return result, plan.event


def release_chunks(rows: csr_array, plan: ProjectionPlan, matrix: PublicMatrix, noise: NoiseSource) -> Iterator[Floats]:
    """The rows of one release as planned, some users at a time and in their order; taken to the end, it is one release.

    Protects what `release_rows` says, with the same sensitivity, and the same may be done with what it yields. Going
    through it draws the noise: twice is two releases.

    Args:
        rows: Ratings, shape ``(users, items)``.
        plan: From `plan_projection`.
        matrix: M, public, with the plan's width and columns no longer than it allows for.
        noise: Where the noise comes from.

    Returns:
        Rows ``(some users, dim)``, float64; a user's row does not depend on how users are divided.

    Raises:
        ValueError: If the matrix does not go with rows or plan, or, once it is gone through, a value is not finite.
    """
    _check_product(rows, matrix, plan.w)
    if matrix.dim != plan.dim:
        raise ValueError(f"The projection has width {matrix.dim}, the plan {plan.dim}. Plan with the same width.")
    if plan.largest_norm is not None:
        longest = float(matrix.column_norms().max())
        if longest > plan.largest_norm * (1 + 1e-12):
            raise ValueError(
                f"The projection's longest column has norm {longest:.6g}, the plan allows {plan.largest_norm:.6g}. "
                "Plan with the same seed, width and number of items."
            )
    if plan.clip is None and plan.rating_range is None:
        raise ValueError("The plan bounds neither users nor ratings; make it with plan_projection.")
    users = _chunks(rows.shape[0], matrix, None)
    return (_noisy(bounded_rows(rows[start:stop], plan), matrix, plan.w, noise) for start, stop in users)


def bounded_rows(rows: csr_array, plan: ProjectionPlan) -> csr_array:
    """Rows ``(users, items)`` bounded as a plan says: users clipped or ratings clamped, float64.

    Afterwards one change under ``plan.relation`` moves them by at most ``plan.sensitivity`` (L2). Not to be released.

    Raises:
        ValueError: If the plan bounds nothing, or a value is not finite.
    """
    if plan.clip is not None:
        return clip_rows(rows, plan.clip)
    if plan.rating_range is not None:
        return clamp_ratings(rows, plan.rating_range)
    raise ValueError("The plan bounds neither users nor ratings; make it with plan_projection.")
