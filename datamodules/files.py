"""Files: your own data, one file per domain; and published files whose content is known."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast, get_args

import polars as pl

from datamodules.base import CrossDomainDataModule
from datamodules.recipe import Recipe
from datamodules.tables import BadRows, find_table, names_of, read_negatives, read_table
from datamodules.times import TimeUnit
from zoo.data.ratings import Step
from zoo.data.text_table import ENDINGS, TextForm
from zoo.runtime import checks
from zoo.runtime.settings_files import user_path

#: Keys of `columns`.
MEANINGS = ("user", "item", "rating", "timestamp")
#: What is done with rows that cannot be read. A row is judged by its own values, so one rating still changes one entry.
_BAD_ROWS = {
    "drop": (Step("rows that cannot be read are dropped"),),
    "convert": (Step("ratings with a decimal comma are converted, and other rows that cannot be read are dropped"),),
}


class Files(CrossDomainDataModule):
    """Ratings in files: `<domain>.csv`, `.tsv`, `.dat`, `.txt`, `.inter` (RecBole), `.jsonl` or `.parquet`, plain or packed.

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
            rating and timestamp; the defaults are the arguments above. Numbers are positions from 0, in a file without header.
        separator: Text between two values, such as `;` or `::`; `blanks`: any run of blanks. Null: found in the header. A file
            without header needs it, unless it is `.csv` or `.tsv`.
        quoting: Whether a value may stand in quotes. Null: in `.csv` alone.
        encoding: Encoding of text files, such as `latin-1`; by default UTF-8.
        time_unit: Unit of times that are numbers, `s`, `ms`, `us`, `ns` or `date` (20140701), or one by domain. Null: found.
        on_bad_rows: Rows that cannot be read: `error`, `drop`, or `convert` (decimal commas; others are dropped).
        recipe: Name of a published format, such as `movielens-1m`, that sets columns, separator and units.
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
        user_column: int | str = "user_id",
        item_column: int | str = "item_id",
        rating_column: int | str | None = "rating",
        timestamp_column: int | str | None = "timestamp",
        columns: dict[str, dict[str, int | str | None]] | None = None,
        separator: str | None = None,
        quoting: bool | None = None,
        encoding: str | None = None,
        time_unit: TimeUnit | dict[str, TimeUnit] | None = None,
        on_bad_rows: BadRows = "error",
        recipe: str | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(target, sources, **settings)
        self.name: str = name
        self.root = root
        self.user_column, self.item_column = user_column, item_column
        self.rating_column, self.timestamp_column = rating_column, timestamp_column
        self.columns: Mapping[str, Mapping[str, int | str | None]] = columns or {}
        self.recipe = None if recipe is None else Recipe.named(recipe)
        written = self.recipe or Recipe()
        self.form = TextForm(
            separator or written.separator,
            written.quoting if quoting is None else quoting,
            encoding or written.encoding or "utf-8",
        )
        self.time_unit: Any = time_unit or written.time_unit
        self.on_bad_rows: BadRows = on_bad_rows
        if on_bad_rows not in get_args(BadRows):
            raise ValueError(f"on_bad_rows is {on_bad_rows!r}. Allowed: {', '.join(get_args(BadRows))}.")
        units = self.time_unit if isinstance(self.time_unit, dict) else {target: self.time_unit}
        if unknown := sorted(units.keys() - set(self._domains)):
            raise ValueError(f"time_unit has {unknown}. Allowed: {self._domains}.")
        if wrong := sorted({str(unit) for unit in units.values() if unit not in (None, *get_args(TimeUnit))}):
            raise ValueError(
                f"time_unit is {wrong[0]!r}. Allowed: {', '.join(get_args(TimeUnit))}, or null to find it."
            )
        self._check_names()

    def _check_names(self) -> None:
        if unknown := sorted(self.columns.keys() - set(self._domains)):
            raise ValueError(f"columns has {unknown}. Allowed: {self._domains}.")
        for domain, named in self.columns.items():
            checks.instance(Mapping, "{'user': 'reader'}", **{f"columns.{domain}": named})
            if unknown := sorted(named.keys() - set(MEANINGS)):
                raise ValueError(f"columns.{domain} has {unknown}. It may have {', '.join(MEANINGS)}.")
            if nameless := [word for word in ("user", "item") if word in named and named[word] is None]:
                raise ValueError(f"columns.{domain}.{nameless[0]} is null. Name the column.")
        for domain in self._domains:
            names_of(self.columns_of(domain), self.form)

    def columns_of(self, domain: str) -> tuple[int | str, int | str, int | str | None, int | str | None]:
        """Return the names or positions of a domain's columns: user, item, rating and time; the last two may be None."""
        usual = (self.user_column, self.item_column, self.rating_column, self.timestamp_column)
        by_recipe = {} if self.recipe is None else self.recipe.columns_of(domain)
        named: dict[str, Any] = {**dict(zip(MEANINGS, usual, strict=True)), **by_recipe, **self.columns.get(domain, {})}
        return named["user"], named["item"], named["rating"], named["timestamp"]

    def steps(self, name: str) -> tuple[Step, ...]:
        """Return the steps of preprocessing, that of bad rows first; each row is dropped or converted by its own values."""
        return (*_BAD_ROWS.get(self.on_bad_rows, ()), *super().steps(name))

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
        stem = self._stem(domain)
        test = self._optional(domain, f"{stem}_test")
        return None if test is None else (self._optional(domain, f"{stem}_valid"), test)

    def read_negatives(self, domain: str) -> pl.DataFrame | None:
        """Return the rows of `<domain>_negatives`, if this file exists."""
        user, item, *_ = self.columns_of(domain)
        try:
            return read_negatives(find_table(self.folder, f"{self._stem(domain)}_negatives"), user, item, self.form)
        except FileNotFoundError:
            return None

    def files(self, domain: str) -> list[Path]:
        """Return the paths of a domain's files under all endings."""
        stems = [self._stem(domain) + part for part in ("", "_valid", "_test", "_negatives")]
        folders = [part for stem in stems for part in sorted((self.folder / stem).glob("*.parquet"))]
        files = [self.folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS]
        parts = [part for path in files if path.is_dir() for part in sorted(path.glob("*.parquet"))]
        return [*(path for path in files if not path.is_dir()), *folders, *parts]

    def _stem(self, domain: str) -> str:
        return domain if self.recipe is None else self.recipe.stem.format(domain=domain)

    def _optional(self, domain: str, stem: str) -> pl.DataFrame | None:
        try:
            return self._read(domain, stem)
        except FileNotFoundError:
            return None

    def _read(self, domain: str, stem: str | None = None, *, may_be_empty: bool = False) -> pl.DataFrame:
        unit = self.time_unit.get(domain) if isinstance(self.time_unit, dict) else self.time_unit
        settings: Any = {"form": self.form, "time_unit": unit, "on_bad_rows": self.on_bad_rows}
        path = find_table(self.folder, stem or self._stem(domain))
        return read_table(path, *self.columns_of(domain), may_be_empty=may_be_empty, **settings)


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
            raise ValueError(f"{kind} has no data set {name!r}. It has {', '.join(self.folders)}.")
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
