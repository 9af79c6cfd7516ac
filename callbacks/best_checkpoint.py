"""BestCheckpoint: save the best epoch by validation, and the last one to resume from."""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor

from zoo.data.metrics import SELECTION_METRIC
from zoo.methods.base import Recommender
from zoo.runtime.run_folder import atomic_write

BEST, LAST = "best.ckpt", "last.ckpt"
#: The previous best epoch, to which the last checkpoint refers until the next last checkpoint is written.
ASIDE = ".best.before.ckpt"


class WholeCheckpoints(TorchCheckpointIO):
    """Write checkpoints atomically, with no file outside of their folder."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: object = None) -> None:
        """Write a checkpoint, then rename it; `OSError` if there is no space."""
        if storage_options is not None:
            raise TypeError(f"storage_options is {storage_options!r}. A checkpoint file has none.")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(Path(path)) as temporary, temporary.open("wb") as file:
            try:
                torch.save(checkpoint, file)
            except RuntimeError as error:  # torch hides the cause of a failed write
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise


class BestCheckpoint(ModelCheckpoint):
    """Save ``checkpoints/best.ckpt``, the epoch with the highest validation NDCG@10, and ``checkpoints/last.ckpt``.

    Without validation (``latest1``, ``random1`` or ``limit_val_batches: 0``), and if scores read a source's rows without noise
    (`Recommender.own_rows_read`), ``best`` is the last epoch. A method that becomes `complete` (`OneBitMC`, an `Ensemble` with
    fixed weights) is stored then, whatever its metric. A run resumed from
    ``last.ckpt`` takes over the ``best.ckpt`` next to it if its digest is the stored one; other files are refused.

    Args:
        keep_last: Whether to save the last epoch too, to resume from.

    Examples:
        >>> callbacks = [BestCheckpoint(keep_last=False)]  # Trainer(callbacks=callbacks)
    """

    def __init__(self, keep_last: bool = True) -> None:
        super().__init__(filename="best", monitor=SELECTION_METRIC, mode="max", enable_version_counter=False)
        self.keep_last = keep_last
        self._stage = ""
        self._saving_best = False
        self._saved_complete = True  # whether the method was complete in the best checkpoint, see `check_monitor_top_k`
        self._digest: str | None = None  # of the best checkpoint, computed once
        self._from: Path | None = None  # the checkpoint that is read

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder; choose no epoch without a validation set."""
        self._stage = stage
        if trainer.fast_dev_run:  # type: ignore[attr-defined]  # nothing is saved, so no folder is made
            return
        if trainer.log_dir is not None:
            self.dirpath = str(Path(trainer.log_dir) / "checkpoints")
        without: bool = not len(trainer.datamodule.validation.users)  # type: ignore[attr-defined]
        reads_own_rows = isinstance(pl_module, Recommender) and bool(pl_module.own_rows_read(pl_module.data))
        if without or reads_own_rows or trainer.limit_val_batches == 0:
            self.monitor = None
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:  # not a user's own
            trainer.strategy.checkpoint_io = WholeCheckpoints()
        super().setup(trainer, pl_module, stage)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save this epoch as the last one."""
        super().on_train_epoch_end(trainer, pl_module)
        if self.keep_last and self.dirpath is not None:
            trainer.save_checkpoint(Path(self.dirpath) / LAST, weights_only=False)
            if trainer.is_global_zero:
                (Path(self.dirpath) / ASIDE).unlink(missing_ok=True)

    def _save_checkpoint(self, trainer: Trainer, filepath: str) -> None:
        """Save the best epoch; keep the previous one until the next last checkpoint is written."""
        best = Path(filepath)
        if trainer.is_global_zero and best.is_file() and best.with_name(LAST).is_file():
            _copy_aside(best, new_file=isinstance(trainer.strategy.checkpoint_io, WholeCheckpoints))
        self._saving_best, self._digest, self._saved_complete = True, None, _is_complete(trainer)
        try:
            super()._save_checkpoint(trainer, filepath)
        finally:
            self._saving_best = False

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Whether this epoch is the best so far: a complete method is better than one that still lacks noise or members."""
        first = current is not None and _is_complete(trainer) and not self._saved_complete
        return first or super().check_monitor_top_k(trainer, current)

    def state_dict(self) -> dict[str, Any]:
        """Return Lightning's state and the digest of the best checkpoint; None inside that checkpoint, and without one."""
        best, state = Path(self.best_model_path), {**super().state_dict(), "complete": self._saved_complete}
        if self._saving_best or not self.best_model_path or not best.is_file():
            return {**state, "best_digest": None}
        if self._digest is None:
            self._digest = digest_of(best)
        return {**state, "best_digest": self._digest}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Remember the file, to search next to it."""
        self._from = None if trainer.ckpt_path is None else Path(trainer.ckpt_path)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume with the best epoch of the earlier run; a run that only scores takes nothing over."""
        if self.dirpath is None or self._stage != "fit":
            return
        state = state_dict | {"dirpath": self.dirpath}
        self._saved_complete = state.pop("complete", True)
        if state_dict["best_model_path"]:
            best, own = self._best_of(state_dict), Path(self.dirpath) / BEST
            if own.resolve() != best.resolve():
                own.parent.mkdir(parents=True, exist_ok=True)
                with atomic_write(own) as temporary:
                    shutil.copyfile(best, temporary)  # the earlier run stays unchanged
            state |= {"best_model_path": str(own), "kth_best_model_path": str(own)}
            state["best_k_models"] = {str(own): state_dict["best_model_score"]}
        else:  # Lightning would remove the files that these name
            state |= {"kth_best_model_path": "", "best_k_models": {}, "last_model_path": ""}
        super().load_state_dict(state)

    def _best_of(self, state: dict[str, Any]) -> Path:
        """Return the best epoch of a checkpoint; `ValueError` if it is absent or another file."""
        source = self._from or Path(state["best_model_path"])
        if "best_digest" not in state:
            raise ValueError(f"{source} has no digest of its best.ckpt (before 0.3). Train anew, or test best.ckpt.")
        if (digest := state["best_digest"]) is None:
            return source  # it is the best epoch itself
        candidates = [source.with_name(BEST), source.with_name(ASIDE), Path(state["best_model_path"])]
        existing = [path for path in dict.fromkeys(candidates) if path.is_file()]
        for path in existing:
            if digest_of(path) == digest:
                return path
        found = f"{existing[0]} is another one" if existing else f"{source.parent} has none"
        raise ValueError(f"{source} belongs to a best.ckpt of SHA-256 {digest[:12]}..., but {found}. Restore it.")


def _is_complete(trainer: Trainer) -> bool:
    return bool(getattr(trainer.lightning_module, "complete", True))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy_aside(best: Path, *, new_file: bool) -> None:
    """Keep the best checkpoint under a second name: a link if the next one is a new file, else a copy."""
    aside = best.with_name(ASIDE)
    aside.unlink(missing_ok=True)
    if new_file:
        try:
            os.link(best, aside)
            return
        except OSError:  # a file system without links
            pass
    shutil.copyfile(best, aside)
