"""Publisher: turns one domain's ratings into a release, at the party that owns them."""

from abc import ABC, abstractmethod

from zoo.privacy.events import PrivacyEvent
from zoo.ratings import Ratings
from zoo.release import Release


class Publisher(ABC):
    """Base of all publishers.

    A publisher is made at the source party alone: the target never instantiates one. Noise, clipping and sampling live
    in it and nowhere else, so leaving a callback out of a config can never cost a guarantee.
    """

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
