"""Files: your own data, one file per domain; and files whose content is known beforehand."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

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


Order = Literal["times", "rows", "none"]


class Domain(NamedTuple):
    """What is known of one file of ratings."""

    users: int
    items: int
    ratings: int
    source: str  # where it is published
    what: str  # which part of what is published
    explicit: bool = False  # whether ratings differ; else a row says that there was one, and is 1
    order: Order = "none"  # `times`; `rows`: without times, a user's rows from oldest to newest; `none`: in no order


def _described() -> dict[str, dict[str, Domain]]:
    found: dict[str, dict[str, Domain]] = {}
    with Path(__file__).with_name("described.csv").open(encoding="utf-8", newline="") as file:
        for folder, name, users, items, ratings, source, what, explicit, order in list(csv.reader(file))[1:]:
            known = Domain(int(users), int(items), int(ratings), source, what, explicit == "yes", cast(Order, order))
            found.setdefault(folder, {})[name] = known
    return found


#: What is known of every file, by folder and domain.
KNOWN_FILES = _described()


class KnownFiles(Files):
    """Files whose content is known; what they cannot bear is refused before one is opened.

    Refused are a folder and a domain that are not described, a threshold where ratings are implicit, and a split by time where
    rows have no order.

    Args:
        name: Name of the data set, which is its folder's.
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        **settings: As :class:`Files` takes them.
    """

    #: Folders that are described, and the domains of each.
    folders: ClassVar[Mapping[str, Mapping[str, Domain]]] = {}

    def __init__(self, name: str, target: str, sources: Sequence[str] = (), **settings: Any) -> None:  # noqa: ANN401
        super().__init__(name, target, sources, **settings)
        kind = type(self).__name__
        if name not in self.folders:
            raise ValueError(
                f"{kind} describes no data set {name!r}; it describes {', '.join(self.folders)}. `Files` reads any other."
            )
        domains = self.folders[name]
        if unknown := [domain for domain in (target, *sources) if domain not in domains]:
            raise ValueError(
                f"{name!r} has no domain {_listed(unknown)}; it has {', '.join(sorted(domains))}. `Files` reads any other."
            )
        self._refuse_threshold(domains)
        self._refuse_order(domains)
        whence = "; ".join(f"{domain} comes from {domains[domain].source}" for domain in (target, *sources))
        self.where_to_get_it = (
            f"In {name!r}, {whence}. Write each as <domain>.csv.gz with the header user_id,item_id,rating,timestamp; docs/data.md "
            "says what is in it, and its terms."
        )

    def _refuse_threshold(self, domains: Mapping[str, Domain]) -> None:
        """Refuse a threshold where every rating is 1: it would keep all of them or none."""
        threshold = self.filters.threshold
        implicit = [domain for domain in (self.target, *self.sources) if not domains[domain].explicit]
        if threshold is None or not implicit:
            return
        explicit = [domain for domain, known in domains.items() if known.explicit]
        other = f" It may have a value where all domains are among {', '.join(explicit)}." if explicit else ""
        raise ValueError(
            f"filters.threshold is {threshold!r}, and ratings of {_listed(implicit)} in {self.name!r} are implicit: each is 1, and "
            f"a threshold would keep all or none. Set filters.threshold to null: every row counts.{other}"
        )

    def _refuse_order(self, domains: Mapping[str, Domain]) -> None:
        """Refuse to hold out the latest items of a domain of which nobody knows which those are."""
        evaluation = self.evaluation
        if not evaluation.by_time:
            return
        held_out = (self.target, *(self.sources if evaluation.hold_out_of_sources else ()))
        across = evaluation.split == "global_time"  # the order of a user's rows is none of everybody's
        orders = ("none", "rows") if across else ("none",)
        if unordered := [domain for domain in held_out if domains[domain].order in orders]:
            what = "ratio with evaluation.temporal" if evaluation.split == "ratio" else evaluation.split
            other = "evaluation.temporal to false" if evaluation.split == "ratio" else "evaluation.split to random2"
            raise ValueError(
                f"evaluation.split is {what}, and rows of {_listed(unordered)} in {self.name!r} have no times"
                f"{'' if across else ' and no order'}: which is the latest is not known. Set {other}."
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
