"""Shops: generated purchases in two shops."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from datamodules import CrossDomainDataModule


class Shops(CrossDomainDataModule):
    """Purchases in two shops: customers buy articles of their own kind in both, so a release predicts the target.

    A datamodule defines users and items (`public_ids`) and reads ratings (`read`). The base class does the rest: splits, filters,
    candidates, batches and user alignment. Yours would read a database.

    Args:
        target: Shop to recommend in.
        sources: Shops to learn from.
        customers: Number of customers.
        articles: Number of articles per shop.
        kinds: Number of kinds of customers and articles.
        **settings: Settings of `datamodules.CrossDomainDataModule`.
    """

    def __init__(
        self,
        target: str = "wine",
        sources: Sequence[str] = ("cheese",),
        customers: int = 60,
        articles: int = 40,
        kinds: int = 4,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(target, sources, **settings)
        if not 1 <= kinds <= min(customers, articles):
            raise ValueError(
                f"kinds is {kinds}. It must be 1 to {min(customers, articles)}, as customers and articles."
            )
        self.customers, self.articles, self.kinds = customers, articles, kinds

    def public_ids(self, domain: str) -> tuple[pl.Series, pl.Series]:
        """Return all customers and articles."""
        users = [f"customer{number:04d}" for number in range(self.customers)]
        return pl.Series(users), pl.Series([f"{domain}{number:04d}" for number in range(self.articles)])

    def read(self, domain: str) -> pl.DataFrame:
        """Return the purchases of a shop: ``user_id``, ``item_id``, ``rating``, ``timestamp``."""
        users, items = self.public_ids(domain)
        bought = [
            (users[user], items[item], 1.0, (7 * user + 3 * item) % self.articles)
            for user in range(self.customers)
            for item in range(user % self.kinds, self.articles, self.kinds)
        ]
        return pl.DataFrame(
            bought,
            schema={"user_id": pl.String, "item_id": pl.String, "rating": pl.Float64, "timestamp": pl.Int64},
            orient="row",
        )
