"""Pages of the total privacy loss of several releases, and of a privacy budget."""

from collections.abc import Sequence
from pathlib import Path

from zoo.commands.privacy.show import Part
from zoo.privacy.record.record import rounded_up, shown_delta
from zoo.privacy.spending.budget import Budget, BudgetEntry
from zoo.privacy.spending.total import DISTINCT, Account, DomainTotal, Total
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys
from zoo.runtime.suggestions import count_of

LARGEST = f"As stated, {DISTINCT}, so the total is the largest total of a domain."
TOGETHER = {
    False: "A (user, item) pair may be in several domains, so the releases of all domains add up.",
    True: "A user may be in every domain, so the releases of all domains add up.",
}
SAME = (
    "Releases of a domain count as releases of the same data, of any version. Case and spaces of its name are ignored."
)
COINCIDENCE = "Independent draws may coincide, and a file does not show whether it is a copy. Pass each release once."
NO_RELEASE = "no release is known (crash or failure); the cost stays charged"
TORN = "The last line is incomplete: a crash before a release. It is not charged, and the next release removes it."


def account_of(path: Path, trusted: TrustedKeys | None = None) -> Account:
    """Return the account of a release, which is loaded and checked as at a target."""
    release = Release.load(path, trusted)
    users, record, ledger = release.source_users, release.record, release.ledger
    return Account(str(path), release.domain, users, record, ledger, release.digest, path.resolve())


def total_parts(accounts: Sequence[Account], total: Total) -> list[Part]:
    """Return the page of a total, with the conditions of every epsilon."""
    page = [Part("Total", [] if total.epsilon is not None else [f"No total: {total.reason}."], _together(total))]
    if total.conditions:
        page.append(Part("Conditions", [f"{text} ({', '.join(names)})" for text, names in total.conditions.items()]))
    counted = {one.name: one for one in accounts if total.copies.get(one.name, one.name) == one.name}
    meaning = LARGEST if total.distinct else TOGETHER[total.unit == "user"]
    by_domain = [SAME, *([meaning] if total.unit is not None else [])]
    page += [
        Part("By domain", by_domain, [(domain.domain, _domain_line(domain, total)) for domain in total.domains]),
        Part("Releases", rows=[(account.name, account.record.summary()) for account in counted.values()]),
    ]
    if total.copies:
        twice = [
            f"{again} is {'given twice' if again == of else f'the folder {of}'}" for again, of in total.copies.items()
        ]
        page.append(Part("Counted once", twice))
    if total.same_content:
        equal = [f"{name}: same content as {of}: counted again" for name, of in total.same_content.items()]
        page.append(Part("Counted again", [*equal, COINCIDENCE]))
    return page


def _together(total: Total) -> list[tuple[str, str]]:
    if total.epsilon is None or total.delta is None:
        return []
    condition = ", under the conditions below" if total.conditions else ""
    return [
        ("unit", str(total.unit)),
        ("neighbours", str(total.relation).replace("_", " ")),
        ("epsilon", rounded_up(total.epsilon) + condition),
        ("delta", shown_delta(total.delta)),
        *([("strength", total.label)] if total.label else []),
    ]


def _domain_line(domain: DomainTotal, total: Total) -> str:
    count = count_of(len(domain.names), "release")
    if domain.epsilon is None or domain.delta is None:
        return f"{count}: no total ({domain.reason})"
    conditional = {*domain.names} & {
        name for text, names in total.conditions.items() if not total.distinct or text != DISTINCT for name in names
    }
    condition = ", under the conditions above" if conditional else ""
    label = f" ({domain.label})" if domain.label else ""
    return f"{count}: epsilon {rounded_up(domain.epsilon)}{label} at delta {shown_delta(domain.delta)}{condition}"


def budget_parts(budget: Budget) -> list[Part]:
    """Return the page of a budget, with the conditions of every epsilon."""
    cap = budget.cap
    conditions = budget.conditions()
    condition = ", under the conditions below" if conditions else ""
    domains = "each domain" if cap.distinct_ratings else "all domains"
    facts = [
        ("file", str(budget.path)),
        ("cap", f"epsilon {cap.epsilon:g} at delta {shown_delta(cap.delta)}, {domains}"),
        ("neighbours", cap.relation.value.replace("_", " ")),
    ]
    spent = [
        (domain or "all domains", f"epsilon {total.shown}{condition}")
        for domain, total in budget.total_by_domain().items()
    ]
    page = [Part("Budget", [TORN] * budget.has_partial_line, facts), Part("Used", [] if spent else ["nothing"], spent)]
    if conditions:
        page.append(Part("Conditions", conditions))
    if budget.entries:
        page.append(Part("Releases", rows=[(f"line {one.number + 1}", _entry(one)) for one in budget.entries]))
    return page


def _entry(spent: BudgetEntry) -> str:
    record = spent.account.record
    cost = f"epsilon {rounded_up(record.epsilon or 0.0)} at delta {shown_delta(record.delta or 0.0)}, {record.guarantee.value}"
    cost += f" ({record.view.label})" if record.view.label else ""
    what = f"SHA-256 {spent.release}" if spent.release else NO_RELEASE
    return f"{spent.date}, {spent.account.domain}, {record.mechanism.name}, {cost}; {what}"
