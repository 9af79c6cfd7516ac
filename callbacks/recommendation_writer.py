"""RecommendationWriter: the recommendations of ``predict``, with the users' and items' own ids."""

from pathlib import Path
from typing import Any

import polars as pl
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from zoo.data.best_items import Recommendations
from zoo.data.ratings import Ratings
from zoo.run_folder import write_table
from zoo.wording import count_of

SCHEMA = {"user_id": pl.String, "rank": pl.Int32, "item_id": pl.String, "score": pl.Float32}


class RecommendationWriter(Callback):
    """Writes ``recommendations.parquet``: user_id, rank, item_id, score; best items first, known items left out.

    Args:
        path: Where to; null: the run folder. With several processes each writes its own part, numbered.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._parts: list[pl.DataFrame] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the path on every process, as this asks all of them."""
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
        """Put ids in the place of indexes."""
        self._parts.append(table_of(trainer.datamodule.train, outputs))  # type: ignore[attr-defined]

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the file, whole or not at all."""
        assert self.path is not None
        path = self.path
        if trainer.world_size > 1:
            path = path.with_name(f"{path.stem}-{trainer.global_rank:05d}{path.suffix}")
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pl.concat([pl.DataFrame(schema=SCHEMA), *self._parts])  # a process may have had no user
        write_table(path, table)
        self._parts.clear()
        print(f"Recommendations for {count_of(table['user_id'].n_unique(), 'user')}: {path}")


def table_of(train: Ratings, found: Recommendations) -> pl.DataFrame:
    """Recommendations with the ids of the ratings in the place of indexes: the columns of `SCHEMA`, no row for no item."""
    users, items, scores = (tensor.cpu().numpy() for tensor in found)
    count = items.shape[1]
    rows = pl.DataFrame(
        {
            "user_id": train.user_ids[users].repeat(count).tolist(),
            "rank": list(range(1, count + 1)) * len(users),
            "item_id": train.item_ids[items.ravel()].tolist(),
            # As a list, so that it is copied: kept where it is, a small array holds the memory of a batch's scores apart.
            "score": scores.ravel().tolist(),
        },
        schema=SCHEMA,
    )
    return rows.filter(pl.Series(items.ravel() >= 0))
