"""``python -m zoo data``: describe what an experiment reads, fetch what a data set's owner publishes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentError

from zoo.commands.data.by_hand import BY_HAND
from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import refusal, write_json


def parser() -> Arguments:
    """Options of the commands."""
    made = Arguments(prog="python -m zoo data", description="Data before a run.")
    commands = made.add_subparsers(dest="command", required=True)
    about = "counts, density, overlap, long tail, what each filter takes, leaks across domains; trains nothing"
    describe = commands.add_parser(
        "describe", help=about, description=f"Prints {about}. Needs all domains that are to be described."
    )
    describe.add_argument("--config", type=Path, required=True, help="an experiment; further options are its settings")
    describe.add_argument("--out", type=Path, metavar="FOLDER", help="write description.json and long_tail.svg there")
    describe.add_argument(
        "--json", action="store_true", help="write the description as JSON to stdout, and nothing else"
    )
    describe.set_defaults(run=_describe)

    fetch = commands.add_parser(
        "fetch",
        help="download a data set from its owner, checked, or say where to get it by hand; nothing else ever downloads",
        description=f"Downloads MovieLens 100K (ml-100k) from its owner, checked by size and SHA-256, or what a registry of your "
        f"own names. Of {', '.join(BY_HAND)} no address with a known content is recorded: given such a name, it says where to get "
        "the data by hand and on which terms. Nothing else ever downloads.",
    )
    fetch.add_argument("name", help="a data set: ml-100k, or one of your registry")
    fetch.add_argument("--root", type=Path, help="folder of data sets (default: $ZOO_DATA, else data)")
    fetch.add_argument(
        "--offline", type=Path, metavar="FOLDER", help="look here first for the published files (default: $ZOO_OFFLINE)"
    )
    fetch.add_argument(
        "--registry", type=Path, metavar="FILE", help="YAML of further data sets; docs/data.md has its form"
    )
    fetch.set_defaults(run=_fetch)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run a command; a refusal ends with its message."""
    given = parser()
    options, overrides = given.parse_known_args(arguments)
    if overrides and options.command != "describe":
        given.error(f"unrecognized arguments: {' '.join(overrides)}")
    try:
        options.run(options, overrides)
    except (OSError, TypeError, ValueError, ArgumentError) as error:
        sys.exit(refusal(error))


def _describe(options: argparse.Namespace, overrides: list[str]) -> None:
    from rich.console import Console

    from zoo.commands.data.describe import described, long_tail, of_config, tables

    found, tails = described(of_config(options.config, overrides))
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        for table in tables(found):
            Console().print(table)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_json(options.out / "description.json", found)
        long_tail(tails, options.out / "long_tail.svg")
        print(f"Written: {options.out}", file=sys.stderr)


def _fetch(options: argparse.Namespace, _: list[str]) -> None:
    from zoo.commands.data.fetch import fetch, registered

    root = options.root or Path(os.environ.get("ZOO_DATA", "data"))
    offline = options.offline or (Path(os.environ["ZOO_OFFLINE"]) if "ZOO_OFFLINE" in os.environ else None)
    fetch(registered(options.name, options.registry), root / options.name, offline)
