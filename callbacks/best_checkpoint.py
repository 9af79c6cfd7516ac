"""BestCheckpoint: one checkpoint per run, chosen on validation."""

from pathlib import Path

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from zoo.recommender import SELECTION_METRIC


class BestCheckpoint(ModelCheckpoint):
    """Keeps ``checkpoints/best.ckpt``, the epoch of the highest validation NDCG@10, and ``checkpoints/last.ckpt``.

    Where the protocol has no validation set (``latest1``), the last epoch is kept as ``best``.

    Args:
        save_last: Whether to keep the last epoch too, to go on from.
    """

    def __init__(self, save_last: bool = True) -> None:
        super().__init__(
            filename="best", monitor=SELECTION_METRIC, mode="max", save_last=save_last, enable_version_counter=False
        )

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder, and choose nothing where there is no validation set."""
        if trainer.log_dir is not None and self.dirpath is None:
            self.dirpath = str(Path(trainer.log_dir) / "checkpoints")
        if not trainer.datamodule.val_dataloader():  # type: ignore[attr-defined]
            self.monitor = None
        super().setup(trainer, pl_module, stage)
