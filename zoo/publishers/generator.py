"""GeneratorPublisher: train a generator of rating rows at the source and release it."""

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
    """Members that `GeneratorPublisher` needs of a LightningModule; `SPPG` has them."""

    @property
    def training_batches(self) -> int:
        """Number of batches of the whole training, the same for all data."""

    @property
    def steps_left(self) -> int:
        """Number of remaining training steps."""

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """Return the privacy events of the whole training, from public settings alone."""

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """Return the record of a release, from public settings alone."""

    def audits(self) -> Sequence[Audit]:
        """Return audits of its claim."""

    def release(self, source: Ratings, domain: str) -> Release:
        """Return the trained generator as a release."""


class GeneratorPublisher(TrainedPublisher):
    """Train a generator on one source domain, with its own trainer and callbacks, and release its last state.

    The network determines the privacy unit and the guarantee; see `SPPG`. The record marks the claim of a third-party network.
    The release holds the generator's weights, never the critic; the target generates any number of rows. The network draws its
    own samples: the number of batches must not depend on the ratings. Reference: Liao et al., *PPGenCDR*, AAAI 2023, the source
    side.

    Args:
        network: The trained and released network: `SPPG`, or another LightningModule with `release`.
        callbacks: Callbacks of the training, such as `GANStabilizer` and `PrivacyBudget`; no guarantee depends on them. A budget
            file judges the whole planned training before it starts: lower the network's epsilon or steps for it.
        attack_success: Must be null: the network has an epsilon.
        **training: Further arguments of :class:`TrainedPublisher`.

    Examples:
        >>> import zoo
        >>> publisher = GeneratorPublisher(zoo.SPPG(epsilon=8.0, steps=10, sample_size=8))
        >>> publisher.forecast(num_users=1000, num_items=500).epsilon <= 8
        True
    """

    def __init__(
        self,
        network: LightningModule,
        callbacks: list[Callback] | None = None,
        attack_success: float | None = None,
        **training: Any,  # noqa: ANN401
    ) -> None:
        if not isinstance(network, ReleasableGenerator):
            raise TypeError(
                f"{type(network).__name__} has no generator to release. Take SPPG, or a ReleasableGenerator."
            )
        if attack_success is not None:
            raise ValueError(f"attack_success is {attack_success}. A generator takes an epsilon. Set network.epsilon.")
        super().__init__(network, callbacks, **training)

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan the whole training, which a budget file judges; `PrivacyBudget` may allow fewer steps, which the record states."""
        record = self.network.forecast(sizes.num_users, sizes.num_items, sizes.applied)
        events = tuple(self.network.events(sizes.num_users))
        return PlannedRelease(self._claimed(record), events, self.publish)

    @property
    def repeats_noise(self) -> bool:
        """Whether the network has a noise seed."""
        return getattr(getattr(self.network, "privacy", None), "noise_seed", None) is not None

    def _claimed(self, record: PrivacyRecord) -> PrivacyRecord:
        withdrawn = self.withdrawn if record.claims else None
        return (record if withdrawn is None else record.without_guarantee(withdrawn)).claimed_by(type(self.network))

    def publish(self, source: Ratings, domain: str) -> Release:
        """Train on the source's ratings, in [0, 1] and at least one, then release.

        No step may be left, of all or of those that a `PrivacyBudget` allows.
        """
        _check(source, domain)
        network: ReleasableGenerator = self.trained(
            SourceRatings(source, self.network.training_batches, seed=self.training_seed(), target=domain)
        )
        if network.steps_left:
            raise ValueError(
                f"Training on {domain!r} stopped with {network.steps_left} steps left. Omit callbacks that stop it."
            )
        release = network.release(source, domain)
        return replace(release, record=self._claimed(release.record))

    def audits(self) -> Sequence[Audit]:
        """Return the audits of the network; none without a claim."""
        if self.withdrawn is not None:
            return []
        audits: Sequence[Audit] = self.network.audits()
        return audits


def _check(source: Ratings, domain: str) -> None:
    check_has_ratings(source, domain)
    values = source.matrix.data
    if not 0 <= float(values.min()) <= float(values.max()) <= 1:
        raise ValueError(
            f"Ratings of {domain!r} lie in [{values.min():g}, {values.max():g}]. A generator needs [0, 1]. Set "
            "filters.threshold."
        )
