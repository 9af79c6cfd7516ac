"""CaseWriter: write the test metrics of every held-out case, for paired tests and slices."""

from pathlib import Path
from typing import Any

import polars as pl
import torch.distributed as dist
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from zoo.runtime.run_folder import CASES, folder_of_run, write_table


class CaseWriter(Callback):
    """Write ``test_cases.parquet`` to the run folder: one row per held-out case of the test, sorted by user and item.

    Columns: ``user_id``, ``item_id``, ``train_items`` (number of the user's training items), ``linked`` (whether a release has a
    row of the user), the metrics, ``sampled/hit_rate@5`` and so on, and for each ranking the numbers of candidates above the
    held-out item and tied with it, ``full/above`` and ``full/level``.

    Examples:
        >>> callbacks = [CaseWriter()]  # zoo.fit(method, data, callbacks=callbacks).test()
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._parts: list[pl.DataFrame] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder on every process."""
        self._folder = folder_of_run(trainer)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remove the cases of an earlier test."""
        self._parts.clear()

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,  # noqa: ANN401  what test_step returns: a dictionary of tensors
        batch: Any,  # noqa: ANN401  Lightning's signature
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Store the metrics of a batch with the ids of users and items."""
        if self._folder is None:
            return
        train = trainer.datamodule.train  # type: ignore[attr-defined]
        columns = {name: tensor.cpu().numpy() for name, tensor in outputs.items()}
        users, items = columns.pop("users"), columns.pop("items")
        ids = {"user_id": train.user_ids[users].tolist(), "item_id": train.item_ids[items].tolist()}
        self._parts.append(pl.DataFrame(ids | columns))

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Gather the cases of all processes and write the file atomically."""
        if self._folder is None:
            return
        parts = [self._parts] * trainer.world_size
        if trainer.world_size > 1:
            dist.all_gather_object(parts, self._parts)
        tables = [table for part in parts for table in part]
        if trainer.is_global_zero and tables:
            # Processes with parts of one model have the same cases.
            every = pl.concat(tables).unique(["user_id", "item_id"], keep="first", maintain_order=True)
            write_table(self._folder / CASES, every.sort("user_id", "item_id"))
