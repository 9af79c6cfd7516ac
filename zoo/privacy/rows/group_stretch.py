"""The effect of a public matrix on several ratings of one user: bounds by the inner products of its columns."""

from collections.abc import Sequence

import numpy as np

from zoo.privacy.rows.public_matrix import PublicMatrix, ranges

_BLOCK = 2**21  # inner products in memory at a time
_ROUNDING = 1e-9  # relative; far above the error of sums of inner products


def group_stretch(matrix: PublicMatrix, sizes: Sequence[int]) -> dict[int, float]:
    """Return a bound of ``|M c|`` (L2) for each k: c changes at most k entries of one row, by at most 1 each.

    For a change c at the items S, with any signs,

        ``|M c|^2 = sum over i, j in S of c_i c_j <M_i, M_j> <= sum over i in S of r_i``,

    where r_i adds to ``|M_i|^2`` the k - 1 largest ``|<M_i, M_j>|`` over other items. No k items have more than the k largest r.
    At worst, for parallel columns, that is k times the longest column; columns of a wide random M give far less. The bound depends
    on M only, so it is public. Inner products take ``items^2 dim`` multiplications, in blocks of items: no ``(items, items)``
    matrix is in memory. A k above the number of items means all items.
    """
    if not sizes or min(sizes) < 1:
        raise ValueError(f"sizes are {list(sizes)!r}. Allowed: >= 1.")
    columns = matrix.transposed()
    items = matrix.num_items
    counts = {size: min(size, items) for size in sizes}
    most = max(counts.values())
    sums = np.empty((items, len(counts)))  # r of each item, for each k
    for start, stop in ranges(items, _BLOCK // items):
        products = np.abs(columns[start:stop] @ columns.T)
        own = np.arange(stop - start)
        squares = products[own, start + own]
        products[own, start + own] = -1.0  # not among the others
        others = -np.sort(-np.partition(products, items - most, axis=1)[:, items - most :], axis=1)
        added = np.cumsum(np.column_stack([squares, others[:, : most - 1]]), axis=1)
        sums[start:stop] = added[:, [count - 1 for count in counts.values()]]
    bounds = {}
    for column, (size, count) in enumerate(counts.items()):
        largest = np.partition(sums[:, column], items - count)[items - count :]
        bounds[size] = float(np.sqrt(largest.sum())) * (1 + _ROUNDING)
    return bounds
