"""TrainedPublisher: common base of publishers that train a network on a source's ratings."""

import copy
import secrets
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
from zoo.privacy.training.random_draws import seed_whole_state
from zoo.publishers.base import Publisher
from zoo.runtime.malloc_tuning import keep_freed_memory


class SourceRatings(LightningDataModule):
    """A source's ratings as training data, without test items, rankings and releases.

    Args:
        ratings: The source's ratings.
        num_batches: Number of empty batches, for a method with its own samples; null: an epoch of batches in the method's form.
        batch_size: Examples in a batch.
        seed: Seed of order and negatives.
        target: Name of the domain.
    """

    # What a method asks of its data: nothing is ranked, and no other party's data are read.
    signs = full_ranking = sampled_ranking = False
    users = ""
    digests: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    releases = links = alignment = release_paths = digests

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
        """Return the batches of an epoch."""
        if self.num_batches is not None:
            empty = UserBatch(torch.zeros(0, dtype=torch.int64))
            return Batches(self.num_batches, 1, lambda *_: empty, self.seed, shuffle=False)
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
    """Refuse a source without ratings; `ValueError`."""
    if not source.num_ratings:
        raise ValueError(f"{domain!r} has no rating. Loosen its filters.")


class TrainedPublisher(Publisher):
    """Train a network on one source domain, with its own trainer and callbacks.

    Nothing is selected by metrics on the ratings: there is no validation, and the last epoch is released. Initial weights and
    the order of batches are resampled for each release. The global random state is neither read nor changed.

    Args:
        network: The trained network.
        callbacks: Callbacks of the training; no guarantee depends on them.
        accelerator: `cpu`, `gpu` or `auto`.
        seed: Seed of the training. Null: drawn from the operating system for each release (0 with a noise seed, which repeats
            it). A number lets a reader repeat the training of all others: the record then says `guarantee: none`.
        progress: Whether to show a progress bar; null: on a terminal.

    Raises:
        ValueError: The network was trained before, so its weights may tell other ratings.
    """

    def __init__(
        self,
        network: LightningModule,
        callbacks: list[Callback] | None = None,
        accelerator: str = "cpu",
        seed: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.network: Any = network
        self._check_new()
        self.callbacks = callbacks or []
        self.accelerator, self.seed = accelerator, seed
        self.progress = sys.stderr.isatty() if progress is None else progress

    def _check_new(self) -> None:
        if getattr(self.network, "sizes", None) is not None:
            raise ValueError(f"{type(self.network).__name__} was trained before. Pass a new one.")

    @property
    def repeats_noise(self) -> bool:
        """Whether the noise is seeded, so that releases repeat."""
        return False

    @property
    def withdrawn(self) -> str | None:
        """Code of the reason why there is no guarantee, whatever the noise; None: there is one."""
        return None if self.seed is None else "training_seed_known"

    def training_seed(self) -> int:
        """Return the seed of one training: the given one, 0 in a repeatable release, else a fresh one."""
        if self.seed is not None or self.repeats_noise:
            return self.seed or 0
        return secrets.randbits(63)

    def trained(self, source: SourceRatings, max_epochs: int = 1) -> Any:  # noqa: ANN401  as the network
        """Return a copy of the network after training on a source, with the source's seed."""
        self._check_new()  # it may have been trained since
        keep_freed_memory()
        network, callbacks = copy.deepcopy((self.network, self.callbacks))
        with isolate_rng(), warnings.catch_warnings():
            torch.manual_seed(source.seed)
            if self.seed is None and not self.repeats_noise:
                # A CPU's own seeding uses 32 bits, few enough for a reader of the release to try them all.
                seed_whole_state(torch.default_generator, source.seed)
            # A network may have a validation step, which is not used here.
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
        if trainer.current_epoch < max_epochs:
            raise ValueError(
                f"Training on {source.target!r} stopped after {trainer.current_epoch} of {max_epochs} epochs, as "
                "the ratings may have decided. Omit callbacks that stop it, or lower max_epochs."
            )
        return network
