"""StopWhenGood: stop training at a metric value."""

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback


class StopWhenGood(Callback):
    """Stop training as soon as a validation metric reaches a value.

    Args:
        monitor: Metric such as ``val/ndcg@10``; higher is better.
        least: Value at which training stops.
    """

    def __init__(self, monitor: str = "val/ndcg@10", least: float = 0.9) -> None:
        self.monitor, self.least = monitor, least

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check the metric."""
        if not trainer.sanity_checking and float(trainer.callback_metrics.get(self.monitor, 0.0)) >= self.least:
            trainer.should_stop = True
