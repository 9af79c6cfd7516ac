"""``python -m zoo recommend``: show the best items for some users. Imports are late, so that ``--help`` stays quick."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from zoo.runtime.arguments import Arguments, offer_imports
from zoo.runtime.run_folder import atomic_write, folder_beside, refusal, visible
from zoo.runtime.suggestions import count_of

if TYPE_CHECKING:
    import polars as pl

    from zoo.runs.predictor import Predictor

#: Suffixes of a file of recommendations.
FORMS = (".parquet", ".csv")
#: Columns of ids in a CSV file, and the form of lists of items.
USER_ID, ITEM_ID = "user_id", "item_id"
PAIRS = f"a CSV or Parquet file with the columns {USER_ID} and {ITEM_ID}"
#: Choices of ``--unknown``.
UNKNOWN = ("error", "skip", "popular")
#: Number of users from which on a progress bar is shown.
MANY = 5000


class RequestError(ValueError):
    """The requested users or options are invalid."""


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo recommend",
        description="Show the best items for some users, without items that they have. Reads a run's best checkpoint and its "
        "data, or a bundle, which needs no data if its method can score without them.",
    )
    option = made.add_argument
    option("run", type=Path, metavar="RUN", help="folder of a run or a bundle")
    who = made.add_mutually_exclusive_group(required=True)
    who.add_argument("--users", metavar="A,B,C", help="user ids, separated by commas")
    who.add_argument(
        "--users-file", type=Path, metavar="FILE", help="user ids, one a line, or a CSV file with a column user_id"
    )
    option("--k", type=int, default=10, help="number of items per user (default: %(default)s)")
    option("--out", type=Path, metavar="FILE", help="write a table (.parquet or .csv) instead of showing it")
    option(
        "--unknown",
        choices=UNKNOWN,
        default=UNKNOWN[0],
        help="users who are not in training, histories or a release: refuse all, leave them out, or give popular items",
    )
    option("--include-seen", action="store_true", help="also show items of training and histories")
    option("--histories", type=Path, metavar="FILE", help=f"ratings since training, to score users by: {PAIRS}")
    option("--seen", type=Path, metavar="FILE", help="further items to leave out in every case, in the same form")
    option("--candidates", type=Path, metavar="FILE", help="items to rank for each user, in the same form")
    offer_data(made)
    return made


def offer_data(made: Arguments) -> None:
    """Add the options that say where the data of a run are."""
    option = made.add_argument
    option(
        "--release",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="folder of the release of a source, if it was moved; repeatable",
    )
    option(
        "--data.root", dest="root", type=Path, metavar="FOLDER", help="read the run's ratings again, from this folder"
    )
    offer_imports(made)


def main(arguments: Sequence[str]) -> None:
    """Run the command; an expected error ends it with its message."""
    options = parser().parse_args(arguments)
    with ending_with_message():
        check_form(options.out)
        users = ids_in(options.users) if options.users is not None else read_users_file(options.users_file)
        given = {name: read_lists(getattr(options, name)) for name in ("seen", "candidates")}
        predictor = opened(options)
        histories = read_lists(options.histories, threshold_of(predictor))
        from zoo.runs.requests import Request, counted

        request = Request.of(
            options.k, histories=histories, include_seen=options.include_seen, unknown=options.unknown, **given
        )
        answers = []

        def tables() -> Iterator[pl.DataFrame]:
            for answer in predictor.answers(list(dict.fromkeys(users)), request):
                answers.append(answer._replace(table=answer.table.clear()))
                yield answer.table

        if options.out is None:
            for table in tables():
                Console().print(recommendation_table(table))
        else:
            write_tables(with_progress(tables(), len(users)), options.out)
        if said := counted(answers):
            sys.stderr.write(f"{said}\n")
        if not predictor.has_ratings:
            sys.stderr.write("The bundle has no ratings, so items that users have may be recommended.\n")
        if options.out is not None:
            answered = len({*users}) - (request.unknown == "skip") * sum(
                len(answer.unknown_users) for answer in answers
            )
            print(f"Recommendations for {count_of(answered, 'user')}: {visible(str(options.out))}")


def check_form(out: Path | None) -> None:
    """Refuse an output file of another form."""
    if out is not None and out.suffix not in FORMS:
        raise RequestError(f"--out is {out}. It must end with {' or '.join(FORMS)}.")


@contextmanager
def ending_with_message() -> Iterator[None]:
    """End the program with the message of an expected error."""
    try:
        yield
    except (OSError, TypeError, ValueError, LookupError, RuntimeError, MemoryError) as error:
        own = type(error).__name__ in ("ReleaseMismatchError", "DataNotAvailableError", "_LinAlgError")
        full = isinstance(error, MemoryError) or "can't allocate memory" in str(error)
        if isinstance(error, OSError | TypeError | ValueError) or own or full:
            sys.exit(refusal(error))
        raise


def opened(options: argparse.Namespace) -> Predictor:
    """Return the predictor of the run or bundle that the options name."""
    releases = _releases(options.release)
    from zoo.runs.import_policy import import_trusted
    from zoo.runs.loading import load
    from zoo.runs.trainer import quietly

    with quietly():
        import_trusted(options.imports)
        return load(options.run, releases=releases, root=options.root)


def threshold_of(predictor: Predictor) -> float | str | None:
    """Return the least rating that counts as positive in a run or bundle, None if all do, or a text if it is unknown."""
    found: float | str | None = getattr(predictor.data, "filters", predictor.data).threshold
    return found


def read_lists(path: Path | None, threshold: float | str | None = None) -> dict[str, list[str]] | None:
    """Return the items of each user in a CSV or Parquet file; with a threshold only those whose column ``rating`` reaches it."""
    import polars as pl

    from datamodules.tables import read_table
    from zoo.data.open_table import column_names

    if path is None:
        return None
    if not path.is_file():
        raise FileNotFoundError(f"No file at {path}. Write {PAIRS}.")
    with _own_remedy():
        columns = column_names(path)
    if missing := [name for name in (USER_ID, ITEM_ID) if name not in columns]:
        raise RequestError(f"{path} has no column {' and '.join(missing)}. Write {PAIRS}.")
    rated = threshold is not None and "rating" in columns
    if rated and isinstance(threshold, str):
        raise RequestError(
            f"{path} has ratings, and the threshold is {threshold!r}, not a number. Leave out negative rows and the column."
        )
    named = [name if rated and name in columns else None for name in ("rating", "timestamp")]
    with _own_remedy():
        table = read_table(path, USER_ID, ITEM_ID, *named, may_be_empty=True)
    if rated:
        table = table.filter(pl.col("rating") >= threshold)
    pairs = table.select(pl.col(USER_ID, ITEM_ID).cast(pl.String))
    return dict(pairs.group_by(USER_ID, maintain_order=True).agg(ITEM_ID).iter_rows())


@contextmanager
def _own_remedy() -> Iterator[None]:
    """Replace the remedies of errors, which are settings of `Files`."""
    try:
        yield
    except ValueError as error:
        fault = re.split(r"\. (?:Check|Convert|Correct|If|Set) |; set ", str(error))[0].removesuffix(".")
        raise RequestError(f"{fault}. Write Parquet, or UTF-8 CSV with exact quotes and decimal points.") from error


def with_progress(tables: Iterable[pl.DataFrame], num_users: int) -> Iterator[pl.DataFrame]:
    """Yield the tables with a progress bar on the terminal, if there are many users."""
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=num_users < MANY, transient=True) as progress:
        task = progress.add_task("users", total=num_users)
        for table in tables:
            yield table
            progress.advance(task, table[USER_ID].n_unique())


def write_tables(tables: Iterable[pl.DataFrame], out: Path) -> None:
    """Write tables one below the other, atomically; until then their parts are in a hidden folder next to the file."""
    import polars as pl

    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as temporary, folder_beside(out) as folder:
        parts = []
        for number, table in enumerate(tables):
            parts.append(folder / f"{number:08d}.parquet")
            table.write_parquet(parts[-1])
        whole = pl.scan_parquet(parts, glob=False)  # the name may have brackets
        whole.sink_csv(temporary) if out.suffix == ".csv" else whole.sink_parquet(temporary)


def ids_in(text: str, option: str = "--users") -> list[str]:
    """Return ids that commas separate.

    Examples:
        >>> ids_in("u1, u2")
        ['u1', 'u2']
    """
    if not (users := [user.strip() for user in text.split(",") if user.strip()]):
        raise RequestError(f"{option} is {text!r}. Pass ids such as u0001,u0002.")
    return users


def read_users_file(path: Path) -> list[str]:
    """Return the users of a file in order: its column ``user_id``, or its lines; raise a `RequestError` if there are none."""
    form = f"Write one id a line, or a CSV file with a column {USER_ID}."
    if not path.is_file():
        raise FileNotFoundError(f"No list of users at {path}. {form}")
    from zoo.data.open_table import open_columns
    from zoo.data.text_table import split_ending

    lines, table = list[str](), split_ending(path)[1] or path.suffix == ".parquet"
    try:
        if not table:
            with path.open(encoding="utf-8-sig") as file:
                lines = [line for line in file if line.strip()]
        if table or USER_ID in re.split(r'[,;|\t "\n]', lines[0] if lines else ""):
            ids = open_columns(path, [USER_ID])[USER_ID]
            if empty := ids.null_count():
                sys.stderr.write(f"{path}: {empty:,} of {len(ids):,} rows have no {USER_ID}, and are left out.\n")
            users = ids.drop_nulls().to_list()
        else:  # a quote ends in its line
            rows = [[cell.strip() for cell in row] for line in lines for row in csv.reader([line], strict=True)]
            if wide := [row for row in rows if len(row) > 1]:
                raise RequestError(f"{path} has the columns {wide[0][:12]} and no column {USER_ID}. {form}")
            users = [row[0] for row in rows]
    except (UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{path} is no list of users ({error}). {form}") from error
    if not users:
        raise RequestError(f"{path} has no user. {form}")
    return users


def _releases(given: Sequence[str]) -> dict[str, Path]:
    wrong = [text for text in given if not text.partition("=")[0] or not text.partition("=")[2]]
    if wrong:
        raise RequestError(f"--release is {wrong[0]!r}. Pass NAME=PATH, such as book=releases/book.")
    return {name: Path(path) for name, _, path in (text.partition("=") for text in given)}


def recommendation_table(table: pl.DataFrame) -> Table:
    """Return recommendations as a table for the terminal."""
    made = Table("user", Column("rank", justify="right"), "item", Column("score", justify="right"))
    for user, rank, item, score in table.iter_rows():
        name = escape(visible(user)) if rank == 1 else ""
        made.add_row(name, str(rank), escape(visible(item)), f"{score:.4f}")
    return made
