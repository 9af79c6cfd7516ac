"""Measure a target's start from a CSV file of generated ratings, and again from the cache.

``python benchmarks/loading_speed.py RATINGS`` (such as 1e7, of a tenth as many users) prints one line of JSON per start. The
temporary folder takes 130 bytes per rating.
"""

import os
import sys
import tempfile
from pathlib import Path

from generated import alone, line, now, since, write_ratings

from datamodules import Evaluation, Files


def load(folder: str) -> None:
    """Measure one start."""
    began = now()
    data = Files("generated", "ratings", root=folder, evaluation=Evaluation(split="latest2"), seed=0)
    data.read_target()
    line(ratings=data.summary["target"]["ratings"], **since(began, 1))


if __name__ == "__main__":
    count = int(float(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ZOO_CACHE"] = folder
        users = lambda rng, _, rows: rng.integers(0, count // 10, rows)  # noqa: E731
        write_ratings(Path(folder) / "ratings.csv", count, max(count // 100, 1000), users)
        for _ in range(2):
            alone(load, folder)
