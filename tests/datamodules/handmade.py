"""Tables small enough to check by eye, richer ones for what small ones hide, and a datamodule of tables."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from datamodules import CrossDomainDataModule
from datamodules.splits import PAIR
from datamodules.tables import SCHEMA

Rows = list[tuple[str, str]]


def table_of(pairs: Rows, times: list[int | None] | None = None, ratings: list[float] | None = None) -> pl.DataFrame:
    rows = [
        (user, item, ratings[at] if ratings else 1.0, times[at] if times else None)
        for at, (user, item) in enumerate(pairs)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def pairs_of(table: pl.DataFrame) -> Rows:
    return list(table.select(PAIR).iter_rows())


# Three users with five, two and one item, in ten rows (one of them repeated twice).
TEN = table_of(
    [("a", i) for i in "vwxyz"] + [("b", "x"), ("b", "y"), ("c", "z"), ("a", "v"), ("a", "v")],
    times=[5, 1, 2, 9, 3, 7, 7, 1, 6, 4],
)

#: Rows that Hypothesis draws, some of them repeated.
ROWS = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("uvwxyz")), min_size=1, max_size=30)


class Held(CrossDomainDataModule):
    """Domains that lie in memory, the source `a` and the target `b`, with what ships beside them."""

    read_by_plugin = ()  # as for a datamodule of this package, so that records of tests have no condition

    def __init__(
        self,
        tables: Mapping[str, pl.DataFrame],
        shipped: Mapping[str, tuple[pl.DataFrame | None, pl.DataFrame]] | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**({"target": "b", "sources": ("a",), "seed": 3} | settings))
        self.tables, self.shipped = tables, shipped or {}

    def read(self, domain: str) -> pl.DataFrame:
        """All rows."""
        return self.tables[domain]

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """What was given."""
        return self.shipped.get(domain)


# Users have 1 to 14 ratings, ids have several lengths, two sources know a part of the users each, and rating and time matter.

USERS = [f"u{n}" if n % 2 else f"member-{n:05d}-of-the-shop" for n in range(24)]
ITEMS = [f"i{n}" if n % 3 else f"a longer name of item {n}" for n in range(25)]
Row = tuple[str, str, float, int]


def _rows(seed: int, users: Iterable[int]) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        (USERS[user], ITEMS[item], float(rng.integers(1, 6)), int(rng.integers(1000)))
        for user in users
        for item in rng.choice(25, 1 + user * 5 % 14, replace=False)
    ]


#: Of the target, `b`, users 4 to 9 are in `a` alone, 10 to 13 in both sources, 14 to 17 in `c` alone, and 18 to 21 in neither.
RICH = {"a": _rows(0, range(14)), "b": _rows(1, range(4, 22)), "c": _rows(2, (*range(10, 18), 22, 23, 0, 1, 2, 3))}


def rich_table(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def rich(**settings: Any) -> Held:  # noqa: ANN401
    own = {"sources": ("a", "c"), "missing_users": "zero", "seed": 5} | settings
    return Held({name: rich_table(rows) for name, rows in RICH.items()}, **own)
