"""Measure evaluation: held-out items of generated users ranked by BPR, among candidates and among all items.

``python benchmarks/evaluation_speed.py USERS ITEMS [THREADS] [gpu]`` prints one line of JSON: wall-clock and CPU time of the test
of all users among candidates and among all items, of scoring all items alone, of reading the vectors alone, and peak memory after
each; with ``gpu``, on the first CUDA device.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from generated import QUIET, line, now, peak_memory, since
from pytorch_lightning import LightningDataModule, Trainer
from scipy.sparse import csr_array
from torch import Tensor

from zoo import BPR
from zoo.data.held_out_cases import EvaluationBatches, HeldOutCases
from zoo.data.ratings import Ratings
from zoo.data.rows import SparseRows
from zoo.data.training_batches import Share

RATINGS_PER_USER, CANDIDATES = 20, 99


class Generated(LightningDataModule):
    """Users with random items and one held-out item each."""

    signs, sampled_ranking, ks, ties, average, top_k, users = False, True, (5, 10), "expected", "cases", 10, "own"
    releases = links = release_paths = digests = {}  # noqa: RUF012

    def __init__(self, num_users: int, num_items: int, full: bool) -> None:
        super().__init__()
        generator = np.random.default_rng(0)
        items = generator.integers(0, num_items, (num_users, RATINGS_PER_USER))
        rows = np.repeat(np.arange(num_users), RATINGS_PER_USER)
        matrix = csr_array((np.ones(items.size), (rows, items.ravel())), shape=(num_users, num_items))
        matrix.data[:] = 1
        self.train = Ratings(matrix, np.arange(num_users).astype(str), np.arange(num_items).astype(str))
        self.full_ranking: Any = full
        self.sizes = {"num_users": num_users, "num_items": num_items, "sources": {}}
        positives = torch.from_numpy(generator.integers(0, num_items, num_users))
        others = torch.from_numpy(generator.integers(0, num_items, (num_users, CANDIDATES), dtype=np.int32))
        rows = SparseRows.from_ratings(self.train)
        self.cases = HeldOutCases(torch.arange(num_users), positives, others, torch.ones(num_users), rows)

    def test_dataloader(self) -> EvaluationBatches[Any]:
        """Return all cases, 512 at a time."""
        return EvaluationBatches(len(self.cases.users), 512, self.cases.batch, Share())


def seconds(work: Callable[[Tensor], object], parts: Sequence[Tensor]) -> dict[str, float]:
    """Return the seconds of sequential work on parts."""
    start = now()
    for part in parts:
        work(part)
    return since(start)


def main() -> None:
    """Measure both kinds of ranking."""
    warnings.filterwarnings("ignore")
    accelerator = "gpu" if sys.argv[-1] == "gpu" else "cpu"
    num_users, num_items, *threads = map(int, sys.argv[1 : len(sys.argv) - (accelerator == "gpu")])
    torch.set_num_threads(*threads or [1])
    found: dict[str, object] = {}
    for kind in ("sampled", "full"):
        method, data = BPR(), Generated(num_users, num_items, kind == "full")
        trainer = Trainer(accelerator=accelerator, devices=1, **QUIET)
        start = now()
        trainer.test(method, datamodule=data, verbose=False)
        found[kind] = since(start)
        found[f"{kind}, MiB"] = peak_memory()
    if accelerator == "gpu":  # the trainer has moved it back
        method.cuda()
    parts = torch.arange(num_users, device=method.device).split(512)
    candidates = data.cases.candidates.to(method.device)
    with torch.inference_mode():
        found["scores alone"] = seconds(method.score_all, parts)
        vectors = method.factors.items.weight
        found["candidates' vectors alone"] = seconds(lambda users: vectors[candidates[users].long()], parts)
    line(users=num_users, items=num_items, **found)


if __name__ == "__main__":
    main()
