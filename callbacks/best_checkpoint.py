"""BestCheckpoint: one checkpoint per run, chosen on validation."""

import shutil
from pathlib import Path
from typing import Any

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
        self._fitting = False

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the best epoch of the run that is resumed; a checkpoint that is only scored carries nothing over."""
        best = Path(state_dict["best_model_path"])
        if self.dirpath is None or not self._fitting:
            return
        if not best.is_file():
            super().load_state_dict(state_dict | {"dirpath": self.dirpath})
            return
        own = Path(self.dirpath) / best.name
        if own.resolve() != best.resolve():
            own.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(best, own)  # an own copy: a better epoch replaces it, and the old run stays as it was
        paths = {"dirpath": self.dirpath, "best_model_path": str(own), "kth_best_model_path": str(own)}
        scores = dict.fromkeys([str(own)], state_dict["best_model_score"])
        super().load_state_dict(state_dict | paths | {"best_k_models": scores, "last_model_path": ""})

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder, and choose nothing where there is no validation set."""
        self._fitting = stage == "fit"
        if trainer.log_dir is not None and self.dirpath is None:
            self.dirpath = str(Path(trainer.log_dir) / "checkpoints")
        if not trainer.datamodule.val_dataloader():  # type: ignore[attr-defined]
            self.monitor = None
        super().setup(trainer, pl_module, stage)
