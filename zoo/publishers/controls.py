"""Controls: releases that cannot help, to show what a real one is worth."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from scipy.sparse import csr_array

from zoo.data.ratings import Ratings
from zoo.data.sampling import distinct_items, hash_ids, mix
from zoo.privacy.accounting.events import NonPrivateEvent, NoOpEvent, PrivacyEvent
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.record.record import PrivacyRecord, unprotected_record
from zoo.publisher import Publisher
from zoo.release.release import Release

#: Why controls guarantee nothing.
NOTHING, REDRAWN = "control: nothing is released", "control: the ratings were redrawn at random"


class Nothing(Publisher):
    """A release of no user at all: every target user is without a row. The method without its source.

    Args:
        kind: What the release pretends to be, so that any method can read it.
    """

    control = True

    def __init__(self, kind: Literal["rows", "ratings"] = "rows") -> None:
        self.kind = kind

    def publish(self, source: Ratings, domain: str) -> Release:
        """No user, width 1."""
        if self.kind == "rows":
            tensors = {"rows": torch.zeros(0, 1)}
        else:
            index = torch.zeros(0, dtype=torch.int64)
            tensors = {
                "starts": torch.zeros(1, dtype=torch.int64),
                "items": index,
                "weights": torch.zeros(0),
                "num_items": torch.ones(1, dtype=torch.int64),
            }
        record = unprotected_record("Nothing", NOTHING, source.applied)
        return Release(self.kind, domain, tensors, source.user_ids[:0], record, (NoOpEvent(),))

    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """Nothing is spent."""
        return [NoOpEvent()]

    def forecast(self, num_users: int, num_items: int) -> PrivacyRecord:
        """Nothing is released."""
        return unprotected_record("Nothing", NOTHING, ())


class Noise(Publisher):
    """Another publisher's release of redrawn ratings: same users, shape, scale and noise, nothing of any person.

    Every user has the mean number of items, drawn uniformly. Research only: it reads the set of users and the mean, and
    claims no guarantee.

    Args:
        of: The publisher whose release is imitated.
        seed: Of the redrawn ratings.
    """

    control = True
    seed_of_cell = True

    def __init__(self, of: Publisher, seed: int = 0) -> None:
        self.of, self.seed = of, seed

    def publish(self, source: Ratings, domain: str) -> Release:
        """The release of ``of`` on redrawn ratings."""
        release = self.of.publish(self.redraw(source), domain)
        record = release.record.without_guarantee(REDRAWN)
        return replace(release, record=record, ledger=(NonPrivateEvent(),))

    def redraw(self, source: Ratings) -> Ratings:
        """Ratings in which every user has the mean number of items, drawn uniformly without replacement."""
        count = max(1, round(source.num_ratings / source.num_users))
        nobody = np.zeros(source.num_users + 1, dtype=np.int64)
        items = distinct_items(
            hash_ids(source.user_ids), count, source.num_items, (nobody, nobody[:0]), seed=self.seed, phase="noise"
        )
        starts = np.arange(source.num_users + 1) * items.shape[1]
        ones = np.ones(items.size, dtype=np.float32)
        matrix = csr_array((ones, items.ravel(), starts), shape=source.matrix.shape)
        return Ratings(matrix, source.user_ids, source.item_ids, source.applied)

    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """No guarantee: the mean number of items is read from the data."""
        return [NonPrivateEvent()]

    def forecast(self, num_users: int, num_items: int) -> PrivacyRecord:
        """That of ``of`` without its guarantee."""
        return self.of.forecast(num_users, num_items).without_guarantee(REDRAWN)


class Wrapper(Publisher):
    """Base of publishers whose release has the guarantee of another one's, whatever they do before or after it.

    Args:
        of: The other publisher.
    """

    def __init__(self, of: Publisher) -> None:
        self.of = of

    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """What ``of`` spends."""
        return self.of.plan(num_users, num_items)

    def forecast(self, num_users: int, num_items: int) -> PrivacyRecord:
        """That of ``of``."""
        return self.of.forecast(num_users, num_items)

    def audits(self) -> Sequence[Audit | OneRunAudit]:
        """Those of ``of``."""
        return self.of.audits()


class Shuffled(Wrapper):
    """Another publisher's release with its users permuted so that nobody keeps a row: right rows, wrong people.

    The permutation is post-processing, so the record is that of ``of``.

    Args:
        of: The publisher whose release is shuffled.
        seed: Of the permutation.

    Raises:
        ValueError: When publishing fewer than two users.
    """

    control = True
    seed_of_cell = True

    def __init__(self, of: Publisher, seed: int = 0) -> None:
        super().__init__(of)
        self.seed = seed

    def publish(self, source: Ratings, domain: str) -> Release:
        """The release of ``of`` under other ids."""
        release = self.of.publish(source, domain)
        if release.num_users < 2:
            raise ValueError(f"Shuffling needs at least two users, the release has {release.num_users}.")
        order = np.random.default_rng(self.seed).permutation(release.num_users)
        ids = np.empty_like(release.user_ids)
        ids[order] = release.user_ids[np.roll(order, 1)]  # one cycle through everybody: no fixed point
        inputs = {**release.record.public_inputs, "rows": "shuffled among the users (control)"}
        return replace(release, user_ids=ids, record=replace(release.record, public_inputs=inputs))


class Partial(Wrapper):
    """Another publisher's release for a share of its users: what a smaller overlap between the parties is worth.

    Who is left out is drawn from the ids and a public seed, so dropping rows is post-processing and the record is that of
    ``of``. The target then needs ``missing_users: zero``.

    Args:
        of: The publisher whose release is cut.
        share: Share of the users who keep their row, above 0 and at most 1.
        seed: Of the draw.

    Raises:
        ValueError: If the share is out of range.
    """

    def __init__(self, of: Publisher, share: float, seed: int = 0) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share}. To release nobody, take Nothing.")
        super().__init__(of)
        self.share, self.seed = share, seed

    def publish(self, source: Ratings, domain: str) -> Release:
        """The release of ``of`` without the rows of the others."""
        release = self.of.publish(source, domain)
        order = np.argsort(mix(self.seed, "partial", hash_ids(release.user_ids)), kind="stable")
        kept = np.sort(order[: max(1, round(self.share * release.num_users))])
        inputs = {**release.record.public_inputs, "share of the users": self.share}
        return replace(
            release,
            tensors=release.tensors_of(torch.from_numpy(kept)),
            user_ids=release.user_ids[kept],
            record=replace(release.record, public_inputs=inputs),
        )
