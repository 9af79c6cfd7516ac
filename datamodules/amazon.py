"""Amazon: reviews of products by category, in nine folders that several papers' authors have cut from them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from datamodules.described import Described, Domain

ABXI = "github.com/DiMarzioBian/ABXI, data"
DISEN = "github.com/cjx96/DisenCDR, dataset"
EDDA = "github.com/Stevenn9981/EDDA, data/Amazon_5core"
GENREC = "github.com/WncFht/GenRec, data"
GID = "github.com/lifemomo/GID, data"
IDGENREC = "github.com/agiresearch/IDGenRec, rec_datasets"
OPENH5 = "github.com/kitty-nami/OpenH5, data"
SEARCH = "github.com/QingyaoAi/Amazon-Product-Search-Datasets"
WASSERSTEIN = "github.com/RaghavPu/wasserstein-cdr-embeddings, data"

AFK = f"{ABXI}/afk/afk_50_preprocessed.txt"
ABE = f"{ABXI}/abe/abe_50_preprocessed.txt"
KG_BOOKS = f"{WASSERSTEIN}/Amazon-KG-5core-Books/Amazon-KG-5core-Books.inter"
KG_MOVIES = f"{WASSERSTEIN}/Amazon-KG-5core-Movies_and_TV/Amazon-KG-5core-Movies_and_TV.inter"
DENSE = f"{WASSERSTEIN}/Amazon-Dense-Subset"
QRELS = "train.qrels.gz and test.qrels.gz"

WHOLE = "2014, the 5-core"
LINKED = "2014, the 5-core, items that a knowledge graph has"
HELD_OUT = "of the 5-core: pairs that a search benchmark held out"
NEWER = "2018, the 5-core as processed there"
JOINED = "2018, the 5-core, its random split joined again"
ACTIVE = "2014, users with 5 or more in both, the latest 50 of a user"
EACH_5, EACH_10 = (f"users with {n} or more in both; `_test`: one of each user" for n in (5, 10))
FEW_ITEMS = "items with fewer than about 30 left out"

MANY = {
    "beauty": Domain(22_363, 12_101, 198_502, f"{IDGENREC}/Beauty/user_sequence.txt", WHOLE, order="rows"),
    "books": Domain(10_485, 8_318, 115_572, KG_BOOKS, LINKED),
    "cds": Domain(
        24_815, 9_791, 48_799, f"{SEARCH}, reviews_CDs_and_Vinyl_5.json.gz/test.qrels.gz", f"2014, 4 % {HELD_OUT}"
    ),
    "clothing": Domain(39_387, 23_033, 278_677, f"{OPENH5}/Clothing/user_sequence.txt", WHOLE, order="rows"),
    "digital_music": Domain(16_551, 11_768, 145_180, f"{EDDA}/Music_{{train,val,test}}.csv", JOINED, explicit=True),
    "electronics": Domain(
        9_699,
        7_679,
        204_934,
        f"{GID}/Electronics/user_sequence.txt",
        "2014, users with 12 or more, items with 10 or more",
        order="rows",
    ),
    "games": Domain(50_546, 16_859, 452_989, f"{GENREC}/Games/Games.inter.json", NEWER, order="rows"),
    "grocery": Domain(7_144, 11_837, 83_663, AFK, ACTIVE, order="times"),
    "home": Domain(7_144, 16_258, 89_885, AFK, ACTIVE, order="times"),
    "instruments": Domain(24_772, 9_922, 206_153, f"{GENREC}/Instruments/Instruments.inter.json", NEWER, order="rows"),
    "kindle": Domain(
        62_028, 45_235, 214_657, f"{SEARCH}, reviews_Kindle_Store_5.json.gz/test.qrels.gz", f"2014, 22 % {HELD_OUT}"
    ),
    "luxury_beauty": Domain(3_819, 1_581, 28_074, f"{EDDA}/Luxury_{{train,val,test}}.csv", JOINED, explicit=True),
    "movies": Domain(
        3_048,
        3_658,
        250_347,
        f"{GID}/Movies/user_sequence_reordered.txt",
        "2014, users and items with 30 or more",
        order="rows",
    ),
    "pantry": Domain(14_168, 4_967, 131_038, f"{EDDA}/Pantry_{{train,val,test}}.csv", JOINED, explicit=True),
    "phones": Domain(
        27_879,
        10_428,
        150_663,
        f"{SEARCH}, reviews_Cell_Phones_and_Accessories_5.json.gz/{QRELS}",
        "2014, 77 % of the 5-core",
    ),
    "sports": Domain(35_598, 18_357, 296_337, f"{IDGENREC}/Sports/user_sequence.txt", WHOLE, order="rows"),
    "toys": Domain(19_412, 11_924, 167_597, f"{IDGENREC}/Toys/user_sequence.txt", WHOLE, order="rows"),
}
#: What is known of every file, by folder and domain; the tests count the files.
AMAZON: dict[str, dict[str, Domain]] = {
    "amazon-food-kitchen": {
        "food": Domain(7_144, 11_837, 83_663, AFK, ACTIVE, order="times"),
        "kitchen": Domain(7_144, 16_258, 89_885, AFK, ACTIVE, order="times"),
    },
    "amazon-beauty-electronics": {
        "beauty": Domain(4_474, 10_379, 50_329, ABE, ACTIVE, order="times"),
        "electronics": Domain(4_474, 14_188, 63_800, ABE, ACTIVE, order="times"),
    },
    "amazon-books-movies-dense": {
        "books": Domain(1_426, 723, 31_504, f"{DENSE}/Amazon-Books-Dense.inter", FEW_ITEMS, explicit=True),
        "movies": Domain(1_381, 1_338, 62_084, f"{DENSE}/Amazon-Movies-Dense.inter", FEW_ITEMS, explicit=True),
    },
    "amazon-books-movies-kg5core": {
        "books": Domain(10_485, 8_318, 115_572, KG_BOOKS, LINKED),
        "movies": Domain(5_648, 4_779, 67_066, KG_MOVIES, LINKED),
    },
    "amazon-sport-cloth": {
        "cloth": Domain(9_928, 41_303, 97_757, f"{DISEN}/cloth_sport", EACH_5),
        "sport": Domain(9_928, 32_310, 102_540, f"{DISEN}/sport_cloth", EACH_5),
    },
    "amazon-electronic-phone": {
        "electronic": Domain(3_325, 39_463, 118_879, f"{DISEN}/electronic_phone", EACH_10),
        "phone": Domain(3_325, 18_462, 53_732, f"{DISEN}/phone_electronic", EACH_10),
    },
    "amazon-sport-phone": {
        "phone": Domain(4_998, 14_618, 47_444, f"{DISEN}/phone_sport", EACH_5),
        "sport": Domain(4_998, 22_101, 55_556, f"{DISEN}/sport_phone", EACH_5),
    },
    "amazon-electronic-cloth": {
        "cloth": Domain(15_761, 51_865, 136_844, f"{DISEN}/cloth_electronic", EACH_5),
        "electronic": Domain(15_761, 53_309, 226_626, f"{DISEN}/electronic_cloth", EACH_5),
    },
    "amazon-many": MANY,
}


class Amazon(Described):
    """Amazon: what people reviewed in 17 categories, and eight pairs of categories cut for transfer.

    Users match across the domains of a folder. Most files are implicit: a row says that there was a review, its rating is 1, and a
    threshold is refused. Explicit are `amazon-books-movies-dense` and, in `amazon-many`, `digital_music`, `pantry` and
    `luxury_beauty`; without a threshold each of their ratings counts as 1. Two pairs have times; of the others some have their rows
    in order, and of the rest nobody knows what is latest: `latest1`, `latest2` and `temporal` are refused there.

    The pairs of sport, cloth, electronic and phone number their users within the pair: user 7 of `amazon-sport-cloth` is not user 7
    of `amazon-sport-phone`, and a release of one says nothing in the other. Their files hold all rows; with the split `given` the
    published test items (`_test`) are held out, and one random item more of each user for validation. `docs/data.md` has the card:
    what each file is, caveats, terms.

    Args:
        target: Domain to recommend in, such as `kitchen`.
        sources: Domains to learn from, one release each.
        name: The folder: `amazon-many`, or a pair such as `amazon-food-kitchen`.
        **settings: As :class:`Files` takes them.
    """

    folders: ClassVar[Mapping[str, Mapping[str, Domain]]] = AMAZON

    def __init__(
        self,
        target: str = "kitchen",
        sources: Sequence[str] = ("food",),
        name: str = "amazon-food-kitchen",
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(name, target, sources, **settings)
