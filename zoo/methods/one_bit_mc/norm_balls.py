"""Projections onto the nuclear-norm ball, the infinity-norm ball and both, and onto matrices of a rank.

Each gives the nearest matrix in the Frobenius norm; projections onto balls are non-expansive, as fixed numbers of steps need.
"""

import math

import numpy as np
import numpy.typing as npt
import scipy.linalg

Floats = npt.NDArray[np.float64]

_SMALL = 160  # below this many rows or columns all singular values cost no more than some
_SPARE = 8  # singular values beyond the expected rank
_PATIENCE, _BALANCE = 10, 5.0  # passes between looks at the residuals, and by how much one may exceed the other
_NEVER_0 = 1e-300


def shrinkage(values: Floats, radius: float) -> float | None:
    """Return the shrinkage ``t`` of singular values projected onto the l1 ball: ``sum max(values - t, 0) = radius``.

    ``t`` is ``(v_1 + ... + v_k - radius)/k`` for the largest k whose ``v_k`` exceeds it. The values are the largest,
    descending, not necessarily all. None if they do not determine ``t``: more are needed, or their sum does not exceed the
    radius.

    Examples:
        >>> shrinkage(np.array([3.0, 2.0, 0.0]), radius=3.0)
        1.0
    """
    sums = np.cumsum(values)
    shrink = (sums - radius) / np.arange(1, len(values) + 1)
    kept = np.flatnonzero(values > shrink)
    last = int(kept[-1]) if len(kept) else 0  # none: the radius is lost in the rounding of the largest value
    if shrink[last] <= 0 or last == len(values) - 1:
        return None
    return float(shrink[last])


class NuclearBall:
    """Project onto the matrices whose singular values sum to at most ``radius``, the paper's tau.

    The projection shrinks all singular values by the same amount and cuts at 0. Only the largest are computed, from the smaller
    Gram matrix; their number is stored from one projection to the next and checked each time (`shrinkage`), so the result is
    that of all singular values. With `truncated` false all are computed, for comparison.
    """

    def __init__(self, radius: float, truncated: bool = True) -> None:
        if not (radius > 0 and math.isfinite(radius)):
            raise ValueError(f"The radius of the nuclear-norm ball (tau) must be positive and finite; got {radius!r}.")
        self.radius, self.truncated = radius, truncated
        self.rank = 16  # of the last projection; decides rounding errors of the next, so an interrupted run keeps it

    def __call__(self, matrix: Floats) -> Floats:
        """Return the nearest matrix of the ball (rows, columns); rows and columns of zeros remain exactly zero."""
        projected = self._project(matrix)
        return projected if projected is matrix else _with_zeros_of(matrix, projected)

    def _project(self, matrix: Floats) -> Floats:
        projected = None
        if self.truncated and min(matrix.shape) > _SMALL:
            # Eigenvalues of the smaller Gram matrix (k x k, k the smaller side) are squares of the singular values: a product
            # and a partial decomposition of k x k cost far less than the singular vectors of both sides.
            gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
            projected = self._from_largest(matrix, gram, self.rank + _SPARE)
            if projected is None:
                projected = self._from_largest(matrix, gram, self._kept(gram) + _SPARE)
        return self._from_all(matrix) if projected is None else projected

    def _kept(self, gram: Floats) -> int:
        """Number of singular values that are not cut, up to rounding, from all of them; no vector is needed."""
        values = _roots(np.asarray(scipy.linalg.eigvalsh(gram, check_finite=False), dtype=np.float64))
        shrink = shrinkage(np.append(values, 0.0), self.radius)
        return len(values) if shrink is None else int((values > shrink).sum())

    def _from_largest(self, matrix: Floats, gram: Floats, count: int) -> Floats | None:
        """Projection from ``count`` singular values, or None if they do not determine it, or are at least half."""
        if count >= len(gram) // 2:
            return None
        largest = (len(gram) - count, len(gram) - 1)
        squares, vectors = scipy.linalg.eigh(gram, subset_by_index=largest, check_finite=False)
        values = _roots(squares)
        shrink = shrinkage(values, self.radius)
        if shrink is None:
            return None
        self.rank = int((values > shrink).sum())
        vectors = vectors[:, ::-1][:, : self.rank]
        # Left singular vectors U of the kept: U diag(1 - shrink / s) U' A has their singular values less the shrinkage.
        scaled = vectors * (1 - shrink / values[: self.rank])
        wide = matrix.shape[0] <= matrix.shape[1]
        projected: Floats = scaled @ (vectors.T @ matrix) if wide else (matrix @ vectors) @ scaled.T
        return projected

    def _from_all(self, matrix: Floats) -> Floats:
        left, values, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
        shrink = shrinkage(np.append(values, 0.0), self.radius)  # a 0 beyond all of them: the last is cut, or none
        if shrink is None:
            self.rank = int((values > 0).sum())
            return matrix
        self.rank = int((values > shrink).sum())
        projected: Floats = (left[:, : self.rank] * (values[: self.rank] - shrink)) @ right[: self.rank]
        return projected


def _roots(squares: Floats) -> Floats:
    """Descending singular values from ascending eigenvalues of a Gram matrix."""
    roots: Floats = np.sqrt(np.maximum(squares[::-1], 0.0))
    return roots


class InfinityBall:
    """Project onto the matrices with absolute entries of at most ``bound``, the paper's alpha."""

    def __init__(self, bound: float) -> None:
        if not (bound > 0 and math.isfinite(bound)):
            raise ValueError(f"The bound on the entries (alpha) must be positive and finite; got {bound!r}.")
        self.bound = bound

    def __call__(self, matrix: Floats) -> Floats:
        """Return the nearest matrix with such entries."""
        clipped: Floats = np.clip(matrix, -self.bound, self.bound)
        return clipped


class Composition:
    """Project onto the nuclear-norm ball, then onto the infinity-norm ball.

    Not the projection onto both, but non-expansive and exact in finite time, as a fixed number of steps needs.
    """

    def __init__(self, nuclear: NuclearBall, infinity: InfinityBall) -> None:
        self.nuclear, self.infinity = nuclear, infinity

    @property
    def rank(self) -> int:
        """Rank of the last projection onto the nuclear-norm ball."""
        return self.nuclear.rank

    @rank.setter
    def rank(self, rank: int) -> None:
        self.nuclear.rank = rank

    def __call__(self, matrix: Floats) -> Floats:
        """Return the nearest matrix of the first ball, clipped to the second."""
        return self.infinity(self.nuclear(matrix))


class Intersection(Composition):
    """Project onto the intersection of both balls, by the alternating direction method of multipliers.

    It stops after `max_passes`, or when the matrices of both balls, and of successive passes, differ by at most `tolerance`
    times the norm.

    Reference: Boyd et al., *Distributed Optimization and Statistical Learning via the Alternating Direction Method of
    Multipliers*, 2011, section 3.4.1, as in the 1BMC toolbox of Davenport et al. Departures: the weight starts at the distance
    of the matrix, in sizes of the set, as spectral steps can be long; the result is the matrix of the infinity-norm ball, not
    the mean.
    """

    tolerance = 1e-8

    def __init__(self, nuclear: NuclearBall, infinity: InfinityBall, max_passes: int = 1000) -> None:
        super().__init__(nuclear, infinity)
        self.max_passes = max_passes

    def __call__(self, matrix: Floats) -> Floats:
        """Return the nearest matrix in both balls, up to the tolerance; its entries meet the bound exactly."""
        low = self.nuclear(matrix)
        bounded = self.infinity(low)
        if np.array_equal(low, bounded):
            return bounded  # the nearest of the one ball lies in the other
        weight = float(np.linalg.norm(matrix - bounded)) / float(np.linalg.norm(bounded))
        price = np.zeros_like(matrix)  # of the difference of both, in the scale of the entries
        for done in range(1, self.max_passes + 1):
            bounded = self.infinity((matrix + weight * (low - price)) / (1 + weight))
            before, low = low, self.nuclear(bounded + price)
            price += bounded - low
            gap, moved = float(np.linalg.norm(bounded - low)), float(np.linalg.norm(low - before))
            if max(gap, moved) <= self.tolerance * max(1.0, float(np.linalg.norm(bounded))):
                break
            # Both residuals are to fall alike: the larger one gets more weight, and the price keeps its meaning.
            if done % _PATIENCE == 0 and not 1 / _BALANCE <= gap / max(moved, _NEVER_0) <= _BALANCE:
                factor = 2.0 if gap > moved else 0.5
                weight, price = weight * factor, price / factor
        return bounded


Projection = NuclearBall | Composition
"""What solvers project by: onto the nuclear-norm ball, or with the infinity-norm ball."""


def truncated(matrix: Floats, rank: int) -> Floats:
    """Return the nearest matrix of at most this rank; rows and columns of zeros remain exactly zero."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return _with_zeros_of(matrix, (left[:, :rank] * values[:rank]) @ right[:rank])


def _with_zeros_of(matrix: Floats, projected: Floats) -> Floats:
    """Restore rows and columns of zeros after rounding errors, whose signs would count."""
    projected[~matrix.any(axis=1)] = 0.0
    projected[:, ~matrix.any(axis=0)] = 0.0
    return projected
