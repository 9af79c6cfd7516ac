"""Douban: the Book and Music task of PriCDR and PPGenCDR."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from datamodules.files import Files
from datamodules.protocol import Evaluation, Filters
from datamodules.users import OWN
from zoo.release.denoiser import Denoiser

OFFICIAL = Evaluation(split="given", shared_candidates=True)


class Douban(Files):
    """Douban Book and Music, 924 users, with the split and the candidate lists that PriCDR's authors published.

    The folder `douban-book-music` holds `book.csv.gz` (3,916 items, 50,429 ratings) and `music.csv.gz` (4,228 items,
    50,157 ratings), and for each `_valid`, `_test` and `_negatives`. Its users are in both domains already, so `own`
    does. With `name: douban` (the raw ratings) the same task is rebuilt by the filters 3 / 6 / 6 and `users: common` or
    a list. Only ratings of at least 3 are in the published files, so a threshold changes nothing there.

    Args:
        target: `music` or `book`.
        sources: The other one.
        name: `douban-book-music`, or `douban` for the raw ratings.
        root: The folder itself, wherever it lies; null: `$ZOO_DATA/<name>`, else `data/<name>`.
        users: `own`, `common` (research only), or a CSV file with a column user_id, agreed on by the parties beforehand.
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
        "The Douban ratings are published with GA-DTCDR (Zhu et al., IJCAI 2020) and, filtered and split, as the sample of "
        "PriCDR (Chen et al., WWW 2022). Write each domain as <domain>.csv.gz with the header "
        "user_id,item_id,rating,timestamp."
    )

    def __init__(
        self,
        target: str = "music",
        sources: Sequence[str] = ("book",),
        name: str = "douban-book-music",
        root: Path | None = None,
        users: str = OWN,
        missing_users: Literal["error", "zero"] = "error",
        catalogues: dict[str, Path] | None = None,
        filters: Filters = Filters(),  # noqa: B008  frozen
        evaluation: Evaluation = OFFICIAL,
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
