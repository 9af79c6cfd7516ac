"""Short trainings of PPGenCDR, on generators that are made by hand."""

from typing import Any

import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from datamodules import CrossDomainDataModule
from tests.zoo.methods.quiet_trainer import quiet
from zoo import PPGenCDR, Publisher, Ratings
from zoo.nn.generator import RowGenerator
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.record.record import unprotected_record
from zoo.publishers.base import PlannedRelease, PublicSizes

SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}
TINY: dict[str, Any] = {"dims": (8, 4), "encoder_dims": (6,)}
STILL: dict[str, Any] = TINY | {"source_dropout": 0.0, "input_dropout": 0.0, "item_dropout": 0.0}


class ByHand(Publisher):
    """A generator that is drawn or put together, and not trained."""

    def tensors(self, source: Ratings) -> dict[str, Tensor]:
        """Of a generator with random weights, larger than those that training begins from."""
        torch.manual_seed(source.num_users)
        generator = RowGenerator(source.num_users, source.num_items, 3, (5,))
        return {name: 3 * tensor for name, tensor in generator.tensors().items()}

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Its release, without a guarantee."""
        record = unprotected_record("by hand", "it was made for a test")
        make = lambda source, _: self.tensors(source)  # noqa: E731
        return PlannedRelease.of_tensors(record, NonPrivateEvent(), sizes, make, "generator")


class ByHeart(ByHand):
    """A generator that makes everybody's row as it is."""

    def tensors(self, source: Ratings) -> dict[str, Tensor]:
        """A condition of its own for everybody, and the rows as weights."""
        rows = torch.from_numpy(source.matrix.toarray()).float()
        bias = torch.full((source.num_items,), -10.0)
        return {"embedding": torch.eye(source.num_users), "weight_0": 20 * rows.T.contiguous(), "bias_0": bias}


def trainer_of(*callbacks: Callback, epochs: int = 1, **settings: Any) -> Trainer:  # noqa: ANN401
    return quiet(max_epochs=epochs, limit_val_batches=0, callbacks=[*callbacks], **settings)


def read(method: PPGenCDR, data: CrossDomainDataModule) -> PPGenCDR:
    """The method with its first weights, and the data read."""
    seed_everything(0)
    trainer_of(epochs=0).fit(method, datamodule=data)
    return method.train()
