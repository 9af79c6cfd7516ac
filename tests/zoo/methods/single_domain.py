"""Short trainings of the single-domain baselines on planted tastes."""

from functools import cache
from typing import TypeVar

from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback

from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from zoo import Popularity, Recommender

Method = TypeVar("Method", bound=Recommender)


def fitted(method: Method, epochs: int, *callbacks: Callback, batch_size: int = 64) -> tuple[Method, Trainer]:
    """The method after so many epochs; what it is after 0 is what it was made as."""
    seed_everything(0)
    trainer = quiet(max_epochs=epochs, check_val_every_n_epoch=max(epochs, 1), callbacks=[*callbacks])
    trainer.fit(method, datamodule=Synthetic(num_users=120, num_items=60, seed=0, batch_size=batch_size))
    return method, trainer


def learned(trainer: Trainer) -> float:
    """NDCG@10 on the validation items, among all items."""
    return float(trainer.callback_metrics["val/full/ndcg@10"])


@cache
def popular() -> float:
    """What item counts reach on the same data; whoever learns tastes is well above."""
    return learned(fitted(Popularity(), 1)[1])
