"""Amazon: reviews of products by category, in nine folders that several papers' authors have cut from them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from datamodules.files import KNOWN_FILES, Domain, KnownFiles

AMAZON = {folder: domains for folder, domains in KNOWN_FILES.items() if folder.startswith("amazon-")}


class Amazon(KnownFiles):
    """Amazon: what people reviewed in 17 categories, and eight pairs of categories cut for transfer.

    Users match across the domains of a folder. Most files are implicit: a row says that there was a review, its rating is 1,
    and a threshold is refused. Explicit are `amazon-books-movies-dense` and, in `amazon-many`, `digital_music`, `pantry` and
    `luxury_beauty`. Two pairs have times; some others have their rows in order, and for the rest `latest1`, `latest2` and
    `temporal` are refused.

    The pairs of sport, cloth, electronic and phone number their users within the pair: a release of one says nothing in
    another. Their files hold all rows; with the split `given` the published test items (`_test`) are held out, and one random
    item more of each user for validation. `docs/data.md` has the card: what each file is, caveats, terms.

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
