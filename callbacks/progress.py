"""Progress: the progress bar of a run, kept apart from its tables."""

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar, TQDMProgressBar
from rich import get_console


class _WithoutNumber:
    """A bar of Lightning without the number of the run folder."""

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return the metrics next to the bar."""
        shown: dict[str, Any] = super().get_metrics(trainer, pl_module)  # type: ignore[misc]  # of the bar
        shown.pop("v_num", None)
        return shown


class ProgressBar(_WithoutNumber, RichProgressBar):
    """The bar of a terminal."""


class NotebookBar(_WithoutNumber, TQDMProgressBar):
    """The bar of a notebook."""


def with_own_bar(trainer: Trainer) -> Trainer:
    """Replace the trainer's default bar by this one, or in a notebook by that of tqdm; a user's own bar stays.

    Without ipywidgets rich shows nothing in a notebook until a bar is removed, and then an empty line; tqdm shows text.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # Lightning's own list
    kind = NotebookBar if get_console().is_jupyter else ProgressBar
    callbacks[:] = [kind() if type(callback) is RichProgressBar else callback for callback in callbacks]
    return trainer


def end_bar(trainer: Trainer) -> None:
    """Stop the bar, so that later output is below it."""
    bar = trainer.progress_bar_callback
    if isinstance(bar, RichProgressBar) and bar.progress is not None:
        bar.progress.stop()
