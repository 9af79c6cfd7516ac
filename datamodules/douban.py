"""Douban: the Book and Music task of PriCDR and PPGenCDR."""

from collections.abc import Sequence
from typing import Any

from datamodules.files import Files
from datamodules.protocol import Evaluation

OFFICIAL = Evaluation(split="given", shared_candidates=True)


class Douban(Files):
    """Douban Book and Music, 924 users, with the split and the candidate lists that PriCDR's authors published.

    The folder `douban-book-music` has `book.csv.gz` (3,916 items, 50,429 ratings) and `music.csv.gz` (4,228 items, 50,157
    ratings), and for each `_valid`, `_test` and `_negatives`. All users are in both domains, so `users: own` suffices, and all
    ratings are at least 3. With `name: douban` (the raw ratings) the filters 3 / 6 / 6 and `users: common` or a list rebuild the
    task. The paper states a minimum of 5, but the published sample has these numbers.

    Args:
        target: `music` or `book`.
        sources: The other domain.
        name: `douban-book-music`, or `douban` for the raw ratings.
        evaluation: Held-out items and their ranking; by default as published.
        **settings: Arguments of :class:`Files`.

    Examples:
        >>> from datamodules import Douban
        >>> data = Douban("music", sources=["book"])
        >>> data.folder.name, data.evaluation.split
        ('douban-book-music', 'given')
    """

    where_to_get_it = (
        "The Douban ratings are published with GA-DTCDR (Zhu et al., IJCAI 2020) and, filtered and split, as the sample of "
        "PriCDR (Chen et al., WWW 2022). Write each domain as <domain>.csv.gz with the header "
        "user_id,item_id,rating,timestamp."
    )

    def __init__(
        self,
        target: str = "music",
        sources: Sequence[str] = ("book",),
        name: str = "douban-book-music",
        evaluation: Evaluation = OFFICIAL,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(name, target, sources, evaluation=evaluation, **settings)
