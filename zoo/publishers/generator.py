"""GeneratorPublisher: trains a generator of rating rows at the source and releases it, and nothing else."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor

from zoo.data.batches import UserBatch
from zoo.data.ratings import Ratings
from zoo.metrics import Ties
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.record.record import PrivacyRecord
from zoo.publisher import PlannedRelease, PublicSizes, Publisher
from zoo.release.release import Release


@runtime_checkable
class ReleasableGenerator(Protocol):
    """What a LightningModule offers to be trained and released by `GeneratorPublisher`; `SPPG` does."""

    @property
    def training_batches(self) -> int:
        """Training batches of the whole training, the same for all data."""

    @property
    def steps_left(self) -> int:
        """Steps that training still has."""

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """What the whole training would spend, from public settings alone."""

    def forecast(self, num_users: int, num_items: int) -> PrivacyRecord:
        """The record that a release would carry, from public settings alone."""

    def audits(self) -> Sequence[Audit]:
        """Tests of its claim."""

    def release(self, source: Ratings, domain: str) -> Release:
        """What it has learned, as a release."""


class GeneratorPublisher(Publisher):
    """Trains a generator on one source domain, with a trainer and callbacks of its own, and releases its last state.

    Who is protected, and how strongly, is the network's to say; see `SPPG`. The release holds the generator's weights and
    never the critic; the target makes rows with it as often as it likes. Nothing is chosen by what is measured on the
    ratings: there is no validation, and no epoch but the last is released. Every batch is the same to the network, which
    takes its own samples: how many batches there are must not depend on who has rated.

    Reference: Liao et al., *PPGenCDR*, AAAI 2023, the source side.

    Args:
        network: What is trained and released: `SPPG`, or another LightningModule with `release`.
        callbacks: Of its training, such as `GANStabilizer` and `PrivacyBudget`; no guarantee rests on them.
        accelerator: What it is trained on: `cpu`, `gpu` or `auto`.
        seed: Of the network's initial weights; public.
        progress: Whether a progress bar is shown; null: on a terminal.

    Raises:
        TypeError: If the network has nothing to release.
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
        if not isinstance(network, ReleasableGenerator):
            raise TypeError(
                f"GeneratorPublisher trains a network that can be released; {type(network).__name__} has no generator to "
                "release. Take SPPG, or a LightningModule with the members of ReleasableGenerator."
            )
        self.network, self.callbacks = network, callbacks or []
        self.accelerator, self.seed = accelerator, seed
        self.progress = sys.stderr.isatty() if progress is None else progress

    def publish(self, source: Ratings, domain: str) -> Release:
        """Train on the source's ratings, then release.

        Raises:
            ValueError: If there is no rating, or one beyond [0, 1].
            ValueError: If training ended before its steps were used up.
        """
        self._check(source, domain)
        network, callbacks = copy.deepcopy((self.network, self.callbacks))  # each domain begins anew
        assert isinstance(network, ReleasableGenerator)
        with isolate_rng():
            torch.manual_seed(self.seed)
            trainer = self._trainer(callbacks)
            with warnings.catch_warnings():
                # A network may be validated elsewhere; here nothing is, and that is meant.
                warnings.filterwarnings("ignore", "You defined a `validation_step` but have no `val_dataloader`")
                trainer.fit(network, datamodule=SourceRatings(source, network.training_batches))
        if network.steps_left:
            raise ValueError(
                f"Training on {domain!r} ended with {network.steps_left} steps left. When it ends must not depend on the ratings, "
                "or its end would tell of them: leave out callbacks that stop it early; PrivacyBudget may."
            )
        return network.release(source, domain)

    def _trainer(self, callbacks: list[Callback]) -> Trainer:
        return Trainer(
            accelerator=self.accelerator,
            devices=1,
            max_epochs=1,
            callbacks=callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=self.progress,
            limit_val_batches=0,
            num_sanity_val_steps=0,
        )

    @staticmethod
    def _check(source: Ratings, domain: str) -> None:
        values = source.matrix.data
        if not len(values):
            raise ValueError(f"{domain!r} has no rating to learn from. Loosen its filters, or check its file.")
        if not 0 <= float(values.min()) <= float(values.max()) <= 1:
            raise ValueError(
                f"Ratings of {domain!r} lie in [{values.min():g}, {values.max():g}], and a generator makes numbers in [0, 1]. Let "
                "each of them count as 1, as the ratings of a datamodule do."
            )

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """The whole training; a callback such as `PrivacyBudget` may allow fewer steps, so the record is made after it."""
        record = self._network.forecast(sizes.num_users, sizes.num_items)
        return PlannedRelease(record, tuple(self._network.events(sizes.num_users)), self.publish)

    def audits(self) -> Sequence[Audit]:
        """Those of the network."""
        return self._network.audits()

    @property
    def _network(self) -> ReleasableGenerator:
        network: Any = self.network
        assert isinstance(network, ReleasableGenerator)
        return network


class SourceRatings(LightningDataModule):
    """A source's ratings as a method reads them that trains on them, with nothing held out.

    Args:
        ratings: The source's.
        num_batches: Batches to train for.
    """

    def __init__(self, ratings: Ratings, num_batches: int) -> None:
        super().__init__()
        self.train, self.num_batches = ratings, num_batches
        self.sizes = {"num_users": ratings.num_users, "num_items": ratings.num_items, "sources": {}}
        self.digests: dict[str, str] = {}
        self.releases: dict[str, Release] = {}
        self.links: dict[str, Tensor] = {}
        self.release_paths: dict[str, Any] = {}
        self.users = ""
        self.ks, self.top_k = (10,), 10
        self.ties: Ties = "expected"
        self.full_ranking = self.sampled_ranking = self.signs = False

    def train_dataloader(self) -> Beats:
        """So many batches with nobody in them."""
        return Beats(self.num_batches)


class Beats:
    """Empty batches that count time.

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[UserBatch]:
        yield from (UserBatch(torch.zeros(0, dtype=torch.int64)) for _ in range(self.count))
