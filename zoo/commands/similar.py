"""``python -m zoo similar`` and ``vectors``: similar items or users, and their vectors. Imports are late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from zoo.commands.recommend import check_form, ending_with_message, ids_in, offer_data, opened, write_tables
from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import visible, write_table


def parser() -> Arguments:
    """Options of the command ``similar``."""
    made = Arguments(
        prog="python -m zoo similar",
        description="Show the most similar items or users, by the vectors of a run or a bundle whose method has some.",
    )
    option = made.add_argument
    option("run", type=Path, metavar="RUN", help="folder of a run or a bundle")
    which = made.add_mutually_exclusive_group(required=True)
    which.add_argument("--items", metavar="A,B,C", help="item ids, separated by commas")
    which.add_argument("--users", metavar="A,B,C", help="user ids, separated by commas")
    option("--k", type=int, default=10, help="number of similar ones for each (default: %(default)s)")
    option("--out", type=Path, metavar="FILE", help="write a table (.parquet or .csv) instead of showing it")
    offer_data(made)
    return made


def vectors_parser() -> Arguments:
    """Options of the command ``vectors``."""
    made = Arguments(
        prog="python -m zoo vectors",
        description="Write users.parquet and items.parquet with the columns id and vector, of a method that has vectors. "
        "Vectors of users are personal data.",
    )
    made.add_argument("run", type=Path, metavar="RUN", help="folder of a run or a bundle")
    made.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    offer_data(made)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run ``similar``; an expected error ends it with its message."""
    options = parser().parse_args(arguments)
    with ending_with_message():
        check_form(options.out)
        ids = ids_in(options.users or options.items, "--users" if options.users else "--items")
        table = opened(options).similar(ids, options.k, of="users" if options.users else "items")
        if options.out is not None:
            write_tables([table], options.out)
            print(f"Similar ones: {visible(str(options.out))}")
            return
        shown = Table("id", Column("rank", justify="right"), "similar", Column("similarity", justify="right"))
        for one, rank, other, similarity in table.iter_rows():
            shown.add_row(escape(visible(one)), str(rank), escape(visible(other)), f"{similarity:.4f}")
        Console().print(shown)


def vectors(arguments: Sequence[str]) -> None:
    """Run ``vectors``; an expected error ends it with its message."""
    options = vectors_parser().parse_args(arguments)
    with ending_with_message():
        tables = zip(("users", "items"), opened(options).vectors(), strict=True)
        options.out.mkdir(parents=True, exist_ok=True)
        for name, table in tables:
            write_table(options.out / f"{name}.parquet", table)
        print(f"Vectors: {visible(str(options.out))}")
