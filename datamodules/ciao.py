"""Ciao: ratings of one review site in 28 categories."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from datamodules.described import Described, Domain
from datamodules.protocol import Evaluation

#: Users, items and ratings of each category, in the order of their numbers.
COUNTS = (
    (4_358, 11_299, 39_650),
    (3_298, 12_605, 21_938),
    (3_281, 9_356, 23_873),
    (3_185, 9_976, 19_136),
    (3_675, 12_196, 21_805),
    (3_067, 7_427, 20_583),
    (624, 1_042, 1_329),
    (2_526, 2_237, 10_239),
    (1_793, 1_748, 4_908),
    (4_381, 2_893, 30_178),
    (2_430, 742, 6_680),
    (3_710, 3_685, 16_642),
    (1_131, 1_005, 2_628),
    (1_716, 3_093, 6_530),
    (1_012, 693, 1_560),
    (1_673, 1_625, 3_835),
    (2_079, 3_088, 5_128),
    (2_883, 1_334, 5_308),
    (2_073, 2_719, 4_228),
    (222, 369, 471),
    (2_220, 4_303, 6_635),
    (1_574, 1_573, 2_597),
    (1_631, 4_305, 8_613),
    (2_991, 4_806, 14_839),
    (67, 168, 197),
    (48, 39, 68),
    (303, 268, 387),
    (1_387, 625, 2_702),
)
SOURCE = "github.com/Wang-Shuo/GraphRec_PyTorch, datasets/Ciao/rating.mat"
CIAO = {
    f"cat{number:02}": Domain(*counts, SOURCE, f"category {number} of the source", explicit=True)
    for number, counts in enumerate(COUNTS, start=1)
}

RANDOM2 = Evaluation(split="random2")


class Ciao(Described):
    """Ciao: 28 categories of one review site, 7,375 users, most of them in several; ratings from 0 to 5, without times.

    The folder `ciao` holds a file for each category, `cat01` to `cat28`, as the source numbers them; what they are called is not
    known. Users stand in many categories (7,271 of 7,375 in two or more, 3,426 in eight or more), and rate little in each, so
    filter lightly. Ratings are explicit: `filters: {threshold: 3}` drops what people did not like, and without a threshold every
    rating counts as 1. Nothing says which rating is the latest, so `latest1`, `latest2` and `temporal` are refused. `docs/data.md`
    has the card: counts, caveats, terms.

    Args:
        target: Domain to recommend in; by default the largest.
        sources: Domains to learn from; by default the second largest, which shares 2,757 users with it.
        evaluation: What is held out and how it is ranked; by default two random items of each user are held out.
        **settings: As :class:`Files` takes them.
    """

    folders: ClassVar[Mapping[str, Mapping[str, Domain]]] = {"ciao": CIAO}

    def __init__(
        self,
        target: str = "cat01",
        sources: Sequence[str] = ("cat10",),
        evaluation: Evaluation = RANDOM2,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__("ciao", target, sources, evaluation=evaluation, **settings)
