"""What several releases cost together, as a page."""

from collections.abc import Sequence
from pathlib import Path

from zoo.commands.privacy.show import Part
from zoo.privacy.record.record import rounded_up, shown_delta
from zoo.privacy.spending.total import Account, DomainTotal, Total
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys

MEANING = {
    False: "A rating lies in one domain, so the total is that of the domain that lost most.",
    True: "A user may be in every domain, so the releases of all of them add up.",
}
SAME = (
    "Releases of a domain are taken to be of the same people's data, whatever version of it; domains are told apart by name, but "
    "not by case or blanks."
)


def account_of(path: Path, trusted: TrustedKeys | None = None) -> Account:
    """The account of a release's folder, read and checked as a target reads it."""
    release = Release.load(path, trusted)
    return Account(str(path), release.domain, release.source_users, release.record, release.ledger, release.digest)


def total_parts(accounts: Sequence[Account], total: Total) -> list[Part]:
    """The page of a total; an epsilon is never without the conditions under which it is one."""
    made = [Part("Together", [] if total.epsilon is not None else [f"No total: {total.reason}."], _together(total))]
    if total.conditions:
        made.append(
            Part(
                "On condition that",
                [f"{condition} ({', '.join(names)})" for condition, names in total.conditions.items()],
            )
        )
    counted = {one.name: one for one in accounts if total.copies.get(one.name, one.name) == one.name}
    by_domain = [SAME, *([MEANING[total.unit == "user"]] if total.unit is not None else [])]
    made += [
        Part("By domain", by_domain, [(domain.domain, _said(domain, total)) for domain in total.domains]),
        Part("Releases", rows=[(account.name, account.record.summary()) for account in counted.values()]),
    ]
    if total.copies:
        copies = [
            f"{copy} is {'given twice' if copy == of else f'the same release as {of}'}"
            for copy, of in total.copies.items()
        ]
        made.append(Part("Counted once", copies))
    return made


def _together(total: Total) -> list[tuple[str, str]]:
    if total.epsilon is None or total.delta is None:
        return []
    if_so = ", if the conditions below are true" if total.conditions else ""
    return [
        ("unit", str(total.unit)),
        ("neighbours", str(total.relation).replace("_", " ")),
        ("epsilon", rounded_up(total.epsilon) + if_so),
        ("delta", shown_delta(total.delta)),
    ]


def _said(domain: DomainTotal, total: Total) -> str:
    count = f"{len(domain.names)} release{'s' if len(domain.names) > 1 else ''}"
    if domain.epsilon is None or domain.delta is None:
        return f"{count}: no total, as {domain.reason}"
    if_so = (
        ", if the conditions above are true"
        if {*domain.names} & {n for ns in total.conditions.values() for n in ns}
        else ""
    )
    return f"{count}: epsilon {rounded_up(domain.epsilon)} at delta {shown_delta(domain.delta)}{if_so}"
