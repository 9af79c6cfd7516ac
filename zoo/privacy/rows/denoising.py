"""Denoising of noisy rows by a reader of the release: posterior means of the rows behind them.

It uses only the release and how it was drawn, so it is post-processing and costs no privacy. True item popularity would be a second
release.

A 0/1 entry has a posterior once it has a prior, which is estimated from the noisy rows themselves (`estimate_prior`). Rows that are
not 0/1, such as projections, use only its last step: singular components above the noise (Gavish & Donoho, *Optimal Shrinkage of
Singular Values*, IEEE Trans. Inf. Theory 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array, issparse
from scipy.special import expit, log_ndtr, logit, ndtr

Floats = npt.NDArray[np.floating]
Rows = Floats | csr_array

_CHUNK = 2**22  # entries per chunk
_LEAST_ITEM, _LEAST_USER = 0.02, 0.1  # smallest shrunk means, as a share of the mean of all
_LEAST, _MOST = 1e-7, 0.95  # bounds of a prior
_CLEAR = 1.1  # threshold of singular values, over the largest one of noise
_BLOCK = 8  # vectors per product
_DIFFERENCE = 1e-100  # smallest difference of probabilities
_LEAST_OF_MARGINS = 0.1  # smallest prior after the refinement, over activity times mean


@dataclass(frozen=True)
class GaussianEntries:
    """0/1 entries that are all released with Gaussian noise."""

    sigma: float  # standard deviation of the noise

    @property
    def line(self) -> tuple[float, float]:
        """Slope and intercept: ``slope x observed + intercept`` is an unbiased estimate of the entry."""
        return 1.0, 0.0

    @property
    def variances(self) -> tuple[float, float]:
        """Variance of that estimate for a zero and for a one."""
        return self.sigma**2, self.sigma**2

    def observed(self, values: Floats) -> Floats:
        """Return the observation that estimates use: here the value, else whether the entry is released."""
        return values

    def evidence(self, values: Floats) -> Floats:
        """Return the log-likelihood ratio of a one to a zero; here ``(x - 1/2)/sigma^2``."""
        ratio: Floats = (values.astype(np.float64) - 0.5) / self.sigma**2
        return ratio


@dataclass(frozen=True)
class SparseEntries:
    """0/1 entries of which some are released, ones more often than zeros; the others read as 0."""

    one: float  # probability that a one is released
    zero: float  # probability that a zero is released, smaller
    sigma: float | None  # standard deviation of the noise of released values; None if all are 1
    absent: float  # log-likelihood ratio of an entry that is not released

    def __post_init__(self) -> None:
        if not (0 <= self.zero <= 1 and 0 <= self.one <= 1 and self.one - self.zero >= _DIFFERENCE):
            raise ValueError(
                f"A one is released with probability {self.one:.6g}, a zero with {self.zero:.6g}. The one must be "
                "likelier. Omit the denoiser."
            )

    @classmethod
    def flipped(cls, flip_probability: float, keep: float) -> SparseEntries:
        """Return the model of flipped entries, of which a share of the reported ones is released."""
        one, zero = keep * (1 - flip_probability), keep * flip_probability
        lost = (1 - keep) + zero  # 1 - one, with all its digits for rare flips
        return cls(one, zero, None, math.log(lost) - math.log1p(-zero))

    @classmethod
    def above(cls, threshold: float, sigma: float) -> SparseEntries:
        """Return the model of entries with Gaussian noise, released above a threshold."""
        one, zero = (threshold - 1) / sigma, threshold / sigma
        return cls(float(ndtr(-one)), float(ndtr(-zero)), sigma, float(log_ndtr(one) - log_ndtr(zero)))

    @property
    def line(self) -> tuple[float, float]:
        """Slope and intercept of ``(released - zero) / (one - zero)``."""
        slope = 1 / (self.one - self.zero)
        return slope, -self.zero * slope

    @property
    def variances(self) -> tuple[float, float]:
        """Variance of the same: whether an entry is released is a Bernoulli draw."""
        square = (self.one - self.zero) ** 2
        return self.zero * (1 - self.zero) / square, self.one * (1 - self.one) / square

    def observed(self, values: Floats) -> Floats:
        """Return whether an entry is released."""
        return np.asarray(values != 0, dtype=np.float32)

    def evidence(self, values: Floats) -> Floats:
        """Return the log-likelihood ratio of the value if the entry is released, else ``absent``."""
        if self.sigma is None:
            return np.where(values != 0, math.log(self.one) - math.log(self.zero), self.absent)
        return np.where(values != 0, (values.astype(np.float64) - 0.5) / self.sigma**2, self.absent)


EntryModel = GaussianEntries | SparseEntries


@dataclass(frozen=True)
class Prior:
    """Prior probability that an entry is a one: ``activity x mean + left @ right``, clipped to the inside of (0, 1)."""

    activity: Floats  # of each user, (users,), mean 1
    item_means: Floats  # (items,)
    left: Floats  # of the refinement, (users, components)
    right: Floats  # of the refinement, (components, items)

    @property
    def num_components(self) -> int:
        """Number of singular components above the noise."""
        return len(self.right)

    def rows(self, users: slice) -> Floats:
        """Return the prior of some users, shape ``(batch, items)``."""
        return _inside(np.outer(self.activity[users], self.item_means), self.left[users] @ self.right)

    def entries(self, users: npt.NDArray[np.int64], items: npt.NDArray[np.int32]) -> Floats:
        """Return the prior of some entries, shape ``(entries,)``."""
        refinement = np.einsum("ck,kc->c", self.left[users], self.right[:, items])
        return _inside(self.activity[users] * self.item_means[items], refinement)


def _inside(margins: Floats, refinement: Floats) -> Floats:
    """Return their sum as probabilities: never 0 or 1, and reduced by at most nine tenths."""
    margins = np.clip(margins, _LEAST, _MOST)
    return np.asarray(np.clip(margins + refinement, _LEAST_OF_MARGINS * margins, _MOST))


def posterior_rows(rows: Floats, model: EntryModel, max_components: int) -> npt.NDArray[np.float32]:
    """Return the posterior mean of every entry of released rows ``(users, items)``; arguments as for `estimate_prior`."""
    prior = estimate_prior(rows, model, max_components)
    result = np.empty(rows.shape, dtype=np.float32)
    for users in _chunks(rows.shape):
        result[users] = expit(logit(prior.rows(users)) + model.evidence(rows[users]))
    return result


def posterior_sparse(rows: csr_array, model: SparseEntries, max_components: int) -> csr_array:
    """Return the rise of each released entry's probability of a one by being released; arguments as for `estimate_prior`.

    Posterior means of all entries would be dense. They differ only at the released entries from those of a release without
    entries, and these differences of probabilities are the result, float32. A missing entry was not released.
    """
    prior = estimate_prior(rows, model, max_components)
    weights = np.empty(rows.nnz, dtype=np.float32)
    users = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    step = max(1, _CHUNK // (1 + prior.num_components))
    for first in range(0, rows.nnz, step):
        part = slice(first, first + step)
        odds = logit(prior.entries(users[part], rows.indices[part]))
        weights[part] = expit(odds + model.evidence(rows.data[part])) - expit(odds + model.absent)
    return csr_array((weights, rows.indices, rows.indptr), shape=rows.shape)


def shrunk_rows(rows: Floats, noise_std: float, max_components: int) -> npt.NDArray[np.float32]:
    """Return rows ``(users, width)`` of any real values without the noise that can be removed.

    The result is the mean row plus at most ``max_components`` shrunk singular components above the noise of standard deviation
    ``noise_std`` on each number. The linear counterpart of `posterior_rows`, for projections and clipped rows.
    """
    mean = rows.mean(axis=0, dtype=np.float64)
    equal = np.full(len(rows), noise_std), np.ones(rows.shape[1])
    left, right = _components(_Residual(rows, 1.0, -np.ones((len(rows), 1)), mean[None], *equal), max_components)
    result = np.empty(rows.shape, dtype=np.float32)
    for users in _chunks(rows.shape):
        result[users] = mean + left[users] @ right
    return result


def estimate_prior(rows: Rows, model: EntryModel, max_components: int) -> Prior:
    """Return the probability ``p_ui`` that each entry is a one, from the released rows only (empirical Bayes).

    ``x_ui`` is the unbiased estimate of an entry from its release, of variance ``v0`` for a zero and ``v1`` for a one.

    1. Margins: ``a_u m_i``, a user's activity (mean 1) times an item's mean, from the totals of x over a user's row and an
       item's column, shrunk to their mean by the part of their spread that noise explains.
    2. Residual: ``(x_ui - a_u m_i) / (s_u t_i)``, whose noise has variance 1. An entry that is a one with probability p has
       ``Var(x) = v0 + (1 + v1 - v0) p`` to first order in p; ``s_u^2`` is that at user u's mean, ``t_i^2`` that at item i's,
       relative to the mean of all.
    3. Refinement: the residual's singular components above the noise, at most ``max_components``, scaled back.

    ``rows`` are as released, shape ``(users, items)``, and ``model`` is how their entries were drawn.
    """
    num_users, num_items = rows.shape
    slope, intercept = model.line
    v0, v1 = model.variances
    if isinstance(rows, csr_array):
        seen: Rows = csr_array((model.observed(rows.data), rows.indices, rows.indptr), shape=rows.shape)
    else:
        seen = model.observed(rows)

    # Totals of x = slope x observed + intercept; a sparse matrix stores only the observed values.
    of_users, of_items = (
        slope * np.asarray(seen.sum(axis=axis, dtype=np.float64)).ravel() + intercept * rows.shape[axis]
        for axis in (1, 0)
    )
    share_of_ones = min(max(float(of_users.mean()) / num_items, 0.0), 1.0)
    noise = v0 + (v1 - v0) * share_of_ones
    of_users = _shrunk(of_users, num_items * noise, _LEAST_USER, num_items)
    of_items = _shrunk(of_items, num_users * noise, _LEAST_ITEM, num_users)
    activity, means = of_users / of_users.mean(), of_items / num_users

    # x - a m^T = slope x observed + [intercept, -a] [1; m]: a rank of two besides the sparse part, so it is never dense.
    left = np.stack([np.full(num_users, intercept), -activity], axis=1)
    right = np.stack([np.ones(num_items), means])
    mean, per_one = float(means.mean()), 1 + v1 - v0
    s = np.sqrt(v0 + per_one * mean * activity)
    t = np.sqrt((v0 + per_one * means) / (v0 + per_one * mean))
    return Prior(activity, means, *_components(_Residual(seen, slope, left, right, s, t), max_components))


def _shrunk(totals: Floats, noise_variance: float, least: float, most: int) -> Floats:
    """Return totals shrunk to their mean by the part of their spread that noise explains (James & Stein 1961), positive.

    ``mean + max(Var - noise, 0) / (max(Var - noise, 0) + noise) x (total - mean)``, at least a share of the mean.
    """
    mean = max(float(totals.mean()), 1e-6 * most)
    spread = max(float(totals.var()) - noise_variance, 0.0)
    share = spread / (spread + noise_variance) if noise_variance else 1.0
    return np.asarray(np.clip(mean + share * (totals - mean), least * mean, None))


@dataclass(frozen=True)
class _Residual:
    """``(scale x matrix + left @ right) / (of_rows x of_columns)``, shape ``(users, width)``, for products only.

    The matrix is sparse, or dense in float32; the subtracted part has low rank. So no dense copy is made.
    """

    matrix: Rows | csc_array
    scale: float
    left: Floats  # (users, rank)
    right: Floats  # (rank, width)
    of_rows: Floats  # (users,)
    of_columns: Floats  # (width,)

    @property
    def transposed(self) -> _Residual:
        """The transpose, without a copy."""
        return _Residual(self.matrix.T, self.scale, self.right.T, self.left.T, self.of_columns, self.of_rows)

    def times(self, vectors: Floats) -> Floats:
        """Return the product with a matrix ``(width, k)``; the large matrix is multiplied in float32, after scaling."""
        vectors = vectors / self.of_columns[:, None]
        largest = float(np.abs(vectors).max(initial=0)) or 1.0
        product = self.matrix @ (vectors / largest).astype(np.float32)
        product = np.multiply(self.scale * largest, product, dtype=np.float64)
        return (product + self.left @ (self.right @ vectors)) / self.of_rows[:, None]

    def largest_components(self, count: int) -> tuple[Floats, Floats, Floats]:
        """Return at least ``count`` of the largest singular values, if there are as many, with vectors; in any order.

        A large matrix E uses block Lanczos on the smaller of ``E^T E`` and ``E E^T`` (Golub & Underwood 1977), with a public,
        constant start. After 16 steps or more, values a tenth above the noise have converged; others may not have. A sparse
        solver for all digits of all values does not converge on noise.
        """
        num_users, width = self.matrix.shape
        wide = width > num_users
        size = max(3 * count, 128) // _BLOCK * _BLOCK
        if wide:
            left, values, right = self.transposed.largest_components(count)
            return right.T, values, left.T
        if width <= size:
            return self._by_right(*np.linalg.eigh(self._gram()), count)
        basis, image = np.empty((2, width, size))
        block: Floats = np.random.default_rng(0).standard_normal((width, _BLOCK))
        for first in range(0, size, _BLOCK):
            for _ in range(2):  # once leaves rounding errors along the basis
                block = np.linalg.qr(block - basis[:, :first] @ (basis[:, :first].T @ block))[0]
            basis[:, first : first + _BLOCK] = block
            block = image[:, first : first + _BLOCK] = self.transposed.times(self.times(block))
        energies, mixed = np.linalg.eigh(basis.T @ image)  # squares of singular values, and vectors within the basis
        return self._by_right(energies, basis @ mixed[:, -count:], count)

    def _gram(self) -> Floats:
        """Return ``E^T E``, of chunks of users."""
        matrix = csr_array(self.matrix) if issparse(self.matrix) else self.matrix
        gram = np.zeros((self.matrix.shape[1],) * 2)
        for part in _chunks(self.matrix.shape):
            rows = replace(self, matrix=matrix[part], left=self.left[part], of_rows=self.of_rows[part])
            dense = rows.times(np.eye(len(gram)))
            gram += dense.T @ dense
        return gram

    def _by_right(self, energies: Floats, vectors: Floats, count: int) -> tuple[Floats, Floats, Floats]:
        """Return the components of the last ``count`` squared singular values, by their right vectors."""
        right, values = vectors[:, -count:], np.sqrt(np.maximum(energies[-count:], 0))
        return self.times(right) / np.where(values > 0, values, 1), values, right.T


def _components(residual: _Residual, most: int) -> tuple[Floats, Floats]:
    """Return the singular components above noise of variance 1, shrunk for the least squared error.

    y is the singular value over the root of the longer side, b the ratio of the sides. A component above the noise's
    ``1 + sqrt(b)`` becomes ``sqrt((y^2 - b - 1)^2 - 4 b) / y``, the rest 0 (Gavish & Donoho 2017, for the Frobenius loss).
    It must be a tenth above: the limit is that of large matrices, and small ones exceed it at times. Rows and columns
    are scaled to equal noise before, and back here (Leeb & Romanov, *Optimal Spectral Shrinkage and PCA with
    Heteroscedastic Noise*, IEEE Trans. Inf. Theory 2021); otherwise a popular item would exceed it by its own spread.
    The estimate is the product of the two results, ``(users, components)`` and ``(components, width)``.
    """
    shape = residual.matrix.shape
    if most == 0:
        return np.zeros((shape[0], 0)), np.zeros((0, shape[1]))
    left, values, right = residual.largest_components(most)
    short, long = sorted(shape)
    scale, ratio = math.sqrt(long), short / long
    heights = values / scale
    clear = np.flatnonzero(heights > _CLEAR * (1 + math.sqrt(ratio)))
    clear = clear[np.argsort(-heights[clear])][:most]
    heights = heights[clear]
    shrunk = scale * np.sqrt(np.maximum((heights**2 - ratio - 1) ** 2 - 4 * ratio, 0)) / heights
    return residual.of_rows[:, None] * left[:, clear] * shrunk, right[clear] * residual.of_columns


def _chunks(shape: tuple[int, ...]) -> Iterator[slice]:
    step = max(1, _CHUNK // max(shape[1], 1))
    return (slice(first, min(first + step, shape[0])) for first in range(0, shape[0], step))
