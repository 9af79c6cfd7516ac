"""The budget of a source party: a file that remembers what was spent, and lets no more be published than its cap allows.

It is a file of JSON lines that is only ever added to. The first line is the cap; each further one says what was spent on a
release, or which release came of it. Each line carries the SHA-256 of the line before it, so whoever alters, removes or inserts
a line has to write all later ones anew; that the last ones were cut off, or the whole file replaced by an older copy, the file
itself cannot show. It stays with the source party: it names digests of the ratings, which tell who knows all of them but one
what that one is.

What a release costs is on the disk before the release is. A crash between the two counts as spent, since nobody can know
whether the release got out. Publishing that is refused before costs nothing: nothing has left the process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from zoo.privacy.accounting.events import EventError, event_from_dict, event_to_dict
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.record.record import PrivacyRecord, RecordError, rounded_up
from zoo.privacy.spending.total import Account, Total, normalize_domain, total_of
from zoo.runtime.run_folder import atomic_write, saying_where

SCHEMA = 1
PATIENCE = 60.0
"""Seconds that a publisher waits for another one who is writing, which takes a moment."""

_ROUNDING = 1e-9  # relative; what a calibration to a given epsilon may miss it by
LONGEST_NAME = 256
"""Characters of a name at most, as in a release."""
_SPENT = {"number", "previous", "date", "entry", "domain", "data", "num_users", "record", "ledger"}
_PUBLISHED = {"number", "previous", "date", "entry", "of", "release"}


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST_NAME


#: What the values of a line are that nobody else checks.
_VALUES: dict[str, Callable[[object], bool]] = {
    "date": _is_name,
    "domain": _is_name,
    "data": _is_digest,
    "release": _is_digest,
    "num_users": lambda value: type(value) is int and value >= 0,
    "of": lambda value: type(value) is int,
}


class BudgetError(ValueError):
    """A budget that cannot be read, was altered, or cannot pay for what is asked."""


class BudgetExceededError(BudgetError):
    """A release that would cost more than is left."""


@dataclass(frozen=True)
class Cap:
    """How much all releases may cost together.

    Under a relation that protects ratings, the cap is for each domain apart, as a rating lies in one of them; under one that
    protects users, for all domains together.
    """

    epsilon: float
    delta: float
    relation: Relation

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)) or not 0 <= self.delta < 1:
            raise BudgetError(
                f"A cap needs a finite epsilon above 0 and a delta in [0, 1), got {self.epsilon} and {self.delta}."
            )


@dataclass(frozen=True)
class Spent:
    """One release that was paid for."""

    number: int  # of its line
    date: str  # UTC, to the second
    data: str  # SHA-256 of the ratings it was made of
    account: Account
    release: str | None  # SHA-256 of the release that came of it; None after a crash or a failure: spent all the same


class Budget:
    """A budget file, as it was when it was read; `spend` reads it again under a lock.

    Attributes:
        cap: How much may be spent.
        spent: What was, in order.
        torn: Whether the file ends in half a line. No release came of it, for a whole line comes first; it counts for
            nothing, and whoever spends next removes it. A line that lacks nothing but its end counts.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).resolve()
        self._read()

    @classmethod
    def make(cls, path: Path | str, cap: Cap) -> Budget:
        """Write a new budget, readable by its owner alone, whole or not at all; an existing file is refused."""
        path = Path(path).resolve()
        first = {"schema": SCHEMA, "made": _now(), **asdict(cap)}
        with _locked(path):  # who makes one waits for whoever makes the same
            if path.exists():
                raise BudgetError(f"{path} exists, and a budget is never overwritten: it remembers what was spent.")
            with atomic_write(path) as temporary:
                descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                _write(descriptor, json.dumps(first, allow_nan=False).encode() + b"\n")
        _sync_folder(path.parent)
        return cls(path)

    def after(self, account: Account, data: str) -> Total:
        """What would be spent with one more release of these data (SHA-256); `BudgetError` if it cannot be paid.

        A changed digest of a domain resets nothing: it is another version of the same people's ratings. The same data under
        another domain's name are refused, as they would be paid for once more from the beginning.
        """
        if not account.record.claims:
            raise BudgetError(
                f"A release without a guarantee ({account.record.reason}) costs more than any budget holds. Publish it without "
                "--budget, which the record will show."
            )
        if account.record.relation is not self.cap.relation:
            raise BudgetError(
                f"{self.path} counts under {self.cap.relation.value!r}, and the release is under "
                f"{str(account.record.relation)!r}: the two do not add up. Take a budget of its own for it."
            )
        for spent in self.spent:
            if spent.data == data and normalize_domain(spent.account.domain) != normalize_domain(account.domain):
                raise BudgetError(
                    f"These ratings were published under the name {spent.account.domain!r} (line {spent.number} of {self.path}). "
                    f"Publish them under it, not as {account.domain!r}: what they lost adds up."
                )
        total = self.total(account)
        if total.epsilon is None:
            raise BudgetError(f"The release cannot be paid from {self.path}: {total.reason}.")
        if total.epsilon > self.cap.epsilon * (1 + _ROUNDING):
            raise BudgetExceededError(self._exceeded(account, total.epsilon))
        return total

    def total(self, account: Account) -> Total:
        """What an account costs with all that it adds up with, at the cap's delta."""
        return total_of([*self._beside(account), account], self.cap.delta)

    def spent_by_domain(self) -> dict[str, float]:
        """Epsilon spent at the cap's delta by each domain, or by all under the name "" where whole users are protected."""
        groups: dict[str, list[Account]] = {}
        users = self.cap.relation.unit is Unit.USER
        for spent in self.spent:
            groups.setdefault("" if users else normalize_domain(spent.account.domain), []).append(spent.account)
        totals = {
            "" if users else group[0].domain: total_of(group, self.cap.delta).epsilon for group in groups.values()
        }
        return {name: math.inf if epsilon is None else epsilon for name, epsilon in totals.items()}

    def spend(self, account: Account, data: str) -> int:
        """Pay for a release that is about to be written: when this returns, the line is on the disk. Its number.

        `BudgetError` as of `after`, judged under the lock by what the file says now; then nothing is written.
        """
        with _locked(self.path):
            self._read()
            self.after(account, data)
            return self._append(
                {
                    "entry": "spent",
                    "domain": account.domain,
                    "data": data,
                    "num_users": account.num_users,
                    "record": account.record.to_dict(),
                    "ledger": [event_to_dict(event) for event in account.ledger],
                }
            )

    def published(self, number: int, release: str) -> None:
        """Note which release (SHA-256) came of a line; for people, it changes no sum."""
        with _locked(self.path):
            self._read()
            self._append({"entry": "published", "of": number, "release": release})

    # The file.

    def _read(self) -> None:
        if not self.path.is_file():
            raise BudgetError(
                f"No budget at {self.path}. Make one: python -m zoo privacy budget {self.path} --epsilon 4 --delta 1e-5 --relation "
                "change_one_rating"
            )
        if (names := self.path.stat().st_nlink) > 1:
            raise BudgetError(
                f"{self.path} has {names} names (hard links), and publishers who know it by different ones would not wait for one "
                "another. Remove all names but one."
            )
        content = self.path.read_bytes()
        *lines, rest = content.split(b"\n")
        self._unended = _is_json(rest)
        if self._unended:  # what is there to its last bracket was written, and an editor took the line's end
            lines, rest = [*lines, rest], b""
        self.torn, self._whole = bool(rest), len(content) - len(rest)
        if not lines:
            raise BudgetError(
                f"{self.path} has no whole line, so nothing was spent from it. Remove it and make it anew."
            )
        self.cap = self._cap(lines[0])
        self._lines, self._last = len(lines), _digest(lines[0])
        found: dict[int, Spent] = {}
        for number, line in enumerate(lines[1:], 1):
            self._entry(number, line, found)
            self._last = _digest(line)
        self.spent = tuple(found.values())

    def _cap(self, line: bytes) -> Cap:
        values = self._values(0, line, {"schema", "made", "epsilon", "delta", "relation"})
        if values["schema"] != SCHEMA:
            raise BudgetError(
                f"{self.path} has schema {values['schema']}, this version reads {SCHEMA}. Upgrade cdr-zoo."
            )
        try:
            return Cap(float(values["epsilon"]), float(values["delta"]), Relation(values["relation"]))
        except (OverflowError, TypeError, ValueError) as error:
            raise self._altered(0, str(error)) from error

    def _entry(self, number: int, line: bytes, found: dict[int, Spent]) -> None:
        """Read one line after the first; what was spent is added to ``found`` by its number, or completed."""
        values = self._values(number, line, _SPENT, _PUBLISHED)
        if values["number"] != number or values["previous"] != self._last:
            raise self._altered(number, "it does not follow the line before it")
        if wrong := [name for name, right in _VALUES.items() if name in values and not right(values[name])]:
            raise self._altered(number, f"{wrong[0]} is {str(values[wrong[0]])[:80]!r}")
        try:
            if "of" in values:
                before = found[values["of"]]
                found[values["of"]] = Spent(before.number, before.date, before.data, before.account, values["release"])
                return
            record = PrivacyRecord.from_dict(values["record"])
            ledger = tuple(event_from_dict(event) for event in values["ledger"])
        except (KeyError, TypeError, RecordError, EventError) as error:
            raise self._altered(number, f"{type(error).__name__}: {error}") from error
        account = Account(f"line {number}", values["domain"], values["num_users"], record, ledger)
        found[number] = Spent(number, values["date"], values["data"], account, None)

    def _values(self, number: int, line: bytes, *allowed: set[str]) -> Mapping[str, Any]:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._altered(number, f"it is no JSON, {error}") from error
        if not isinstance(values, dict) or values.keys() not in allowed:
            raise self._altered(number, f"it must hold exactly {' or '.join(str(sorted(keys)) for keys in allowed)}")
        return values

    def _append(self, entry: Mapping[str, Any]) -> int:
        """Add a line under the lock, and return its number once it is on the disk; half a line before it is removed."""
        line = {"number": self._lines, "previous": self._last, "date": _now(), **entry}
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        if self.torn:
            os.ftruncate(descriptor, self._whole)
        end = b"\n" if self._unended else b""
        with saying_where(self.path):
            _write(descriptor, end + json.dumps(line, allow_nan=False).encode() + b"\n")
        self._read()
        return self._lines - 1

    # What is said.

    def _beside(self, account: Account) -> list[Account]:
        """What was spent that adds up with an account: on its domain, or everything where whole users are protected."""
        everything = self.cap.relation.unit is Unit.USER
        own = normalize_domain(account.domain)
        return [spent.account for spent in self.spent if everything or normalize_domain(spent.account.domain) == own]

    def _altered(self, number: int, why: str) -> BudgetError:
        return BudgetError(
            f"Line {number + 1} of {self.path} is not what was written: {why}. Nothing is published from a budget that was "
            "altered: find out who did it, and restore a copy that has every release in it."
        )

    def _exceeded(self, account: Account, after: float) -> str:
        beside = self._beside(account)
        before = total_of(beside, self.cap.delta).epsilon if beside else 0.0
        whose = "all domains" if self.cap.relation.unit is Unit.USER else repr(account.domain)
        return (
            f"The release would bring what {whose} spent from epsilon {rounded_up(before or 0.0)} to {rounded_up(after)}, above "
            f"the cap of {self.cap.epsilon:g} at delta {self.cap.delta:g} ({self.path}). Publish with a smaller epsilon, or not "
            "at all; a larger cap is a decision of whoever answers for the ratings, and a new file."
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the budget of a path, whether or not there is one yet."""
    lock = FileLock(f"{path}.lock", timeout=PATIENCE)
    try:
        lock.acquire()
    except Timeout as error:
        raise BudgetError(
            f"Another process has been writing to {path} for {PATIENCE:g} seconds. Wait for it, or end it."
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
    """Write all of it, wait until the disk has it, and close."""
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Wait until the disk knows of a new file; where a folder cannot be opened (Windows) the file system sees to it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
