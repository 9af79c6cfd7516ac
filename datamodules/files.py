"""Files: bring your own data, one file per domain."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from datamodules.base import CrossDomainDataModule
from datamodules.tables import find_table, read_negatives, read_table


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
        timestamp_column: Column of the time; null, or a column that is not there: no times.
        **settings: As :class:`CrossDomainDataModule` takes them.
    """

    #: Said when a file is missing.
    where_to_get_it = "Put your own file there, or point data.root or ZOO_DATA to where it lies."

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
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(target, sources, **settings)
        self.name: str = name
        self.root = root
        self.user_column, self.item_column = user_column, item_column
        self.rating_column, self.timestamp_column = rating_column, timestamp_column

    @property
    def folder(self) -> Path:
        """Where the files lie."""
        return Path(self.root or Path(os.environ.get("ZOO_DATA", "data")) / self.name)

    def read(self, domain: str) -> pl.DataFrame:
        """All interactions of one domain; without a file of it, the error says where it was looked for and where to get it."""
        try:
            return self._read(
                domain, may_be_empty=True
            )  # that nobody has rated in yet; what cannot do with that says so
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} {self.where_to_get_it}") from error

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """Rows of `<domain>_valid` and `<domain>_test`, where there are such files."""
        test = self._optional(f"{domain}_test")
        return None if test is None else (self._optional(f"{domain}_valid"), test)

    def read_negatives(self, domain: str) -> pl.DataFrame | None:
        """Rows of `<domain>_negatives`, where there is such a file."""
        try:
            return read_negatives(find_table(self.folder, f"{domain}_negatives"), self.user_column, self.item_column)
        except FileNotFoundError:
            return None

    def _optional(self, stem: str) -> pl.DataFrame | None:
        try:
            return self._read(stem)
        except FileNotFoundError:
            return None

    def _read(self, stem: str, *, may_be_empty: bool = False) -> pl.DataFrame:
        columns = self.user_column, self.item_column, self.rating_column, self.timestamp_column
        return read_table(find_table(self.folder, stem), *columns, may_be_empty=may_be_empty)
