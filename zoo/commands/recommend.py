"""``python -m zoo recommend``: show the best items for some users. Imports are late, so that ``--help`` stays quick."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from zoo.runtime.arguments import Arguments, offer_imports
from zoo.runtime.run_folder import refusal, visible, write_table
from zoo.runtime.suggestions import count_of

if TYPE_CHECKING:
    import polars as pl

#: Suffixes of a file of recommendations.
FORMS = (".parquet", ".csv")
#: Column of user ids in a CSV file.
USER_ID = "user_id"


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
        "--release",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="folder of the release of a source, if it was moved; repeatable",
    )
    option(
        "--data.root", dest="root", type=Path, metavar="FOLDER", help="folder of the run's ratings, if they were moved"
    )
    offer_imports(made)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; an expected error ends it with its message."""
    options = parser().parse_args(arguments)
    try:
        if options.out is not None and options.out.suffix not in FORMS:
            raise RequestError(f"--out is {options.out}. It must end with {' or '.join(FORMS)}.")
        users = ids_in(options.users) if options.users is not None else read_users_file(options.users_file)
        releases = _releases(options.release)
    except (OSError, ValueError) as error:
        sys.exit(refusal(error))
    from zoo.methods.target_data import ReleaseMismatchError
    from zoo.runs.import_policy import import_trusted
    from zoo.runs.loading import load
    from zoo.runs.predictor import DataNotAvailableError
    from zoo.runs.trainer import quietly

    try:
        with quietly():
            import_trusted(options.imports)
            predictor = load(options.run, releases=releases, root=options.root)
            table = predictor.recommend(users, options.k)
        if not predictor.has_ratings:
            sys.stderr.write("The bundle has no ratings, so items that users have may be recommended.\n")
        if options.out is None:
            Console().print(recommendation_table(table))
        else:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            write_table(options.out, table)
            print(f"Recommendations for {count_of(table[USER_ID].n_unique(), 'user')}: {visible(str(options.out))}")
    except (OSError, TypeError, ValueError, DataNotAvailableError, ReleaseMismatchError) as error:
        sys.exit(refusal(error))


def ids_in(text: str) -> list[str]:
    """Return user ids that commas separate.

    Examples:
        >>> ids_in("u1, u2")
        ['u1', 'u2']
    """
    if not (users := [user.strip() for user in text.split(",") if user.strip()]):
        raise RequestError(f"--users is {text!r}. Pass ids such as u0001,u0002.")
    return users


def read_users_file(path: Path) -> list[str]:
    """Return the users of a file in order: its column ``user_id``, or its lines; raise a `RequestError` if there are none."""
    form = f"Write one id a line, or a CSV file with a column {USER_ID}."
    if not path.is_file():
        raise FileNotFoundError(f"No list of users at {path}. {form}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{path} is no list of users ({error}). {form}") from error
    rows = [row for row in rows if any(row)]
    head = rows[0] if rows else []
    if USER_ID in head:
        at = head.index(USER_ID)
        users = [row[at] for row in rows[1:] if len(row) > at and row[at]]
    elif any(len(row) > 1 for row in rows) or USER_ID in re.split(r"[;|\t ]", head[0] if head else ""):
        raise RequestError(
            f"{path} has the columns {', '.join(map(repr, head))} and no comma-separated column {USER_ID}. {form}"
        )
    else:
        users = [row[0] for row in rows]
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
