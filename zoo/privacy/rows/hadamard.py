"""The fast Walsh-Hadamard transform: sums and differences of halves, without a matrix."""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_CACHE = 2**18  # bytes of a part that is completed at once


def padded_size(size: int) -> int:
    """Return the least power of two that is at least ``size``, the sizes of Hadamard matrices as PriCDR defines them."""
    if size < 1:
        raise ValueError(f"size is {size!r}. Allowed: integers >= 1.")
    return 1 << (size - 1).bit_length()


def hadamard_transform(vectors: Floats) -> Floats:
    """Return ``H V`` for the normalised Hadamard matrix ``H_ij = n^-1/2 (-1)^<i, j>``, in ``n log2 n`` additions a column.

    ``<i, j>`` is the inner product of the bits of i and j, both counted from 0 (PriCDR, Definition 3.7). H is symmetric
    and orthogonal, so transforming twice gives V back. The result of a column does not depend on other columns. V has
    shape ``(n, columns)``, n a power of two, and is not changed.
    """
    size = len(vectors)
    if vectors.ndim != 2 or size != padded_size(max(size, 1)):
        raise ValueError(
            f"vectors have shape {vectors.shape}. Allowed: (n, columns), n a power of two. Pad to "
            f"{padded_size(max(size, 1))}."
        )
    result = np.array(vectors, dtype=np.float64, order="C")
    _transform(result)
    result *= 1 / math.sqrt(size)
    return result


def _transform(vectors: Floats) -> None:
    """Transform in place, unnormalised. Large parts are halved first, so that most work is done in the cache."""
    size, columns = vectors.shape
    if size > 1 and vectors.nbytes > _CACHE:
        half = size // 2
        _butterfly(vectors[:half], vectors[half:])
        _transform(vectors[:half])
        _transform(vectors[half:])
        return
    step = size // 2
    while step:
        pairs = vectors.reshape(size // (2 * step), 2, step * columns)
        _butterfly(pairs[:, 0], pairs[:, 1])
        step //= 2


def _butterfly(upper: Floats, lower: Floats) -> None:
    """Replace ``(a, b)`` by ``(a + b, a - b)``, in place."""
    difference = upper - lower
    upper += lower
    lower[...] = difference
