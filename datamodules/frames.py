"""Frames: your own data as pandas, polars or Arrow tables, without files."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
from narwhals.exceptions import NarwhalsError

from datamodules.files import Files
from datamodules.tables import columns_shown, interactions, negatives
from zoo.data.open_table import LONGEST, check_type

_NEEDED = "Frames needs pandas, polars or Arrow tables, so it is for Python only. For files use Files."
#: What a config has instead of a table.
IN_MEMORY = "a table in memory, which is not saved"
#: Settings of `Files` that are about files.
_OF_FILES = {"root", "separator", "quoting", "encoding", "recipe"}
_PARTS = ("test", "valid", "negatives")


class Frames(Files):
    """Ratings in tables of pandas, polars or Arrow, one table per domain, with the checks that files have.

    Results (`zoo.runs.predictor.Predictor.recommend` and others) are tables of the caller's kind. Ids in them are integers if the
    target's are. A run's config has no table: `zoo.load` needs the tables again. Records of releases are about the rows that are
    passed: filters made before, also in a lazy table's plan, are not in them.

    Args:
        target: Table of the domain to recommend in; None at a source party.
        sources: Table of each source by the name of its domain, or names alone at a target party, which has releases.
        name: Name of the target domain.
        further: Tables by the names that their files would have: `<domain>_test` and `<domain>_valid` have
            held-out rows, for the split `given`; `<domain>_negatives` has candidate lists.
        **settings: Arguments of :class:`Files` that are not about files: `columns`, `time_unit`, `evaluation` and so on.

    Examples:
        >>> import polars as pl
        >>> from datamodules import Evaluation, Frames
        >>> rows = {"reader": [1, 1, 1, 2, 2, 2], "title": ["emma", "dune", "solaris", "solaris", "emma", "dune"]}
        >>> columns = {"books": {"user": "reader", "item": "title", "rating": None, "timestamp": None}}
        >>> data = Frames(pl.DataFrame(rows), name="books", columns=columns, evaluation=Evaluation("latest1"))
        >>> data.read_target()
        >>> data.train.matrix.toarray().tolist()  # the last row of each user is the test
        [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    """

    def __init__(
        self,
        target: Any = None,  # noqa: ANN401  any table
        sources: Any = None,  # noqa: ANN401  tables by name, or names
        name: str = "target",
        further: Mapping[str, Any] | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        if isinstance(sources, str) or is_frame(sources):
            raise TypeError("sources has no names. Pass a dict: sources={'books': table}.")
        named = sources if isinstance(sources, Mapping) else dict.fromkeys(sources or ())
        every = {name: target, **named, **(further or {})}
        self._tables = {key: nw.from_native(table) for key, table in every.items() if is_frame(table)}
        if wrong := [key for key, table in every.items() if table is not None and key not in self._tables]:
            raise TypeError(f"The table of {wrong[0]!r} is of class {type(every[wrong[0]]).__name__}. {_NEEDED}")
        if not self._tables:
            raise TypeError(f"No table is given. {_NEEDED}")
        if of_files := sorted(_OF_FILES & settings.keys()):
            raise TypeError(f"{of_files[0]} is set. Frames reads no file. Omit it.")
        super().__init__("frames", name, tuple(named), **settings)
        stems = [f"{domain}_{part}" for domain in self._domains for part in _PARTS]
        if unknown := sorted({*(further or {})} - {*stems}):
            raise ValueError(f"further has {unknown}. Allowed: {', '.join(stems)}.")

    @property
    def settings_given(self) -> dict[str, Any]:
        """Settings as in a config, without the rows of tables, which may be personal data."""
        found = super().settings_given
        given = found["init_args"]
        for key in {"target", "sources", "further"} & given.keys():
            table = given[key]
            named = dict.fromkeys(table, IN_MEMORY) if isinstance(table, dict) else IN_MEMORY
            given[key] = table if isinstance(table, list) else named
        return found

    def files(self, domain: str) -> list[Path]:
        """Return no file."""
        return []

    def to_kind(self, table: pl.DataFrame) -> Any:  # noqa: ANN401  any table
        """Return a table of results as a table of the caller's kind; ids are integers if all are and the target's are."""
        first = next(iter(self._tables.values()))
        for column, own in zip(("user_id", "item_id"), self.columns_of(self.target), strict=False):
            if self.target in self._tables and first.collect_schema().get(str(own), nw.String()).is_integer():
                numbers = table[column].cast(pl.Int64, strict=False)
                table = table if numbers.null_count() else table.with_columns(numbers)
        return nw.from_arrow(table, backend=first.implementation).to_native()

    def _raw(self, stem: str, needed: Sequence[int | str]) -> pl.DataFrame:
        """Return columns of a table, by name or position, text stripped, and null if nothing is left."""
        if stem not in self._tables:
            raise FileNotFoundError(f"No table of {stem!r} is given. Pass it to Frames.")
        table, what = self._tables[stem], f"The table of {stem!r}"
        with _readable(what):
            names = table.collect_schema().names()
        if missing := [name for name in needed if name not in (range(len(names)) if isinstance(name, int) else names)]:
            columns = f"no column {', '.join(map(repr, missing))}; its columns are {columns_shown(names)}"
            index = getattr(getattr(nw.to_native(table), "index", None), "names", ())  # of pandas
            hint = "Set columns, or rating_column or timestamp_column to None."
            raise ValueError(f"{what} has {columns}. {'Call reset_index().' if {*missing} & {*index} else hint}")
        with _readable(what):
            chosen = table.select(nw.nth(n).alias(str(n)) if isinstance(n, int) else nw.col(n) for n in needed)
            frame = chosen.collect() if isinstance(chosen, nw.LazyFrame) else chosen
        found = list[pl.Series]()
        for name in frame.columns:
            with _readable(f"Column {name!r} of {what}"):
                _refuse_mixed_dates(frame.get_column(name))
                column = frame.get_column(name).to_polars()
                if isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum | pl.Binary):
                    column = column.cast(pl.String).str.strip_chars().replace("", None)
            check_type(name, column.dtype, Path(what))
            if column.dtype == pl.String and (column.str.len_bytes() > LONGEST).any():
                raise ValueError(f"{what} has a text over {LONGEST:,} bytes (column {name!r}). Shorten it.")
            found.append(column)
        return pl.DataFrame(found)

    def _read(self, domain: str, stem: str | None = None, *, may_be_empty: bool = False) -> pl.DataFrame:
        columns, stem = self.columns_of(domain), stem or domain
        what = f"The table of {stem!r}"
        raw = self._raw(stem, [name for name in columns if name is not None])
        unit = self.time_unit.get(domain) if isinstance(self.time_unit, dict) else self.time_unit
        if raw.is_empty() and not may_be_empty:
            raise ValueError(f"{what} has no rows. Pass another table.")
        names: Any = [None if name is None else str(name) for name in columns]
        return interactions(raw, *names, source=what, time_unit=unit, on_bad_rows=self.on_bad_rows)

    def read_negatives(self, domain: str) -> pl.DataFrame | None:
        """Return the rows of `<domain>_negatives`, if this table is given."""
        (user, item, *_), stem = self.columns_of(domain), f"{domain}_negatives"
        return negatives(self._raw(stem, [user, item]), str(user), str(item), stem) if stem in self._tables else None


def _refuse_mixed_dates(column: Any) -> None:  # noqa: ANN401  of narwhals
    """Refuse Python objects of which some are dates: pandas would read all of them as the first one is."""
    if column.dtype == nw.Object:
        values = column.drop_nulls().to_list()
        kinds = {isinstance(value, date) + isinstance(value, datetime) for value in values}
        if len(kinds) > 1:
            raise ValueError("it has dates and other values. Convert it by pandas.to_datetime")


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Say of what a library's error is."""
    try:
        yield
    except (
        NarwhalsError,
        pl.exceptions.PolarsError,
        ArithmeticError,
        TypeError,
        ValueError,
    ) as error:  # Arrow's are such
        raise ValueError(f"{what} cannot be read: {' '.join(str(error).split())[:120]}") from error


def is_frame(value: object) -> bool:
    """Return whether a value is a table that `Frames` reads.

    Examples:
        >>> import polars as pl
        >>> is_frame(pl.DataFrame()), is_frame("books.csv")
        (True, False)
    """
    with _readable("A table"):
        return isinstance(nw.from_native(value, pass_through=True), nw.DataFrame | nw.LazyFrame)


def as_datamodule(data: Any) -> Any:  # noqa: ANN401  checked by the caller
    """Return a table as the datamodule of one domain with default settings; other values unchanged."""
    return Frames(data) if is_frame(data) else data


def values_of(values: Any) -> Any:  # noqa: ANN401  any column, or any iterable
    """Return the values of a column of pandas, polars or Arrow as a list; other values unchanged."""
    found = nw.from_native(values, pass_through=True, allow_series=True)
    return found.to_list() if isinstance(found, nw.Series) else values


def in_kind_of(data: object, table: pl.DataFrame) -> Any:  # noqa: ANN401  any table
    """Return a table of results, of the kind of the tables that the data have; a polars table for other data."""
    return data.to_kind(table) if isinstance(data, Frames) else table
