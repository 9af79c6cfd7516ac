"""TrainedPublisher: what publishers share that train a network on a source's ratings. Ceremony only."""

import copy
import sys
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
from pytorch_lightning.utilities.seed import isolate_rng

from zoo.data.batch_types import Batch, UserBatch
from zoo.data.ratings import Ratings
from zoo.data.training_batches import Batches, training_batches
from zoo.publishers.base import Publisher
from zoo.runtime.malloc_tuning import keep_freed_memory


class SourceRatings(LightningDataModule):
    """A source's ratings as a method reads them that trains on them: nothing is held out or ranked, and no release is read.

    With ``num_batches`` there are so many batches without anybody in them, for a method that takes its own samples; without,
    an epoch of batches of the form that the method wants, of ``batch_size`` examples each, their order and negatives from the
    seed. ``target`` is the name of the domain, which is what the training is about.
    """

    signs = full_ranking = sampled_ranking = False
    users = ""
    digests: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    releases = links = release_paths = digests

    def __init__(
        self,
        ratings: Ratings,
        num_batches: int | None = None,
        batch_size: int = 128,
        seed: int = 0,
        target: str = "source",
    ) -> None:
        super().__init__()
        self.train, self.num_batches, self.batch_size, self.seed = ratings, num_batches, batch_size, seed
        self.target = target

    @property
    def sizes(self) -> dict[str, Any]:
        """Plain numbers that networks are built from."""
        return {"num_users": self.train.num_users, "num_items": self.train.num_items, "sources": {}}

    def train_dataloader(self) -> Batches[Batch]:
        """The batches of an epoch."""
        if self.num_batches is not None:
            nobody = UserBatch(torch.zeros(0, dtype=torch.int64))
            return Batches(self.num_batches, 1, lambda *_: nobody, self.seed, shuffle=False)
        trainer: Any = self.trainer
        return training_batches(
            self.train,
            trainer.lightning_module,
            self.batch_size,
            self.seed,
            lambda: trainer.current_epoch,
            device=trainer.strategy.root_device,
        )


def check_has_ratings(source: Ratings, domain: str) -> None:
    """Refuse a source, with a `ValueError`, that has nothing to train on."""
    if not source.num_ratings:
        raise ValueError(f"{domain!r} has no rating to learn from. Loosen its filters, or check its file.")


class TrainedPublisher(Publisher):
    """Trains a network on one source domain, with a trainer and callbacks of its own.

    Nothing is chosen by what is measured on the ratings: there is no validation, and no epoch but the last is released.
    Each domain begins anew, from the same weights. The global random state is neither read nor moved.

    Args:
        network: What is trained.
        callbacks: Of its training; no guarantee rests on them.
        accelerator: What it is trained on: `cpu`, `gpu` or `auto`.
        seed: Of the network's initial weights; public.
        progress: Whether a progress bar is shown; null: on a terminal.
    """

    seed_of_cell = True

    def __init__(
        self,
        network: LightningModule,
        callbacks: list[Callback] | None = None,
        accelerator: str = "cpu",
        seed: int = 0,
        progress: bool | None = None,
    ) -> None:
        self.network, self.callbacks = network, callbacks or []
        self.accelerator, self.seed = accelerator, seed
        self.progress = sys.stderr.isatty() if progress is None else progress

    def trained(self, source: SourceRatings, max_epochs: int = 1) -> LightningModule:
        """A copy of the network after so many epochs on a source."""
        keep_freed_memory()
        network, callbacks = copy.deepcopy((self.network, self.callbacks))
        with isolate_rng(), warnings.catch_warnings():
            torch.manual_seed(self.seed)
            # A network may be validated elsewhere; here nothing is, and that is meant.
            warnings.filterwarnings("ignore", "You defined a `validation_step` but have no `val_dataloader`")
            trainer = Trainer(
                accelerator=self.accelerator,
                devices=1,
                max_epochs=max_epochs,
                callbacks=callbacks,
                logger=False,
                enable_checkpointing=False,
                enable_model_summary=False,
                enable_progress_bar=self.progress,
                limit_val_batches=0,
                num_sanity_val_steps=0,
            )
            trainer.fit(network, datamodule=source)
        return network
