"""Small data that several tests use."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import random_array

from zoo.data.ratings import Ratings


def rated(ratings: Ratings, users: npt.ArrayLike, items: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Which pairs hold a rating, by a dense mask; an item of -1 is padding, which nobody has rated."""
    mask = np.zeros((ratings.num_users, ratings.num_items), dtype=bool)
    mask[ratings.pairs()] = True
    found: npt.NDArray[np.bool_] = mask[np.asarray(users), np.asarray(items)] & (np.asarray(items) >= 0)
    return found


def some_ratings(users: int = 9, items: int = 7, density: float = 0.4, seed: int = 0) -> Ratings:
    matrix = random_array((users, items), density=density, format="csr", rng=np.random.default_rng(seed))
    return Ratings(matrix, np.array([f"u{i}" for i in range(users)]), np.array([f"i{i}" for i in range(items)]))


def binary() -> Ratings:
    ratings = some_ratings(density=0.5)
    ratings.matrix.data[:] = 1
    return Ratings(ratings.matrix, ratings.user_ids, ratings.item_ids, ("split random2",))
