"""Totals: the privacy loss of several releases together."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.privacy.accounting.accountant import UnsupportedEventError, attack_success_of, epsilon_of
from zoo.privacy.accounting.events import MAX_COUNT, GaussianEvent, PrivacyEvent, PureEvent, event_to_dict, read_ledger
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.record.fields import RecordError
from zoo.privacy.record.record import PrivacyRecord, rounded_up
from zoo.privacy.record.shared_projection import refuse_shared_projection
from zoo.privacy.record.words import MEANINGLESS, MOST_SUCCESS

#: Key of an entry of a run's ``privacy.json``: whether the run's scores also read the source's rows without noise.
OWN_ROWS = "scores_read_own_rows"
#: Keys of an entry that are not in its record.
EXTRA_KEYS = ("ledger", "num_users", OWN_ROWS)
#: Condition of a largest total over domains for ratings, which the caller states.
DISTINCT = "no (user, item) pair is in two domains"


@dataclass(frozen=True)
class Account:
    """Domain, record and ledger of one release, to be added up with others."""

    name: str  # for messages, e.g. its folder
    domain: str  # name of the data; releases of one domain are of the same users' data
    num_users: int
    record: PrivacyRecord
    ledger: tuple[PrivacyEvent, ...]
    digest: str | None = None  # SHA-256 of the release; None before it exists
    folder: Path | None = None  # of the release, resolved, to count each once; None before it exists
    without_delta: bool = False  # the ledger is a pure loss of the record's epsilon, and its delta is added elsewhere


@dataclass(frozen=True)
class DomainTotal:
    """Privacy loss of the releases of one domain together."""

    domain: str
    names: tuple[str, ...]  # of its releases
    unit: Unit | None
    epsilon: float | None  # None if they have no joint guarantee; `reason` has the cause
    delta: float | None
    reason: str | None = None
    label: str = ""  # as of `Total`


@dataclass(frozen=True)
class Total:
    """Privacy loss of several releases together; its epsilon assumes all conditions of all releases."""

    domains: tuple[DomainTotal, ...]
    unit: Unit | None
    relation: Relation | None
    epsilon: float | None  # None if they have no joint guarantee; `reason` has the cause
    delta: float | None
    reason: str | None
    conditions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # condition -> its releases
    copies: Mapping[str, str] = field(default_factory=dict)  # release that does not count -> the same folder
    same_content: Mapping[str, str] = field(
        default_factory=dict
    )  # release that counts -> an earlier one of equal digest
    ledgers: tuple[tuple[PrivacyEvent, ...], ...] = field(default=(), repr=False)  # each of releases that compose
    added: float = 0.0  # sum of the deltas of releases without a ledger, which is part of delta
    distinct: bool = False  # whether the caller stated that no (user, item) pair is in two domains

    @cached_property
    def attack_success(self) -> float | None:
        """Upper bound of the success of an attack on a yes-or-no fact about one privacy unit, or None without a total."""
        if self.epsilon is None:
            return None
        return min(1.0, max(attack_success_of(ledger, self.relation) for ledger in self.ledgers) + self.added / 2)

    @property
    def label(self) -> str:
        """`no meaningful guarantee` if the epsilon is so large, else ""."""
        return MEANINGLESS if (self.attack_success or 0.0) > MOST_SUCCESS else ""

    @property
    def shown(self) -> str:
        """Epsilon for people, rounded up, with its label."""
        epsilon = "infinite" if self.epsilon is None else rounded_up(self.epsilon)
        return f"{epsilon} ({self.label})" if self.label else epsilon


def total_of(accounts: Iterable[Account], delta: float | None = None, distinct_ratings: bool = False) -> Total:
    """Return epsilon of releases together, at ``delta`` or else the largest delta of the releases.

    All releases compose, by the accountant over their joined ledgers. Those of one domain are of the same users' ratings in any
    version. A user, and a (user, item) pair, may be in several domains. With ``distinct_ratings`` the caller states that no pair
    is. Then the total for ratings is that of the domain with the largest loss, and the statement is among its conditions. Names
    of domains are compared without case and blanks.

    A folder given twice counts once. Two folders of equal content count twice: independent draws of a small release may coincide,
    and no file shows whether they were drawn or copied.

    There is no total if a release has no guarantee, if another package states more than its ledger gives, if relations differ,
    or if delta is at least one over the number of users.
    There is none either if two releases share a projection that a guarantee is a mean over.

    Examples:
        >>> from zoo.privacy.mechanisms import NoisyRows
        >>> from zoo.privacy.randomness.noise import NoiseSource
        >>> rows = NoisyRows.calibrate(epsilon=2.0, delta=1e-5, num_users=100, num_items=40)
        >>> record = PrivacyRecord.of(rows, NoiseSource.os())
        >>> first, second = (Account(name, "book", 100, record, record.ledger) for name in ("first", "second"))
        >>> round(total_of([first, second]).epsilon, 2)
        2.95
    """
    counted, copies, same_content = _each_once(accounts)
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
        return Total(domains, None, None, None, None, reason or "there are none", conditions, copies, same_content)
    unit, relation = counted[0].record.unit, counted[0].record.relation
    separate = distinct_ratings and unit is not Unit.USER and len(groups) > 1
    if separate:
        conditions[DISTINCT] = tuple(account.name for account in counted)
    composing = [*groups.values()] if separate else [counted]
    epsilon, reason = _largest(composing, delta)
    ledgers = tuple(tuple(event for account in group for event in account.ledger) for group in composing)
    if epsilon is None:
        unit, relation, delta = None, None, None
    return Total(
        domains, unit, relation, epsilon, delta, reason, conditions, copies, same_content, ledgers, distinct=separate
    )


def composed(accounts: Sequence[Account], delta: float) -> float:
    """Return epsilon of releases that compose under one relation, at a delta; rounded up, infinite at worst."""
    ledger = [event for account in accounts for event in account.ledger]
    return epsilon_of(ledger, delta, accounts[0].record.relation)


def entry_of(record: PrivacyRecord, ledger: Iterable[PrivacyEvent], num_users: int) -> dict[str, Any]:
    """Return the entry of a release in a run's ``privacy.json``."""
    return record.to_dict() | {"ledger": [event_to_dict(event) for event in ledger], "num_users": num_users}


def record_of(entry: Mapping[str, Any]) -> PrivacyRecord:
    """Return the record of an entry of a run's ``privacy.json``, which also has the ledger."""
    values = {name: value for name, value in entry.items() if name not in EXTRA_KEYS}
    ledger = _ledger_of(entry)
    record = PrivacyRecord.from_dict(values, ledger)
    if ledger is not None:
        record.check_against(ledger)
    if (record.delta or 0.0) * (users := _users_of(entry, record)) >= 1:
        raise RecordError(f"delta is {record.delta:g}. Allowed: below one over the {users:,} users.")
    return record


def _users_of(entry: Mapping[str, Any], record: PrivacyRecord) -> int:
    """Return the number of users: that of the entry, or of its mechanism if that is larger."""
    users = entry.get("num_users", 0)
    if type(users) is not int or not 0 <= users <= MAX_COUNT:
        raise RecordError(f"num_users is {repr(users)[:80]}. Allowed: integers from 0 to 2**53.")
    return max(users, int(getattr(record.mechanism, "num_users", 0)))


def _ledger_of(entry: Mapping[str, Any]) -> tuple[PrivacyEvent, ...] | None:
    return read_ledger(entry["ledger"]) if "ledger" in entry else None


def total_of_run(entries: Mapping[str, Mapping[str, Any]]) -> Total:
    """Return the privacy loss of a run's releases and training together, from its ``privacy.json``.

    Every entry is a separate domain, and all compose. Entries without a ledger are those of a training, and of runs of earlier
    versions. One such entry costs what its record states. Several add up: by mu if the record has one, else by their epsilons
    and deltas.
    """
    accounts, composed, added = list[Account](), [0.0], list[float]()
    for name, values in entries.items():
        record, ledger = record_of(values), _ledger_of(values)
        if ledger is None and record.mu and record.epsilon and len(entries) > 1:
            event = GaussianEvent(1 / record.mu)
            if epsilon_of([event], record.delta or 0.0, record.relation) >= record.epsilon * (1 - 1e-6):
                ledger = (event,)
        (added if ledger is None else composed).append(float(record.delta or 0))
        pure = ledger is None
        if ledger is None:
            ledger = (PureEvent(record.epsilon),) if record.epsilon else ()
        accounts.append(Account(name, name, _users_of(values, record), record, ledger, without_delta=pure))
    total = total_of(accounts, max(composed))
    if total.delta is None or not added:
        return total
    return replace(total, delta=math.fsum([total.delta, *added]), added=math.fsum(added))


def normalize_domain(domain: str) -> str:
    """Return a domain's name without differences of case, blanks and Unicode form.

    Examples:
        >>> normalize_domain("  Book STORE ")
        'bookstore'
    """
    # Unicode's compatibility caseless match (section 3.13, D146): a folded letter may compose with the next one.
    for _ in range(2):
        domain = "".join(unicodedata.normalize("NFKC", unicodedata.normalize("NFD", domain).casefold()).split())
    return domain


def _each_once(accounts: Iterable[Account]) -> tuple[list[Account], dict[str, str], dict[str, str]]:
    """Return accounts of different folders; by name, the same folder given before, and an earlier release of equal digest."""
    folders, digests = dict[Path | None, str](), dict[str | None, str]()
    counted, copies, same_content = list[Account](), dict[str, str](), dict[str, str]()
    for account in accounts:
        if account.folder is not None and account.folder in folders:
            copies[account.name] = folders[account.folder]
            continue
        if account.digest is not None and account.digest in digests:
            same_content[account.name] = digests[account.digest]
        folders.setdefault(account.folder, account.name)
        digests.setdefault(account.digest, account.name)
        counted.append(account)
    return counted, copies, same_content


def _domain_total(group: Sequence[Account], delta: float | None) -> DomainTotal:
    names, domain = tuple(account.name for account in group), group[0].domain
    delta, reason = _common_delta(group, delta)
    if reason is None and delta is not None:
        epsilon, reason = _largest([group], delta)
        if reason is None:
            ledger = [event for account in group for event in account.ledger]
            label = MEANINGLESS if attack_success_of(ledger, group[0].record.relation) > MOST_SUCCESS else ""
            return DomainTotal(domain, names, group[0].record.unit, epsilon, delta, label=label)
    return DomainTotal(domain, names, None, None, None, reason)


def _common_delta(accounts: Sequence[Account], delta: float | None) -> tuple[float | None, str | None]:
    """Return the delta of the total, or the reason why there is none."""
    for account in accounts:
        if not account.record.claims:
            return None, f"{account.name} has no guarantee ({account.record.reason})"
        if not account.without_delta and account.record.exceeds(account.ledger):
            return None, f"{account.name} states a larger epsilon than its ledger gives"
    relations = {str(account.record.relation): account.name for account in accounts}
    if len(relations) > 1:
        named = ", ".join(f"{name} {relation}" for relation, name in relations.items())
        return None, f"the relations differ ({named}), so losses do not add up"
    delta = max((float(account.record.delta or 0) for account in accounts), default=0.0) if delta is None else delta
    largest = max(accounts, key=lambda account: account.num_users, default=None)
    if largest is not None and delta * largest.num_users >= 1:
        return None, (f"delta {delta:g} is not below one over the {largest.num_users:,} users of {largest.name}")
    return delta, None


def _largest(groups: Iterable[Sequence[Account]], delta: float) -> tuple[float | None, str | None]:
    """Return the largest epsilon of groups that each compose, or the reason why there is none.

    A projection shared by two groups counts like one within a group: the first release made it public.
    """
    groups = list(groups)
    try:
        refuse_shared_projection(account.record for group in groups for account in group)
        epsilon = max(composed(group, delta) for group in groups)
    except (RecordError, UnsupportedEventError) as error:
        return None, str(error)
    return (epsilon, None) if epsilon < math.inf else (None, f"the joint epsilon is infinite at delta {delta:g}")
