"""Publisher: turns one domain's ratings into a release, at the party that owns them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

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
from zoo.runtime.run_folder import CapturesInit

Make = Callable[[Ratings, str], Release]
"""Ratings and the name of their domain in, their release out. Noise is drawn here."""
Tensors = Callable[[Ratings, str], Mapping[str, Tensor]]
"""The same, of which the tensors alone are made."""


@dataclass(frozen=True)
class PublicSizes:
    """What everybody may know of ratings that nobody has opened; all that a guarantee may depend on."""

    num_users: int
    num_items: int
    applied: tuple[Step, ...] = ()  # what is done to the ratings before they are published, in order

    @classmethod
    def of(cls, source: Ratings) -> PublicSizes:
        """Those of ratings that are at hand."""
        return cls(source.num_users, source.num_items, source.applied)

    def delta(self, asked: float | None) -> float:
        """The delta that is asked for, or the default for so many users; refused unless below one over their number."""
        return delta_for(self.num_users, asked)

    @property
    def steps(self) -> tuple[RecordedStep, ...]:
        """What was done to the ratings before, for a record."""
        return recorded_steps(self.applied)

    @property
    def done_before(self) -> tuple[str, ...]:
        """The same in words, for the assumptions of a mechanism of another package."""
        return tuple(f"done to the data before: {step.words}" for step in self.steps)

    def conditions(self, relation: Relation) -> tuple[str, ...]:
        """What a guarantee about the file that the source holds assumes of these steps, as codes."""
        return conditions_of(self.steps, relation.unit)


@dataclass(frozen=True)
class PlannedRelease:
    """One release, settled but for the ratings: from public settings and sizes alone."""

    record: PrivacyRecord  # what it will say of itself
    events: tuple[PrivacyEvent, ...]  # what its ledger will hold
    make: Make  # makes the release, once: what is drawn for one, such as a projection, must not serve two

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
        """Plan one release by a mechanism: its record and its ledger follow from it.

        Args:
            mechanism: Settled from public settings and sizes.
            noise_seed: Null: noise from the operating system.
            sizes: Of the ratings, and what was done to them before.
            tensors: Makes the tensors of the release.
            kind: Of the release.
            notes: Further public inputs, from which nothing follows.
            withdrawn: Code or text: why the guarantee does not hold here, if it does not.
        """
        record = PrivacyRecord.of(mechanism, NoiseSource.of(noise_seed), sizes.steps, notes)
        record = record if withdrawn is None else record.without_guarantee(withdrawn)
        return cls.of_tensors(record, mechanism.event, sizes, tensors, kind)

    @classmethod
    def of_tensors(
        cls, record: PrivacyRecord, event: PrivacyEvent, sizes: PublicSizes, tensors: Tensors, kind: str = "rows"
    ) -> PlannedRelease:
        """One whose record and event stay what they are, and whose rows are those of all users of the source.

        It is for ratings of these sizes, to which the same was done before; others are refused.
        """

        def make(source: Ratings, domain: str) -> Release:
            if PublicSizes.of(source) != sizes:
                raise ValueError(
                    f"The release was planned for {sizes.num_users} users and {sizes.num_items} items, and {domain!r} has "
                    f"{source.num_users} and {source.num_items}, or other steps before. Plan anew for these ratings."
                )
            return Release(kind, domain, tensors(source, domain), source.user_ids, record, (event,))

        return cls(record, (event,), make)


def _once(make: Make) -> Make:
    made = False

    def once(source: Ratings, domain: str) -> Release:
        nonlocal made
        if made:
            raise RuntimeError(
                "A plan is for one release, which was made. Prepare another: what was drawn for this one, such as a projection, is "
                "public now."
            )
        release = make(source, domain)
        made = True
        return release

    return once


class Publisher(CapturesInit, ABC):
    """Base of all publishers. A subclass writes `prepare`; what is planned, forecast and published follows from it.

    A publisher is made at the source party alone: the target never instantiates one. Noise, clipping and sampling live
    in it and nowhere else, so leaving a callback out of a config can never cost a guarantee.
    """

    control: ClassVar[bool] = False  # whether others are compared with it: it hands over nothing to be learnt from
    joins_users: ClassVar[bool] = False  # whether it joins its users with those of the target, by their ids
    seed_of_cell: ClassVar[bool] = False  # whether a benchmark repeats its draw, `seed`, with each of its own seeds

    @abstractmethod
    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """The next release of ratings of these sizes; opens no data. What is drawn once for each release is drawn here."""

    def publish(self, source: Ratings, domain: str) -> Release:
        """The release of one source domain, whose ratings are as the datamodule's ``source`` gives them."""
        return self.prepare(PublicSizes.of(source)).make(source, domain)

    def for_target(self, target: Ratings) -> Publisher:
        """The publisher where a target's training ratings lie at the same place (research): this one, unless it joins users."""
        return self

    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """What publishing ratings of public sizes would spend, from public settings: opens no data."""
        return list(self.prepare(PublicSizes(num_users, num_items)).events)

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """The record that a release of ratings of public sizes would carry, from public settings: opens no data.

        ``applied`` is what will be done to the ratings before, such as a datamodule's ``steps``.
        """
        return self.prepare(PublicSizes(num_users, num_items, tuple(applied))).record

    def audits(self) -> Sequence[Audit | OneRunAudit]:
        """Tests of the claim on the code that makes it, with the settings at hand; none for what claims nothing."""
        return []


@dataclass(frozen=True)
class Stamped:
    """A publisher of any package, whose records say whose word they are where its class is none of this package.

    Whoever asks a publisher for a release, a plan or a forecast asks this.
    """

    of: Publisher

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """As `Publisher.prepare`."""
        planned = self.of.prepare(sizes)
        return replace(planned, record=planned.record.claimed_by(type(self.of)), make=partial(self._made, planned.make))

    def publish(self, source: Ratings, domain: str) -> Release:
        """As `Publisher.publish`."""
        return self._made(self.of.publish, source, domain)

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """As `Publisher.forecast`."""
        return self.of.forecast(num_users, num_items, applied).claimed_by(type(self.of))

    def _made(self, make: Make, source: Ratings, domain: str) -> Release:
        release = make(source, domain)
        return replace(release, record=release.record.claimed_by(type(self.of)))
