"""Amazon: product reviews by category, in nine folders as prepared by the authors of several papers."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from datamodules.files import KNOWN_FILES, Domain, KnownFiles

AMAZON = {folder: domains for folder, domains in KNOWN_FILES.items() if folder.startswith("amazon-")}


class Amazon(KnownFiles):
    """Amazon: reviews in 17 categories, and eight pairs of categories prepared for transfer.

    Users match across the domains of a folder. Most files are implicit: each row is a review with rating 1, and a threshold is
    refused. `amazon-books-movies-dense` is explicit, as are `digital_music`, `pantry` and `luxury_beauty` in `amazon-many`. Two
    pairs have times and some others have rows in order; for the rest `latest1`, `latest2` and `temporal` are refused.

    The pairs of sport, cloth, electronic and phone number their users within the pair, so a release of one pair is useless in
    another. Their files have all rows. With the split `given` the published test items (`_test`) are held out, and one more random
    item of each user for validation. `docs/data.md` has the data card: content, caveats, terms.

    Args:
        target: Domain to recommend in, such as `kitchen`.
        sources: Domains to learn from, one release each.
        name: The folder: `amazon-many`, or a pair such as `amazon-food-kitchen`.
        **settings: Arguments of :class:`Files`.

    Examples:
        >>> from datamodules import Amazon, Filters
        >>> data = Amazon("kitchen", sources=["food"], filters=Filters(min_user_ratings=5))
        >>> data.folder.name, data.folders["amazon-food-kitchen"]["kitchen"].ratings
        ('amazon-food-kitchen', 89885)
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
