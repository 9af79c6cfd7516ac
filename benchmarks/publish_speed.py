"""Measures publishing with JLT on generated ratings, noise of the operating system; prints one line of JSON a size."""

import json
import time

import numpy as np
from cells import peak_memory
from scipy.sparse import csr_array

from zoo import JLT, Ratings


def generated(num_users: int, num_items: int, each: int) -> Ratings:
    """Binary ratings with about `each` items a user, drawn uniformly."""
    rng = np.random.default_rng(0)
    items = np.sort(rng.integers(num_items, size=(num_users, each)), axis=1)
    keep = np.concatenate([np.ones((num_users, 1), bool), np.diff(items, axis=1) > 0], axis=1)
    starts = np.concatenate([[0], np.cumsum(keep.sum(1))])
    matrix = csr_array((np.ones(int(keep.sum()), dtype=np.float32), items[keep], starts), shape=(num_users, num_items))
    return Ratings(matrix, np.arange(num_users), np.arange(num_items))


def main() -> None:
    """Three sizes, n' = 400."""
    for num_users, num_items, each in ((924, 3_916, 55), (4_000, 1_000, 50), (18_000, 16_000, 30)):
        ratings = generated(num_users, num_items, each)
        start = time.perf_counter()
        JLT(epsilon=8.0, num_components=400).publish(ratings, "book")
        seconds = time.perf_counter() - start
        sizes = {"users": num_users, "items": num_items, "ratings": ratings.num_ratings}
        print(json.dumps({**sizes, "seconds": round(seconds, 2), "peak_mib": round(peak_memory())}))


if __name__ == "__main__":
    main()
