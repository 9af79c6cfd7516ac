"""Plaintext: the ratings themselves, as an upper bound and for methods that need them."""

import torch

from zoo.data.ratings import Ratings
from zoo.privacy.accounting.events import NonPrivateEvent, PrivacyEvent
from zoo.privacy.record.record import PrivacyRecord, unprotected_record
from zoo.publisher import Grid, Publisher
from zoo.release.release import Release


class Plaintext(Publisher):
    """Hands the ratings over as they are: no privacy at all, and the most that any release can carry.

    Protects nobody: the record says ``guarantee: none``. A control for what a private release loses, and the publisher
    of methods that were published without privacy.
    """

    def publish(self, source: Ratings, domain: str) -> Release:
        """The ratings, compressed by row."""
        starts, items, weights = source.compressed()
        tensors = {"starts": starts, "items": items, "weights": weights, "num_items": torch.tensor([source.num_items])}
        return Release("ratings", domain, tensors, source.user_ids, self.record(source), (NonPrivateEvent(),))

    def record(self, source: Ratings | Grid) -> PrivacyRecord:
        """What the release says of itself."""
        return unprotected_record("Plaintext", "the ratings are handed over as they are", source.applied)

    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """Everything."""
        return [NonPrivateEvent()]

    def forecast(self, num_users: int, num_items: int) -> PrivacyRecord:
        """No guarantee."""
        return self.record(Grid(num_users, num_items))
