"""Names of array types, and membership of numbers in a sorted array."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]
Booleans: TypeAlias = npt.NDArray[np.bool_]
Ids: TypeAlias = npt.NDArray[np.str_]


def contains(keys: Integers, wanted: Integers) -> Booleans:
    """Return a mask, in the shape of the wanted numbers, of those that are among ascending keys (num_keys,)."""
    if not len(keys):
        return np.zeros(wanted.shape, dtype=bool)
    # Binary search: a dense (users, items) mask would not fit into memory, and a set is not vectorised.
    found: Booleans = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    return found
