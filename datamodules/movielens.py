"""MovieLens100K: 100,000 ratings of films, for one-bit matrix completion and for single-domain baselines."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from datamodules.files import Files


class MovieLens100K(Files):
    """MovieLens 100K: 943 users, 1,682 films, 100,000 ratings from 1 to 5 with times.

    The folder `ml-100k` holds `ratings.csv.gz` with all of them and `u1_test.csv.gz`, the 20,000 that the data's own first
    split tests on. The split `given` is that one; it has no validation rows, so all 80,000 others are learned from.

    One-bit matrix completion takes `filters: {threshold: 3.5, signs: true}`. The mean of all ratings is 3.52986 and ratings
    are whole numbers, so `threshold: mean` gives the same signs; 3.5 is no statistic of anybody's ratings.

    Args:
        target: `ratings`, the only domain.
        sources: None.
        name: Name of the data set, which is its folder's.
        **settings: As :class:`Files` takes them.
    """

    where_to_get_it = (
        "`python -m zoo data fetch ml-100k` downloads it; or get it by hand from https://grouplens.org/datasets/movielens/100k/ "
        "(Harper and Konstan 2015; not to be redistributed), and write u.data as ratings.csv.gz and u1.test as u1_test.csv.gz, "
        "with the header user_id,item_id,rating,timestamp."
    )

    def __init__(
        self,
        target: str = "ratings",
        sources: Sequence[str] = (),
        name: str = "ml-100k",
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(name, target, sources, **settings)

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """The test rows of the data's own first split, and no validation rows."""
        test = self._optional(domain, "u1_test")
        return None if test is None else (test.clear(), test)
