"""GeneratorPublisher: trains a generator of rating rows at the source and releases it, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from pytorch_lightning import Callback, LightningModule

from zoo.data.ratings import Ratings, Step
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.record.record import PrivacyRecord
from zoo.publishers.base import PlannedRelease, PublicSizes
from zoo.publishers.trained import SourceRatings, TrainedPublisher, check_has_ratings
from zoo.release.release import Release


@runtime_checkable
class ReleasableGenerator(Protocol):
    """What a LightningModule offers to be trained and released by `GeneratorPublisher`; `SPPG` does."""

    @property
    def training_batches(self) -> int:
        """How many the whole training has, the same for all data."""

    @property
    def steps_left(self) -> int:
        """Steps that training still has."""

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """What the whole training would spend, from public settings alone."""

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """The record that a release would carry, from public settings alone."""

    def audits(self) -> Sequence[Audit]:
        """Tests of its claim."""

    def release(self, source: Ratings, domain: str) -> Release:
        """What it has learned, as a release."""


class GeneratorPublisher(TrainedPublisher):
    """Trains a generator on one source domain, with a trainer and callbacks of its own, and releases its last state.

    Who is protected, and how strongly, is the network's to say; see `SPPG`. What a network claims that is none of the project's
    classes is its word, and the record says so. The release holds the generator's weights and never the critic; the target makes
    rows with it as often as it likes. The network takes its own samples: how many batches there are must not depend on who has
    rated. Reference: Liao et al., *PPGenCDR*, AAAI 2023, the source side.

    Args:
        network: What is trained and released: `SPPG`, or another LightningModule with `release`.
        callbacks: Of its training, such as `GANStabilizer` and `PrivacyBudget`; no guarantee rests on them.
        **training: As :class:`TrainedPublisher` takes it.
    """

    def __init__(
        self,
        network: LightningModule,
        callbacks: list[Callback] | None = None,
        **training: Any,  # noqa: ANN401
    ) -> None:
        if not isinstance(network, ReleasableGenerator):
            raise TypeError(
                f"GeneratorPublisher trains a network that can be released; {type(network).__name__} has no generator to "
                "release. Take SPPG, or a LightningModule with the members of ReleasableGenerator."
            )
        super().__init__(network, callbacks, **training)

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """The whole training; a callback such as `PrivacyBudget` may allow fewer steps, so the record is made after it."""
        network = _releasable(self.network)
        record = network.forecast(sizes.num_users, sizes.num_items, sizes.applied).claimed_by(type(network))
        return PlannedRelease(record, tuple(network.events(sizes.num_users)), self.publish)

    def publish(self, source: Ratings, domain: str) -> Release:
        """Train on the source's ratings, in [0, 1] and at least one, then release; all steps of the training must be taken."""
        _check(source, domain)
        ratings = SourceRatings(source, _releasable(self.network).training_batches, target=domain)
        network = _releasable(self.trained(ratings))
        if network.steps_left:
            raise ValueError(
                f"Training on {domain!r} ended with {network.steps_left} steps left. When it ends must not depend on the ratings, "
                "or its end would tell of them: leave out callbacks that stop it early; PrivacyBudget may."
            )
        release = network.release(source, domain)
        return replace(release, record=release.record.claimed_by(type(network)))

    def audits(self) -> Sequence[Audit]:
        """Those of the network."""
        return _releasable(self.network).audits()


def _releasable(network: object) -> ReleasableGenerator:
    assert isinstance(network, ReleasableGenerator)
    return network


def _check(source: Ratings, domain: str) -> None:
    check_has_ratings(source, domain)
    values = source.matrix.data
    if not 0 <= float(values.min()) <= float(values.max()) <= 1:
        raise ValueError(
            f"Ratings of {domain!r} lie in [{values.min():g}, {values.max():g}], and a generator makes numbers in [0, 1]. Let "
            "each of them count as 1, as the ratings of a datamodule do."
        )
