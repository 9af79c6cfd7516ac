"""Files: bring your own data, one file per domain."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from datamodules.base import CrossDomainDataModule
from datamodules.tables import ENDINGS, find_table, read_negatives, read_table

#: What a column may hold, by its word in `columns`.
MEANINGS = ("user", "item", "rating", "timestamp")


class Files(CrossDomainDataModule):
    """Ratings in files: `<domain>.csv`, `.tsv`, `.inter` (RecBole), each plain or `.gz`, or `.parquet`.

    All files of a data set lie in one folder: `root`, else `$ZOO_DATA/<name>`, else `data/<name>`. Beside a domain's
    file may lie `<domain>_test` and `<domain>_valid` (held-out rows, for the split `given`) and `<domain>_negatives`
    (candidate lists). Without times, rows of a user run from oldest to newest.

    Args:
        name: Name of the data set, which is its folder's.
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        root: The folder itself, wherever it lies.
        user_column: Column of the user's id.
        item_column: Column of the item's id.
        rating_column: Column of the rating; null: every row counts as 1.
        timestamp_column: Column of the time, a number or an ISO 8601 date; null: no times.
        columns: By domain, where its columns are called otherwise: `{books: {user: reader, item: isbn, timestamp: null}}`, of the
            words user, item, rating and timestamp. What is left out is called as above.
        **settings: As :class:`CrossDomainDataModule` takes them.
    """

    #: Said when a file is missing, behind where it was looked for.
    where_to_get_it = ""

    def __init__(
        self,
        name: str,
        target: str,
        sources: Sequence[str] = (),
        root: Path | None = None,
        user_column: str = "user_id",
        item_column: str = "item_id",
        rating_column: str | None = "rating",
        timestamp_column: str | None = "timestamp",
        columns: dict[str, dict[str, str | None]] | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(target, sources, **settings)
        self.name: str = name
        self.root = root
        self.user_column, self.item_column = user_column, item_column
        self.rating_column, self.timestamp_column = rating_column, timestamp_column
        self.columns: Mapping[str, Mapping[str, str | None]] = columns or {}
        self._check_names()

    def _check_names(self) -> None:
        """Refuse columns of a domain that is none, or of something that no column means."""
        domains = (self.target, *self.sources)
        if unknown := sorted(self.columns.keys() - set(domains)):
            raise ValueError(f"columns names {unknown}, which are no domains of this experiment: {list(domains)}.")
        for domain, named in self.columns.items():
            if unknown := sorted(named.keys() - set(MEANINGS)):
                raise ValueError(f"columns.{domain} has {unknown}; what a column may mean is {', '.join(MEANINGS)}.")
            if nameless := [word for word in ("user", "item") if word in named and named[word] is None]:
                raise ValueError(
                    f"columns.{domain}.{nameless[0]} is null, and every row needs its {nameless[0]}. Name it."
                )

    def columns_of(self, domain: str) -> tuple[str, str, str | None, str | None]:
        """What the columns of a domain's files are called: user, item, rating and time, the last two None where there are none."""
        named = self.columns.get(domain, {})
        user, item = named.get("user") or self.user_column, named.get("item") or self.item_column
        return user, item, named.get("rating", self.rating_column), named.get("timestamp", self.timestamp_column)

    @property
    def folder(self) -> Path:
        """Where the files lie."""
        return Path(self.root or Path(os.environ.get("ZOO_DATA", "data")) / self.name)

    def read(self, domain: str) -> pl.DataFrame:
        """All interactions of one domain; without a file of it, the error says where it was looked for and where to get it."""
        try:
            # Nobody may have rated in it yet; what cannot do with that says so.
            return self._read(domain, may_be_empty=True)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} {self.where_to_get_it}".rstrip()) from error

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """Rows of `<domain>_valid` and `<domain>_test`, where there are such files."""
        test = self._optional(domain, f"{domain}_test")
        return None if test is None else (self._optional(domain, f"{domain}_valid"), test)

    def read_negatives(self, domain: str) -> pl.DataFrame | None:
        """Rows of `<domain>_negatives`, where there is such a file."""
        user, item, *_ = self.columns_of(domain)
        try:
            return read_negatives(find_table(self.folder, f"{domain}_negatives"), user, item)
        except FileNotFoundError:
            return None

    def files(self, domain: str) -> list[Path]:
        """The files of a domain under all endings."""
        stems = (domain, *(f"{domain}_{part}" for part in ("valid", "test", "negatives")))
        return [self.folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS]

    def _optional(self, domain: str, stem: str) -> pl.DataFrame | None:
        try:
            return self._read(domain, stem)
        except FileNotFoundError:
            return None

    def _read(self, domain: str, stem: str | None = None, *, may_be_empty: bool = False) -> pl.DataFrame:
        path = find_table(self.folder, stem or domain)
        return read_table(path, *self.columns_of(domain), may_be_empty=may_be_empty)
