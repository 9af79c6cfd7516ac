"""Measure a target's start from a CSV file of generated ratings, again from the cache, and from tables in memory.

``python benchmarks/loading_speed.py RATINGS TIMES [TREE]`` (such as 1e7, of a tenth as many users) prints one line for each start.
With an earlier checkout of the project as TREE the starts from files alternate between both. The temporary folder takes 130 bytes
per rating, and the cache as much.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
from generated import forget_peak, line, now, since, write_ratings

import datamodules

HERE = Path(__file__).parent.parent


def load(folder: str, start: str, tree: str) -> None:
    """Measure one start."""
    kind, given = datamodules.Files, ["generated", "ratings", (), Path(folder)]
    if start in ("polars", "pandas"):
        table = pl.read_csv(Path(folder) / "ratings.csv")
        kind, given = datamodules.Frames, [table.to_pandas() if start == "pandas" else table]
        forget_peak()
    began = now()
    data = kind(*given, evaluation=datamodules.Evaluation(split="latest2"), seed=0)
    data.read_target()
    line(tree=tree, start=start, ratings=data.summary["target"]["ratings"], **since(began, 2))


if __name__ == "__main__":
    if sys.argv[1] == "--load":
        load(*sys.argv[2:])
        sys.exit()
    count, times, others = int(float(sys.argv[1])), int(sys.argv[2]), [Path(tree) for tree in sys.argv[3:]]
    with tempfile.TemporaryDirectory() as folder:
        users = lambda rng, _, rows: rng.integers(0, count // 10, rows)  # noqa: E731
        write_ratings(Path(folder) / "ratings.csv", count, max(count // 100, 1000), users)
        for turn in range(times):
            for start in ("first", "second", "polars", "pandas"):
                for tree in (HERE, *others) if start in ("first", "second") else (HERE,):
                    own = {"PYTHONPATH": str(tree), "ZOO_CACHE": f"{folder}/cache-{turn}-{tree.name}"}
                    arguments = [sys.executable, __file__, "--load", folder, start, tree.name]
                    subprocess.run(arguments, env=os.environ | own, check=True)
