"""Measure fold-in against retraining: HR@10 on each user's newest item of MovieLens 100K after new ratings.

A tenth of the users is new: training has seen none of their ratings. Of the others the newest tenth of the ratings is new. Each
user's last item is the test item. A row compares three ways to use the new ratings: not at all (``stale``, popular items for new
users), as histories (``folded``), and in a new training (``retrained``). An item is recommended only after it was trained on.

Run: ``python benchmarks/fold_in.py > docs/serving/fold_in.csv`` (needs ``ZOO_DATA``; minutes on one core).
"""

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import polars as pl

import zoo
from datamodules import Evaluation, Frames, MovieLens100K

SEEDS, SHARE, K = (0, 1, 2), 0.1, 10
#: Methods, with the number of epochs and the batch size.
METHODS: dict[str, tuple[Callable[[], zoo.Recommender], int, int]] = {
    "IALS": (lambda: zoo.IALS(num_factors=64, unobserved_weight=0.1, l2=0.003), 15, 128),
    "EASE": (lambda: zoo.EASE(l2=300.0), 1, 128),
    "UserKNN": (zoo.UserKNN, 1, 128),
    "BPR": (lambda: zoo.BPR(l2=0.05, lr=3e-3), 30, 2048),
    "LowRank": (lambda: zoo.LowRank(num_directions=16), 1, 128),
    "DMF": (lambda: zoo.DMF(input_dropout=0.5, item_dropout=0.5), 20, 128),
}


def split(table: pl.DataFrame, seed: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, set[str]]:
    """Return old ratings, new ratings, one test rating per user, and the new users."""
    ordered = table.sort("user_id", "timestamp", "item_id")
    place, count = pl.int_range(pl.len()).over("user_id"), pl.len().over("user_id")
    users = np.array(ordered["user_id"].unique().sort().to_list())
    strangers = set(np.random.default_rng(seed).choice(users, int(SHARE * len(users)), replace=False).tolist())
    test, rest = ordered.filter(place == count - 1), ordered.filter(place < count - 1)
    late = (place >= (1 - SHARE) * count) | pl.col("user_id").is_in(list(strangers))
    return rest.filter(~late), rest.filter(late), test, strangers


def trained(name: str, table: pl.DataFrame, seed: int) -> Any:  # noqa: ANN401  a predictor
    """Return the predictor of a training on a table, without held-out items."""
    make, epochs, batch_size = METHODS[name]
    method = make()
    reads = bool(method.accepted_releases)  # it gets the release of a source that publishes nothing
    data = Frames(table, {"none": table} if reads else None, evaluation=Evaluation("none"), batch_size=batch_size)
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "runs": tempfile.mkdtemp()}
    publisher = zoo.Nothing() if reads else None
    return zoo.load(zoo.fit(method, data, publisher=publisher, max_epochs=epochs, seed=seed, **quiet))


def hits(found: pl.DataFrame, test: Mapping[str, str]) -> dict[str, bool]:
    """Return whether each user's test item is in the list."""
    lists = dict(found.group_by("user_id").agg("item_id").iter_rows())
    return {user: item in lists.get(user, ()) for user, item in test.items()}


def rows(name: str, table: pl.DataFrame, seed: int) -> Sequence[tuple[object, ...]]:
    """Return the figures of a method and seed, for known and new users."""
    old, new, last, strangers = split(table, seed)
    test = dict(last.select("user_id", "item_id").iter_rows())
    histories = dict(new.group_by("user_id").agg("item_id").iter_rows())
    users = sorted(histories)
    before, after = (trained(name, ratings, seed) for ratings in (old, pl.concat([old, new])))
    found = {
        "stale": hits(before.recommend(users, K, seen=histories, unknown="popular"), test),
        "folded": hits(before.recommend(users, K, histories=histories), test),
        "retrained": hits(after.recommend(users, K), test),
    }
    groups = {"known": [u for u in users if u not in strangers], "new": [u for u in users if u in strangers]}
    return [
        (name, seed, kind, len(own), *(f"{np.mean([hit[u] for u in own]):.4f}" for hit in found.values()))
        for kind, own in groups.items()
    ]


def main() -> None:
    """Print a CSV file."""
    table = MovieLens100K().read("ratings")
    print("method,seed,users,number,stale,folded,retrained")
    for name in sys.argv[1:] or METHODS:
        for seed in SEEDS:
            with redirect_stdout(sys.stderr):
                found = rows(name, table, seed)
            for row in found:
                print(*row, sep=",", flush=True)


if __name__ == "__main__":
    main()
