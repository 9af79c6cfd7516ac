"""Publisher: turn one domain's ratings into a release, at the party that owns them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from zoo.data.ratings import Ratings, Step
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Mechanism, Plain
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.delta import delta_for
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.steps import RecordedStep, conditions_of, recorded_steps
from zoo.release.release import Release
from zoo.runtime.renamed import OldName, take_new_names
from zoo.runtime.run_folder import CapturesInit

Make = Callable[[Ratings, str], Release]
"""Map ratings and the name of their domain to their release; draws the noise."""
Tensors = Callable[[Ratings, str], Mapping[str, Tensor]]
"""Map ratings and the name of their domain to the tensors of their release; draws the noise."""


@dataclass(frozen=True)
class PublicSizes:
    """Public facts about unread ratings; a guarantee depends on nothing else."""

    num_users: int
    num_items: int
    applied: tuple[Step, ...] = ()  # steps before publishing, in order

    @classmethod
    def of(cls, source: Ratings) -> PublicSizes:
        """Return the sizes of given ratings."""
        return cls(source.num_users, source.num_items, source.applied)

    def delta(self, requested: float | None, relation: Relation = Relation.ZERO_OUT_ONE_USER) -> float:
        """Return the requested delta or the default of the relation; refuse it unless it is below one over the users."""
        return delta_for(self.num_users, requested, relation.unit, self.num_items)

    @property
    def steps(self) -> tuple[RecordedStep, ...]:
        """Earlier steps on the ratings, for a record."""
        return recorded_steps(self.applied)

    @property
    def done_before(self) -> tuple[str, ...]:
        """The same in words, for the assumptions of another package's mechanism."""
        return tuple(f"done to the data before: {step.words}" for step in self.steps)

    def conditions(self, relation: Relation) -> tuple[str, ...]:
        """Return the codes of a guarantee's conditions, which these steps add."""
        return conditions_of(self.steps, relation.unit)


@dataclass(frozen=True)
class PlannedRelease:
    """A release settled from public settings and sizes, without the ratings."""

    record: PrivacyRecord
    events: tuple[PrivacyEvent, ...]  # of its ledger
    make: Make  # makes the release, once: its draws, such as a projection, must not serve two

    def __post_init__(self) -> None:
        object.__setattr__(self, "make", _once(self.make))

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        noise_seed: int | None,
        sizes: PublicSizes,
        tensors: Tensors,
        *,
        kind: str = "rows",
        notes: Mapping[str, Plain] | None = None,
        withdrawn: str | None = None,
    ) -> PlannedRelease:
        """Plan a release by a mechanism, which determines record and ledger.

        Args:
            mechanism: Mechanism with the parameters that public settings and sizes determine.
            noise_seed: Null: noise from the operating system.
            sizes: Public sizes of the ratings, with earlier steps.
            tensors: Function that returns the tensors of the release.
            kind: Kind of the release, such as ``rows``.
            notes: Further public inputs.
            withdrawn: Code or text of the reason if the guarantee does not hold.
        """
        record = PrivacyRecord.of(mechanism, NoiseSource.of(noise_seed), sizes.steps, notes)
        record = record if withdrawn is None else record.without_guarantee(withdrawn)
        return cls.of_tensors(record, mechanism.event, sizes, tensors, kind)

    @classmethod
    def of_tensors(
        cls, record: PrivacyRecord, event: PrivacyEvent, sizes: PublicSizes, tensors: Tensors, kind: str = "rows"
    ) -> PlannedRelease:
        """Plan a release with a given record and event, and rows of all users of the source.

        Only ratings of these sizes with the same steps before are accepted.
        """

        def make(source: Ratings, domain: str) -> Release:
            if PublicSizes.of(source) != sizes:
                raise ValueError(
                    f"The plan is for {sizes.num_users} users and {sizes.num_items} items. {domain!r} has "
                    f"{source.num_users} and {source.num_items}, or other steps. Plan anew."
                )
            return Release(kind, domain, tensors(source, domain), source.user_ids, record, (event,))

        return cls(record, (event,), make)


def _once(make: Make) -> Make:
    made = False

    def once(source: Ratings, domain: str) -> Release:
        nonlocal made
        if made:
            raise RuntimeError("A plan is for one release, which was made. Plan anew.")
        release = make(source, domain)
        made = True
        return release

    return once


class Publisher(CapturesInit, ABC):
    """Base of all publishers. A subclass writes `prepare`; plan, forecast and release follow from it.

    A publisher runs only at the source party. Noise, clipping and sampling are in it and nowhere else, so leaving a callback out
    of a config can never cost a guarantee.

    Examples:
        >>> from zoo.publishers.rows import NoisyRows
        >>> record = NoisyRows(epsilon=2.0).forecast(num_users=1000, num_items=500)  # opens no data
        >>> str(record.unit), record.epsilon
        ('rating', 2.0)
    """

    control: bool = False  # whether it is a baseline without information for other releases
    joins_users: bool = False  # whether it joins its users with the target's by their ids
    repeats_seed: ClassVar[bool] = False  # whether a benchmark sets `seed`, unless given, to that of the run
    seed_of_cell = OldName("repeats_seed")

    def __init_subclass__(cls, **arguments: Any) -> None:  # noqa: ANN401  of any base
        super().__init_subclass__(**arguments)
        take_new_names(cls, Publisher)

    @abstractmethod
    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan the next release of ratings of these sizes, with all draws that are made once per release; open no data."""

    def publish(self, source: Ratings, domain: str) -> Release:
        """Return the release of one source domain, whose ratings come from the datamodule's ``source``."""
        return self.prepare(PublicSizes.of(source)).make(source, domain)

    def for_target(self, target: Ratings) -> Publisher:
        """Return the publisher for a target whose training ratings are at the same place (research)."""
        return self

    def target_release(self) -> Release | None:
        """Return the release of the target's ratings that `for_target` made; None if it made none."""
        return None

    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """Return the privacy events of publishing ratings of public sizes; open no data."""
        return list(self.prepare(PublicSizes(num_users, num_items)).events)

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """Return the record of a release of ratings of public sizes; open no data.

        ``applied`` are the steps before publishing, such as a datamodule's ``steps``.
        """
        return self.prepare(PublicSizes(num_users, num_items, tuple(applied))).record

    def audits(self) -> Sequence[Audit | OneRunAudit]:
        """Return audits of the claim on its own code and settings; none without a claim."""
        return []


@dataclass(frozen=True)
class Stamped:
    """A publisher whose records name a third-party class as the source of the claim.

    Use it for every release, plan and forecast.
    """

    of: Publisher
    configured: Publisher | None = None  # whose `Publisher.for_target` returned ``of``

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan as `Publisher.prepare`."""
        planned = self.of.prepare(sizes)
        return replace(planned, record=self._claimed(planned.record), make=partial(self._made, planned.make))

    def publish(self, source: Ratings, domain: str) -> Release:
        """Publish as `Publisher.publish`."""
        return self._made(self.of.publish, source, domain)

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """Forecast as `Publisher.forecast`."""
        return self._claimed(self.of.forecast(num_users, num_items, applied))

    def for_target(self, target: Ratings) -> Stamped:
        """Return what `Publisher.for_target` returns, with the claims of both."""
        return Stamped(self.of.for_target(target), self.configured or self.of)

    def target_release(self) -> Release | None:
        """Return the release of `Publisher.target_release`."""
        own = self.of.target_release()
        return own and replace(own, record=self._claimed(own.record))

    def _made(self, make: Make, source: Ratings, domain: str) -> Release:
        release = make(source, domain)
        return replace(release, record=self._claimed(release.record))

    def _claimed(self, record: PrivacyRecord) -> PrivacyRecord:
        return record.claimed_by(type(self.of)).claimed_by(type(self.configured or self.of))
