"""The sparse-aware Johnson-Lindenstrauss matrix ``M = P H D``: sparse Gaussian, Walsh-Hadamard, random signs.

PriCDR (Chen et al., WWW 2022, Definition 3.7) publishes ``P H D R1`` with lifted singular values and no noise, which protects
no user (`zoo.privacy.rows.svd_lift`). Here M is public like any other matrix, and the noise of `zoo.privacy.mechanisms.jlt`,
calibrated to M's column norms, protects.
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import ndtri

from zoo.privacy.randomness.noise import MASK_STREAM, SIGN_STREAM, public_uniforms
from zoo.privacy.rows.hadamard import hadamard_transform, padded_size
from zoo.privacy.rows.public_matrix import MATRIX_BYTES, PublicMatrix, column_norms, ranges, rescale

Floats = npt.NDArray[np.float64]

_BLOCK = 16  # components per transform; fixed, so that norms do not depend on the available memory
_ATTEMPTS = 100


def check_density(density: float) -> None:
    """Refuse a share of non-zeros outside (0, 1]."""
    if not 0 < density <= 1:
        raise ValueError(f"density is {density!r}. Allowed: (0, 1], e.g. 0.5.")


def sparse_gaussian(uniforms: Floats, density: float) -> Floats:
    """Return independent draws from ``N(0, 1/density)`` with probability ``density``, else 0 (Equation 3 of the paper).

    Each uses one uniform in (0, 1), in any shape: below ``density`` it gives the value, above there is none.
    """
    chosen = uniforms < density
    values: Floats = np.zeros_like(uniforms)
    values[chosen] = ndtri(uniforms[chosen] / density) / np.sqrt(density)
    return values


class SparseMatrix(PublicMatrix):
    """``P H D`` from a public seed, the same on every machine; SJLT's M. Other arguments: `PublicMatrix`.

    Items are padded with zeros to a power of two, where H is orthogonal, and the columns of the padding are left out. P is made
    and transformed a few rows at a time, with ``dim`` transforms in total; neither P nor H is stored whole. A product in blocks is
    computed a few components at a time, bit for bit as with the whole matrix. The share ``density`` in (0, 1] of P is not zero. A
    column of M is zero only if P is, because it is P times a vector without zeros. P is then drawn again, for all data.
    """

    def __init__(
        self,
        dim: int,
        num_items: int,
        seed: int,
        *,
        density: float = 0.5,
        unit: bool = True,
        matrix_bytes: int = MATRIX_BYTES,
    ) -> None:
        super().__init__(dim, num_items, seed, unit, matrix_bytes, density=density)
        check_density(density)
        self.density = density
        self._padded = padded_size(num_items)

    def column_norms(self) -> Floats:
        """Return the L2 norm of each column, shape ``(items,)``."""
        norms = self._drawn[1]
        if not self.unit:
            return norms
        if self.fits:
            return column_norms(self.transposed())
        rescaled = norms[:, None].copy()
        rescale(rescaled, norms, self.dim)
        return rescaled[:, 0]

    def components(self, start: int, stop: int) -> Floats:
        """Return rows of M from ``start`` to before ``stop``, item by item, shape ``(items, stop - start)``."""
        attempt, norms = self._drawn
        block = self._block(attempt, start, stop)
        if self.unit:
            rescale(block, norms, self.dim)
        return block

    @cached_property
    def _signs(self) -> Floats:
        """Diagonal of D, ``(items,)``."""
        uniforms = public_uniforms(self.seed, self.num_items, SIGN_STREAM)
        return np.where(uniforms < 0.5, -1.0, 1.0)

    @cached_property
    def _drawn(self) -> tuple[int, Floats]:
        """Number of the attempt that gave P, and the norms of the columns before rescaling, ``(items,)``.

        Norms need all of M, so a matrix that fits is stored too, because its transforms are the main cost.
        """
        whole = np.empty((self.num_items, self.dim)) if self.fits else None
        for attempt in range(_ATTEMPTS):
            squares = np.zeros(self.num_items)
            for start, stop in ranges(self.dim, _BLOCK):
                block = self._block(attempt, start, stop)
                squares += np.einsum("id,id->i", block, block)
                if whole is not None:
                    whole[:, start:stop] = block
            if not (squares > 0).all():
                continue
            norms = np.sqrt(squares)
            if whole is not None and self.unit:
                rescale(whole, norms, self.dim)
            self._cached = whole
            return attempt, norms
        raise ValueError(
            f"density is {self.density:g}: {_ATTEMPTS} sparse matrices of {self.dim} x {self._padded} were empty. "
            "Raise it."
        )

    def _block(self, attempt: int, start: int, stop: int) -> Floats:
        """Return rows of ``P H D`` before rescaling, item by item; H and D are symmetric, so it is ``D H P^T``."""
        shape = (stop - start, self._padded)
        uniforms = public_uniforms(self.seed, shape, MASK_STREAM, attempt, offset=start * self._padded)
        block = hadamard_transform(sparse_gaussian(uniforms, self.density).T)[: self.num_items]
        block *= self._signs[:, None]
        return block

    def _whole(self) -> Floats:
        _ = self._drawn  # stores it, if it fits
        if self._cached is not None:
            return self._cached
        return np.concatenate([self.components(*block) for block in ranges(self.dim, _BLOCK)], axis=1)

    def _times_blocks(self, rows: csr_array) -> Floats:
        # A component of R M^T is R times one row of M, so components are computed separately, in any order.
        product = np.empty((rows.shape[0], self.dim))
        for start, stop in ranges(self.dim, _BLOCK):
            product[:, start:stop] = rows @ self.components(start, stop)
        return product
