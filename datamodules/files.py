"""Files: your own data, one file per domain; and published files whose content is known."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import polars as pl

from datamodules.base import CrossDomainDataModule
from datamodules.tables import ENDINGS, find_table, read_negatives, read_table
from zoo.runtime.settings_files import user_path

#: Keys of `columns`.
MEANINGS = ("user", "item", "rating", "timestamp")


class Files(CrossDomainDataModule):
    """Ratings in files: `<domain>.csv`, `.tsv`, `.inter` (RecBole), each plain or `.gz`, or `.parquet`.

    All files of a data set are in one folder: `root`, else `$ZOO_DATA/<name>`, else `data/<name>`. A domain may have further
    files: `<domain>_test` and `<domain>_valid` (held-out rows, for the split `given`) and `<domain>_negatives` (candidate lists).
    Without times, rows of a user run from oldest to newest.

    Args:
        name: Name of the data set and of its folder.
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        root: The folder itself.
        user_column: Column of the user's id.
        item_column: Column of the item's id.
        rating_column: Column of the rating; null: every row counts as 1.
        timestamp_column: Column of the time, a number or an ISO 8601 date; null: no times.
        columns: Other names of columns, by domain: `{books: {user: reader, item: isbn, timestamp: null}}`. Keys are user, item,
            rating and timestamp; the defaults are the arguments above.
        **settings: Arguments of :class:`CrossDomainDataModule`.

    Examples:
        >>> from pathlib import Path
        >>> import polars as pl
        >>> from datamodules import Evaluation, Files
        >>> rows = {"reader": ["ann"] * 3 + ["bob"] * 3, "title": ["emma", "dune", "solaris", "solaris", "emma", "dune"]}
        >>> pl.DataFrame(rows).write_csv("books.csv")
        >>> columns = {"books": {"user": "reader", "item": "title", "rating": None, "timestamp": None}}
        >>> data = Files("shop", "books", root=Path("."), columns=columns, evaluation=Evaluation("latest1"))
        >>> data.read_target()
        >>> data.train.matrix.toarray().tolist()  # the last row of each user is the test
        [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
        >>> data.train.item_ids.tolist()
        ['dune', 'emma', 'solaris']
    """

    #: Appended to the message about a missing file.
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
        if unknown := sorted(self.columns.keys() - set(self._domains)):
            raise ValueError(f"columns has {unknown}. Allowed: {self._domains}.")
        for domain, named in self.columns.items():
            if unknown := sorted(named.keys() - set(MEANINGS)):
                raise ValueError(f"columns.{domain} has {unknown}. It may have {', '.join(MEANINGS)}.")
            if nameless := [word for word in ("user", "item") if word in named and named[word] is None]:
                raise ValueError(f"columns.{domain}.{nameless[0]} is null. Name the column.")

    def columns_of(self, domain: str) -> tuple[str, str, str | None, str | None]:
        """Return the names of a domain's columns: user, item, rating and time; the last two may be None."""
        named = self.columns.get(domain, {})
        user, item = named.get("user") or self.user_column, named.get("item") or self.item_column
        return user, item, named.get("rating", self.rating_column), named.get("timestamp", self.timestamp_column)

    @property
    def folder(self) -> Path:
        """Folder of the files."""
        return user_path(self.root or Path(os.environ.get("ZOO_DATA", "data")) / self.name)

    def read(self, domain: str) -> pl.DataFrame:
        """Return all interactions of one domain.

        Raises:
            FileNotFoundError: If it has no file; the message says where to get it.
        """
        try:
            return self._read(domain, may_be_empty=True)  # callers that need ratings check for them
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} {self.where_to_get_it}".rstrip()) from error

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """Return the rows of `<domain>_valid` and `<domain>_test`, if these files exist."""
        test = self._optional(domain, f"{domain}_test")
        return None if test is None else (self._optional(domain, f"{domain}_valid"), test)

    def read_negatives(self, domain: str) -> pl.DataFrame | None:
        """Return the rows of `<domain>_negatives`, if this file exists."""
        user, item, *_ = self.columns_of(domain)
        try:
            return read_negatives(find_table(self.folder, f"{domain}_negatives"), user, item)
        except FileNotFoundError:
            return None

    def files(self, domain: str) -> list[Path]:
        """Return the paths of a domain's files under all endings."""
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


Order = Literal["times", "rows", "none"]


class Domain(NamedTuple):
    """Facts about one published file of ratings."""

    users: int
    items: int
    ratings: int
    source: str  # where it is published
    what: str  # which part of the publication
    explicit: bool = False  # whether ratings differ; otherwise each is 1
    order: Order = "none"  # `times`; `rows`: without times, a user's rows from oldest to newest; `none`: in no order


def _described() -> dict[str, dict[str, Domain]]:
    found: dict[str, dict[str, Domain]] = {}
    with Path(__file__).with_name("described.csv").open(encoding="utf-8", newline="") as file:
        for folder, name, users, items, ratings, source, what, explicit, order in list(csv.reader(file))[1:]:
            known = Domain(int(users), int(items), int(ratings), source, what, explicit == "yes", cast(Order, order))
            found.setdefault(folder, {})[name] = known
    return found


#: Facts about every file, by folder and domain.
KNOWN_FILES = _described()


class KnownFiles(Files):
    """Published files whose content is known. Impossible settings are refused before a file is opened.

    These are: unknown folders and domains, a threshold for implicit ratings, and a split by time for rows without order.

    Args:
        name: Name of the data set and of its folder.
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        **settings: Arguments of :class:`Files`.
    """

    #: Known folders, and the domains of each.
    folders: ClassVar[Mapping[str, Mapping[str, Domain]]] = {}

    def __init__(self, name: str, target: str, sources: Sequence[str] = (), **settings: Any) -> None:  # noqa: ANN401
        super().__init__(name, target, sources, **settings)
        kind = type(self).__name__
        if name not in self.folders:
            raise ValueError(f"{kind} has no data set {name!r}. It has {', '.join(self.folders)}. Or use Files.")
        domains = self.folders[name]
        if unknown := [domain for domain in (target, *sources) if domain not in domains]:
            raise ValueError(f"{name!r} has no domain {_listed(unknown)}. It has {', '.join(sorted(domains))}.")
        self._refuse_threshold(domains)
        self._refuse_order(domains)
        published = "; ".join(f"{domain} is published at {domains[domain].source}" for domain in (target, *sources))
        self.where_to_get_it = (
            f"In {name!r}, {published}. Write each as <domain>.csv.gz with the header user_id,item_id,rating,timestamp. See "
            "docs/data.md for content and terms."
        )

    def _refuse_threshold(self, domains: Mapping[str, Domain]) -> None:
        threshold = self.filters.threshold
        implicit = [domain for domain in (self.target, *self.sources) if not domains[domain].explicit]
        if threshold is None or not implicit:
            return
        explicit = [domain for domain, known in domains.items() if known.explicit]
        other = f" Explicit domains are {', '.join(explicit)}." if explicit else ""
        equal = f"all ratings of {_listed(implicit)} in {self.name!r} are 1"
        raise ValueError(f"filters.threshold is {threshold!r}, and {equal}. Set it to null.{other}")

    def _refuse_order(self, domains: Mapping[str, Domain]) -> None:
        evaluation = self.evaluation
        if not evaluation.by_time:
            return
        held_out = (self.target, *(self.sources if evaluation.hold_out_of_sources else ()))
        across = evaluation.split == "global_time"  # order within a user's rows does not order all rows
        orders = ("none", "rows") if across else ("none",)
        if unordered := [domain for domain in held_out if domains[domain].order in orders]:
            what = "ratio with evaluation.temporal" if evaluation.split == "ratio" else evaluation.split
            other = "evaluation.temporal to false" if evaluation.split == "ratio" else "evaluation.split to random2"
            missing = "no times" if across else "no times and no order"
            rows = f"rows of {_listed(unordered)} in {self.name!r}"
            raise ValueError(f"evaluation.split is {what}, and {rows} have {missing}. Set {other}.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
