"""What a public matrix makes of several ratings of one person: bounds by the inner products of its columns."""

from collections.abc import Sequence

import numpy as np

from zoo.privacy.rows.public_matrix import PublicMatrix, ranges

_BLOCK = 2**21  # inner products in memory at a time
_ROUNDING = 1e-9  # relative; far above what sums of inner products are off by


def group_stretch(matrix: PublicMatrix, sizes: Sequence[int]) -> dict[int, float]:
    """For each k the most that M makes of a change of at most k cells of one row, by at most 1 each: a bound of ``|M c|`` (L2).

    For a change c at the items S, with any signs,

        ``|M c|^2 = sum over i, j in S of c_i c_j <M_i, M_j> <= sum over i in S of r_i``,

    where r_i adds to ``|M_i|^2`` the k - 1 largest ``|<M_i, M_j>|`` over other items; no k items have more than the k largest r. At
    worst that is k times the longest column, where columns are parallel; those of a wide random M give far less. From M alone, so
    it is public. Inner products are made in blocks of items, ``items^2 dim`` products of two numbers in all; beside M there is no
    ``(items, items)`` matrix in memory. A k beyond the number of items means all of them.
    """
    if not sizes or min(sizes) < 1:
        raise ValueError(f"sizes must be numbers of ratings of at least 1, got {list(sizes)!r}.")
    columns = matrix.transposed()
    items = matrix.num_items
    counts = {size: min(size, items) for size in sizes}
    most = max(counts.values())
    sums = np.empty((items, len(counts)))  # r of each item, for each k
    for start, stop in ranges(items, _BLOCK // items):
        products = np.abs(columns[start:stop] @ columns.T)
        here = np.arange(stop - start)
        squares = products[here, start + here]
        products[here, start + here] = -1.0  # an item is none of its others
        others = -np.sort(-np.partition(products, items - most, axis=1)[:, items - most :], axis=1)
        added = np.cumsum(np.column_stack([squares, others[:, : most - 1]]), axis=1)
        sums[start:stop] = added[:, [count - 1 for count in counts.values()]]
    bounds = {}
    for column, (size, count) in enumerate(counts.items()):
        largest = np.partition(sums[:, column], items - count)[items - count :]
        bounds[size] = float(np.sqrt(largest.sum())) * (1 + _ROUNDING)
    return bounds
