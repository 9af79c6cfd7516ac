"""Controls: releases without information, or of a part of users or ratings, as baselines of real ones."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, Self

import numpy as np
import torch
from scipy.sparse import csr_array

from zoo.data.arrays import Ids, Integers
from zoo.data.ratings import Ratings
from zoo.data.sampling import distinct_items, hash_ids, mix, uniform_reals
from zoo.privacy.accounting.events import NonPrivateEvent, NoOpEvent
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Plain
from zoo.privacy.record.record import PrivacyRecord, unprotected_record
from zoo.publishers.base import Make, PlannedRelease, PublicSizes, Publisher, Stamped
from zoo.release.layouts import compressed
from zoo.release.release import Release

#: Reasons without a guarantee.
NOTHING, REDRAWN = "control: nothing is released", "control: the ratings were redrawn at random"


class Nothing(Publisher):
    """A release without users: the method without its source.

    Args:
        kind: Kind of the release, for the method that reads it.

    Examples:
        >>> from datamodules import Synthetic
        >>> Nothing().publish(Synthetic(num_users=60, num_items=40).source("book"), "book").num_users
        0
    """

    control = True

    def __init__(self, kind: Literal["rows", "ratings", "embeddings", "map"] = "rows") -> None:
        self.kind = kind

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan a release of no user, width 1, without cost."""
        record = unprotected_record("Nothing", NOTHING, sizes.steps)
        return PlannedRelease(record, (NoOpEvent(),), partial(self._nobody, record))

    def _nobody(self, record: PrivacyRecord, source: Ratings, domain: str) -> Release:
        nobody = csr_array(np.zeros((0, 1), np.float32))
        tensors = {
            "rows": {"rows": torch.zeros(0, 1)},
            "ratings": compressed(nobody),
            "embeddings": {"vectors": torch.zeros(0, 1, 1)},
            "map": {"map": torch.zeros(0, 1), "items": torch.zeros(0).long(), "counts": torch.zeros(0)},
        }[self.kind]
        return Release(self.kind, domain, tensors, source.user_ids[:0], record, (NoOpEvent(),))


class Wrapper(Publisher):
    """Base of publishers that change the input or output of another one, ``of``.

    It is a control if ``of`` is one, joins users as ``of`` does, and passes the target on to it.
    """

    _configured: Publisher | None = None  # whose `for_target` returned ``of``

    def __init__(self, of: Publisher) -> None:
        self.of = of
        self.control, self.joins_users = self.control or of.control, of.joins_users

    @property
    def stamped(self) -> Stamped:
        """The wrapped publisher, with the claims of its package."""
        return Stamped(self.of, self._configured)

    def for_target(self, target: Ratings) -> Self:
        """Return the same wrapper of a publisher that knows the target."""
        made = copy.copy(self)
        known = self.stamped.for_target(target)
        made.of, made._configured = known.of, known.configured
        return made

    def target_release(self) -> Release | None:
        """Return the target's release that ``of`` was made for."""
        return self.stamped.target_release()


class Noise(Wrapper):
    """Noise baseline: another publisher's release of random ratings, with the same users, shape, scale and noise.

    Every user has the mean number of items, drawn uniformly. Research only: it reads the set of users and the mean, which one
    rating can move by one for all users, and has no guarantee.

    Args:
        of: The imitated publisher.
        seed: Seed of the random ratings.

    Examples:
        >>> from datamodules import Synthetic
        >>> from zoo.publishers.plaintext import Plaintext
        >>> ratings = Synthetic(num_users=60, num_items=40, ratings_per_user=5).source("book")
        >>> Noise(Plaintext()).publish(ratings, "book").rows(torch.arange(3)).sum(1)
        tensor([5., 5., 5.])
    """

    control = True
    repeats_seed = True

    def __init__(self, of: Publisher, seed: int = 0) -> None:
        super().__init__(of)
        self.seed = seed

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan the release of ``of`` without its guarantee: the mean number of items is read from the data."""
        planned = self.stamped.prepare(sizes)
        events = (NonPrivateEvent(),)

        def make(source: Ratings, domain: str) -> Release:
            release = planned.make(self.redraw(source), domain)
            return replace(release, record=release.record.without_guarantee(REDRAWN), ledger=events)

        return PlannedRelease(planned.record.without_guarantee(REDRAWN), events, make)

    def redraw(self, source: Ratings) -> Ratings:
        """Return ratings with the mean number of items for each user, drawn uniformly without replacement."""
        count = max(1, round(source.num_ratings / source.num_users))
        nobody = np.zeros(source.num_users + 1, dtype=np.int64)
        items = distinct_items(
            hash_ids(source.user_ids), count, source.num_items, (nobody, nobody[:0]), seed=self.seed, phase="noise"
        )
        starts = np.arange(source.num_users + 1) * items.shape[1]
        ones = np.ones(items.size, dtype=np.float32)
        matrix = csr_array((ones, items.ravel(), starts), shape=source.matrix.shape)
        return Ratings(matrix, source.user_ids, source.item_ids, source.applied)


class SameGuarantee(Wrapper):
    """Base of wrappers whose release has the guarantee of that of ``of``."""

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan the release of ``of``, with another way to make it."""
        planned = self.stamped.prepare(sizes)
        return replace(planned, make=partial(self.remake, planned.make))

    @abstractmethod
    def remake(self, make: Make, source: Ratings, domain: str) -> Release:
        """Return the release, by the function that makes that of ``of``."""

    def audits(self) -> Sequence[Audit | OneRunAudit]:
        """Return the audits of ``of``."""
        return self.of.audits()


def noted(release: Release, **inputs: Plain) -> PrivacyRecord:
    """Return the record of a release with further public inputs."""
    return replace(release.record, notes={**release.record.notes, **inputs})


class Shuffled(SameGuarantee):
    """Another publisher's release with shuffled users, so that no user keeps a row.

    The permutation is post-processing, so the record is that of ``of``. If ``of`` joins its users with the target's, as
    `BridgePublisher` does, they are permuted before: each row is joined with another user, under the same guarantee.

    Args:
        of: The publisher whose release is shuffled.
        seed: Seed of the permutation.

    Examples:
        >>> from datamodules import Synthetic
        >>> from zoo.publishers.plaintext import Plaintext
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> release = Shuffled(Plaintext()).publish(ratings, "book")
        >>> bool((release.user_ids == ratings.user_ids).any())
        False
    """

    control = True
    repeats_seed = True

    def __init__(self, of: Publisher, seed: int = 0) -> None:
        super().__init__(of)
        self.seed = seed

    def remake(self, make: Make, source: Ratings, domain: str) -> Release:
        """Return the release of ``of`` under other ids, or of ratings under other ids."""
        notes: dict[str, Plain] = {"rows": "shuffled among the users (control)", "seed of the shuffle": self.seed}
        if self.of.joins_users:
            release = make(replace(source, user_ids=self._moved(source.user_ids)), domain)
            return replace(release, record=noted(release, **notes))
        release = make(source, domain)
        return replace(release, user_ids=self._moved(release.user_ids), record=noted(release, **notes))

    def _moved(self, user_ids: Ids) -> Ids:
        if len(user_ids) < 2:
            raise ValueError(f"The release has {len(user_ids)} users. Shuffling needs at least two.")
        order = np.random.default_rng(self.seed).permutation(len(user_ids))
        ids = np.empty_like(user_ids)
        ids[order] = user_ids[np.roll(order, 1)]  # one cycle through all users: no fixed point
        return ids


class Partial(SameGuarantee):
    """Another publisher's release for a share of its users: the effect of a smaller overlap between the parties.

    The omitted users are drawn from the ids and a public seed, so dropping rows is post-processing and the record is that of
    ``of``. If ``of`` joins its users with the target's, as `BridgePublisher` does, they are dropped before: data sets that differ
    in one user's data still differ in no more. The target then needs ``missing_users: zero``.

    Args:
        of: The publisher whose release is cut.
        share: Share of the users with a row, above 0 and at most 1.
        seed: Seed of the drawn users.

    Examples:
        >>> from datamodules import Synthetic
        >>> from zoo.publishers.plaintext import Plaintext
        >>> Partial(Plaintext(), share=0.5).publish(Synthetic(num_users=60, num_items=40).source("book"), "book").num_users
        30
    """

    def __init__(self, of: Publisher, share: float, seed: int = 0) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share}. For 0, use Nothing.")
        super().__init__(of)
        self.share, self.seed = share, seed

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan the release of ``of``, cut; or made of ratings of fewer users."""
        return super().prepare(
            replace(sizes, num_users=self._number(sizes.num_users)) if self.of.joins_users else sizes
        )

    def remake(self, make: Make, source: Ratings, domain: str) -> Release:
        """Return the release of ``of`` without the rows of the others, or of ratings without theirs."""
        note = {"share of the users": self.share, "seed of the users": self.seed}
        if self.of.joins_users:
            kept = self._kept(source.user_ids)
            part = replace(source, matrix=source.matrix[kept], user_ids=source.user_ids[kept], times=None)
            release = make(part, domain)
            return replace(release, record=noted(release, **note))
        release = make(source, domain)
        kept = self._kept(release.user_ids)
        return replace(
            release,
            tensors=release.tensors_of(torch.from_numpy(kept)),
            user_ids=release.user_ids[kept],
            record=noted(release, **note),
        )

    def _kept(self, user_ids: Ids) -> Integers:
        order = np.argsort(mix(self.seed, "partial", hash_ids(user_ids)), kind="stable")
        return np.sort(order[: self._number(len(user_ids))])

    def _number(self, users: int) -> int:
        return max(1, round(self.share * users))


class Thinned(SameGuarantee):
    """Another publisher's release of a share of the ratings.

    Each rating is kept with the same probability, drawn from its two ids and a public seed, independent of other ratings. Data
    sets that differ in one rating, or in one user's, still differ in no more: the record is that of ``of``.

    Args:
        of: The publisher of the rest.
        share: Share of the kept ratings, above 0 and at most 1.
        seed: Seed of the drawn ratings; public.

    Examples:
        >>> from datamodules import Synthetic
        >>> from zoo.publishers.plaintext import Plaintext
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> Thinned(Plaintext(), share=0.5).thin(ratings).num_ratings < 0.7 * ratings.num_ratings
        True
    """

    repeats_seed = True

    def __init__(self, of: Publisher, share: float, seed: int = 0) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share}. For 0, use Nothing.")
        super().__init__(of)
        self.share, self.seed = share, seed

    def remake(self, make: Make, source: Ratings, domain: str) -> Release:
        """Return the release of ``of`` on the kept ratings."""
        release = make(self.thin(source), domain)
        inputs = {"share of the ratings": self.share, "seed of the share": self.seed}
        return replace(release, record=noted(release, **inputs))

    def thin(self, source: Ratings) -> Ratings:
        """Return the kept ratings, with all users and items."""
        users, items = source.pairs()
        keys = mix(self.seed, "thinned", hash_ids(source.user_ids)[users], hash_ids(source.item_ids)[items])
        kept = uniform_reals(keys) < self.share  # possibly none: an error would reveal the last one

        matrix = csr_array((source.matrix.data[kept], (users[kept], items[kept])), shape=source.matrix.shape)
        return Ratings(matrix, source.user_ids, source.item_ids, source.applied)
