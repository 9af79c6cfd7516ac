"""Separate the effects of a smaller overlap: fewer users to learn from, fewer tested users with a row (docs/results/overlap).

``python benchmarks/overlap_effects.py OUT.csv [SEEDS]``: Amazon Books <- Movies, cold start, with the rows and settings of
configs/benchmarks/overlap.yaml. Each release has the rows of all cold-start users, validation and test, and of a share of the users
with a history at the target. Finished lines of OUT.csv are not repeated.
"""

import csv
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
from bridge_alternatives import data_of, read
from tqdm import tqdm

import zoo
from zoo.benchmark.fit import train_and_test
from zoo.benchmark.grid import Benchmark, Row
from zoo.benchmark.grid_file import read_benchmark
from zoo.data.arrays import Ids
from zoo.publishers.controls import Partial
from zoo.publishers.plaintext import Plaintext

SHARES = (1.0, 0.5, 0.25, 0.1)
FIGURES = {"HR@10": "test/sampled/hit_rate@10", "NDCG@10, all items": "test/full/ndcg@10"}


class KeepTested(Partial):
    """`Partial` of the users who are not tested; the tested ones keep their rows."""

    def __init__(self, share: float, tested: Ids) -> None:
        super().__init__(Plaintext(), share)
        self.tested = tested

    def _kept(self, user_ids: Ids) -> npt.NDArray[np.int64]:
        tested = np.isin(user_ids, self.tested)
        others = np.flatnonzero(~tested)
        return np.sort(np.concatenate([np.flatnonzero(tested), others[super()._kept(user_ids[others])]]))


def measure(grid: Benchmark, row: Row, seed: int, share: float, folder: Path) -> dict[str, float]:
    """Train one row of the grid on the release of a share, and return the figures of its test."""
    task = read(seed)
    tested = task.user_ids[np.diff(task.train.indptr) == 0]
    zoo.publish(KeepTested(share, tested), data_of(seed, folder), folder / "movies")
    releases = json.dumps({"movies": str(folder / "movies")})
    train_and_test([*grid.arguments(row, seed), "--publisher", "null", "--data.releases", releases], folder / "run")
    found = json.loads((folder / "run" / "metrics.json").read_text())["metrics"]
    return {figure: found[key] for figure, key in FIGURES.items()}


def main(out: Path, seeds: int) -> None:
    """Measure every method, share and seed that the file lacks."""
    grid = read_benchmark(Path("configs/benchmarks/overlap.yaml"))
    rows = [row for row in grid.rows() if row.task == "cold" and row.release == "Plaintext"]
    done = (
        {(line["row"], line["seed"], line["share"]) for line in csv.DictReader(out.open())} if out.exists() else set()
    )
    with out.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(["row", "seed", "share", *FIGURES])
        for seed in tqdm(range(seeds)):
            for row in rows:
                for share in SHARES:
                    if (row.system, str(seed), str(share)) not in done:
                        with tempfile.TemporaryDirectory() as folder:
                            found = measure(grid, row, seed, share, Path(folder))
                        writer.writerow([row.system, seed, share, *(f"{value:.6f}" for value in found.values())])
                        file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3)
