"""Epoch averages: weighted means of batch metrics, at the cost of one addition per step."""

from typing import Any

import torch
from pytorch_lightning import LightningModule
from torch import Tensor

from zoo.data.batch_types import Batch


class DivergedError(ArithmeticError):
    """Training diverged: its loss is NaN."""


class EpochMeans(LightningModule):
    """Sum metrics over an epoch and log their weighted means at its end; Lightning's per-batch ``log`` is slow.

    Subclasses that override its hooks must call them.
    """

    lr: float | None = None  # step size of Adam; None for a closed form

    def __init__(self) -> None:
        super().__init__()
        self._means: dict[str, tuple[Tensor | float, float]] = {}  # of the epoch at hand: weighted sum, and weights
        self._batch_rows = 1  # of the batch at hand

    def on_train_start(self) -> None:
        """Discard the sums of an interrupted epoch."""
        self._means.clear()

    def log_mean(self, name: str, value: Tensor | float, weight: float | None = None) -> None:
        """Log a batch metric as its weighted mean over the epoch; the default weight is the number of rows in the batch."""
        weight = self._batch_rows if weight is None else weight
        total, weights = self._means.get(name, (0.0, 0.0))
        value = value.detach() if isinstance(value, Tensor) else value
        self._means[name] = total + value * weight, weights + weight

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Count the rows of the batch; a batch without rows, which only counts time, has weight 1."""
        self._batch_rows = max(len(batch.users), 1)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:  # noqa: ANN401  Lightning's signature
        """Log the means in the last batch of the epoch, so that the progress bar shows them."""
        if self.trainer.is_last_batch:
            self._log_means()

    def on_train_epoch_end(self) -> None:
        """Log the means if the epoch ended before its last batch."""
        self._log_means()

    def _log_means(self) -> None:
        """Log the means of the epoch; a NaN loss stops the run on all processes."""
        if not self._means:  # on all processes: each has as many batches
            return
        lost = [
            name
            for name, (total, weight) in self._means.items()
            if name.endswith("loss") and weight and torch.as_tensor(total).isnan().any()
        ]
        if self.trainer.strategy.reduce_boolean_decision(bool(lost), all=False):
            lr = "" if self.lr is None else f" a smaller --model.lr (it is {self.lr:g}),"
            which = ", ".join(lost) or "A loss of another process"
            raise DivergedError(
                f"{which} is NaN in epoch {self.current_epoch + 1}: {type(self).__name__} diverged. Set{lr} a larger "
                "--data.batch_size."
            )
        for name, (total, weight) in self._means.items():
            shown = name == "train/loss"
            self.log(name, total / weight, prog_bar=shown, on_step=False, on_epoch=True, batch_size=1, sync_dist=True)
        self._means.clear()
