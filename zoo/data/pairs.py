"""(user, item) pairs as one number each, user * num_items + item, and the kinds of array that this room speaks of."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]
Booleans: TypeAlias = npt.NDArray[np.bool_]
Ids: TypeAlias = npt.NDArray[np.str_]


def contains(keys: Integers, wanted: Integers) -> Booleans:
    """Return which wanted numbers, of any shape, are among rising keys (num_keys,); the result has that shape too."""
    if not len(keys):
        return np.zeros(wanted.shape, dtype=bool)
    # Binary search: a dense (users, items) mask would not fit into memory, and a set would be asked one pair at a time.
    found: Booleans = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
    return found
