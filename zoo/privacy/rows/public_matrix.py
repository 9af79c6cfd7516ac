"""The public matrix M of a projection, computed from a seed: whole if it fits in memory, otherwise in blocks."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.gaussian_mixture import check_dim
from zoo.privacy.randomness.noise import public_normals

Floats = npt.NDArray[np.float64]

MATRIX_BYTES = 2**30
"""A larger matrix is not stored whole; it is computed in blocks, again for every chunk of users."""

_PIECE = 2**22  # numbers of a whole matrix per chunk


def ranges(size: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of at most ``step`` that cover ``size``; of 1, if step is 0."""
    step = max(1, step)
    return ((start, min(start + step, size)) for start in range(0, size, step))


def column_norms(columns: Floats) -> Floats:
    """Return the L2 norms ``(items,)`` of columns of M, which come item by item, ``(items, dim)``."""
    return np.asarray(np.sqrt(np.einsum("id,id->i", columns, columns)))


def rescale(columns: Floats, norms: Floats, dim: int) -> None:
    """Scale columns of M with these norms ``(items,)`` to the norm ``sqrt(dim)``, in place; any part of each, ``(items, any)``."""
    bad = np.flatnonzero(~((norms > 0) & np.isfinite(norms)))
    if len(bad):
        raise ValueError(f"Column {bad[0]} of the projection has norm {norms[bad[0]]}. Use another seed.")
    columns *= (math.sqrt(dim) / norms)[:, None]


class PublicMatrix(ABC):
    """A public matrix ``(dim, items)``. It depends on public settings only and protects no user.

    It is stored item by item, ``(items, dim)``: the product with a user's ratings adds up the columns of the rated items, each of
    which is contiguous in memory. A matrix above ``matrix_bytes`` is computed in blocks of about this size or less. The seed
    is public and chosen without looking at the data; with ``unit`` columns are rescaled to norm ``sqrt(dim)``; ``settings`` are
    further dependencies, for a record.
    """

    def __init__(self, dim: int, num_items: int, seed: int, unit: bool, matrix_bytes: int, **settings: float) -> None:
        check_dim(dim)
        if num_items < 1:
            raise ValueError(f"num_items is {num_items!r}. Allowed: integers >= 1.")
        if matrix_bytes < 1:
            raise ValueError(f"matrix_bytes is {matrix_bytes!r}. Allowed: >= 1.")
        self.dim, self.num_items, self.matrix_bytes = int(dim), int(num_items), matrix_bytes
        self.seed, self.unit, self.settings = seed, unit, settings
        self._cached: Floats | None = None

    @property
    def fits(self) -> bool:
        """Whether the matrix is stored whole."""
        return 8 * self.dim * self.num_items <= self.matrix_bytes

    def transposed(self) -> Floats:
        """Return the whole matrix, item by item, shape ``(items, dim)``, for every size; computed once if it fits."""
        whole = self._whole() if self._cached is None else self._cached
        if self.fits:
            self._cached = whole
        return whole

    def times(self, rows: csr_array) -> Floats:
        """Return ``R M^T`` for rows ``(users, items)``: shape ``(users, dim)``, float64. Not to be released without noise."""
        return np.asarray(rows @ self.transposed()) if self.fits else self._times_blocks(rows)

    @abstractmethod
    def column_norms(self) -> Floats:
        """Return the L2 norm of each column, shape ``(items,)``."""

    @abstractmethod
    def _whole(self) -> Floats:
        """Return the matrix item by item, ``(items, dim)``, in one contiguous array."""

    @abstractmethod
    def _times_blocks(self, rows: csr_array) -> Floats:
        """Return the result of `times` without the whole matrix."""


class GaussianMatrix(PublicMatrix):
    """Independent standard normals from a public seed, the same on every machine; JLT's M. Arguments: `PublicMatrix`.

    The column of an item depends only on the seed, the width and the item's index. So a block of items is computed separately, bit
    for bit as in the whole matrix, for widths up to 8,192. Above, the last digit of a rescaled column may differ. A product by
    blocks adds the same terms in another order, and may differ in its last digits.
    """

    def __init__(
        self, dim: int, num_items: int, seed: int, *, unit: bool = False, matrix_bytes: int = MATRIX_BYTES
    ) -> None:
        super().__init__(dim, num_items, seed, unit, matrix_bytes)

    def columns(self, start: int, stop: int) -> Floats:
        """Return columns of the items from ``start`` to before ``stop``, item by item, shape ``(stop - start, dim)``."""
        block = public_normals(self.seed, (stop - start, self.dim), offset=start * self.dim)
        if self.unit:
            rescale(block, column_norms(block), self.dim)
        return block

    def column_norms(self) -> Floats:
        """Return the L2 norm of each column, shape ``(items,)``."""
        if self.fits:
            return column_norms(self.transposed())
        return np.concatenate(
            [column_norms(self.columns(*items)) for items in ranges(self.num_items, _PIECE // self.dim)]
        )

    def _whole(self) -> Floats:
        whole = np.empty((self.num_items, self.dim))
        for start, stop in ranges(self.num_items, _PIECE // self.dim):
            whole[start:stop] = self.columns(start, stop)
        return whole

    def _times_blocks(self, rows: csr_array) -> Floats:
        # R M^T = sum over blocks of items of R[:, block] M[:, block]^T; compressed by item, because blocks are cut there.
        by_item = rows.tocsc()
        product = np.zeros((rows.shape[0], self.dim))
        for start, stop in ranges(self.num_items, self.matrix_bytes // 8 // self.dim):
            product += by_item[:, start:stop] @ self.columns(start, stop)
        return product
