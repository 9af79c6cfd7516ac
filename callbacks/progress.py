"""Progress: the bar of a run, without what says nothing, and out of the way of the tables."""

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar


class ProgressBar(RichProgressBar):
    """Lightning's bar without the number of the run folder."""

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """What stands beside the bar."""
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)
        shown.pop("v_num", None)
        return shown


def with_own_bar(trainer: Trainer) -> Trainer:
    """The trainer, with this bar where it has Lightning's own by default; one that was asked for stays."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # Lightning's own list
    callbacks[:] = [ProgressBar() if type(callback) is RichProgressBar else callback for callback in callbacks]
    return trainer


def end_bar(trainer: Trainer) -> None:
    """End the bar that is on the terminal, so that what is printed next stands below it, and it is not drawn again."""
    bar = trainer.progress_bar_callback
    if isinstance(bar, RichProgressBar) and bar.progress is not None:
        bar.progress.stop()
