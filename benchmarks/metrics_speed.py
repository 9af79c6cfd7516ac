"""Measures ranking metrics on 100,000 users x 100 candidates, one thread; prints one line of JSON."""

import json
import time

import torch
from generated import peak_memory

from zoo.data.metrics import RankingMetrics, rank_counts


def main() -> None:
    """Five repetitions, the fastest and the slowest."""
    torch.set_num_threads(1)
    positive, others = torch.rand(100_000), torch.rand(100_000, 99)
    seconds = []
    for _ in range(5):
        metric = RankingMetrics(ks=(5, 10))
        start = time.perf_counter()
        metric.update(*rank_counts(positive, others))
        metric.compute()
        seconds.append(time.perf_counter() - start)
    best, worst = min(seconds), max(seconds)
    print(
        json.dumps({"cases": 100_000, "candidates": 100, "best_s": best, "worst_s": worst, "peak_mib": peak_memory()})
    )


if __name__ == "__main__":
    main()
