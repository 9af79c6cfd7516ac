"""Synthetic: seeded data that come with the code, with a transfer planted in them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from datamodules.base import CrossDomainDataModule
from zoo.data.pairs import Floats


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
        users, items = generated_ids(domain, self.num_items, self.num_users, self.overlap)
        return pl.Series(users).sort(), pl.Series(items).sort()

    def read(self, domain: str) -> pl.DataFrame:
        """All interactions of one domain."""
        if domain not in (self.target, *self.sources):
            raise ValueError(f"{domain!r} is no domain of this experiment: {[self.target, *self.sources]}.")
        # In the order of their names, so that source and target make the same domains in either direction.
        sizes = dict.fromkeys(sorted([self.target, *self.sources]), self.num_items)
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
    """Make implicit interactions of several domains whose users share their tastes to an adjustable degree.

    A user's taste in a domain, of `dim` dimensions, is `link`, in [0, 1], times a taste common to all domains plus `sqrt(1 -
    link^2)` times one of its own; between two domains tastes have the correlation `link^2`. A share `overlap` of a domain's
    users is in every domain, the others in this one alone. The user takes `ratings_per_user` items without replacement, with
    odds that rise with taste times item and with the item's popularity; `contrast` is the weight of tastes.

    `num_items` and the result are by domain: user_id, item_id, rating (1) and timestamp (the order of the user's items).
    """
    if not 0 <= link <= 1 or not 0 <= overlap <= 1:
        raise ValueError(f"link and overlap must lie in [0, 1]; got {link} and {overlap}.")
    if num_users < 2 or not 1 <= ratings_per_user < min(num_items.values(), default=0):
        raise ValueError(
            f"There must be at least 2 users, and fewer ratings per user than items; got {num_users} users, "
            f"{ratings_per_user} ratings and {dict(num_items)} items."
        )
    rng = np.random.default_rng(seed)
    shared = round(num_users * overlap)
    common_taste = rng.standard_normal((num_users, dim))
    tables = {}
    for name, items in num_items.items():
        own = rng.standard_normal((num_users, dim))
        taste = link * common_taste + np.sqrt(1 - link**2) * own
        taste[shared:] = own[shared:]  # whoever is in one domain alone shares nothing
        factors = rng.standard_normal((items, dim))
        logits = contrast * taste @ factors.T / np.sqrt(dim) + rng.standard_normal(items)
        tables[name] = _taken(logits, ratings_per_user, *generated_ids(name, items, num_users, overlap), rng)
    return tables


def generated_ids(domain: str, num_items: int, num_users: int, overlap: float) -> tuple[list[str], list[str]]:
    """Return the ids of all users and of all items of one of `generate_domains`, from its settings alone."""
    shared = round(num_users * overlap)
    users = [f"u{i:04d}" if i < shared else f"{domain}-u{i:04d}" for i in range(num_users)]
    return users, [f"{domain}-{item}" for item in range(num_items)]


def _taken(logits: Floats, count: int, users: list[str], items: list[str], rng: np.random.Generator) -> pl.DataFrame:
    # The largest logits plus Gumbel noise: sampling without replacement with odds exp(logit).
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
