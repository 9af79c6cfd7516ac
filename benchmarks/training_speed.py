"""Measure training on MovieLens 100K: epochs of batches alone, of a bare loop, and of the trainer.

``python benchmarks/training_speed.py METHOD BATCH_SIZE [THREADS] [gpu] [KEY=VALUE ...]`` prints one line of JSON. Rates are
observed pairs per second of CPU and wall-clock time, after the first epoch; with ``gpu``, on the first CUDA device.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from generated import QUIET, line, now
from pytorch_lightning import Trainer
from scipy.sparse import csr_array

import zoo
from zoo.data.ratings import Ratings
from zoo.data.training_batches import training_batches
from zoo.publishers.trained import SourceRatings

EPOCHS = 8


def ratings() -> Ratings:
    """Return all of MovieLens 100K as implicit feedback."""
    table = pl.read_csv(Path(os.environ["ZOO_DATA"]) / "ml-100k" / "ratings.csv.gz")
    users, user = np.unique(table["user_id"].cast(pl.String).to_numpy().astype(np.str_), return_inverse=True)
    items, item = np.unique(table["item_id"].cast(pl.String).to_numpy().astype(np.str_), return_inverse=True)
    return Ratings(csr_array((np.ones(len(user)), (user, item))), users, items)


def rates(pairs: int, epoch: Callable[[], object]) -> dict[str, int]:
    """Return pairs per second of CPU and wall-clock time, over some epochs after the first."""
    epoch()
    started = now()
    for _ in range(EPOCHS):
        epoch()
    passed = [end - start for start, end in zip(started, now(), strict=True)]
    return {"per_cpu_s": round(EPOCHS * pairs / passed[0]), "per_s": round(EPOCHS * pairs / passed[1])}


def profile(batches: Any, parts: dict[str, Callable[[Any], Any]]) -> dict[str, int]:  # noqa: ANN401
    """Return microseconds of each part of a step; a part takes the result of the one before, the first a batch."""
    spent, steps = dict.fromkeys(["batches", *parts], 0.0), 0
    for epoch in range(EPOCHS + 1):
        last = now()[1]
        for batch in batches:
            made, steps = batch, steps + 1
            for name in ("batches", *parts):
                made = parts[name](made) if name in parts else made
                passed, last = now()[1] - last, now()[1]
                spent[name] += passed if epoch else 0
    return {name: round(1e6 * seconds * (EPOCHS + 1) / EPOCHS / steps) for name, seconds in spent.items()}


def by_trainer(method: Any, data: SourceRatings, pairs: int, accelerator: str) -> dict[str, int]:  # noqa: ANN401  any recommender
    """Return the same for the trainer's epochs, from the end of the first to the end of the last."""
    ends: list[tuple[float, float]] = []
    method.on_train_epoch_start = lambda: ends.append(now())
    quiet = {**QUIET, "limit_val_batches": 0, "num_sanity_val_steps": 0}
    Trainer(accelerator=accelerator, devices=1, max_epochs=EPOCHS + 2, **quiet).fit(method, datamodule=data)
    cpu, clock = (last - first for first, last in zip(ends[1], ends[-1], strict=True))
    return {"per_cpu_s": round(EPOCHS * pairs / cpu), "per_s": round(EPOCHS * pairs / clock)}


def main() -> None:
    """Measure one method."""
    warnings.filterwarnings("ignore")
    name, batch_size, *rest = sys.argv[1:]
    threads = int(rest.pop(0)) if rest and rest[0].isdecimal() else 1
    torch.set_num_threads(threads)
    accelerator = rest.pop(0) if rest[:1] == ["gpu"] else "cpu"
    settings = {key: json.loads(value) for key, value in (word.split("=", 1) for word in rest)}
    made, data = getattr(zoo, name)(**settings), ratings()
    trainer = by_trainer(made, SourceRatings(data, batch_size=int(batch_size)), data.num_ratings, accelerator)
    if accelerator == "gpu":  # the trainer has moved it back
        made.cuda()
    batches = training_batches(data, made, int(batch_size), 0, lambda: 0, device=made.device)
    optimiser = made.configure_optimizers()

    def bare() -> None:
        for batch in batches:
            optimiser.zero_grad()
            made.step(batch)["loss"].backward()
            optimiser.step()

    def zeroed(batch: Any) -> Any:  # noqa: ANN401  a batch
        optimiser.zero_grad()
        return batch

    parts = {
        "zero_grad": zeroed,
        "step": lambda batch: made.step(batch)["loss"],
        "backward": lambda loss: loss.backward(),
        "optimiser": lambda _: optimiser.step(),
    }
    facts = {"method": name, "settings": settings, "batch_size": int(batch_size), "threads": threads}
    found = {"batches": rates(data.num_ratings, lambda: list(batches)), "bare": rates(data.num_ratings, bare)}
    line(**facts, accelerator=accelerator, **found, trainer=trainer, step_us=profile(batches, parts))


if __name__ == "__main__":
    main()
