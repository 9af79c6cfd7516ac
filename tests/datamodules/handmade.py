"""Tables small enough to check by eye, and a datamodule of such tables."""

from collections.abc import Mapping
from typing import Any

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

    _read_elsewhere = ()  # rows are read as they are given, which a class that is none of ours has only said

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
