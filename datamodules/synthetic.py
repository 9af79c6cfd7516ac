"""Synthetic: seeded data that come with the code, with a transfer planted in them."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from datamodules.base import CrossDomainDataModule
from datamodules.planted import planted_domains, planted_ids


class Synthetic(CrossDomainDataModule):
    """Users with tastes shared across domains: a method that transfers must find it, and without link must not.

    Nothing is read from a file. Each party makes the same data from the same seed, and uses its own domain.

    Args:
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        num_users: Users of each domain.
        num_items: Items of each domain.
        link: Correlation of a user's taste in a domain with the one common to all; 0: a source says nothing about anybody.
        overlap: Share of a domain's users who are in every domain. Below 1, set `missing_users` or `users`.
        ratings_per_user: Items of each user.
        data_seed: Of the interactions, apart from the run's seed.
        batch_size: Examples in a training batch of one process.
        **settings: As :class:`CrossDomainDataModule` takes them.
    """

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
        """Everybody and everything, rated or not: the settings say who and what there is."""
        users, items = planted_ids(domain, self.num_items, self.num_users, self.overlap)
        return pl.Series(users).sort(), pl.Series(items).sort()

    def read(self, domain: str) -> pl.DataFrame:
        """All interactions of one domain."""
        if domain not in (self.target, *self.sources):
            raise ValueError(f"{domain!r} is no domain of this experiment: {[self.target, *self.sources]}.")
        # In the order of their names, so that source and target make the same domains in either direction.
        sizes = dict.fromkeys(sorted([self.target, *self.sources]), self.num_items)
        return planted_domains(sizes, self.num_users, self.link, self.overlap, self.data_seed, self.ratings_per_user)[
            domain
        ]
