"""Totals: what several releases cost together, for whoever holds them all."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zoo.privacy.accounting.accountant import UnsupportedEventError, epsilon_of
from zoo.privacy.accounting.events import GaussianEvent, PrivacyEvent, PureEvent, event_from_dict
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.record.fields import RecordError
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.shared_projection import refuse_shared_projection

#: What an entry of a run's ``privacy.json`` has beside the fields of its record.
BESIDE = ("ledger", "num_users")


@dataclass(frozen=True)
class Account:
    """What one release says of itself, to be added up with others."""

    name: str  # what to call it, e.g. its folder
    domain: str  # whose ratings it is made of; releases of one name are taken to be of the same people's data
    num_users: int
    record: PrivacyRecord
    ledger: tuple[PrivacyEvent, ...]
    digest: str | None = None  # SHA-256 of the release: two of the same are one; None before it is made


@dataclass(frozen=True)
class DomainTotal:
    """What the releases of one domain cost together."""

    domain: str
    names: tuple[str, ...]  # of its releases
    unit: Unit | None
    epsilon: float | None  # None where they guarantee nothing together; `reason` says why
    delta: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Total:
    """What several releases cost together. An epsilon is one under all conditions of all of them."""

    domains: tuple[DomainTotal, ...]
    unit: Unit | None
    relation: Relation | None
    epsilon: float | None  # None where they guarantee nothing together; `reason` says why
    delta: float | None
    reason: str | None
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # condition -> the releases it is of
    copies: Mapping[str, str] = field(default_factory=dict)  # release that counts for nothing -> the one that it is


def total_of(accounts: Iterable[Account], delta: float | None = None) -> Total:
    """Epsilon of releases together, at a delta: the largest of theirs unless another is given.

    Releases of one domain are of the same people's ratings, whatever version of them: they compose, by the accountant over
    their joined ledgers. A rating lies in one domain, so for ratings the total of several domains is that of the one that
    lost most. A user may be in every domain, so for users all releases compose. One release given twice counts once. Names of
    domains that differ in case or blanks alone are one domain's.

    There is no total where a release guarantees nothing, where releases protect different things (their relations
    differ), where two share a projection that a guarantee is a mean over, and where delta is not below one over the
    users of each. Arguments are checked by whoever made the records.
    """
    counted, copies = _each_once(accounts)
    groups: dict[str, list[Account]] = {}
    for account in counted:
        groups.setdefault(normalize_domain(account.domain), []).append(account)
    domains = tuple(_domain_total(group, delta) for group in groups.values())
    conditions: dict[str, tuple[str, ...]] = {}
    for account in counted:
        for condition in account.record.sentences("conditions"):
            conditions[condition] = (*conditions.get(condition, ()), account.name)
    delta, reason = _common_delta(counted, delta)
    if not counted or delta is None:
        return Total(domains, None, None, None, None, reason or "there are none", conditions, copies)
    unit, relation = counted[0].record.unit, counted[0].record.relation
    epsilon, reason = _largest([counted] if unit is Unit.USER else groups.values(), delta)
    if epsilon is None:
        unit, relation, delta = None, None, None
    return Total(domains, unit, relation, epsilon, delta, reason, conditions, copies)


def composed(accounts: Sequence[Account], delta: float) -> float:
    """Epsilon of releases on the same data, or of the same users, under one relation, at a delta; rounded up, infinite at worst."""
    ledger = [event for account in accounts for event in account.ledger]
    return epsilon_of(ledger, delta, accounts[0].record.relation)


def record_of(kept: Mapping[str, Any]) -> PrivacyRecord:
    """Return the record of an entry of a run's ``privacy.json``, which has the ledger beside it."""
    values = {name: value for name, value in kept.items() if name not in BESIDE}
    return PrivacyRecord.from_dict(values, _ledger_of(kept))


def _ledger_of(kept: Mapping[str, Any]) -> tuple[PrivacyEvent, ...] | None:
    return tuple(event_from_dict(event) for event in kept["ledger"]) if "ledger" in kept else None


def total_of_run(kept: Mapping[str, Mapping[str, Any]]) -> Total:
    """Return what the releases and the training of a run cost together, from its ``privacy.json``.

    Every entry is of a domain of its own. Entries without a ledger are those of a training, and of runs of earlier versions.
    One such entry costs what its record says. Several that protect users add up: by mu where the record has one, otherwise
    their epsilons and their deltas.
    """
    accounts, composed, added = list[Account](), [0.0], list[float]()
    for name, values in kept.items():
        record, ledger = record_of(values), _ledger_of(values)
        if ledger is None and record.mu is not None and record.unit is Unit.USER and len(kept) > 1:
            ledger = (GaussianEvent(1 / record.mu),)
        (added if ledger is None else composed).append(float(record.delta or 0))
        if ledger is None:
            ledger = (PureEvent(record.epsilon),) if record.epsilon else ()
        accounts.append(Account(name, name, values.get("num_users", 0), record, ledger))
    total = total_of(accounts, max(composed))
    if total.delta is None or not added:
        return total
    users = total.unit is Unit.USER
    return replace(total, delta=math.fsum([total.delta, *added]) if users else max(total.delta, *added))


def normalize_domain(domain: str) -> str:
    """A domain's name as domains are told apart by: not by case, blanks, or how Unicode writes a letter."""
    return " ".join(unicodedata.normalize("NFKC", domain).casefold().split())


def _each_once(accounts: Iterable[Account]) -> tuple[list[Account], dict[str, str]]:
    seen: dict[str, str] = {}
    counted, copies = [], {}
    for account in accounts:
        if account.digest is not None and account.digest in seen:
            copies[account.name] = seen[account.digest]
            continue
        if account.digest is not None:
            seen[account.digest] = account.name
        counted.append(account)
    return counted, copies


def _domain_total(group: Sequence[Account], delta: float | None) -> DomainTotal:
    names, domain = tuple(account.name for account in group), group[0].domain
    delta, reason = _common_delta(group, delta)
    if reason is None and delta is not None:
        epsilon, reason = _largest([group], delta)
        if reason is None:
            return DomainTotal(domain, names, group[0].record.unit, epsilon, delta)
    return DomainTotal(domain, names, None, None, None, reason)


def _common_delta(accounts: Sequence[Account], delta: float | None) -> tuple[float | None, str | None]:
    """The delta at which all of them are added up, or why they cannot be."""
    for account in accounts:
        if not account.record.claims:
            return None, f"{account.name} guarantees nothing ({account.record.reason})"
    relations = {str(account.record.relation): account.name for account in accounts}
    if len(relations) > 1:
        named = ", ".join(f"{name} {relation}" for relation, name in relations.items())
        return None, f"they protect different things ({named}), which do not add up"
    delta = max((float(account.record.delta or 0) for account in accounts), default=0.0) if delta is None else delta
    largest = max(accounts, key=lambda account: account.num_users, default=None)
    if largest is not None and delta * largest.num_users >= 1:
        return None, (
            f"delta {delta:g} is not below one over the {largest.num_users:,} users of {largest.name}, so handing over one "
            "user's data whole would count as private"
        )
    return delta, None


def _largest(groups: Iterable[Sequence[Account]], delta: float) -> tuple[float | None, str | None]:
    """The largest epsilon of groups that each compose, or why there is none.

    A projection that two groups share counts like one that a group shares: the first release of it made it public.
    """
    groups = list(groups)
    try:
        refuse_shared_projection(account.record for group in groups for account in group)
        epsilon = max(composed(group, delta) for group in groups)
    except (RecordError, UnsupportedEventError) as error:
        return None, str(error)
    return (epsilon, None) if epsilon < math.inf else (None, f"at delta {delta:g} their epsilon is infinite")
