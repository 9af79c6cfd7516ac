"""Measure an epoch of FedGNN on each domain of Amazon, next to the time in FedGCDR's table 4.

``ZOO_DATA=data python benchmarks/federated_epochs.py [THREADS]`` prints a table row for each domain. Settings are those of the
paper's appendix C.2 with two layers. The paper's files cannot be rebuilt (docs/data.md).
"""

import sys
import warnings
from typing import Literal

import torch
from training_speed import by_trainer

from datamodules import Amazon, Evaluation
from zoo import FedGNN, Ratings
from zoo.publishers.trained import SourceRatings

CLIENTS, WIDTH = 256, 8
#: Minutes and seconds of an epoch in the paper's table 4 by domain, if it has the domain.
DOMAINS = {
    "clothing": "03:31", "books": "11:02", "cds": "04:02", "movies": "01:55", "home": "04:36", "electronics": "04:40",
    "sports": "03:41", "phones": "02:40", "toys": "01:10", "grocery": "00:50", "kindle": "02:06", "beauty": "", "games": "",
    "instruments": "", "digital_music": "", "pantry": "",
}  # fmt: skip


def seconds(ratings: Ratings, attention: Literal["paper", "gat"]) -> float:
    """Return wall-clock seconds of an epoch, the mean of some after the first."""
    method = FedGNN(num_factors=WIDTH, attention=attention)
    data = SourceRatings(ratings, batch_size=CLIENTS)
    return ratings.num_ratings / by_trainer(method, data, ratings.num_ratings, "cpu")["per_s"]


def main() -> None:
    """Measure every domain with both forms of attention."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print("| domain | clients | items | interactions | rounds | `paper`, s | `gat`, s | table 4, mm:ss |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, paper in DOMAINS.items():
        target = "cds" if name == "books" else "books"
        ratings = Amazon(target, [name], "amazon-many", evaluation=Evaluation("random2")).source(name)
        counts = (ratings.num_users, ratings.num_items, ratings.num_ratings, -(-ratings.num_users // CLIENTS))
        cells = [f"{count:,}" for count in counts] + [f"{seconds(ratings, form):.2f}" for form in ("paper", "gat")]
        print("|", " | ".join([name, *cells, paper or "-"]), "|", flush=True)


if __name__ == "__main__":
    main()
