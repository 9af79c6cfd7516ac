"""Restaurant: a small set of restaurant ratings, for one-bit matrix completion."""

from collections.abc import Sequence
from typing import Any

from datamodules.files import Files
from datamodules.protocol import Evaluation, Filters

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
        filters: Who and what counts; by default 2 is +1, 0 and 1 are -1.
        evaluation: What is held out and how it is ranked; by default a fifth of each customer's ratings.
        **settings: As :class:`Files` takes them.
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
        filters: Filters = TWO_STARS,
        evaluation: Evaluation = FOUR_FIFTHS,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(name, target, sources, filters=filters, evaluation=evaluation, **settings)
