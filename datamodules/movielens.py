"""MovieLens100K: 100,000 ratings of films, for one-bit matrix completion and for single-domain baselines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from datamodules.files import Files
from datamodules.protocol import Evaluation, Filters
from datamodules.users import OWN
from zoo.release.denoiser import Denoiser


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
        root: The folder itself, wherever it lies; null: `$ZOO_DATA/<name>`, else `data/<name>`.
        users: `own`, or a CSV file with a column user_id.
        missing_users: `error`, or `zero`: target users without a row in a release are left out of what reads it.
        catalogues: By domain: a CSV file with a column item_id, the items that the domain may have, rated or not; public.
        filters: Who and what counts; by default every rating is positive.
        evaluation: What is held out and how it is ranked.
        batch_size: Examples in a training batch of one process.
        evaluation_batch_size: Users in an evaluation batch.
        top_k: Items per user that `predict` writes.
        seed: Of splits, candidates and batches; null: that of the run (`seed_everything`).
        releases: Folder of each source's release.
        denoiser: Takes the known noise off rows before anything reads them, at no cost of privacy; null: rows stay as released.
    """

    where_to_get_it = (
        "MovieLens 100K is at https://grouplens.org/datasets/movielens/100k/ (Harper and Konstan 2015; not to be "
        "redistributed). Write u.data as ratings.csv.gz and u1.test as u1_test.csv.gz, with the header "
        "user_id,item_id,rating,timestamp."
    )

    def __init__(
        self,
        target: str = "ratings",
        sources: Sequence[str] = (),
        name: str = "ml-100k",
        root: Path | None = None,
        users: str = OWN,
        missing_users: Literal["error", "zero"] = "error",
        catalogues: dict[str, Path] | None = None,
        filters: Filters = Filters(),  # noqa: B008  frozen
        evaluation: Evaluation = Evaluation(),  # noqa: B008  frozen
        batch_size: int = 128,
        evaluation_batch_size: int = 512,
        top_k: int = 10,
        seed: int | None = None,
        releases: dict[str, Path] | None = None,
        denoiser: Denoiser | None = None,
    ) -> None:
        super().__init__(
            name,
            target,
            sources,
            root,
            users=users,
            missing_users=missing_users,
            catalogues=catalogues,
            filters=filters,
            evaluation=evaluation,
            batch_size=batch_size,
            evaluation_batch_size=evaluation_batch_size,
            top_k=top_k,
            seed=seed,
            releases=releases,
            denoiser=denoiser,
        )

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """The test rows of the data's own first split, and no validation rows."""
        test = self._optional("u1_test")
        if test is None:
            return None
        rows = self._read(test)
        return rows.clear(), rows
