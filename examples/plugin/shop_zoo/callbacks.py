"""StopWhenGood: ends a training that is good enough."""

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback


class StopWhenGood(Callback):
    """Stops as soon as a figure of the validation reaches a value.

    Args:
        monitor: The figure, such as ``val/ndcg@10``; more is better.
        least: What is good enough.
    """

    def __init__(self, monitor: str = "val/ndcg@10", least: float = 0.9) -> None:
        self.monitor, self.least = monitor, least

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the figure."""
        if not trainer.sanity_checking and float(trainer.callback_metrics.get(self.monitor, 0.0)) >= self.least:
            trainer.should_stop = True
