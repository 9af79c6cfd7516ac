"""BestCheckpoint: one checkpoint per run, chosen on validation, and the last one to go on from."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from zoo.data.metrics import SELECTION_METRIC
from zoo.runtime.run_folder import atomic_write

BEST, LAST = "best.ckpt", "last.ckpt"
#: The best epoch that the last checkpoint names, from when a better one is written until the next last checkpoint is.
ASIDE = ".best.before.ckpt"


class WholeCheckpoints(TorchCheckpointIO):
    """Gives checkpoints their place whole or not at all; nothing of one is written anywhere else than beside it."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Write it, then give it its name; `OSError` where there is no room. There are no options."""
        if storage_options is not None:
            raise TypeError(
                f"A checkpoint is written to a file, which has no storage options; got {storage_options!r}."
            )
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(Path(path)) as temporary, temporary.open("wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # torch's account of a write that failed does not say why
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise


class BestCheckpoint(ModelCheckpoint):
    """Keeps ``checkpoints/best.ckpt``, the epoch of the highest validation NDCG@10, and ``checkpoints/last.ckpt``.

    Without validation (``latest1``, ``random1`` or ``limit_val_batches: 0``), the last epoch is kept as ``best``. A run resumed
    from ``last.ckpt`` takes over the ``best.ckpt`` next to it if its digest is the one that was saved; another one is refused.

    Args:
        keep_last: Whether to keep the last epoch too, to resume from.
    """

    def __init__(self, keep_last: bool = True) -> None:
        super().__init__(filename="best", monitor=SELECTION_METRIC, mode="max", enable_version_counter=False)
        self.keep_last = keep_last
        self._stage = ""
        self._saving_best = False
        self._digest: str | None = None  # of the best checkpoint, once it was asked for
        self._from: Path | None = None  # the checkpoint that is being read

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
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # and none that somebody chose
            trainer.strategy.checkpoint_io = WholeCheckpoints()
        super().setup(trainer, pl_module, stage)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep this epoch as the last one, whether or not it is the best."""
        super().on_train_epoch_end(trainer, pl_module)
        if self.keep_last and self.dirpath is not None:
            trainer.save_checkpoint(Path(self.dirpath) / LAST, weights_only=False)
            if trainer.is_global_zero:
                (Path(self.dirpath) / ASIDE).unlink(missing_ok=True)

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        """Save the best epoch; until the next last checkpoint is written, the one that the old one names is kept aside."""
        best = Path(filepath)
        if trainer.is_global_zero and best.is_file() and best.with_name(LAST).is_file():
            _kept_aside(best, written_anew=isinstance(trainer.strategy.checkpoint_io, WholeCheckpoints))
        self._saving_best, self._digest = True, None
        try:
            super()._save_checkpoint(trainer, filepath)
        finally:
            self._saving_best = False

    def state_dict(self) -> dict[str, Any]:
        """Lightning's own, and the digest of the best checkpoint; None in that one itself, and before there is one."""
        best = Path(self.best_model_path)
        if self._saving_best or not self.best_model_path or not best.is_file():
            return {**super().state_dict(), "best_digest": None}
        if self._digest is None:
            self._digest = digest_of(best)
        return {**super().state_dict(), "best_digest": self._digest}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Remember which file it is, to look beside it."""
        self._from = None if trainer.ckpt_path is None else Path(trainer.ckpt_path)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the best epoch of the run that is resumed; one that is only scored carries nothing over."""
        if self.dirpath is None or self._stage != "fit":
            return
        state = state_dict | {"dirpath": self.dirpath}
        if state_dict["best_model_path"]:
            best, own = self._best_of(state_dict), Path(self.dirpath) / BEST
            if own.resolve() != best.resolve():
                own.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(own) as temporary:
                    shutil.copyfile(best, temporary)  # a better epoch replaces it, and the old run stays as it was
            state |= {"best_model_path": str(own), "kth_best_model_path": str(own)}
            state["best_k_models"] = {str(own): state_dict["best_model_score"]}
        super().load_state_dict(state)

    def _best_of(self, state: dict[str, Any]) -> Path:
        """The best epoch that a checkpoint was saved with; a ValueError where it is not there, or another one is."""
        source = self._from or Path(state["best_model_path"])
        if "best_digest" not in state:
            raise ValueError(
                f"{source} was saved before version 0.3 and does not say which best.ckpt is its own. Train anew, or test best.ckpt."
            )
        if (digest := state["best_digest"]) is None:
            return source  # it is the best epoch itself
        beside = [source.with_name(BEST), source.with_name(ASIDE), Path(state["best_model_path"])]
        there = [path for path in dict.fromkeys(beside) if path.is_file()]
        for path in there:
            if digest_of(path) == digest:
                return path
        found = f"{there[0]} is another one" if there else f"there is none in {source.parent}"
        raise ValueError(
            f"{source} was saved beside a best.ckpt of SHA-256 {digest[:12]}..., and {found}. Put the run's own back."
        )


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kept_aside(best: Path, *, written_anew: bool) -> None:
    """A second name for the best checkpoint, or a copy where the file itself may be written into."""
    aside = best.with_name(ASIDE)
    aside.unlink(missing_ok=True)
    if written_anew:
        try:
            os.link(best, aside)
        except OSError:  # a file system without links
            shutil.copyfile(best, aside)
    else:
        shutil.copyfile(best, aside)
