"""``python -m zoo privacy``: plan, show and add up privacy losses, keep a budget, audit, attack, draw curves.

Each command imports what it needs when it runs, so that ``--help`` stays quick.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentError
from rich.console import Console
from rich.markup import escape

from zoo.privacy.accounting.relation import Relation
from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import atomic_write, refusal, visible
from zoo.runtime.suggestions import count_of

if TYPE_CHECKING:
    from zoo.privacy.audits.one_run import OneRunAudit
    from zoo.privacy.audits.two_world import Audit
    from zoo.release.signature import TrustedKeys

    Commands = argparse._SubParsersAction[Arguments]

JSON = "write only unrounded JSON to stdout (keys: docs/privacy/record.md)"
TRUSTED = "public keys (PEM file or folder), one of which must have signed each release"
TOTAL = (
    "Compute the total privacy loss of releases. All compose, whichever domain and version of its ratings they are of. "
    "With --distinct-ratings the total for the unit rating is the largest of the domains. A folder given twice counts once."
)
BUDGET = (
    "With --epsilon, --delta and --relation: make a budget. Without: show its use. Publishing with --budget FILE charges it before "
    "the release is written, with --request before it is named, and refuses a release above the cap. The cap holds for all domains "
    "together, or with --distinct-ratings for each domain."
)
APART = "state that no (user, item) pair is in two domains; printed as a condition"
ATTACK = (
    "Learn to invert a release from users that an attacker knows, and measure how well it recovers vectors and items of others. "
    "Also attack the updates of federated clients as their server. Needs the ratings of the source. A failed attack proves nothing."
)


def parser() -> Arguments:
    """Options of the commands."""
    made = Arguments(prog="python -m zoo privacy", description="Plan, check and account for the privacy of releases.")
    commands = made.add_subparsers(dest="command", required=True)
    _add_accounts(commands)
    _add_measurements(commands)
    return made


def _add_accounts(commands: Commands) -> None:
    plan = commands.add_parser(
        "plan", help="planned privacy loss of publishing and private training, without opening data"
    )
    plan.add_argument("--config", type=Path, required=True, help="experiment, as for publish")
    _add_sizes(plan)
    repeat = "also the total of N releases of the same data, such as 52 for a year of weekly releases"
    plan.add_argument("--repeat", type=int, metavar="N", help=repeat)
    plan.set_defaults(run=_plan)

    show = commands.add_parser("show", help="privacy record of a release, checked against its ledger")
    show.add_argument("release", type=Path, metavar="RELEASE", help="folder of a release")
    show.add_argument("--html", type=Path, metavar="FILE", help="also write the page as HTML")
    show.set_defaults(run=_show)

    register = commands.add_parser("register", help="entry of a release for the registry of deployments, as JSON")
    register.add_argument("release", type=Path, metavar="RELEASE", help="folder of a release with a guarantee")
    register.set_defaults(run=_register)

    total = commands.add_parser("total", help="total privacy loss of several releases", description=TOTAL)
    total.add_argument("releases", type=Path, nargs="+", metavar="RELEASE", help="folders of releases")
    total.set_defaults(run=_total)

    budget = commands.add_parser("budget", help="make a budget for publish --budget, or show one", description=BUDGET)
    budget.add_argument("file", type=Path, metavar="FILE", help="file of the budget, which stays at the source party")
    budget.add_argument("--epsilon", type=float, help="make the budget with this cap")
    budget.add_argument("--delta", type=float, help="delta of the cap, below 1 / number of users")
    budget.add_argument("--relation", choices=[*map(str, Relation)], help="privacy unit and neighbouring relation")
    budget.set_defaults(run=_budget)
    for each in (total, budget):
        each.add_argument("--distinct-ratings", action="store_true", help=APART)
    for each in (show, register, total):
        each.add_argument("--trusted", type=Path, metavar="KEYS", help=TRUSTED)
    for each in (plan, show, total, budget):
        each.add_argument("--json", action="store_true", help=JSON)


def _add_measurements(commands: Commands) -> None:
    audit = commands.add_parser("audit", help="try to refute a claim; exit code 1 if it is refuted")
    option = audit.add_argument
    option("--config", type=Path, help="experiment whose publisher is audited")
    option("--all", action="store_true", help="audit every mechanism, and published ones with wrong claims")
    option("--epsilon", type=float, default=1.0, help="claimed epsilon for --all (default: %(default)s)")
    option("--runs", type=int, default=40_000, help="runs per world (default: %(default)s)")
    option(
        "--beta",
        type=float,
        default=1e-3,
        help="largest probability of a false alarm, of each test (default: %(default)s)",
    )
    option("--out", type=Path, metavar="FILE", help="also write the table as CSV, to an existing folder")
    option("--json", action="store_true", help=JSON)
    audit.set_defaults(run=_audit)

    attack = commands.add_parser("attack", help="success of attacks on vectors; no guarantee", description=ATTACK)
    option = attack.add_argument
    option("--config", type=Path, required=True, help="experiment whose publisher is an EmbeddingPublisher")
    option("--source", metavar="NAME", help="attacked source, if the experiment has several")
    option(
        "--epsilon", type=float, nargs="+", help="attack noisy vectors at each epsilon (default: that of the publisher)"
    )
    option("--known", type=float, default=0.5, help="share of users that the attacker knows (default: %(default)s)")
    option("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    option("--out", type=Path, metavar="FILE", help="write the metrics as CSV, to an existing folder")
    option("--json", action="store_true", help=JSON)
    attack.set_defaults(run=_attack)

    curve = commands.add_parser("curve", help="plot delta and, with results, utility against epsilon")
    curve.add_argument("releases", type=Path, nargs="*", metavar="RELEASE", help="folders of releases")
    curve.add_argument("--config", type=Path, help="or an experiment with a planned release")
    _add_sizes(curve)
    curve.add_argument("--results", type=Path, help="results.csv of a report")
    curve.add_argument("--out", type=Path, default=Path("curve.png"), help="PNG file to write (default: %(default)s)")
    curve.set_defaults(run=_curve)


def _add_sizes(command: argparse.ArgumentParser) -> None:
    for name, where in (("users", "list"), ("items", "catalogue")):
        text = f"public number of {name} of a planned release (default: of the {where} in the config)"
        command.add_argument(f"--{name}", type=int, help=text)


def main(arguments: Sequence[str]) -> None:
    """Run a command; an expected error ends it with its message."""
    root = parser()
    options, overrides = root.parse_known_args(arguments)
    if overrides and getattr(options, "config", None) is None:
        root.error(f"unrecognized arguments: {' '.join(overrides)}")
    try:
        # Progress goes to stderr if stdout is JSON.
        options.run(options, overrides, Console(stderr=getattr(options, "json", False)))
    except (OSError, TypeError, ValueError, ArgumentError) as error:
        sys.exit(refusal(error))


def _plan(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    from zoo.commands.privacy.plan import (
        ITEMS,
        USERS,
        notes_of,
        paper_table,
        plan_table,
        planned_releases,
        read_experiment,
        repeat_table,
    )

    _check_counts(options)
    experiment = read_experiment(options.config, overrides)
    releases = planned_releases(experiment, options.users, options.items)
    domains = [one.source for one in releases]
    known = options.users or (experiment.users if domains[0] != experiment.unlisted else None)
    if options.json:
        print(_json("plan", releases, known or USERS, "given" if known else "default", options.repeat))
        return
    default = f"{USERS:,} users (set --users N)"
    users = count_of(known, "user") if known else default
    if known and not options.users and domains[-1] == experiment.unlisted:
        users += f", for {visible(domains[-1])} {default}"
    known_items = options.items or all(domain in experiment.items for domain in domains)
    items = "" if known_items else f" and {ITEMS:,} items (set --items N)"
    assumed = ". With other numbers, delta, noise and totals differ" if "(set" in users + items else ""
    console.print(plan_table(releases, f"{users}{items}{assumed}"))
    if options.repeat:
        console.print(repeat_table(releases, options.repeat))
    if (table := paper_table(releases[0].record)) is not None:
        console.print(table)
    for text in notes_of(releases):
        console.print(escape(text), soft_wrap=True)


def _check_counts(options: argparse.Namespace) -> None:
    for name in ("users", "items", "repeat"):
        if (count := getattr(options, name, None)) is not None and count < 1:
            raise ValueError(f"--{name} is {count}. It must be at least 1.")


def _show(options: argparse.Namespace, *_: object) -> None:
    from zoo.commands.privacy.show import as_html, as_text, parts
    from zoo.release.files import manifest_bytes
    from zoo.release.release import Release
    from zoo.release.signature import check_signature

    content = manifest_bytes(options.release)
    key = check_signature(options.release, content, None)
    trusted = _trusted(options)
    release = Release.load(options.release, trusted)
    if manifest_bytes(options.release) != content:
        raise ValueError(f"{options.release} changed while it was read. Run the command again.")
    page = parts(release, options.release, key, trusted)
    print(_json("show", release, options.release, key, trusted) if options.json else as_text(page))
    if options.html is not None:
        with atomic_write(options.html) as file:
            file.write_text(as_html(page, f"Release {options.release.name}"), encoding="utf-8")


def _register(options: argparse.Namespace, *_: object) -> None:
    from zoo.commands.privacy.as_json import left_to_state, registry_entry
    from zoo.release.release import Release

    entry = registry_entry(Release.load(options.release, _trusted(options)))
    print(json.dumps(entry, indent=1, allow_nan=False))
    print(f"Fill in: {', '.join(left_to_state(entry))}.", file=sys.stderr)


def _trusted(options: argparse.Namespace) -> TrustedKeys | None:
    from zoo.release.signature import TrustedKeys

    return None if options.trusted is None else TrustedKeys.read(options.trusted)


def _total(options: argparse.Namespace, *_: object) -> None:
    from zoo.commands.privacy.show import as_text
    from zoo.commands.privacy.total import account_of, total_parts
    from zoo.privacy.spending.total import total_of

    trusted = _trusted(options)
    accounts = [account_of(path, trusted) for path in options.releases]
    total = total_of(accounts, distinct_ratings=options.distinct_ratings)
    print(_json("total", accounts, total) if options.json else as_text(total_parts(accounts, total)))


def _budget(options: argparse.Namespace, *_: object) -> None:
    from zoo.commands.privacy.show import as_text
    from zoo.commands.privacy.total import budget_parts
    from zoo.privacy.spending.budget import Budget, Cap

    cap = {name: getattr(options, name) for name in ("epsilon", "delta", "relation")}
    if missing := [f"--{name}" for name, value in cap.items() if value is None]:
        if len(missing) < len(cap) or options.distinct_ratings:
            raise ValueError(f"The cap lacks {' and '.join(missing)}. Pass all three, or none to show a budget.")
        budget = Budget(options.file)
    else:
        limit = Cap(cap["epsilon"], cap["delta"], Relation(cap["relation"]), options.distinct_ratings)
        budget = Budget.create(options.file, limit)
    print(_json("budget", budget) if options.json else as_text(budget_parts(budget)))


def _audit(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    from zoo.commands.privacy.audit import audit_table, perform_audit, write_findings

    if options.all == (options.config is not None):
        raise ValueError("Nothing to audit. Pass either --config FILE or --all.")
    _check_out(options.out)
    results = []
    audits, notes = _chosen_audits(options, overrides)
    with console.status("") as status:
        for audit in audits:
            status.update(f"Auditing {escape(audit.name)} ...")
            results.append(perform_audit(audit, options.runs, options.beta))
    if options.json:
        print(_json("audit", results, options.runs, options.beta, notes))
    else:
        console.print(audit_table(results, options.runs, options.beta))
        for text in notes:
            console.print(escape(visible(text)), soft_wrap=True)
    if options.out is not None:
        write_findings(results, options.out)
    if not all(result.as_expected for result in results):
        sys.exit(1)


def _chosen_audits(
    options: argparse.Namespace, overrides: list[str]
) -> tuple[Sequence[Audit | OneRunAudit], Sequence[str]]:
    if options.all:
        from zoo.privacy.audits.catalogue import all_audits

        return all_audits(options.epsilon), []
    from zoo.commands.privacy.audit import third_party_notes
    from zoo.commands.privacy.plan import planned_releases, read_experiment

    experiment = read_experiment(options.config, overrides)
    records = [planned.record for planned in planned_releases(experiment, None, None)]
    audits: list[Audit | OneRunAudit] = []
    made = zip((maker for _, maker in experiment.makers), records, strict=True)
    ranked = sorted(made, key=lambda one: one[1].claims)  # of several records of a publisher the last one is kept
    makers = {id(maker): (maker, record) for maker, record in ranked}
    for maker, record in makers.values():
        own: Sequence[Audit | OneRunAudit] = (maker.audits() if hasattr(maker, "audits") else []) or []
        if record.claims and not own:
            name = visible(type(maker).__name__)
            raise ValueError(f"{name} claims {record.summary()}, but has no audits. Write its `audits()`.")
        audits += own
    if not audits:
        name = visible(" and ".join(type(maker).__name__ for maker, _ in makers.values()))
        raise ValueError(f"{name} has no privacy claim with these settings. Change them, or pass --all.")
    return audits, third_party_notes(records)


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
        print(_json("attack", found, attack))
    else:
        console.print(attack_table(found, attack))
    if options.out is not None:
        write_attacks(found, attack, options.out)


def _json(command: str, *values: object) -> str:
    from zoo.commands.privacy import as_json  # slow

    text: str = as_json.written(command, getattr(as_json, f"{command}_values")(*values))
    return text


def _check_out(path: Path | None) -> None:
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ValueError(f"--out is {path}. It must be a file in an existing folder. Make the folder first.")


def _curve(options: argparse.Namespace, overrides: list[str], _: Console) -> None:
    from zoo.commands.privacy.curve import draw_curve
    from zoo.release.release import Release

    _check_counts(options)
    accounts = {}
    for path in options.releases:
        release = Release.load(path)
        accounts[f"{path} ({release.record.mechanism.name})"] = (release.record, release.ledger)
    if options.config is not None:
        from zoo.commands.privacy.plan import planned_releases, read_experiment

        for planned in planned_releases(read_experiment(options.config, overrides), options.users, options.items):
            sizes = "{:,} users and {:,} items".format(*planned.sizes)
            name = f"{planned.source} ({planned.record.mechanism.name}, planned for {sizes})"
            accounts[name] = (planned.record, planned.events)
    if not accounts:
        raise ValueError("Nothing to draw. Pass folders of releases, or --config FILE.")
    print(draw_curve(accounts, options.results, options.out))
    for name, (record, _ledger) in accounts.items():
        print(visible(f"{name}: {record.standing}"))
