"""Publisher: turns one domain's ratings into a release, at the party that owns them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from zoo.data.ratings import Ratings
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.record.record import PrivacyRecord
from zoo.release.release import Release


@dataclass(frozen=True)
class Grid:
    """The public sizes of ratings that nobody has opened; what a record needs to know of them.

    Attributes:
        num_users: Public number of users.
        num_items: Public number of items.
        applied: What was done to the ratings before; nothing is known of it yet.
    """

    num_users: int
    num_items: int
    applied: tuple[str, ...] = ()


class Publisher(ABC):
    """Base of all publishers.

    A publisher is made at the source party alone: the target never instantiates one. Noise, clipping and sampling live
    in it and nowhere else, so leaving a callback out of a config can never cost a guarantee.

    Attributes:
        control: Whether others are compared with it, as it hands over nothing that could be learnt from.
        seed_of_cell: Whether a benchmark repeats its public draw, the argument ``seed``, with each of its own seeds.
    """

    control: ClassVar[bool] = False
    seed_of_cell: ClassVar[bool] = False

    @abstractmethod
    def publish(self, source: Ratings, domain: str) -> Release:
        """The release of one source domain.

        Args:
            source: The domain's ratings, as the datamodule's ``source`` gives them.
            domain: Its name, kept in the release.
        """

    @abstractmethod
    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """What publishing would spend, from public settings: opens no data.

        Args:
            num_users: Public number of users; the default delta depends on it.
            num_items: Public number of items.
        """

    @abstractmethod
    def forecast(self, num_users: int, num_items: int) -> PrivacyRecord:
        """The record that a release of so many users and items would carry, from public settings: opens no data.

        Args:
            num_users: Public number of users; the default delta depends on it.
            num_items: Public number of items.
        """

    def audits(self) -> Sequence[Audit | OneRunAudit]:
        """Tests of the claim on the code that makes it, with the settings at hand; none for what claims nothing."""
        return []
