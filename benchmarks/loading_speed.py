"""Measures a target's start: a CSV file of generated ratings is read, held out of and given negatives, then taken from the cache.

``python benchmarks/loading_speed.py RATINGS`` (such as 1e7, of a tenth as many users) prints one line of JSON for each of two
starts, each in a process of its own. The file and the cache lie in a temporary folder, which takes 130 bytes for each rating.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
from generated import peak_memory

from datamodules import Evaluation, Files

#: Rows that are generated and written at a time.
ROWS = 5_000_000


def write(path: Path, num_ratings: int) -> None:
    """Ratings of a tenth as many users and a hundredth as many items, some items far more popular than others."""
    users, items = num_ratings // 10, max(num_ratings // 100, 1000)
    generator = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, num_ratings, ROWS):
            count = min(ROWS, num_ratings - start)
            table = pl.DataFrame(
                {
                    "user_id": generator.integers(0, users, count),
                    "item_id": (items * generator.random(count) ** 2).astype(int),
                    "rating": generator.integers(1, 6, count),
                    "timestamp": generator.integers(10**9, 2 * 10**9, count),
                }
            )
            named = table.with_columns(user_id=pl.format("u{}", "user_id"), item_id=pl.format("i{}", "item_id"))
            named.write_csv(file, include_header=not start)


def start(folder: Path) -> None:
    """One start."""
    began = time.process_time(), time.perf_counter()
    data = Files("generated", "ratings", root=folder, evaluation=Evaluation(split="latest2"), seed=0)
    data.read_target()
    found = {"cpu_s": time.process_time() - began[0], "s": time.perf_counter() - began[1], "MiB": peak_memory()}
    print(json.dumps({"ratings": data.summary["target"]["ratings"], **{k: round(v, 1) for k, v in found.items()}}))


def main() -> None:
    """Both starts."""
    if sys.argv[1] == "start":
        return start(Path(sys.argv[2]))
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "ratings.csv", int(float(sys.argv[1])))
        for _ in range(2):
            environment = os.environ | {"ZOO_CACHE": folder}
            subprocess.run([sys.executable, __file__, "start", folder], env=environment, check=True)


if __name__ == "__main__":
    main()
