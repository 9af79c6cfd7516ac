"""``python -m zoo privacy``: plan a budget, show a record, audit a mechanism, draw its curve.

What a command needs is imported when it is asked for: ``--help`` and a refusal stay quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentError
from rich.console import Console
from rich.markup import escape

from zoo.run_folder import refusal, whole

if TYPE_CHECKING:
    from zoo.privacy.audits.one_run import OneRunAudit
    from zoo.privacy.audits.two_world import Audit


def parser() -> argparse.ArgumentParser:
    """Options of the four commands."""
    made = argparse.ArgumentParser(
        prog="python -m zoo privacy", description="What an engineer who answers for a release needs."
    )
    commands = made.add_subparsers(dest="command", required=True)

    plan = commands.add_parser("plan", help="what publishing would cost; opens no data")
    plan.add_argument("--config", type=Path, required=True, help="an experiment, as for publish")
    plan.add_argument("--users", type=int, help="public number of users (default: of the list in the config)")
    plan.add_argument("--items", type=int, help="public number of items (default: of the catalogue in the config)")
    plan.set_defaults(run=_plan)

    show = commands.add_parser("show", help="a release's record as a page, checked against its ledger")
    show.add_argument("release", type=Path, metavar="RELEASE", help="folder of a release")
    show.add_argument("--html", type=Path, metavar="FILE", help="write the page to a file of HTML as well")
    show.set_defaults(run=_show)

    audit = commands.add_parser("audit", help="try to break the claim; exit code 1 if it does not hold")
    option = audit.add_argument
    option("--config", type=Path, help="an experiment whose publisher is audited")
    option("--all", action="store_true", help="audit every mechanism, and published ones that do not hold")
    option("--epsilon", type=float, default=1.0, help="claim that --all audits (default: %(default)s)")
    option("--runs", type=int, default=40_000, help="runs per world (default: %(default)s)")
    option("--beta", type=float, default=1e-3, help="largest chance of a false alarm (default: %(default)s)")
    option("--out", type=Path, metavar="FILE", help="write the table to a file of CSV as well, in a folder that exists")
    audit.set_defaults(run=_audit)

    curve = commands.add_parser("curve", help="a PNG of delta against epsilon, and of utility where there are results")
    curve.add_argument("releases", type=Path, nargs="*", metavar="RELEASE", help="folders of releases")
    curve.add_argument("--config", type=Path, help="or an experiment whose release is planned")
    curve.add_argument("--results", type=Path, help="results.csv of a report")
    curve.add_argument("--out", type=Path, default=Path("curve.png"), help="file to write (default: %(default)s)")
    curve.set_defaults(run=_curve)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run a command; a refusal ends with its message."""
    options, overrides = parser().parse_known_args(arguments)
    if overrides and getattr(options, "config", None) is None:
        parser().error(f"unrecognized arguments: {' '.join(overrides)}")
    try:
        options.run(options, overrides, Console())
    except (OSError, TypeError, ValueError, ArgumentError) as error:
        sys.exit(refusal(error))


def _plan(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    from zoo.commands.privacy.plan import USERS, paper_table, plan_table, planned_releases, read_experiment

    for name in ("users", "items"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(options, name)}.")
    experiment = read_experiment(options.config, overrides)
    releases = planned_releases(experiment, options.users, options.items)
    known = options.users or experiment.users
    said = f"{known:,} users" if known else f"at most {USERS:,} users (say how many: --users N)"
    console.print(plan_table(releases, said))
    if (beside := paper_table(releases[0].record)) is not None:
        console.print(beside)
    for text in releases[0].record.not_protected:
        console.print(f"not protected: {escape(text)}", soft_wrap=True)


def _show(options: argparse.Namespace, *_: object) -> None:
    from zoo.commands.privacy.show import as_html, as_text, parts
    from zoo.release.release import Release

    page = parts(Release.load(options.release), options.release)
    print(as_text(page))
    if options.html is not None:
        with whole(options.html) as file:
            file.write_text(as_html(page, f"Release {options.release.name}"), encoding="utf-8")


def _audit(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    from zoo.commands.privacy.audit import audit_table, audited, write_findings

    if options.all == (options.config is not None):
        raise ValueError("Say what to audit: --config FILE for the publisher of an experiment, or --all.")
    if options.out is not None and (options.out.is_dir() or not options.out.parent.is_dir()):
        raise ValueError(f"--out must name a file in a folder that exists, got {options.out}. Make the folder first.")
    results = []
    with console.status("") as status:
        for audit in _chosen_audits(options, overrides):
            status.update(f"Auditing {escape(audit.name)} ...")
            results.append(audited(audit, options.runs, options.beta))
    console.print(audit_table(results, options.runs, options.beta))
    if options.out is not None:
        write_findings(results, options.out)
    if not all(result.as_expected for result in results):
        sys.exit(1)


def _chosen_audits(options: argparse.Namespace, overrides: list[str]) -> Sequence[Audit | OneRunAudit]:
    if options.all:
        from zoo.privacy.audits.catalogue import all_audits

        return all_audits(options.epsilon)
    from zoo.commands.privacy.plan import read_experiment

    publisher = read_experiment(options.config, overrides).publisher
    audits = publisher.audits()
    if not audits:
        raise ValueError(f"{type(publisher).__name__} claims nothing that could be audited.")
    return audits


def _curve(options: argparse.Namespace, overrides: list[str], _: Console) -> None:
    from zoo.commands.privacy.curve import draw_curve
    from zoo.release.release import Release

    ledgers = {}
    for path in options.releases:
        release = Release.load(path)
        ledgers[f"{release.domain} ({release.record.mechanism})"] = (release.ledger, release.record.relation)
    if options.config is not None:
        from zoo.commands.privacy.plan import planned_releases, read_experiment

        for planned in planned_releases(read_experiment(options.config, overrides), None, None):
            name = f"{planned.source} ({planned.record.mechanism}, planned)"
            ledgers[name] = (planned.events, planned.record.relation)
    if not ledgers:
        raise ValueError("Say what to draw: folders of releases, or --config FILE.")
    print(draw_curve(ledgers, options.results, options.out))
