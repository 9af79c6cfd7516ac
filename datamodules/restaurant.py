"""Restaurant: a small set of restaurant ratings, for one-bit matrix completion."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from datamodules.files import Files
from datamodules.protocol import Evaluation, Filters
from datamodules.users import OWN
from zoo.release.denoiser import Denoiser

#: Two stars of at most two are +1.
TWO_STARS = Filters(threshold=2, signs=True)
FOUR_FIFTHS = Evaluation(split="ratio", shares=(0.8, 0.0, 0.2))


class Restaurant(Files):
    """Restaurant and consumer data: 138 customers, 130 restaurants, 1,161 ratings of 0, 1 or 2, without times.

    By default ratings are signs, 2 is +1, 0 and 1 are -1, and a fifth of each customer's ratings is the test, as in
    *One-Bit Matrix Completion with Differential Privacy*, section 5.1 (which does not say whether its fifth is of each
    customer or of all). Test ratings change with the seed.

    Args:
        target: `ratings`, the only domain.
        sources: None.
        name: Name of the data set, which is its folder's.
        root: The folder itself, wherever it lies; null: `$ZOO_DATA/<name>`, else `data/<name>`.
        users: `own`, or a CSV file with a column user_id.
        missing_users: `error`, or `zero`: target users without a row in a release are left out of what reads it.
        catalogues: By domain: a CSV file with a column item_id, the items that the domain may have, rated or not; public.
        filters: Who and what counts.
        evaluation: What is held out and how it is ranked.
        batch_size: Examples in a training batch of one process.
        evaluation_batch_size: Users in an evaluation batch.
        top_k: Items per user that `predict` writes.
        seed: Of splits, candidates and batches; null: that of the run (`seed_everything`).
        releases: Folder of each source's release.
        denoiser: Takes the known noise off rows before anything reads them, at no cost of privacy; null: rows stay as released.
    """

    where_to_get_it = (
        "Restaurant & consumer data are at https://archive.ics.uci.edu (dataset 232). Write userID, placeID and rating of "
        "rating_final.csv as ratings.csv.gz, with the header user_id,item_id,rating,timestamp."
    )

    def __init__(
        self,
        target: str = "ratings",
        sources: Sequence[str] = (),
        name: str = "rc",
        root: Path | None = None,
        users: str = OWN,
        missing_users: Literal["error", "zero"] = "error",
        catalogues: dict[str, Path] | None = None,
        filters: Filters = TWO_STARS,
        evaluation: Evaluation = FOUR_FIFTHS,
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
