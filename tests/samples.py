"""Small data that several tests use."""

import numpy as np
from scipy.sparse import random_array

from zoo.data.ratings import Ratings


def some_ratings(users: int = 9, items: int = 7, density: float = 0.4, seed: int = 0) -> Ratings:
    matrix = random_array((users, items), density=density, format="csr", rng=np.random.default_rng(seed))
    return Ratings(matrix, np.array([f"u{i}" for i in range(users)]), np.array([f"i{i}" for i in range(items)]))


def binary() -> Ratings:
    ratings = some_ratings(density=0.5)
    ratings.matrix.data[:] = 1
    return Ratings(ratings.matrix, ratings.user_ids, ratings.item_ids, ("split random2",))
