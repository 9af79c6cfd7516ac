"""Planted domains: interactions in which a transfer is hidden, to be found."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from zoo.data.pairs import Floats


def planted_domains(
    num_items: Mapping[str, int],
    num_users: int,
    link: float,
    overlap: float,
    seed: int,
    ratings_per_user: int = 20,
    dim: int = 6,
    contrast: float = 2.5,
) -> dict[str, pl.DataFrame]:
    """Gives implicit interactions of several domains whose users share their tastes to an adjustable degree.

    A user's taste in a domain, of `dim` dimensions, is `link`, in [0, 1], times a taste common to all domains plus
    `sqrt(1 - link^2)` times one of its own, so with `link` 1 the domains know the same about a person and with 0 nothing of
    each other; between two domains tastes have the correlation `link^2`. A share `overlap` of a domain's users is in every
    domain, the others in this one alone. The user takes `ratings_per_user` items without replacement, with odds that rise
    with taste times item and with the item's popularity; `contrast` says how much tastes count, 0 leaves popularity alone.

    `num_items` is by domain, and so is the result: user_id, item_id, rating (1) and timestamp (the order in which a user took
    the items).
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
        tables[name] = _taken(logits, ratings_per_user, *planted_ids(name, items, num_users, overlap), rng)
    return tables


def planted_ids(domain: str, num_items: int, num_users: int, overlap: float) -> tuple[list[str], list[str]]:
    """Gives the ids of all users and of all items of one of `planted_domains`, from its settings alone."""
    shared = round(num_users * overlap)
    users = [f"u{i:04d}" if i < shared else f"{domain}-u{i:04d}" for i in range(num_users)]
    return users, [f"{domain}-{item}" for item in range(num_items)]


def _taken(logits: Floats, count: int, users: list[str], items: list[str], rng: np.random.Generator) -> pl.DataFrame:
    """The `count` largest of logit plus Gumbel noise: sampling without replacement with odds exp(logit)."""
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
