"""Plaintext: publish the ratings themselves, as an upper bound and for methods that need them."""

from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.record.record import unprotected_record
from zoo.publishers.base import PlannedRelease, PublicSizes, Publisher
from zoo.release.layouts import compressed


class Plaintext(Publisher):
    """Publish unprocessed ratings: no privacy, and the largest possible utility.

    The record says ``guarantee: none``. It measures the loss of private releases, and serves methods published without privacy.

    Examples:
        >>> from datamodules import Synthetic
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> release = Plaintext().publish(ratings, "book")
        >>> release.kind, str(release.record.guarantee)
        ('ratings', 'none')
    """

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan the release of the ratings, compressed by row, without a guarantee."""
        record = unprotected_record("Plaintext", "the ratings are handed over as they are", sizes.steps)
        return PlannedRelease.of_tensors(
            record, NonPrivateEvent(), sizes, lambda source, _: compressed(source.matrix), "ratings"
        )
