"""The budget of a source party: a file of all privacy losses, which refuses releases above its cap.

It is a file of JSON lines that only grows. The first line is the cap; each further line is the cost of a release, or the digest of
the release that it paid for. Each line has the SHA-256 of the line before, so a changed, removed or inserted line changes all later
ones. The file cannot show that its last lines were cut off, or that it was replaced by an older copy. It stays with the source
party: it has digests of the ratings, which reveal one rating to a reader who knows all others.

The cost of a release is on the disk before the release is. A crash between the two counts as spent, because the release may have
been published. A refused release costs nothing. A release that answers a request is on the disk first, in a hidden folder that only
its owner can read, and gets its name once its cost is on the disk.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from zoo.privacy.accounting.accountant import adaptive_epsilon, epsilon_of
from zoo.privacy.accounting.events import (
    MAX_COUNT,
    EventError,
    GaussianEvent,
    NoOpEvent,
    PrivacyEvent,
    event_to_dict,
    read_ledger,
)
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.record.record import PrivacyRecord, RecordError, rounded_up
from zoo.privacy.spending.total import DISTINCT, Account, Total, normalize_domain, total_of
from zoo.runtime.renamed import OldName
from zoo.runtime.run_folder import atomic_write, saying_where
from zoo.runtime.settings_files import read_json, user_path

SCHEMA = 2
PATIENCE = 60.0
"""Seconds that a publisher waits for another writer, who needs a moment."""

_ROUNDING = 1e-9  # relative; error of a calibration
_ROOM = 1e-3  # smallest share of a cap that a release can use
_NO_LOSS = 1e15  # noise multiplier whose loss vanishes in double precision
LONGEST_NAME = 256
"""Largest number of characters of a name, as in a release."""
_CAP = {"schema", "made", "epsilon", "delta", "relation"}
_SPENT = {"number", "previous", "date", "entry", "domain", "data", "num_users", "record", "ledger"}
_PAID = _SPENT | {"request"}
_PUBLISHED = {"number", "previous", "date", "entry", "of", "release"}


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_NAME


def is_request(value: object) -> bool:
    """Return whether a value is an id of a request: 1 to 64 letters, digits, ``.``, ``_`` or ``-``, the first no sign."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value) is not None


#: Checks of the values of a line that nothing else checks.
_VALUES: dict[str, Callable[[object], bool]] = {
    "date": _is_name,
    "domain": _is_name,
    "data": _is_digest,
    "release": _is_digest,
    "request": is_request,
    "num_users": lambda value: type(value) is int and 0 <= value <= MAX_COUNT,
    "of": lambda value: type(value) is int,
}


class BudgetError(ValueError):
    """A budget that cannot be read, was altered, or does not allow a release."""


class BudgetBusyError(BudgetError):
    """A budget that another process uses: it publishes, or writes."""


class BudgetExceededError(BudgetError):
    """A release that costs more than the rest of the budget."""


@dataclass(frozen=True)
class Cap:
    """Largest privacy loss of all releases together.

    The cap holds for all domains together. With ``distinct_ratings`` it holds for each domain separately, under the condition that
    no (user, item) pair is in two domains. Budgets of schema 1 that protect ratings have this rule.
    """

    epsilon: float  # finite and above 0
    delta: float  # in [0, 1)
    relation: Relation  # of all releases
    distinct_ratings: bool = False  # stated by the source party

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)) or not 0 <= self.delta < 1:
            raise BudgetError(f"The cap is {self.epsilon}, {self.delta}. Allowed: finite epsilon > 0, delta in [0, 1).")
        if self.distinct_ratings and self.relation.unit is Unit.USER:
            raise BudgetError(
                f"The relation is {self.relation.value!r}. Distinct ratings need one that protects ratings. Omit them."
            )


@dataclass(frozen=True)
class BudgetEntry:
    """One release that was paid for."""

    number: int  # of its line
    date: str  # UTC, to the second
    data: str  # SHA-256 of the ratings that it was made from
    account: Account
    release: str | None  # SHA-256 of the release; None after a crash or a failure, which is paid for too
    request: str | None = None  # id of the request that it answers


class Budget:
    """A budget file that `create` wrote, at the time of reading; `spend` reads it again under a lock.

    Attributes:
        cap: Largest privacy loss of all releases together.
        entries: Releases that were paid for, in order.
        has_partial_line: Whether the file ends in a partial line. No release was written or named for it, so it does not count, and
            the next `spend` removes it. A line that lacks only its end counts.

    Raises:
        BudgetError: The file is missing, or was altered.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from zoo.privacy.mechanisms import NoisyRows
        >>> from zoo.privacy.randomness.noise import NoiseSource
        >>> rows = NoisyRows.calibrate(epsilon=2.0, delta=1e-6, num_users=100, num_items=40)
        >>> record = PrivacyRecord.of(rows, NoiseSource.os())
        >>> with TemporaryDirectory() as folder:
        ...     budget = Budget.create(f"{folder}/budget.jsonl", Cap(4.0, 1e-5, Relation.CHANGE_ONE_RATING))
        ...     line = budget.spend(Account("first", "book", 100, record, record.ledger), data="0" * 64)
        >>> {domain: rounded_up(epsilon) for domain, epsilon in budget.epsilon_by_domain().items()}
        {'': '1.77'}
    """

    make, after, published = OldName("create"), OldName("total_after"), OldName("note_release")
    spent, spent_by_domain, torn = OldName("entries"), OldName("epsilon_by_domain"), OldName("has_partial_line")

    def __init__(self, path: Path | str) -> None:
        self.path = user_path(path).resolve()
        self._read()

    @classmethod
    def create(cls, path: Path | str, cap: Cap) -> Budget:
        """Write a new budget atomically, readable by its owner only; refuse an existing file."""
        path = user_path(path).resolve()
        first = {"schema": SCHEMA, "made": _now(), **asdict(cap)}
        with _locked(path):  # two processes may create the same file
            if path.exists():
                raise BudgetError(f"{path} exists. Choose another file.")
            with atomic_write(path) as temporary:
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                _write(descriptor, json.dumps(first, allow_nan=False).encode() + b"\n")
        _sync_folder(path.parent)
        return cls(path)

    def total_after(self, account: Account, data: str, request: str | None = None) -> Total:
        """Return the total with one more release of these data; a `BudgetError` if the budget does not allow it.

        ``data`` is the digest of the ratings without users and items that have none: `Ratings.rated`, then `Ratings.digest`.

        A new digest of a domain's data is another version of the same users' ratings, so losses add up. The same data under
        another domain's name are refused: losses of distinct ratings would not be added to the earlier ones.
        """
        if not account.record.claims:
            raise BudgetError(f"The release has no guarantee ({account.record.reason}). Publish without --budget.")
        if account.record.relation is not self.cap.relation:
            raise BudgetError(
                f"The relation of the release is {str(account.record.relation)!r}. {self.path} is for {self.cap.relation.value!r}. "
                "Use a separate budget."
            )
        domain = normalize_domain(account.domain)
        for entry in self.entries:
            if entry.data == data and normalize_domain(entry.account.domain) != domain:
                raise BudgetError(
                    f"The domain is {account.domain!r}. Line {entry.number + 1} of {self.path} published these ratings as "
                    f"{entry.account.domain!r}. Use that name."
                )
        total = self.total(account, request)
        if total.epsilon is None:
            raise BudgetError(f"{self.path} does not cover the release: {total.reason}.")
        if total.epsilon > self.cap.epsilon * (1 + _ROUNDING):
            raise BudgetExceededError(self._exceeded(account, total.shown, request))
        return total

    def total(self, account: Account, request: str | None = None) -> Total:
        """Return the total of an account and all entries that compose with it, at the cap's delta.

        If one answers a request, it may have been chosen after seeing others. Then epsilon is that of `adaptive_epsilon`.
        """
        earlier = self._composing(account)
        together = [*(entry.account for entry in earlier), account]
        total = total_of(together, self.cap.delta)
        if total.epsilon is None or (request is None and all(entry.request is None for entry in earlier)):
            return total
        epsilon = adaptive_epsilon([one.ledger for one in together], self.cap.delta, self.cap.relation)
        if math.isinf(epsilon):
            return replace(
                total,
                epsilon=None,
                reason="on requests only Gaussian noise, flips and Laplace noise may vary; publish before any",
            )
        return replace(total, epsilon=epsilon)

    def total_by_domain(self) -> dict[str, Total]:
        """Return the total at the cap's delta of all domains under the name "", or per domain if ratings are distinct."""
        groups: dict[str, list[Account]] = {}
        apart = self.cap.distinct_ratings
        for entry in self.entries:
            groups.setdefault(normalize_domain(entry.account.domain) if apart else "", []).append(entry.account)
        return {group[0].domain if apart else "": total_of(group, self.cap.delta) for group in groups.values()}

    def epsilon_by_domain(self) -> dict[str, float]:
        """Return the epsilon of each of `total_by_domain`, infinite without one."""
        totals = {name: total.epsilon for name, total in self.total_by_domain().items()}
        return {name: math.inf if epsilon is None else epsilon for name, epsilon in totals.items()}

    def conditions(self) -> list[str]:
        """Return the conditions that the cap and the entries assume, each once."""
        stated = [DISTINCT] if self.cap.distinct_ratings else []
        of_entries = (text for entry in self.entries for text in entry.account.record.sentences("conditions"))
        return list(dict.fromkeys([*stated, *of_entries]))

    @contextmanager
    def answering(self, request: str) -> Iterator[BudgetEntry | None]:
        """Yield the entry that paid for a request, or None, while no other process answers a request from this budget."""
        if not is_request(request):
            raise BudgetError(f"request is {str(request)[:80]!r}. Allowed: 1 to 64 letters, digits, '.', '_', '-'.")
        with _locked(self.path.with_name(f"{self.path.name}.requests")):
            self._read()
            yield next((entry for entry in self.entries if entry.request == request), None)

    def spend(self, account: Account, data: str, request: str | None = None) -> int:
        """Pay for a release before it is published, and return the number of the line, which is then on the disk.

        The current file is read under a lock. If `total_after` raises a `BudgetError`, nothing is written. A ``request`` is paid
        for inside `answering` alone.
        """
        with _locked(self.path):
            self._read()
            self.total_after(account, data, request)
            return self._append(
                {
                    "entry": "spent",
                    **({} if request is None else {"request": request}),
                    "domain": account.domain,
                    "data": data,
                    "num_users": account.num_users,
                    "record": account.record.to_dict(),
                    "ledger": [event_to_dict(event) for event in account.ledger],
                }
            )

    def note_release(self, number: int, release: str) -> None:
        """Note the SHA-256 of the release that a line paid for; it changes no total."""
        with _locked(self.path):
            self._read()
            self._append({"entry": "published", "of": number, "release": release})

    # The file.

    def _read(self) -> None:
        if not self.path.is_file():
            raise BudgetError(
                f"{self.path} is no budget file. Create one: python -m zoo privacy budget {self.path} --epsilon 4 --delta 1e-5 "
                "--relation change_one_rating"
            )
        if (names := self.path.stat().st_nlink) > 1:
            raise BudgetError(f"{self.path} has {names} hard links, so locks fail. Remove all but one.")
        content = self.path.read_bytes()
        *lines, rest = content.split(b"\n")
        self._unended = _is_json(rest)
        if self._unended:  # the line is complete, and an editor removed its end
            lines, rest = [*lines, rest], b""
        self.has_partial_line, self._complete = bool(rest), len(content) - len(rest)
        if not lines:
            raise BudgetError(
                f"{self.path} has no complete line: it was cut or emptied. Restore a copy that has every release."
            )
        self.cap = self._cap(lines[0])
        self._lines, self._last = len(lines), _digest(lines[0])
        found: dict[int, BudgetEntry] = {}
        for number, line in enumerate(lines[1:], 1):
            self._entry(number, line, found)
            self._last = _digest(line)
        self.entries = tuple(found.values())

    def _cap(self, line: bytes) -> Cap:
        values = self._values(0, line, _CAP, _CAP | {"distinct_ratings"})
        if values["schema"] not in (1, SCHEMA):
            raise BudgetError(
                f"{self.path} has schema {values['schema']}. This version reads 1 and {SCHEMA}. Upgrade cdr-zoo."
            )
        found = [type(values[key]) for key in values.keys() - _CAP]
        if found != ([] if values["schema"] == 1 else [bool]):
            raise self._altered(0, "distinct_ratings must be absent in schema 1, and true or false in schema 2")
        try:
            relation = Relation(values["relation"])
            apart = values.get("distinct_ratings", relation.unit is not Unit.USER)
            return Cap(float(values["epsilon"]), float(values["delta"]), relation, apart)
        except (OverflowError, TypeError, ValueError) as error:
            raise self._altered(0, str(error)) from error

    def _entry(self, number: int, line: bytes, found: dict[int, BudgetEntry]) -> None:
        """Read one line after the first: add an entry to ``found`` by its number, or complete one."""
        values = self._values(number, line, _SPENT, _PAID, _PUBLISHED)
        if values["number"] != number or values["previous"] != self._last:
            raise self._altered(number, "it does not continue the previous line")
        if wrong := [name for name, right in _VALUES.items() if name in values and not right(values[name])]:
            raise self._altered(number, f"{wrong[0]} is {str(values[wrong[0]])[:80]!r}")
        try:
            if "of" in values:
                found[values["of"]] = replace(found[values["of"]], release=values["release"])
                return
            ledger = read_ledger(values["ledger"])
            record = PrivacyRecord.from_dict(values["record"], ledger)
            record.check_against(ledger)
        except (KeyError, TypeError, RecordError, EventError) as error:
            raise self._altered(number, f"{type(error).__name__}: {error}") from error
        account = Account(f"line {number}", values["domain"], values["num_users"], record, ledger)
        found[number] = BudgetEntry(number, values["date"], values["data"], account, None, values.get("request"))

    def _values(self, number: int, line: bytes, *allowed: set[str]) -> Mapping[str, Any]:
        try:
            values = read_json(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise self._altered(number, f"it is no JSON ({error})") from error
        if not isinstance(values, dict) or values.keys() not in allowed:
            raise self._altered(number, f"it must hold exactly {' or '.join(str(sorted(keys)) for keys in allowed)}")
        return values

    def _append(self, entry: Mapping[str, Any]) -> int:
        """Add a line under the lock, and return its number once it is on the disk; remove a partial line before it."""
        line = {"number": self._lines, "previous": self._last, "date": _now(), **entry}
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        if self.has_partial_line:
            os.ftruncate(descriptor, self._complete)
        end = b"\n" if self._unended else b""
        with saying_where(self.path):
            _write(descriptor, end + json.dumps(line, allow_nan=False).encode() + b"\n")
        self._read()
        return self._lines - 1

    # Totals and messages.

    def _composing(self, account: Account) -> list[BudgetEntry]:
        """Return the entries that compose with an account: all, or those of its domain if ratings are distinct."""
        everything = not self.cap.distinct_ratings
        own = normalize_domain(account.domain)
        return [entry for entry in self.entries if everything or normalize_domain(entry.account.domain) == own]

    def _altered(self, number: int, why: str) -> BudgetError:
        return BudgetError(
            f"Line {number + 1} of {self.path} was altered: {why.rstrip('.')}. Find the cause, and restore a copy "
            "that has every release."
        )

    def _exceeded(self, account: Account, after: str, request: str | None) -> str:
        earlier = [entry.account for entry in self._composing(account)]
        before = total_of(earlier, self.cap.delta).shown if earlier else rounded_up(0.0)
        whose = repr(account.domain) if self.cap.distinct_ratings else "all domains"
        return (
            f"Epsilon of {whose} could rise from {before} to {after}. The cap is "
            f"{self.cap.epsilon:g} at delta {self.cap.delta:g} ({self.path}). {self._remedy(account, request)}"
        )

    def _remedy(self, account: Account, request: str | None) -> str:
        """Say what fits instead: on requests earlier releases may cost more beside another mechanism, whatever its epsilon."""
        earlier = self._composing(account)
        requested = any(entry.request is not None for entry in earlier)
        pure = math.isfinite(epsilon_of(account.ledger, 0.0, self.cap.relation))

        def least(nothing: PrivacyEvent, *, asked: bool) -> float:
            ledgers = [*(entry.account.ledger for entry in earlier), (nothing,)]
            if asked:
                return adaptive_epsilon(ledgers, self.cap.delta, self.cap.relation)
            return epsilon_of(chain.from_iterable(ledgers), self.cap.delta, self.cap.relation)

        same: PrivacyEvent = NoOpEvent() if pure else GaussianEvent(_NO_LOSS)
        asked, most = requested or request is not None, self.cap.epsilon * (1 - _ROOM)
        if (used := least(same, asked=asked)) < most:
            return "Publish with a smaller epsilon."
        ways = ["flips or Laplace noise"] if not pure and least(NoOpEvent(), asked=asked) < most else []
        ways += ["no --request"] if asked and not requested and least(same, asked=False) < most else []
        tail = f" Publish with {' or '.join(ways)}." if ways else ""
        count = "have no bound unless all are equal" if math.isinf(used) else f"count as {rounded_up(used)}"
        return f"No epsilon of this mechanism fits: beside it, earlier releases {count}.{tail}"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a budget file, which may not exist yet."""
    lock = FileLock(f"{path}.lock", timeout=PATIENCE)
    try:
        lock.acquire()
    except Timeout as error:
        raise BudgetBusyError(
            f"{path} is locked by another process for {PATIENCE:g} seconds. Wait, or end it."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _write(descriptor: int, content: bytes) -> None:
    """Write the content, flush it to the disk, and close the file."""
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Flush a new file's folder entry to the disk, if the folder can be opened (not on Windows)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
