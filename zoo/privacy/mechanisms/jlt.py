"""JLT and SJLT, random projections with noise: what PriCDR's Johnson-Lindenstrauss publishing amounts to, for every shape of data.

PriCDR (Chen et al., WWW 2022, Algorithm 1) lifts the singular values of the items x users matrix to ``sqrt(S^2 + w^2)`` and
multiplies by a Gaussian M. With at least as many items as users each published row then follows ``N(0, R^T R + w^2 I)``,
which is the law of a row of ``M R + w N`` with Gaussian N. With fewer items than users the lift misses directions and
protects nobody. So ``M R + w N`` is what is released here: no decomposition, every shape, and a guarantee that holds although
M is public. Arrays are users x items here, so a release is ``(R M^T + w N) / sqrt(dim)`` with M of shape ``(dim, items)``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.stats import chi2

from zoo.privacy.accounting.events import GaussianEvent, GaussianProjectionEvent
from zoo.privacy.accounting.gaussian_mixture import check_dim, max_w, mix_w, paper_w
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import (
    ONE_RATING,
    ONE_USER,
    Arrays,
    Finding,
    Mechanism,
    MechanismError,
    Plain,
    Statement,
    check_positive,
    of_row,
)
from zoo.privacy.mechanisms.goodness_of_fit import Squares, dense_rows, of_squares, unrounded
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.bounds import clamp_ratings, clip_rows, l2_sensitivity
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix, check_density

Floats = npt.NDArray[np.float64]
Calibration = Literal["unit", "gaussian", "max", "paper"]

OF_EVERY_PROJECTION = ("unit", "max")
"""Calibrations whose guarantee holds for every projection; that of the others is a mean over projections."""

_CHUNK = 2**20  # published numbers made at a time
_LARGE_CHUNK = 2**26  # the same where M is computed anew for each chunk
_LARGEST_MATRIX = 2**25  # numbers of a projection that `check` computes again


@dataclass(frozen=True, kw_only=True)
class JLT(Mechanism):
    """Projection by a public Gaussian matrix, with noise; see `JLT.calibrate`."""

    name = "JLT"
    relations = ONE_RATING | ONE_USER
    tensors, made, checks_noise = frozenset({"rows", "starts"}), "rows", True

    calibration: str  # how w was chosen
    dim: int  # width of the published rows
    w: float  # standard deviation of the noise on R M^T; on each published number it is w / sqrt(dim)
    rating_range: float | None = None  # ratings are clamped to [0, rating_range] (unit rating); None for unit user
    clip: float | None = None  # L2 norm that rows are clipped to; for users
    largest_norm: float | None = (
        None  # of a column of M, up to which w is enough; None where M is Gaussian and unbounded
    )
    asked: float | None = None  # epsilon that the paper's formula was asked for, with calibration `paper`
    seed: int | None = None  # of M, public; None where M is secret, as the paper prints it
    centred: bool = False  # whether the mean row was subtracted, after the noise, or before the lift where M is secret

    def __post_init__(self) -> None:
        """Refuse a bound that does not go with the relation, and a calibration that does not protect it."""
        super().__post_init__()
        check_dim(self.dim)
        check_positive(self, "w", "rating_range", "clip", "largest_norm", "asked")
        user = self.relation.unit is Unit.USER
        if self.calibration not in get_args(Calibration) or (
            user and (self.calibration != "gaussian" or self.name != "JLT")
        ):
            raise MechanismError(f"calibration is {self.calibration!r}. It does not go with {self.relation.value!r}.")
        if (self.clip is None) == user or (self.rating_range is None) != user:
            raise MechanismError("Users have a clip and no rating_range, ratings a rating_range and no clip.")
        if (self.largest_norm is None) == self.holds_for_every_projection:
            raise MechanismError(f"largest_norm is {self.largest_norm!r} with calibration {self.calibration!r}.")
        if self.calibration == "unit" and not math.isclose(self.largest_norm or 0.0, math.sqrt(self.dim), rel_tol=1e-9):
            raise MechanismError(f"largest_norm is {self.largest_norm!r}. Of calibration unit it is sqrt({self.dim}).")
        if self.seed is not None and (type(self.seed) is not int or self.seed < 0):
            raise MechanismError(f"seed is {self.seed!r}. It must be a whole number from 0 on.")

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        dim: int,
        calibration: Calibration = "unit",
        relation: Relation = Relation.CHANGE_ONE_RATING,
        rating_range: float = 1.0,
        clip: float | None = None,
        largest_norm: float | None = None,
        **public: Any,  # noqa: ANN401  further fields
    ) -> Self:
        """Return how much noise a projection adds for an epsilon at delta. Opens no data. For the bounds see `l2_sensitivity`.

        Calibrations, all with the same meaning of epsilon:

        * ``unit``: columns of M are rescaled to norm ``sqrt(dim)``; exact, the least noise. Holds whatever the data are.
        * ``gaussian``: M as the paper has it; its column norms are random and accounted for as such. Holds if the data do
          not depend on M. The only one for whole users.
        * ``max``: Gaussian M, noise for its largest column norm, which is passed. Holds whatever the data are.
        * ``paper``: Gaussian M and the paper's w. The mechanism's epsilon is the one that this w really gives, far below the one
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
        if calibration in OF_EVERY_PROJECTION:
            # Given M, a rating moves R M^T by its item's column: at most largest_norm x sensitivity, under noise of w.
            largest_norm = math.sqrt(dim) if largest_norm is None else largest_norm
            w = max_w(largest_norm, epsilon, delta, sensitivity)
        else:
            # A fixed change c gives M c of squared norm |c|^2 chi2(dim), whatever its direction; delta is a mean over M.
            w = (mix_w if calibration == "gaussian" else paper_w)(dim, epsilon, delta, sensitivity)
        return cls(
            relation=relation,
            delta=delta,
            calibration=calibration,
            dim=dim,
            w=w,
            rating_range=None if per_user else rating_range,
            clip=clip,
            largest_norm=largest_norm,
            asked=epsilon if calibration == "paper" else None,
            **public,
        )

    @property
    def holds_for_every_projection(self) -> bool:
        """Whether the guarantee is that of each M, not a mean over them."""
        return self.calibration in OF_EVERY_PROJECTION

    @property
    def known_before(self) -> bool:
        """Whether M may have been known before the data were settled; a secret M cannot."""
        return not self.holds_for_every_projection and self.seed is not None

    @property
    def event(self) -> GaussianEvent | GaussianProjectionEvent:
        """A Gaussian release, or one through a random matrix."""
        if self.largest_norm is not None:
            return GaussianEvent(self.w / (self.largest_norm * self.sensitivity))
        return GaussianProjectionEvent(self.w / self.sensitivity, self.dim)

    @property
    def sensitivity(self) -> float:
        """``rating_range`` for a rating; ``clip`` for zero-out, twice that for replacement."""
        return of_row(self.relation, self.clip, self.rating_range or 0.0)

    @property
    def noise_std(self) -> float:
        """``w / sqrt(dim)``."""
        return self.w / math.sqrt(self.dim)

    @property
    def requested_epsilon(self) -> float | None:
        """That of the paper's formula."""
        return self.asked

    @property
    def statement(self) -> Statement:
        """That of bounded rows; a mean over projections is for data that do not depend on the one drawn."""
        user = self.relation.unit is Unit.USER
        several = "several_ratings_random" if self.mu is None else "several_ratings_mu"
        return Statement(
            (
                "rows_clipped_before_projection" if user else "ratings_bounded",
                "public_sets",
                *(("data_independent_of_projection",) if self.known_before else ()),
            ),
            ("sets", "item_means", *(() if user else (several,)), "evaluation_items"),
        )

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Settings of matrix and noise, and the sizes."""
        form: dict[str, Plain] = {"form": "as the paper prints it: singular values lifted, M secret"}
        return {
            "num_components": self.dim,
            "calibration": self.calibration,
            **(form if self.seed is None else {"projection_seed": self.seed}),
            "w": self.w,
            **({} if self.largest_norm is None else {"largest_norm": self.largest_norm}),
            f"centred {'before the lift' if self.seed is None else 'after the noise'}": self.centred,
            **super().public_inputs,
        }

    def matrix(self) -> PublicMatrix | None:
        """M, not computed yet; None where it is secret."""
        if self.seed is None:
            return None
        return GaussianMatrix(self.dim, self.num_items, self.seed, unit=self.calibration == "unit")

    def check(self, tensors: Arrays) -> list[Finding]:
        """Lattice, and squares of all numbers; and that the noise is enough for the longest column of M."""
        rows = dense_rows(self, tensors, self.dim)
        self._check_longest()
        sigma, centred = self.noise_std, self.centred and self.seed is not None
        if centred and len(rows) == 1:
            return self._single(rows[0])
        squares = Squares.of(rows, sigma, centred=centred, cells=False)
        # With a secret matrix, and after centring, rows depend on each other, and the columns still do not.
        return of_squares(squares, sigma, centred=centred, independent=False)

    def _single(self, row: npt.NDArray[np.float32]) -> list[Finding]:
        """Of one row that was centred among so many: a share of its noise went with the mean, all of it where it was alone."""
        if self.num_users == 1:
            if row.any():
                raise MechanismError(
                    "Nothing is left of the row of a single user after centring, and this one is not 0."
                )
            return []
        # Rounded were both its number and the mean.
        whole = np.square(row, dtype=np.float64).sum() / (1 - 1 / self.num_users)
        squares = unrounded(whole, 4 * len(row), self.noise_std)
        return [Finding("they vary too little", float(chi2.cdf(squares / self.noise_std**2, len(row))))]

    def _check_longest(self) -> None:
        """Refuse noise for a shorter column than the projection has, where the projection can be computed again."""
        if self.calibration != "max" or self.dim * self.num_items > _LARGEST_MATRIX:
            return
        try:
            matrix = self.matrix()
            longest = 0.0 if matrix is None else float(matrix.column_norms().max())
        except ValueError as error:
            raise MechanismError(f"The projection of the record cannot be made: {error}") from error
        if self.largest_norm is not None and longest > self.largest_norm * (1 + 1e-6):
            raise MechanismError(
                f"The longest column of the projection has norm {longest:.6g}, and the noise is enough for {self.largest_norm:.6g} "
                "alone."
            )


@dataclass(frozen=True, kw_only=True)
class SJLT(JLT):
    """Projection by a public sparse matrix after a Walsh-Hadamard transform, with noise; calibrated as `JLT`."""

    name = "SJLT"
    relations = ONE_RATING

    density: float = 0.5  # share of the sparse matrix that is not zero

    def __post_init__(self) -> None:
        """Refuse a density that is no share."""
        super().__post_init__()
        check_density(self.density)

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Those of a projection, and the density."""
        return {**super().public_inputs, "density": self.density}

    def matrix(self) -> PublicMatrix | None:
        """``P H D``, not computed yet; None where it is secret."""
        if self.seed is None:
            return None
        unit = self.calibration == "unit"
        return SparseMatrix(self.dim, self.num_items, self.seed, density=self.density, unit=unit)


def bounded_rows(rows: csr_array, plan: JLT) -> csr_array:
    """Rows ``(users, items)`` bounded as a plan says: users clipped or ratings clamped, float64. Not to be released.

    Afterwards one change under ``plan.relation`` moves them by at most ``plan.sensitivity`` (L2).
    """
    if plan.clip is not None:
        return clip_rows(rows, plan.clip)
    if plan.rating_range is not None:
        return clamp_ratings(rows, plan.rating_range)
    raise ValueError("The plan bounds neither users nor ratings; make it with JLT.calibrate.")


def release_chunks(rows: csr_array, plan: JLT, matrix: PublicMatrix, noise: NoiseSource) -> Iterator[Floats]:
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
        raise ValueError(f"w must be a positive finite number, got {plan.w!r}. Take it from JLT.calibrate.")
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


def release_rows(rows: csr_array, plan: JLT, matrix: PublicMatrix, noise: NoiseSource) -> Floats:
    """The release of `release_chunks` in one array, shape ``(users, dim)``, float64."""
    result = np.empty((rows.shape[0], plan.dim))
    start = 0
    for chunk in release_chunks(rows, plan, matrix, noise):
        result[start : start + len(chunk)] = chunk
        start += len(chunk)
    return result
