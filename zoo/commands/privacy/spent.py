"""A budget file as a page: its cap, what was spent, and on what."""

import math

from zoo.commands.privacy.show import Part
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.record.record import rounded_up, shown_delta
from zoo.privacy.spending.budget import Budget, BudgetEntry

NO_RELEASE = "no release is known of (a crash or a failure): spent all the same"
TORN = "The file ends in half a line, of a crash before anything was released. It counts for nothing; the next release removes it."


def budget_parts(budget: Budget) -> list[Part]:
    """The page of a budget; an epsilon is never without the conditions under which it is one."""
    cap = budget.cap
    conditions = dict.fromkeys(
        text for spent in budget.entries for text in spent.account.record.sentences("conditions")
    )
    if_so = ", if the conditions below are true" if conditions else ""
    whole = cap.relation.unit is Unit.USER
    facts = [
        ("file", str(budget.path)),
        (
            "cap",
            f"epsilon {cap.epsilon:g} at delta {shown_delta(cap.delta)}, {'all domains together' if whole else 'each domain'}",
        ),
        ("neighbours", cap.relation.value.replace("_", " ")),
    ]
    spent = [
        (domain or "all domains", f"epsilon {rounded_up(epsilon) if math.isfinite(epsilon) else 'infinite'}{if_so}")
        for domain, epsilon in budget.epsilon_by_domain().items()
    ]
    made = [
        Part("Budget", [TORN] if budget.has_partial_line else [], facts),
        Part("Spent", [] if spent else ["nothing"], spent),
    ]
    if conditions:
        made.append(Part("On condition that", list(conditions)))
    if budget.entries:
        made.append(Part("Releases", rows=[(f"line {one.number + 1}", _said(one)) for one in budget.entries]))
    return made


def _said(spent: BudgetEntry) -> str:
    record = spent.account.record
    cost = f"epsilon {rounded_up(record.epsilon or 0.0)} at delta {shown_delta(record.delta or 0.0)}, {record.guarantee.value}"
    what = f"SHA-256 {spent.release}" if spent.release else NO_RELEASE
    return f"{spent.date}, {spent.account.domain}, {record.mechanism.name}, {cost}; {what}"
