"""``python -m zoo privacy``: plan, show and add up what releases cost, keep a budget, audit and attack, draw a curve.

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

from zoo.privacy.accounting.relation import Relation
from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import refusal, visible, whole
from zoo.runtime.suggestions import count_of

if TYPE_CHECKING:
    from zoo.privacy.audits.one_run import OneRunAudit
    from zoo.privacy.audits.two_world import Audit
    from zoo.release.signature import TrustedKeys

    Commands = argparse._SubParsersAction[Arguments]

JSON = "write the answer as JSON to stdout, unrounded, and nothing else there; docs/privacy.md lists the keys"
TRUSTED = "public keys (a PEM file, or a folder of them), one of which must have signed each release"
TOTAL = (
    "Adds up what releases cost whoever holds all of them. Releases of one domain compose, whatever version of its ratings they "
    "are of; for ratings the total of several domains is that of the one that lost most, for users that of all together. One "
    "release given twice counts once."
)
BUDGET = (
    "With --epsilon, --delta and --relation: makes a budget. Without: shows what was spent of it. python -m zoo publish --budget "
    "FILE writes what a release costs into it before the release exists, and refuses one that would exceed the cap: of each "
    "domain where ratings are protected, of all domains together where users are."
)
ATTACK = (
    "Learns an inverse of what is released, from users whom an adversary knows, and measures what it finds of others: their "
    "vectors and their items. Also what a server reads off the updates of federated clients. Needs the source's ratings; for "
    "research, and no guarantee: an attack that fails proves nothing."
)


def parser() -> Arguments:
    """Options of the commands."""
    made = Arguments(prog="python -m zoo privacy", description="What an engineer who answers for a release needs.")
    commands = made.add_subparsers(dest="command", required=True)
    _add_accounts(commands)
    _add_measurements(commands)
    return made


def _add_accounts(commands: Commands) -> None:
    """What releases cost: `plan`, `show`, `total` and `budget`."""
    plan = commands.add_parser("plan", help="what publishing would cost; opens no data")
    plan.add_argument("--config", type=Path, required=True, help="an experiment, as for publish")
    plan.add_argument("--users", type=int, help="public number of users (default: of the list in the config)")
    plan.add_argument("--items", type=int, help="public number of items (default: of the catalogue in the config)")
    plan.set_defaults(run=_plan)
    plan.add_argument("--json", action="store_true", help=JSON)

    show = commands.add_parser("show", help="a release's record as a page, checked against its ledger")
    show.add_argument("release", type=Path, metavar="RELEASE", help="folder of a release")
    show.add_argument("--html", type=Path, metavar="FILE", help="write the page to a file of HTML as well")
    show.add_argument("--trusted", type=Path, metavar="KEYS", help=TRUSTED)
    show.add_argument("--json", action="store_true", help=JSON)
    show.set_defaults(run=_show)

    total = commands.add_parser("total", help="what several releases cost together", description=TOTAL)
    total.add_argument("releases", type=Path, nargs="+", metavar="RELEASE", help="folders of releases, of any domains")
    total.add_argument("--trusted", type=Path, metavar="KEYS", help=TRUSTED)
    total.add_argument("--json", action="store_true", help=JSON)
    total.set_defaults(run=_total)

    budget = commands.add_parser("budget", help="make a budget for publish --budget, or show one", description=BUDGET)
    budget.add_argument("file", type=Path, metavar="FILE", help="file of the budget; stays at the source party")
    budget.add_argument("--epsilon", type=float, help="make it, with this cap on all releases together")
    budget.add_argument("--delta", type=float, help="delta at which the cap holds; below one over the number of users")
    budget.add_argument(
        "--relation", choices=[*map(str, Relation)], help="who is protected, and which data are neighbours"
    )
    budget.add_argument("--json", action="store_true", help=JSON)
    budget.set_defaults(run=_budget)


def _add_measurements(commands: Commands) -> None:
    """What their mechanisms do: `audit`, `attack` and `curve`."""
    audit = commands.add_parser("audit", help="try to break the claim; exit code 1 if it does not hold")
    option = audit.add_argument
    option("--config", type=Path, help="an experiment whose publisher is audited")
    option("--all", action="store_true", help="audit every mechanism, and published ones that do not hold")
    option("--epsilon", type=float, default=1.0, help="claim that --all audits (default: %(default)s)")
    option("--runs", type=int, default=40_000, help="runs per world (default: %(default)s)")
    option("--beta", type=float, default=1e-3, help="largest chance of a false alarm (default: %(default)s)")
    option("--out", type=Path, metavar="FILE", help="write the table to a file of CSV as well, in a folder that exists")
    option("--json", action="store_true", help=JSON)
    audit.set_defaults(run=_audit)

    attack = commands.add_parser("attack", help="what an adversary recovers of users; no guarantee", description=ATTACK)
    option = attack.add_argument
    option("--config", type=Path, required=True, help="an experiment whose publisher is an EmbeddingPublisher")
    option("--source", metavar="NAME", help="which source is attacked, where the experiment has several")
    option("--epsilon", type=float, nargs="+", help="attack noisy vectors at each (default: the publisher's)")
    option("--known", type=float, default=0.5, help="share of users whom the adversary knows (default: %(default)s)")
    option("--seeds", type=int, default=3, help="trainings, adversaries and noises (default: %(default)s)")
    option("--out", type=Path, metavar="FILE", help="write the figures to a file of CSV, in a folder that exists")
    option("--json", action="store_true", help=JSON)
    attack.set_defaults(run=_attack)

    curve = commands.add_parser("curve", help="a PNG of delta against epsilon, and of utility where there are results")
    curve.add_argument("releases", type=Path, nargs="*", metavar="RELEASE", help="folders of releases")
    curve.add_argument("--config", type=Path, help="or an experiment whose release is planned")
    curve.add_argument("--results", type=Path, help="results.csv of a report")
    curve.add_argument("--out", type=Path, default=Path("curve.png"), help="file to write (default: %(default)s)")
    curve.set_defaults(run=_curve)


def main(arguments: Sequence[str]) -> None:
    """Run a command; a refusal ends with its message."""
    given = parser()
    options, overrides = given.parse_known_args(arguments)
    if overrides and getattr(options, "config", None) is None:
        given.error(f"unrecognized arguments: {' '.join(overrides)}")
    try:
        # What is not the answer goes to stderr, so that JSON stands alone.
        options.run(options, overrides, Console(stderr=getattr(options, "json", False)))
    except (OSError, TypeError, ValueError, ArgumentError) as error:
        sys.exit(refusal(error))


def _plan(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    from zoo.commands.privacy.plan import USERS, paper_table, plan_table, planned_releases, read_experiment, words

    for name in ("users", "items"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(options, name)}.")
    experiment = read_experiment(options.config, overrides)
    releases = planned_releases(experiment, options.users, options.items)
    known = options.users or experiment.users
    if options.json:
        from zoo.commands.privacy.as_json import plan_values, written

        print(written("plan", plan_values(releases, known or USERS, "given" if known else "default")))
        return
    said = count_of(known, "user") if known else f"at most {USERS:,} users (say how many: --users N)"
    console.print(plan_table(releases, said))
    if (beside := paper_table(releases[0].record)) is not None:
        console.print(beside)
    for text in words(releases):
        console.print(escape(text), soft_wrap=True)


def _show(options: argparse.Namespace, *_: object) -> None:
    from zoo.commands.privacy.show import as_html, as_text, parts
    from zoo.release.files import manifest_bytes
    from zoo.release.release import Release
    from zoo.release.signature import check_signature

    content = manifest_bytes(options.release)
    key = check_signature(options.release, content, None)
    release = Release.load(options.release, _trusted(options))
    if manifest_bytes(options.release) != content:
        raise ValueError(f"{options.release} was changed while it was read. Ask the source party for it again.")
    page = parts(release, options.release, key)
    if options.json:
        from zoo.commands.privacy.as_json import show_values, written

        print(written("show", show_values(release, options.release, key)))
    else:
        print(as_text(page))
    if options.html is not None:
        with whole(options.html) as file:
            file.write_text(as_html(page, f"Release {options.release.name}"), encoding="utf-8")


def _trusted(options: argparse.Namespace) -> TrustedKeys | None:
    from zoo.release.signature import TrustedKeys

    return None if options.trusted is None else TrustedKeys.read(options.trusted)


def _total(options: argparse.Namespace, *_: object) -> None:
    from zoo.commands.privacy.show import as_text
    from zoo.commands.privacy.total import account_of, total_parts
    from zoo.privacy.spending.total import total_of

    trusted = _trusted(options)
    accounts = [account_of(path, trusted) for path in options.releases]
    total = total_of(accounts)
    if options.json:
        from zoo.commands.privacy.as_json import total_values, written

        print(written("total", total_values(accounts, total)))
    else:
        print(as_text(total_parts(accounts, total)))


def _budget(options: argparse.Namespace, *_: object) -> None:
    from zoo.commands.privacy.show import as_text
    from zoo.commands.privacy.spent import budget_parts
    from zoo.privacy.spending.budget import Budget, Cap

    cap = {name: getattr(options, name) for name in ("epsilon", "delta", "relation")}
    if missing := [f"--{name}" for name, value in cap.items() if value is None]:
        if len(missing) < len(cap):
            raise ValueError(f"A cap needs {' and '.join(missing)} too; to show a budget, leave all three out.")
        budget = Budget(options.file)
    else:
        budget = Budget.create(options.file, Cap(cap["epsilon"], cap["delta"], Relation(cap["relation"])))
    if options.json:
        from zoo.commands.privacy.as_json import budget_values, written

        print(written("budget", budget_values(budget)))
    else:
        print(as_text(budget_parts(budget)))


def _audit(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    from zoo.commands.privacy.audit import audit_table, audited, write_findings

    if options.all == (options.config is not None):
        raise ValueError("Say what to audit: --config FILE for the publisher of an experiment, or --all.")
    _check_out(options.out)
    results = []
    audits, words = _chosen_audits(options, overrides)
    with console.status("") as status:
        for audit in audits:
            status.update(f"Auditing {escape(audit.name)} ...")
            results.append(audited(audit, options.runs, options.beta))
    if options.json:
        from zoo.commands.privacy.as_json import audit_values, written

        print(written("audit", audit_values(results, options.runs, options.beta, words)))
    else:
        console.print(audit_table(results, options.runs, options.beta))
        for text in words:
            console.print(escape(visible(text)), soft_wrap=True)
    if options.out is not None:
        write_findings(results, options.out)
    if not all(result.as_expected for result in results):
        sys.exit(1)


def _chosen_audits(
    options: argparse.Namespace, overrides: list[str]
) -> tuple[Sequence[Audit | OneRunAudit], Sequence[str]]:
    """The audits, and what must be known beside them."""
    if options.all:
        from zoo.privacy.audits.catalogue import all_audits

        return all_audits(options.epsilon), []
    from zoo.commands.privacy.audit import whose_word
    from zoo.commands.privacy.plan import planned_releases, read_experiment

    experiment = read_experiment(options.config, overrides)
    maker, records = experiment.maker, [planned.record for planned in planned_releases(experiment, None, None)]
    audits: Sequence[Audit | OneRunAudit] = maker.audits() if hasattr(maker, "audits") else []
    name = visible(type(maker).__name__)
    if not audits and any(record.claims for record in records):
        raise ValueError(f"{name} claims {records[0].summary()}, and brings no audits of it. Write its `audits()`.")
    if not audits:
        raise ValueError(
            f"{name} claims nothing that could be audited with these settings; --all audits every mechanism."
        )
    return audits, whose_word(records)


def _attack(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    from zoo.commands.privacy.attack import Attack, attack_table, summary, write_attacks
    from zoo.runs.trainer import quietly

    _check_out(options.out)
    attack = Attack.read(
        options.config, overrides, options.source, options.epsilon, options.known, options.seeds
    )  # fmt: skip
    rows = []
    with quietly(), console.status("") as status:
        for row in attack.findings():
            status.update(f"Attacking {escape(visible(attack.source))}: {row['release']}, {row['attack']} ...")
            rows.append(row)
    found = summary(rows)
    if options.json:
        from zoo.commands.privacy.as_json import attack_values, written

        print(written("attack", attack_values(found, attack)))
    else:
        console.print(attack_table(found, attack))
    if options.out is not None:
        write_attacks(found, attack, options.out)


def _check_out(path: Path | None) -> None:
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ValueError(f"--out must name a file in a folder that exists, got {path}. Make the folder first.")


def _curve(options: argparse.Namespace, overrides: list[str], _: Console) -> None:
    from zoo.commands.privacy.curve import draw_curve
    from zoo.release.release import Release

    accounts = {}
    for path in options.releases:
        release = Release.load(path)
        accounts[f"{path} ({release.record.mechanism.name})"] = (release.record, release.ledger)
    if options.config is not None:
        from zoo.commands.privacy.plan import planned_releases, read_experiment

        for planned in planned_releases(read_experiment(options.config, overrides), None, None):
            name = f"{planned.source} ({planned.record.mechanism.name}, planned)"
            accounts[name] = (planned.record, planned.events)
    if not accounts:
        raise ValueError("Say what to draw: folders of releases, or --config FILE.")
    print(draw_curve(accounts, options.results, options.out))
    for name, (record, _ledger) in accounts.items():
        print(visible(f"{name}: {record.standing}"))
