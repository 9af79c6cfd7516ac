"""MovieLens100K: 100,000 ratings of films, for one-bit matrix completion and for single-domain baselines."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from datamodules.files import Files


class MovieLens100K(Files):
    """MovieLens 100K: 943 users, 1,682 films, 100,000 ratings from 1 to 5 with times.

    The folder `ml-100k` has `ratings.csv.gz` with all ratings and `u1_test.csv.gz` with the 20,000 test ratings of the data's own
    first split. The split `given` uses it; it has no validation rows, so all other 80,000 ratings are for training.

    For one-bit matrix completion use `filters: {threshold: 3.5, signs: true}`. The mean of all ratings is 3.52986 and ratings are
    whole numbers, so `threshold: mean` gives the same signs; but 3.5 does not depend on private ratings.

    Args:
        target: `ratings`, the only domain.
        sources: None.
        name: Name of the data set and of its folder.
        **settings: Arguments of :class:`Files`.

    Examples:
        >>> from datamodules import Filters, MovieLens100K
        >>> data = MovieLens100K(filters=Filters(threshold=3.5, signs=True))
        >>> data.folder.name, data.signs
        ('ml-100k', True)
    """

    terms = (
        "MovieLens 100K, GroupLens: research use; not to be redistributed or used commercially without permission. Cite Harper and "
        "Konstan, ACM TiiS 2015."
    )
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
        """Return the test rows of the data's own first split, and no validation rows."""
        test = self._optional(domain, "u1_test")
        return None if test is None else (test.clear(), test)
