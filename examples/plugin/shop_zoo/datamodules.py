"""Shops: purchases in two shops, made by a rule, so that no file is needed."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from datamodules import CrossDomainDataModule


class Shops(CrossDomainDataModule):
    """Customers of two shops who buy what has the same remainder as they have, in either shop: a release tells the target all.

    A datamodule says who and what there is (`public_ids`) and reads a domain's ratings (`read`); splits, filters, candidates,
    batches and links are done by the base. Yours would read a database.

    Args:
        target: Shop to recommend in.
        sources: Shops to learn from.
        customers: How many there are.
        articles: How many each shop has.
        kinds: How many remainders, which are kinds of customers and of articles.
        **settings: As `datamodules.CrossDomainDataModule` takes them.
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
            raise ValueError(f"kinds must lie between 1 and the numbers of customers and articles; got {kinds}.")
        self.customers, self.articles, self.kinds = customers, articles, kinds

    def public_ids(self, domain: str) -> tuple[pl.Series, pl.Series]:
        """Everybody and everything, bought or not."""
        users = [f"customer{number:04d}" for number in range(self.customers)]
        return pl.Series(users), pl.Series([f"{domain}{number:04d}" for number in range(self.articles)])

    def read(self, domain: str) -> pl.DataFrame:
        """All purchases of a shop: ``user_id``, ``item_id``, ``rating``, ``timestamp``."""
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
