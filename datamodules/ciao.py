"""Ciao: ratings of one review site in 28 categories."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from datamodules.files import KNOWN_FILES, Domain, KnownFiles
from datamodules.protocol import Evaluation

RANDOM2 = Evaluation(split="random2")


class Ciao(KnownFiles):
    """Ciao: 28 categories of one review site, 7,375 users, most of them in several; ratings from 0 to 5, without times.

    The folder `ciao` holds a file for each category, `cat01` to `cat28`, as the source numbers them. Users rate little in each
    category, so filter lightly. Ratings are explicit: `filters: {threshold: 3}` drops low ones; without it every rating counts
    as 1. `latest1`, `latest2` and `temporal` are refused. `docs/data.md` has the card: counts, caveats, terms.

    Args:
        target: Domain to recommend in; by default the largest.
        sources: Domains to learn from; by default the second largest, which shares 2,757 users with it.
        evaluation: What is held out and how it is ranked; by default two random items of each user are held out.
        **settings: As :class:`Files` takes them.
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
