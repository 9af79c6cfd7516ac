"""RecommendationWriter: write the recommendations of ``predict`` with the ids of users and items."""

from pathlib import Path
from typing import Any

import polars as pl
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from zoo.data.best_items import SCHEMA, Recommendations, table_of
from zoo.runtime.run_folder import write_table
from zoo.runtime.suggestions import count_of


class RecommendationWriter(Callback):
    """Write ``recommendations.parquet``: user_id, rank, item_id, score; best items first, without known items.

    Args:
        path: File; null: in the run folder. Each of several processes writes its own numbered part.

    Examples:
        >>> callbacks = [RecommendationWriter(Path("best.parquet"))]  # Trainer(callbacks=callbacks).predict(method, data)
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._parts: list[pl.DataFrame] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the path on every process."""
        if stage == "predict" and self.path is None:
            self.path = Path(trainer.log_dir or ".") / "recommendations.parquet"

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Recommendations,
        batch: Any,  # noqa: ANN401  Lightning's signature
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Store a batch with ids instead of indices."""
        self._parts.append(table_of(trainer.datamodule.train, outputs))  # type: ignore[attr-defined]

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the file atomically."""
        assert self.path is not None
        path = self.path
        if trainer.world_size > 1:
            path = path.with_name(f"{path.stem}-{trainer.global_rank:05d}{path.suffix}")
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pl.concat([pl.DataFrame(schema=SCHEMA), *self._parts])  # a process may have no user
        write_table(path, table)
        self._parts.clear()
        print(f"Recommendations for {count_of(table['user_id'].n_unique(), 'user')}: {path}")
