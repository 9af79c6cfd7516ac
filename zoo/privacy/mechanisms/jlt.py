"""JLT and SJLT: random projections with noise, equivalent to PriCDR's Johnson-Lindenstrauss publishing, for every shape of data.

PriCDR (Chen et al., WWW 2022, Algorithm 1) lifts the singular values of the items x users matrix to ``sqrt(S^2 + w^2)`` and
multiplies by a Gaussian M. With at least as many items as users, each published row follows ``N(0, R^T R + w^2 I)``, the
distribution of a row of ``M R + w N`` with Gaussian N. With fewer items than users the lift misses directions and protects no user.
So ``M R + w N`` is released here: without decomposition, for every shape, and with a guarantee that holds although M is public.
Arrays are users x items, so a release is ``(R M^T + w N) / sqrt(dim)`` with M of shape ``(dim, items)``.
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
    row_sensitivity,
)
from zoo.privacy.mechanisms.goodness_of_fit import Squares, dense_rows, square_findings, unrounded
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.bounds import clamp_ratings, clip_rows, l2_sensitivity
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix, check_density

Floats = npt.NDArray[np.float64]
Calibration = Literal["unit", "gaussian", "max", "paper"]

OF_EVERY_PROJECTION = ("unit", "max")
"""Calibrations whose guarantee holds for every projection; that of the others is a mean over projections."""

_CHUNK = 2**20  # published numbers per chunk
_LARGE_CHUNK = 2**26  # the same if M is computed again for each chunk
_LARGEST_MATRIX = 2**30  # numbers of a projection that `check` computes again, in blocks
_MOST_ITEMS = 2**22  # of such a projection: a block of SJLT's has a few components of all items


@dataclass(frozen=True, kw_only=True)
class JLT(Mechanism):
    """Projection by a public Gaussian matrix M, with noise; see `JLT.calibrate`."""

    name = "JLT"
    relations = ONE_RATING | ONE_USER
    tensors, output_name, checks_noise = frozenset({"rows", "starts"}), "rows", True

    calibration: str  # how w was chosen
    dim: int  # width of the published rows
    w: float  # standard deviation of the noise on R M^T; w / sqrt(dim) on each published number
    rating_range: float | None = None  # ratings are clamped to [0, rating_range]; None if users are protected
    clip: float | None = None  # L2 norm that rows are clipped to, if users are protected
    largest_norm: float | None = None  # of a column of M, up to which w is enough; None: M is Gaussian and unbounded
    asked: float | None = None  # epsilon requested from the paper's formula, with calibration `paper`
    seed: int | None = None  # of M, public; None: M is secret, as in the paper
    centred: bool = False  # whether the mean row was subtracted: after the noise, or before the lift if M is secret

    def __post_init__(self) -> None:
        """Refuse a bound or a calibration that does not match the relation."""
        super().__post_init__()
        check_dim(self.dim)
        check_positive(self, "w", "rating_range", "clip", "largest_norm", "asked")
        user = self.relation.unit is Unit.USER
        if self.calibration not in get_args(Calibration) or (
            user and (self.calibration != "gaussian" or self.name != "JLT")
        ):
            raise MechanismError(f"calibration is {self.calibration!r}. It does not match {self.relation.value!r}.")
        if (self.clip is None) == user or (self.rating_range is None) != user:
            raise MechanismError(
                f"clip and rating_range are {self.clip} and {self.rating_range}. Set clip for users, rating_range for "
                "ratings."
            )
        if (self.largest_norm is None) == self.holds_for_every_projection:
            raise MechanismError(f"largest_norm is {self.largest_norm!r} with calibration {self.calibration!r}.")
        if self.calibration == "unit" and not math.isclose(self.largest_norm or 0.0, math.sqrt(self.dim), rel_tol=1e-9):
            raise MechanismError(
                f"largest_norm is {self.largest_norm!r}. With calibration unit it is sqrt({self.dim})."
            )
        if self.seed is not None and (type(self.seed) is not int or self.seed < 0):
            raise MechanismError(f"seed is {self.seed!r}. Allowed: integers >= 0.")

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float | None = None,
        attack_success: float | None = None,
        delta: float,
        dim: int,
        calibration: Calibration = "unit",
        relation: Relation = Relation.CHANGE_ONE_RATING,
        rating_range: float = 1.0,
        clip: float | None = None,
        largest_norm: float | None = None,
        **public: Any,  # noqa: ANN401  further fields
    ) -> Self:
        """Return the mechanism with the noise of a calibration for its target. Opens no data. Bounds: `l2_sensitivity`.

        The target is epsilon at delta, or an attack success.

        Calibrations, all with the same meaning of epsilon:

        * ``unit``: columns of M are rescaled to norm ``sqrt(dim)``. Exact, with the least noise. Holds for all data.
        * ``gaussian``: M as in the paper; its random column norms are accounted for. Holds if the data do not depend on M.
          The only one for whole users.
        * ``max``: Gaussian M, with noise for its largest column norm, ``largest_norm``. Holds for all data.
        * ``paper``: Gaussian M and the paper's w. The mechanism's epsilon is the proved one, far below the requested one.
        """
        check_dim(dim)
        if calibration not in get_args(Calibration):
            raise ValueError(f"calibration is {calibration!r}. Allowed: {get_args(Calibration)}.")
        if (calibration == "max") != (largest_norm is not None):
            raise ValueError(
                f"largest_norm is {largest_norm!r} with calibration {calibration!r}. Pass column_norms(M).max() with 'max', else "
                "omit it."
            )
        per_user = relation.unit is Unit.USER
        if per_user and calibration != "gaussian":
            raise ValueError(f"calibration is {calibration!r}. It protects ratings. Use 'gaussian' for users.")
        sensitivity = l2_sensitivity(relation, rating_range, clip)
        if calibration in OF_EVERY_PROJECTION:
            # For a fixed M, a rating moves R M^T by its item's column: at most largest_norm x sensitivity, with noise of w.
            largest_norm = math.sqrt(dim) if largest_norm is None else largest_norm
            w = max_w(largest_norm, epsilon, delta, sensitivity, attack_success)
        elif calibration == "gaussian":
            # A fixed change c gives M c of squared norm |c|^2 chi2(dim), whatever its direction; delta is a mean over M.
            w = mix_w(dim, epsilon, delta, sensitivity, attack_success)
        else:
            if epsilon is None or attack_success is not None:
                raise ValueError(
                    "calibration is 'paper'. Its formula needs epsilon. Set epsilon, and not attack_success."
                )
            w = paper_w(dim, epsilon, delta, sensitivity)
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
        """Whether the guarantee holds for each M, not as a mean over them."""
        return self.calibration in OF_EVERY_PROJECTION

    @property
    def weakness(self) -> str | None:
        """Why a secret M has no guarantee: a bound for one M, or the paper's printed form with fewer items than users."""
        if self.seed is not None:
            return None
        if self.holds_for_every_projection:
            return f"calibration {self.calibration} bounds the columns of a public M, and no seed is named"
        if self.num_items >= self.num_users:  # the lift covers every direction, with the law of noise
            return None
        return (
            f"the lift of {self.num_items} items misses directions of {self.num_users} users, and the rows show which"
        )

    @property
    def known_before(self) -> bool:
        """Whether M may be known before the data are settled; a secret M cannot."""
        return not self.holds_for_every_projection and self.seed is not None

    @property
    def event(self) -> GaussianEvent | GaussianProjectionEvent:
        """A Gaussian release, or one through a random matrix."""
        if self.largest_norm is not None:
            return GaussianEvent(self.w / (self.largest_norm * self.sensitivity))
        return GaussianProjectionEvent(self.w / self.sensitivity, self.dim)

    @property
    def sensitivity(self) -> float:
        """``rating_range`` for a rating; ``clip`` for zeroing out a user, and twice that for replacement."""
        return row_sensitivity(self.relation, self.clip, self.rating_range or 0.0)

    @property
    def noise_std(self) -> float:
        """``w / sqrt(dim)``."""
        return self.w / math.sqrt(self.dim)

    @property
    def requested_epsilon(self) -> float | None:
        """Epsilon requested from the paper's formula, or None."""
        return self.asked

    @property
    def statement(self) -> Statement:
        """Codes of bounded rows; a mean over projections assumes data that do not depend on the one drawn."""
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
        """Settings of matrix and noise, and sizes."""
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
        """Return M, not computed yet; None if it is secret."""
        if self.seed is None:
            return None
        return GaussianMatrix(self.dim, self.num_items, self.seed, unit=self.calibration == "unit")

    def check(self, tensors: Arrays) -> list[Finding]:
        """Test the lattice, the squares of all numbers, and that the noise is enough for the longest column of M."""
        rows = dense_rows(self, tensors, self.dim)
        self._check_longest()
        sigma, centred = self.noise_std, self.centred and self.seed is not None
        if centred and len(rows) == 1:
            return self._single(rows[0])
        squares = Squares.of(rows, sigma, centred=centred, binary=False)
        # With a secret matrix, and after centring, rows depend on each other but columns do not.
        return square_findings(squares, sigma, centred=centred, independent=False)

    def _single(self, row: npt.NDArray[np.float32]) -> list[Finding]:
        """Test one centred row: a share of its noise went with the mean, all of it if the row was the only one."""
        if self.num_users == 1:
            if row.any():
                raise MechanismError("The row of a single user is not 0 after centring.")
            return []
        # Both the number and the mean were rounded.
        whole = np.square(row, dtype=np.float64).sum() / (1 - 1 / self.num_users)
        squares = unrounded(whole, 4 * len(row), self.noise_std)
        return [Finding("they vary too little", float(chi2.cdf(squares / self.noise_std**2, len(row))))]

    def _check_longest(self) -> None:
        """Refuse noise for a shorter column than that of the projection, and a projection too large to compare."""
        if self.calibration != "max":
            return
        if self.dim * self.num_items > _LARGEST_MATRIX or self.num_items > _MOST_ITEMS:
            raise MechanismError(
                f"The projection is {self.dim} x {self.num_items}. Its longest column cannot be checked. Use unit."
            )
        try:
            if (matrix := self.matrix()) is None:
                raise MechanismError(f"{self.weakness}.")
            matrix.matrix_bytes = 1  # norms in blocks, none of which is kept
            longest = float(matrix.column_norms().max())
        except ValueError as error:
            raise MechanismError(f"The projection of the record cannot be made: {error}") from error
        if self.largest_norm is not None and longest > self.largest_norm * (1 + 1e-6):
            raise MechanismError(
                f"The projection's longest column is {longest:.6g}. The noise covers {self.largest_norm:.6g}."
            )


@dataclass(frozen=True, kw_only=True)
class SJLT(JLT):
    """Projection by a public sparse matrix after a Walsh-Hadamard transform, with noise; calibrated like `JLT`."""

    name = "SJLT"
    relations = ONE_RATING

    density: float = 0.5  # share of non-zeros of the sparse matrix

    def __post_init__(self) -> None:
        """Refuse a density outside (0, 1]."""
        super().__post_init__()
        check_density(self.density)

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Inputs of `JLT`, and the density."""
        return {**super().public_inputs, "density": self.density}

    @property
    def weakness(self) -> str | None:
        """Why a secret M has no guarantee at any size."""
        lifted = "no noise is added, and a published component lies in a subspace that moves when a rating moves"
        return lifted if self.seed is None else None

    def matrix(self) -> PublicMatrix | None:
        """Return ``P H D``, not computed yet; None if it is secret."""
        if self.seed is None:
            return None
        unit = self.calibration == "unit"
        return SparseMatrix(self.dim, self.num_items, self.seed, density=self.density, unit=unit)


def bounded_rows(rows: csr_array, plan: JLT) -> csr_array:
    """Return rows ``(users, items)`` clipped or clamped as in the plan, float64. Not to be released.

    Afterwards one change under ``plan.relation`` moves them by at most ``plan.sensitivity`` (L2).
    """
    if plan.clip is not None:
        return clip_rows(rows, plan.clip)
    if plan.rating_range is not None:
        return clamp_ratings(rows, plan.rating_range)
    raise ValueError("The plan has neither clip nor rating_range. Use JLT.calibrate.")


def release_chunks(rows: csr_array, plan: JLT, matrix: PublicMatrix, noise: NoiseSource) -> Iterator[Floats]:
    """Yield ``(R M^T + w N) / sqrt(dim)`` of bounded rows R ``(users, items)``, a chunk of users at a time, in order.

    Protects the privacy unit of ``plan.relation``, with the L2 sensitivity ``plan.sensitivity`` before projection. Any use of the
    rows is post-processing, and so is centring them over users. One iteration to the end is one release; a second one draws new
    noise and is a second release. N is drawn user by user, so neither the size of chunks nor M's blocks change it. A chunk is
    ``(some users, dim)``, float64, rounded to the public lattice of its noise.

    Raises:
        ValueError: M has another width or longer columns than the plan, or a value is not finite.
    """
    if rows.shape[1] != matrix.num_items:
        raise ValueError(f"The rows have {rows.shape[1]} items, the projection {matrix.num_items}. Use the same.")
    if not (plan.w > 0 and math.isfinite(plan.w)):
        raise ValueError(f"w is {plan.w!r}. Take it from JLT.calibrate.")
    if matrix.dim != plan.dim:
        raise ValueError(f"The projection has width {matrix.dim}, the plan {plan.dim}. Use the same.")
    if plan.largest_norm is not None:
        longest = float(matrix.column_norms().max())
        if longest > plan.largest_norm * (1 + 1e-12):
            raise ValueError(
                f"The projection's longest column is {longest:.6g}. The plan allows {plan.largest_norm:.6g}. Use its "
                "seed, width and num_items."
            )
    bounded_rows(rows[:0], plan)  # refuses a plan without a bound before work starts
    # A chunk of users bounds the memory besides M. If M is not stored, each chunk computes all of it: fewer, larger chunks.
    users = max(1, (_CHUNK if matrix.fits else _LARGE_CHUNK) // plan.dim)
    starts = range(0, rows.shape[0], users)
    return (_noisy(bounded_rows(rows[start : start + users], plan), matrix, plan.w, noise) for start in starts)


def _noisy(rows: csr_array, matrix: PublicMatrix, w: float, noise: NoiseSource) -> Floats:
    """Return ``(R M^T + w N) / sqrt(dim)``, rounded, ``(users, dim)``; R is sparse ``(users, items)``, M is ``(dim, items)``.

    N is added in place and in small parts: the noise takes most of the time, and must not double the memory.
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
    """Return the release of `release_chunks` in one array, shape ``(users, dim)``, float64.

    Examples:
        >>> plan = JLT.calibrate(epsilon=8.0, delta=1e-5, dim=4, num_users=3, num_items=5, seed=7)
        >>> rows = csr_array(np.eye(3, 5))
        >>> release_rows(rows, plan, plan.matrix(), NoiseSource.os()).shape
        (3, 4)
    """
    result = np.empty((rows.shape[0], plan.dim))
    start = 0
    for chunk in release_chunks(rows, plan, matrix, noise):
        result[start : start + len(chunk)] = chunk
        start += len(chunk)
    return result
