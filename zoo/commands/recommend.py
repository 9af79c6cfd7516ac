"""``python -m zoo recommend``: the best items for some users, from a run or a bundle.

What the command needs is imported when it runs: ``--help`` and a refusal of its options stay quick.
"""

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

#: Forms of a file of recommendations, by what its name ends with.
FORMS = (".parquet", ".csv")
#: The column of users' ids, in a file that has columns.
USER_ID = "user_id"


class AskedError(ValueError):
    """What is asked for cannot be read, or is nothing."""


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo recommend",
        description="The best items for some users, by their own ids, without items that they have. Reads a run's best checkpoint "
        "and the data that its config names, or a bundle, which needs no data where its method can do without.",
    )
    option = made.add_argument
    option("run", type=Path, metavar="RUN", help="folder of a run, or of a bundle (python -m zoo export)")
    who = made.add_mutually_exclusive_group(required=True)
    who.add_argument("--users", metavar="A,B,C", help="the users' ids, with commas between them")
    who.add_argument(
        "--users-file",
        type=Path,
        metavar="FILE",
        help="a text file of ids, one a line; or a CSV file with a column user_id",
    )
    option("--k", type=int, default=10, help="items for each user (default: %(default)s)")
    option("--out", type=Path, metavar="FILE", help="write a table, .parquet or .csv, instead of showing it")
    option(
        "--release",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="where the release of a source lies now; once for each that is not found as the run's config says",
    )
    offer_imports(made)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; a refusal ends with its message."""
    options = parser().parse_args(arguments)
    try:
        if options.out is not None and options.out.suffix not in FORMS:
            raise AskedError(f"--out must end with one of {', '.join(FORMS)}; got {options.out}.")
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
            predictor = load(options.run, releases=releases)
            table = predictor.recommend(users, options.k)
        if not predictor.has_ratings:
            sys.stderr.write(
                "The bundle does not hold what users have, so they may be recommended what they have already.\n"
            )
        if options.out is None:
            Console().print(shown(table))
        else:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            write_table(options.out, table)
            print(f"Recommendations for {count_of(table[USER_ID].n_unique(), 'user')}: {visible(str(options.out))}")
    except (OSError, TypeError, ValueError, DataNotAvailableError, ReleaseMismatchError) as error:
        sys.exit(refusal(error))


def ids_in(text: str) -> list[str]:
    """Users' ids with commas between them; that there is none is refused."""
    if not (users := [user.strip() for user in text.split(",") if user.strip()]):
        raise AskedError(
            f"--users names nobody: got {text!r}. Ids stand with commas between them, such as u0001,u0002."
        )
    return users


def read_users_file(path: Path) -> list[str]:
    """The users of a file, in their order: of its column ``user_id``, or of each line where there is no such column.

    Raises:
        FileNotFoundError: There is no such file.
        AskedError: It is no text, has several columns of which none is ``user_id``, or names nobody.
    """
    form = f"It holds ids, one a line, or is a CSV file with a column {USER_ID}."
    if not path.is_file():
        raise FileNotFoundError(f"No list of users at {path}. {form}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise AskedError(f"{path} is no list of users ({error}). {form}") from error
    rows = [row for row in rows if any(row)]
    head = rows[0] if rows else []
    if USER_ID in head:
        at = head.index(USER_ID)
        users = [row[at] for row in rows[1:] if len(row) > at and row[at]]
    elif any(len(row) > 1 for row in rows) or USER_ID in re.split(r"[;|\t ]", head[0] if head else ""):
        raise AskedError(
            f"{path} has several columns, {', '.join(map(repr, head))}, and none between commas is called {USER_ID}. {form}"
        )
    else:
        users = [row[0] for row in rows]
    if not users:
        raise AskedError(f"{path} names nobody. {form}")
    return users


def _releases(given: Sequence[str]) -> dict[str, Path]:
    wrong = [text for text in given if not text.partition("=")[0] or not text.partition("=")[2]]
    if wrong:
        raise AskedError(f"--release takes NAME=PATH, such as book=releases/book; got {wrong[0]!r}.")
    return {name: Path(path) for name, _, path in (text.partition("=") for text in given)}


def shown(table: pl.DataFrame) -> Table:
    """Recommendations for the terminal, a user's own lines together."""
    made = Table("user", Column("rank", justify="right"), "item", Column("score", justify="right"))
    for user, rank, item, score in table.iter_rows():
        name = escape(visible(user)) if rank == 1 else ""
        made.add_row(name, str(rank), escape(visible(item)), f"{score:.4f}")
    return made
