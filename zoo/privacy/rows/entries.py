"""0/1 rows before noise or flips, and samples of their zeros that visit few of them."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.randomness.bernoulli import entry_numbers, sample_zeros
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.bounds import clip_rows

Singles = npt.NDArray[np.float32]


def bounded(rows: csr_array, clip: float | None) -> csr_array:
    """Return a float64 copy, sorted and clipped; refuse a matrix that is not 0/1."""
    rows = rows.astype(np.float64, copy=True)
    rows.sum_duplicates()
    if not (rows.data == 1).all():
        wrong = rows.data[rows.data != 1]
        raise ValueError(
            f"{len(wrong)} stored values are not 1, the first is {wrong[0]:g}. Make rows binary, without repeats."
        )
    return rows if clip is None else clip_rows(rows, clip)


def with_zeros(
    rows: csr_array,
    kept: npt.NDArray[np.bool_],
    of_ones: Singles,
    zero_probability: Fraction | float,
    of_zeros: Callable[[int], Singles],
    noise: NoiseSource,
) -> csr_array:
    """Return released ones with their values, and zeros released with a probability, as one matrix ``(users, items)``.

    The matrix is sorted by entry, because ones in front would be recognised. Zeros are drawn a chunk of users at a time. An entry
    is its number ``(user - first user) * items + item`` within the chunk, so sorting numbers sorts by user and item.
    """
    starts = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
    ones = csr_array((np.ones(len(of_ones), dtype=bool), rows.indices[kept], starts), shape=rows.shape)
    items, weights = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
    counts = np.zeros(rows.shape[0] + 1, dtype=np.int64)
    for users, zeros in sample_zeros(rows, zero_probability, noise):
        values = np.concatenate([of_zeros(len(zeros)), of_ones[ones.indptr[users.start] : ones.indptr[users.stop]]])
        entries = np.concatenate([zeros, entry_numbers(ones, users)])
        order = np.argsort(entries, kind="stable")
        chunk_rows, columns = np.divmod(entries[order], rows.shape[1])
        items.append(columns.astype(np.int32))
        weights.append(values[order])
        counts[users.start + 1 : users.stop + 1] = np.bincount(chunk_rows, minlength=users.stop - users.start)
    return csr_array((np.concatenate(weights), np.concatenate(items), np.cumsum(counts)), shape=rows.shape)
