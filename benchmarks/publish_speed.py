"""Measures publishing with JLT on generated ratings, noise of the operating system; prints one line of JSON a size."""

import json
import time

from generated import generated, peak_memory

from zoo import JLT


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
