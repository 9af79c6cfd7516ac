"""Synthetic: seeded data whose domains share user tastes to an adjustable degree."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from datamodules.base import CrossDomainDataModule
from zoo.data.arrays import Floats


class Synthetic(CrossDomainDataModule):
    """Synthetic ratings with tastes shared across domains: methods must gain from them, and must not without the link.

    Each party generates the same data from the same seed, and uses its own domain. No file is read.

    Args:
        target: Domain to recommend in.
        sources: Domains to learn from, one release each. Another number of them changes the ratings of the target.
        num_users: Users of each domain.
        num_items: Items of each domain.
        link: Correlation of a user's taste in a domain with the taste common to all domains; 0: sources are useless.
        overlap: Share of a domain's users who are in every domain. Below 1, set `missing_users` or `users`.
        ratings_per_user: Items of each user.
        data_seed: Seed of the interactions, independent of the run's seed.
        batch_size: Examples in a training batch of one process.
        **settings: Arguments of :class:`CrossDomainDataModule`.

    Examples:
        >>> from datamodules import Synthetic
        >>> data = Synthetic("music", sources=["book"], num_users=60, num_items=40)
        >>> book = data.source("book")  # for the source party
        >>> book.num_users, book.num_items, book.num_ratings
        (60, 40, 900)
        >>> data.read_target()  # for the target party
        >>> data.train.num_ratings, len(data.validation.users), len(data.test.users)
        (780, 60, 60)
    """

    terms = "Made up from a seed."

    def __init__(
        self,
        target: str = "music",
        sources: Sequence[str] = ("book",),
        num_users: int = 400,
        num_items: int = 150,
        link: float = 0.9,
        overlap: float = 1.0,
        ratings_per_user: int = 15,
        data_seed: int = 0,
        batch_size: int = 64,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(target, sources, batch_size=batch_size, **settings)
        self.num_users, self.num_items, self.ratings_per_user = num_users, num_items, ratings_per_user
        self.link, self.overlap, self.data_seed = link, overlap, data_seed

    def public_ids(self, domain: str) -> tuple[pl.Series, pl.Series]:
        """Return all users and items, rated or not: they follow from the settings."""
        users, items = generated_ids(domain, self.num_items, self.num_users, self.overlap)
        return pl.Series(users).sort(), pl.Series(items).sort()

    def read(self, domain: str) -> pl.DataFrame:
        """Return all interactions of one domain."""
        if domain not in self._domains:
            raise ValueError(f"{domain!r} is no domain. The domains are {self._domains}.")
        # Sorted by name, so that swapping source and target generates the same domains.
        sizes = dict.fromkeys(sorted(self._domains), self.num_items)
        settings = self.num_users, self.link, self.overlap, self.data_seed, self.ratings_per_user
        return generate_domains(sizes, *settings)[domain]


def generate_domains(
    num_items: Mapping[str, int],
    num_users: int,
    link: float,
    overlap: float,
    seed: int,
    ratings_per_user: int = 20,
    dim: int = 6,
    contrast: float = 2.5,
) -> dict[str, pl.DataFrame]:
    """Generate implicit interactions of several domains whose users share tastes to an adjustable degree.

    A user's taste in a domain is `link` times a taste common to all domains plus `sqrt(1 - link^2)` times an own taste. Tastes in
    two domains have the correlation `link^2`. The user takes items without replacement, with odds that rise with taste times item
    and with the item's popularity.

    Args:
        num_items: Number of items, by domain.
        num_users: Users of each domain.
        link: Weight of the common taste, in [0, 1].
        overlap: Share of a domain's users who are in every domain; the others are in this one only.
        seed: Seed of all draws.
        ratings_per_user: Items of each user.
        dim: Dimensions of a taste.
        contrast: Weight of tastes.

    Returns:
        By domain: user_id, item_id, rating (1) and timestamp (the order of the user's items).
    """
    if not 0 <= link <= 1 or not 0 <= overlap <= 1:
        raise ValueError(f"link is {link} and overlap {overlap}. Allowed: [0, 1].")
    if num_users < 2 or not 1 <= ratings_per_user < min(num_items.values(), default=0):
        found = f"Got {num_users} users, {ratings_per_user} ratings per user and {dict(num_items)} items"
        raise ValueError(f"{found}. Needed: 2 users, and fewer ratings than items.")
    rng = np.random.default_rng(seed)
    shared = round(num_users * overlap)
    common_taste = rng.standard_normal((num_users, dim))
    tables = {}
    for name, items in num_items.items():
        own = rng.standard_normal((num_users, dim))
        taste = link * common_taste + np.sqrt(1 - link**2) * own
        taste[shared:] = own[shared:]  # users of one domain share nothing
        factors = rng.standard_normal((items, dim))
        logits = contrast * taste @ factors.T / np.sqrt(dim) + rng.standard_normal(items)
        tables[name] = _taken(logits, ratings_per_user, *generated_ids(name, items, num_users, overlap), rng)
    return tables


def generated_ids(domain: str, num_items: int, num_users: int, overlap: float) -> tuple[list[str], list[str]]:
    """Return the ids of all users and items of a domain of `generate_domains`, from its settings alone."""
    shared = round(num_users * overlap)
    users = [f"u{i:04d}" if i < shared else f"{domain}-u{i:04d}" for i in range(num_users)]
    return users, [f"{domain}-{item}" for item in range(num_items)]


def _taken(logits: Floats, count: int, users: list[str], items: list[str], rng: np.random.Generator) -> pl.DataFrame:
    # The largest logits plus Gumbel noise are a sample without replacement with odds exp(logit).
    best = np.argsort(-(logits + rng.gumbel(size=logits.shape)), axis=1)[:, :count]
    return pl.DataFrame(
        {
            "user_id": np.repeat(users, count).tolist(),
            "item_id": [items[item] for item in best.ravel()],
            "rating": np.ones(best.size),
            "timestamp": np.tile(np.arange(count), len(users)),
        },
        schema_overrides={"timestamp": pl.Int64},
    )
