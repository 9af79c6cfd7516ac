"""Plaintext: the ratings themselves, as an upper bound and for methods that need them."""

from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.record.record import unprotected_record
from zoo.publishers.base import PlannedRelease, PublicSizes, Publisher
from zoo.release.layouts import compressed


class Plaintext(Publisher):
    """Hands the ratings over as they are: no privacy at all, and the most that any release can carry.

    Protects nobody: the record says ``guarantee: none``. A control for what a private release loses, and the publisher
    of methods that were published without privacy.
    """

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """The ratings, compressed by row; everything is spent."""
        record = unprotected_record("Plaintext", "the ratings are handed over as they are", sizes.steps)
        return PlannedRelease.of_tensors(
            record, NonPrivateEvent(), sizes, lambda source, _: compressed(source.matrix), "ratings"
        )
