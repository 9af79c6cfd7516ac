"""Ciao: ratings of one review site in 28 categories."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from datamodules.files import KNOWN_FILES, Domain, KnownFiles
from datamodules.protocol import Evaluation

RANDOM2 = Evaluation(split="random2")


class Ciao(KnownFiles):
    """Ciao: 28 categories of one review site, 7,375 users, most of them in several; ratings from 0 to 5, without times.

    The folder `ciao` has a file for each category, `cat01` to `cat28`, numbered as in the source. Users have few ratings in each
    category, so use weak filters. Ratings are explicit: `filters: {threshold: 3}` drops low ones; without it every rating counts
    as 1. `latest1`, `latest2` and `temporal` are refused. `docs/data.md` has the data card: counts, caveats, terms.

    Args:
        target: Domain to recommend in; by default the largest.
        sources: Domains to learn from; by default the second largest, which shares 2,757 users with it.
        evaluation: Held-out items and their ranking; by default two random items of each user.
        **settings: Arguments of :class:`Files`.

    Examples:
        >>> from datamodules import Ciao, Filters
        >>> data = Ciao("cat01", sources=["cat10"], filters=Filters(threshold=3))
        >>> len(data.folders["ciao"]), data.evaluation.split
        (28, 'random2')
    """

    folders: ClassVar[Mapping[str, Mapping[str, Domain]]] = {"ciao": KNOWN_FILES["ciao"]}

    def __init__(
        self,
        target: str = "cat01",
        sources: Sequence[str] = ("cat10",),
        evaluation: Evaluation = RANDOM2,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__("ciao", target, sources, evaluation=evaluation, **settings)
