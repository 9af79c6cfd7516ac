"""``python -m zoo data``: describe the data of an experiment, or download a data set from its owner."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import ArgumentError

from zoo.commands.data.manual_downloads import MANUAL_DOWNLOADS
from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import refusal, write_json
from zoo.runtime.settings_files import user_path


def parser() -> Arguments:
    """Options of the commands."""
    made = Arguments(prog="python -m zoo data", description="Describe and download data before a run.")
    commands = made.add_subparsers(dest="command", required=True)
    about = "counts, density, overlap, long tail, effect of each filter, leaks across domains"
    describe = commands.add_parser("describe", help=about, description=f"Print {about}, without training.")
    describe.add_argument("--config", type=Path, required=True, help="experiment; further options change its settings")
    describe.add_argument("--out", type=Path, metavar="FOLDER", help="folder for description.json and long_tail.svg")
    describe.add_argument("--json", action="store_true", help="write only JSON to stdout")
    describe.set_defaults(run=_describe)

    about = (
        "what trivial rules reach on the test cases, and which of them beat Popularity: what the protocol gives away"
    )
    probes = commands.add_parser("probe", help=about, description=f"Print {about}, without training.")
    probes.add_argument("--config", type=Path, required=True, help="experiment; further options change its settings")
    probes.add_argument("--json", action="store_true", help="write only JSON to stdout")
    probes.set_defaults(run=_probe)

    about = "drift of item popularity, users without history, and new and gone users and items between two tables"
    compare = commands.add_parser("compare", help=about, description=f"Print {about} of ratings.")
    either = "run with its training ratings, or file of ratings (user_id, item_id)"
    compare.add_argument("old", type=Path, metavar="OLD", help=either)
    compare.add_argument("new", type=Path, metavar="NEW", help="the same, of later ratings")
    lists = "lists of `recommend --out`: also their coverage and popularity, by the ratings of OLD"
    compare.add_argument("--lists", type=Path, metavar="FILE", help=lists)
    compare.add_argument("--json", action="store_true", help="write only JSON to stdout")
    compare.set_defaults(run=_compare)

    fetch = commands.add_parser(
        "fetch",
        help="download a data set from its owner, with a check; no other command downloads",
        description=f"Download MovieLens 100K (ml-100k) from its owner, or a data set of your registry, checked by size and "
        f"SHA-256. For {', '.join(MANUAL_DOWNLOADS)} it prints where to download them manually, and their terms.",
    )
    fetch.add_argument("name", help="data set: ml-100k, or one of your registry")
    fetch.add_argument("--root", type=Path, help="folder of data sets (default: $ZOO_DATA, else data)")
    fetch.add_argument(
        "--offline", type=Path, metavar="FOLDER", help="folder with downloaded files (default: $ZOO_OFFLINE)"
    )
    fetch.add_argument("--registry", type=Path, metavar="FILE", help="YAML of further data sets (form: docs/data.md)")
    fetch.set_defaults(run=_fetch)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run a command; an expected error ends it with its message."""
    given = parser()
    options, overrides = given.parse_known_args(arguments)
    if overrides and options.command in ("fetch", "compare"):
        given.error(f"unrecognized arguments: {' '.join(overrides)}")
    try:
        options.run(options, overrides)
    except (OSError, TypeError, ValueError, ArgumentError) as error:
        sys.exit(refusal(error))


def _describe(options: argparse.Namespace, overrides: list[str]) -> None:
    from rich.console import Console

    from zoo.commands.data.describe import describe_data, long_tail, read_datamodule, tables

    found, tails = describe_data(read_datamodule(options.config, overrides))
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


def _probe(options: argparse.Namespace, overrides: list[str]) -> None:
    from rich.console import Console

    from zoo.commands.data.describe import probe_table, read_datamodule
    from zoo.runs.probing import probe

    found = probe(read_datamodule(options.config, overrides))
    if options.json:
        print(json.dumps(found.to_dict(), indent=1))
    else:
        Console().print(probe_table(found))


def _compare(options: argparse.Namespace, _: list[str]) -> None:
    from rich.console import Console

    from zoo.commands.data.compare import compare, comparison_table, read_lists, read_pairs, served

    old, new = read_pairs(options.old), read_pairs(options.new)
    found = compare(old, new)
    if options.lists is not None:
        found |= served(old, read_lists(options.lists))
    if options.json:
        print(json.dumps({name: None if value != value else value for name, value in found.items()}, indent=1))
    else:
        Console().print(comparison_table(found))


def _fetch(options: argparse.Namespace, _: list[str]) -> None:
    from zoo.commands.data.fetch import fetch, registered

    root = options.root or user_path(os.environ.get("ZOO_DATA", "data"))
    offline = options.offline or (user_path(os.environ["ZOO_OFFLINE"]) if "ZOO_OFFLINE" in os.environ else None)
    fetch(registered(options.name, options.registry), root / options.name, offline)
