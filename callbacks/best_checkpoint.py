"""BestCheckpoint: one checkpoint per run, chosen on validation, and the last one to go on from."""

import shutil
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from zoo.metrics import SELECTION_METRIC


class BestCheckpoint(ModelCheckpoint):
    """Keeps ``checkpoints/best.ckpt``, the epoch of the highest validation NDCG@10, and ``checkpoints/last.ckpt``.

    Where the protocol has no validation set (``latest1``, ``random1``), or none of it is looked at (``limit_val_batches: 0``), the
    last epoch is kept as ``best``.

    Args:
        keep_last: Whether to keep the last epoch too, to go on from.
    """

    def __init__(self, keep_last: bool = True) -> None:
        super().__init__(filename="best", monitor=SELECTION_METRIC, mode="max", enable_version_counter=False)
        self.keep_last = keep_last
        self._stage = ""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder, and choose nothing where there is no validation set."""
        self._stage = stage
        if trainer.fast_dev_run:  # type: ignore[attr-defined]  # nothing is saved, so no folder is made
            return
        if trainer.log_dir is not None:
            self.dirpath = str(Path(trainer.log_dir) / "checkpoints")
        without: bool = not len(trainer.datamodule.validation.users)  # type: ignore[attr-defined]
        if without or trainer.limit_val_batches == 0:
            self.monitor = None
        super().setup(trainer, pl_module, stage)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep this epoch as the last one, whether or not it is the best."""
        super().on_train_epoch_end(trainer, pl_module)
        if self.keep_last and self.dirpath is not None:
            trainer.save_checkpoint(Path(self.dirpath) / "last.ckpt", weights_only=False)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the best epoch of the run that is resumed; one that is only scored carries nothing over."""
        if self.dirpath is None or self._stage != "fit":
            return
        best, own = Path(state_dict["best_model_path"]), Path(self.dirpath) / "best.ckpt"
        state = state_dict | {"dirpath": self.dirpath}
        if best.is_file():
            if own.resolve() != best.resolve():
                own.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(best, own)  # an own copy: a better epoch replaces it, and the old run stays as it was
            state |= {"best_model_path": str(own), "kth_best_model_path": str(own)}
            state["best_k_models"] = {str(own): state_dict["best_model_score"]}
        super().load_state_dict(state)
