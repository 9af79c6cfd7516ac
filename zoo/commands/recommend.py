"""``python -m zoo recommend``: the best items for some users, from a run or a bundle."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

import zoo
from zoo.run_folder import refusal, visible, whole
from zoo.runs.fitting import quietly
from zoo.runs.held import NotHeldError
from zoo.runs.inputs import UsageError
from zoo.runs.known_classes import import_trusted, offer_imports
from zoo.target_data import ReleaseMismatchError

#: Forms of a file of recommendations, by what its name ends with.
FORMS = (".parquet", ".csv")


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    made = argparse.ArgumentParser(
        prog="python -m zoo recommend",
        description="The best items for some users, by their own ids, without items that they have. Reads a run's best checkpoint "
        "and the data that its config names, or a bundle, which needs no data where its method can do without.",
        allow_abbrev=False,
    )
    option = made.add_argument
    option("run", type=Path, metavar="RUN", help="folder of a run, or of a bundle (python -m zoo export)")
    who = made.add_mutually_exclusive_group(required=True)
    who.add_argument("--users", metavar="A,B,C", help="the users' ids, with commas between them")
    who.add_argument("--users-file", type=Path, metavar="FILE", help="a CSV file with a column user_id")
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
            raise UsageError(f"--out must end with one of {', '.join(FORMS)}; got {options.out}.")
        users = options.users.split(",") if options.users is not None else read_users_file(options.users_file)
        with quietly():
            import_trusted(options.imports)
            trained = zoo.load(options.run, releases=_releases(options.release))
            table = trained.recommend(users, options.k)
        if not trained.sees:
            sys.stderr.write(
                "The bundle does not hold what users have, so they may be recommended what they have already.\n"
            )
        if options.out is None:
            Console().print(shown(table))
        else:
            write(table, options.out)
            print(f"Recommendations for {table['user_id'].n_unique():,} users: {visible(str(options.out))}")
    except (OSError, TypeError, ValueError, NotHeldError, ReleaseMismatchError) as error:
        sys.exit(refusal(error))


def read_users_file(path: Path) -> list[str]:
    """The users of a CSV file's column user_id, in their order."""
    if not path.is_file():
        raise FileNotFoundError(f"No list of users at {path.resolve()}. It is a CSV file with a column user_id.")
    try:
        found = pl.read_csv(path, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise UsageError(f"{path} is no CSV file with a column user_id: {error}") from error
    if "user_id" not in found.columns:
        raise UsageError(f"{path} has the columns {found.columns}; it needs a column user_id.")
    users: list[str] = found["user_id"].drop_nulls().to_list()
    return users


def _releases(given: Sequence[str]) -> dict[str, Path]:
    wrong = [text for text in given if not text.partition("=")[0] or not text.partition("=")[2]]
    if wrong:
        raise UsageError(f"--release takes NAME=PATH, such as book=releases/book; got {wrong[0]!r}.")
    return {name: Path(path) for name, _, path in (text.partition("=") for text in given)}


def write(table: pl.DataFrame, path: Path) -> None:
    """Write recommendations, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as temporary:
        if path.suffix == ".csv":
            table.write_csv(temporary)
        else:
            table.write_parquet(temporary)


def shown(table: pl.DataFrame) -> Table:
    """Recommendations for the terminal, a user's own lines together."""
    made = Table("user", Column("rank", justify="right"), "item", Column("score", justify="right"))
    for user, rank, item, score in table.iter_rows():
        name = escape(visible(user)) if rank == 1 else ""
        made.add_row(name, str(rank), escape(visible(item)), f"{score:.4f}")
    return made
