"""Measure ranking metrics on 100,000 users x 100 candidates, one thread; print one line of JSON."""

import torch
from generated import line, now, since

from zoo.data.metrics import RankingMetrics, rank_counts

if __name__ == "__main__":
    torch.set_num_threads(1)
    positive, others = torch.rand(100_000), torch.rand(100_000, 99)
    seconds = []
    for _ in range(5):
        metric, start = RankingMetrics(ks=(5, 10)), now()
        metric.update(*rank_counts(positive, others))
        metric.compute()
        seconds.append(since(start, 4)["s"])
    line(cases=100_000, candidates=100, best_s=min(seconds), worst_s=max(seconds))
