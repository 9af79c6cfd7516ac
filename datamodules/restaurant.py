"""Restaurant: a small set of restaurant ratings, for one-bit matrix completion."""

from collections.abc import Sequence
from typing import Any

from datamodules.files import Files
from datamodules.protocol import Evaluation, Filters

TWO_STARS = Filters(threshold=2, signs=True)
FOUR_FIFTHS = Evaluation(split="ratio", shares=(0.8, 0.0, 0.2))


class Restaurant(Files):
    """Restaurant and consumer data: 138 customers, 130 restaurants, 1,161 ratings of 0, 1 or 2, without times.

    By default ratings are signs: 2 is +1, 0 and 1 are -1. A fifth of each customer's ratings is the test, as in *One-Bit Matrix
    Completion with Differential Privacy*, section 5.1 (which does not state whether its fifth is of each customer or of all).
    Test ratings change with the seed.

    Args:
        target: `ratings`, the only domain.
        sources: None.
        name: Name of the data set and of its folder.
        filters: Filters; by default 2 is +1, 0 and 1 are -1.
        evaluation: Held-out items and their ranking; by default a fifth of each customer's ratings.
        **settings: Arguments of :class:`Files`.

    Examples:
        >>> from datamodules import Restaurant
        >>> data = Restaurant()
        >>> data.folder.name, data.evaluation.shares
        ('rc', (0.8, 0.0, 0.2))
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
