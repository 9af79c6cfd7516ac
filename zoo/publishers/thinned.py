"""Thinned: what a sparser source is worth."""

from dataclasses import replace

from scipy.sparse import csr_array

from zoo.data.ratings import Ratings
from zoo.data.sampling import hash_ids, mix, uniform_reals
from zoo.publisher import Make, Publisher
from zoo.publishers.controls import Wrapper, noted
from zoo.release.release import Release


class Thinned(Wrapper):
    """Another publisher's release of a part of the ratings, as if the source had fewer of them.

    Each rating stays with the same probability, drawn from its two ids and a public seed, so whether one stays depends on no
    other. Data sets that differ in one rating, or in one user's, differ in no more afterwards: the record is that of ``of``.

    Args:
        of: The publisher whose release it is.
        share: Share of the ratings that stay, above 0 and at most 1.
        seed: Of the draw; public.

    Raises:
        ValueError: If the share is out of range, or, when publishing, if no rating is left.
    """

    seed_of_cell = True

    def __init__(self, of: Publisher, share: float, seed: int = 0) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share}. To release nothing, take Nothing.")
        super().__init__(of)
        self.share, self.seed = share, seed

    def remake(self, make: Make, source: Ratings, domain: str) -> Release:
        """The release of ``of`` on what is left."""
        release = make(self.thin(source), domain)
        inputs = {"share of the ratings": self.share, "seed of the share": self.seed}
        return replace(release, record=noted(release, **inputs))

    def thin(self, source: Ratings) -> Ratings:
        """The ratings that stay; users and items all do."""
        users, items = source.pairs()
        keys = mix(self.seed, "thinned", hash_ids(source.user_ids)[users], hash_ids(source.item_ids)[items])
        kept = uniform_reals(keys) < self.share
        if not kept.any():
            raise ValueError(
                f"Of {source.num_ratings} ratings none is left at a share of {self.share}. Take a larger one."
            )
        matrix = csr_array((source.matrix.data[kept], (users[kept], items[kept])), shape=source.matrix.shape)
        return Ratings(matrix, source.user_ids, source.item_ids, source.applied)
