"""Publishing at a source party: read the ratings, charge the budget, write the release."""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from datamodules import CrossDomainDataModule
from datamodules.cache import progress_reporter
from datamodules.protocol import marked
from zoo.data.ratings import Ratings
from zoo.privacy.accounting.events import read_ledger
from zoo.privacy.record.record import shown_delta
from zoo.privacy.record.selection import chosen_among
from zoo.privacy.spending.budget import Budget, BudgetEntry, BudgetError
from zoo.privacy.spending.total import Account, entry_of, normalize_domain, record_of
from zoo.publishers.base import PublicSizes, Publisher, Stamped
from zoo.release.metadata import ReleaseMetadata, Statement
from zoo.release.release import Release
from zoo.release.signature import SigningKey
from zoo.runs.inputs import UsageError
from zoo.runs.processes import is_first
from zoo.runtime import checks
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import TARGET_RELEASE, make_readable, visible, write_json
from zoo.runtime.settings_files import user_path


def publish(
    publisher: Publisher,
    data: CrossDomainDataModule,
    out: Path | str,
    *,
    source: str | None = None,
    budget: Path | str | None = None,
    sign: Path | str | None = None,
    about: Statement = Statement(),  # noqa: B008  frozen
    request: str | None = None,
) -> Release:
    """Publish a source domain at the party that owns it; only data of this domain are opened.

    Args:
        publisher: Turns the ratings into a release.
        data: Reads the source domain.
        out: Folder to write; must not exist.
        source: Name of the source domain, if there are several.
        budget: File of the privacy budget, which is charged and whose cap is enforced.
        sign: PEM file of this party's private Ed25519 key.
        about: Public statement of the publisher about the release.
        request: Id of the request that the release answers; needs ``budget``. The same id returns the folder that it published,
            at no cost, also after a crash. Another id for the same ratings is charged, or refused.

    Returns:
        The written release; ``release.record`` is its privacy record. In a distributed script the first process publishes; the
        others load its release, at no cost.

    Raises:
        UsageError: Several sources and no ``source``; or the first process has not published yet.
        FileExistsError: ``out`` exists: a release is never overwritten.
        BudgetExceededError: The release would exceed the cap.
        BudgetError: The request was answered with a folder that is gone, or for another domain.

    Examples:
        >>> import tempfile, zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> release = zoo.publish(zoo.JLT(epsilon=8.0, num_components=16), data, tempfile.mkdtemp() + "/book")
        >>> release.num_users, release.width
        (60, 16)
        >>> release.record.epsilon <= 8.0
        True
    """
    checks.instance(Publisher, "zoo.JLT(epsilon=8)", publisher=publisher)
    checks.instance(CrossDomainDataModule, "datamodules.Files(...)", data=data)
    names, out = data.sources, user_path(out)
    if source is None and len(names) != 1:
        raise UsageError(
            f"The experiment has the sources {list(names)}. Choose one: --source NAME (Python: source=NAME)."
        )
    name = source or names[0]
    if not is_first():
        return _load_of_first_process(out)
    if request is not None and budget is None:
        raise UsageError(f"request is {request!r} without a budget. Another request would be free. Pass --budget FILE.")
    if out.exists() and request is None:
        raise _exists(out)
    # Unreadable files are refused before the budget is charged.
    charged = None if budget is None else Budget(user_path(budget))
    key = None if sign is None else SigningKey.read(user_path(sign))
    with nullcontext() if charged is None or request is None else charged.answering(request) as entry:
        if charged is not None and request is not None:
            _remove_unpaid(charged, out.parent)
        if charged is not None and entry is not None:
            return _published_before(charged, entry, name, out)
        if out.exists():
            raise _exists(out)
        ratings = marked(data, data.source(name))  # also where the object replaces the method of its class
        published = ReleaseMetadata.today(about, f"cdr-zoo {VERSION}")
        return publish_release(publisher, ratings, name, out, published, charged, key, request)


def _exists(out: Path) -> FileExistsError:
    return FileExistsError(f"{out} exists, and a release is never overwritten. Choose another path.")


def _unsent(budget: Budget, out: Path, request: str) -> Path:
    """Return the private folder of a release that answers a request until it is paid for; only then it gets its name."""
    return out.with_name(f".{out.name}~{request}~{_tag(budget)}")  # no id has this sign, so every folder differs


def _tag(budget: Budget) -> str:
    return hashlib.sha256(str(budget.path).encode()).hexdigest()[:16]


def _remove_unpaid(budget: Budget, folder: Path) -> None:
    """Remove releases that no line of the budget paid for, inside `Budget.answering`: killed publishers left them."""
    unsent = re.compile(rf"\..+~([^~]+)~{_tag(budget)}(\.[0-9a-f]*-[0-9]+-[0-9a-f]{{4}}\.tmp)?", re.DOTALL)
    paid = {entry.request for entry in budget.entries}
    for old in folder.iterdir() if folder.is_dir() else ():
        found = unsent.fullmatch(old.name)
        if found and (found[2] or found[1] not in paid):  # none is paid for under a temporary name
            shutil.rmtree(old, ignore_errors=True)


def _name_paid(unsent: Path, out: Path) -> None:
    make_readable(unsent)
    unsent.rename(out)


def _published_before(budget: Budget, entry: BudgetEntry, name: str, out: Path) -> Release:
    """Return the release that a request paid for, and complete what a crash left open."""
    request, unsent = str(entry.request), _unsent(budget, out, str(entry.request))
    if normalize_domain(entry.account.domain) != normalize_domain(name):
        raise BudgetError(f"Request {request!r} was for {entry.account.domain!r}, not {name!r}. Use a new id.")
    if not unsent.is_dir() and out.parent.is_dir():  # of an earlier version, or moved with its budget
        held = re.compile(rf"\.{re.escape(out.name)}~{re.escape(request)}(~[0-9a-f]{{16}})?")
        unsent = next((old for old in out.parent.iterdir() if held.fullmatch(old.name)), unsent)
    waiting = not out.exists() and unsent.is_dir()
    found = Release.load(unsent if waiting else out) if waiting or out.is_dir() else None
    if found is None or not _paid(entry, found, unfinished=waiting):
        raise BudgetError(f"Request {request!r} paid for a folder that is not at {out}. Restore it, or use a new id.")
    if waiting:
        if entry.release is None:
            budget.note_release(entry.number, found.digest)
        _name_paid(unsent, out)
    return found


def _paid(entry: BudgetEntry, release: Release, *, unfinished: bool) -> bool:
    """Whether an entry paid for this release; after a crash before its digest was noted, for one of this record and ledger."""
    if entry.release is not None or not unfinished:
        return entry.release == release.digest
    account = entry.account
    return (account.record, account.ledger) == (release.record, release.ledger)


def _load_of_first_process(out: Path) -> Release:
    if not out.is_dir():
        raise UsageError(
            f"No release at {out} yet, and only the first process publishes. Run python -m zoo publish first."
        )
    return Release.load(out)


def publish_release(
    publisher: Publisher,
    ratings: Ratings,
    name: str,
    out: Path,
    about: ReleaseMetadata,
    budget: Budget | None = None,
    key: SigningKey | None = None,
    request: str | None = None,
) -> Release:
    """Publish the ratings of a domain to a folder, signed if there is a key.

    A release above the cap of the budget is refused before noise is drawn, and again before it is written, in case others charged
    the budget meanwhile. The charge is on disk before the release. A refused release costs nothing, since nothing left the process.

    A release that answers a ``request`` is first written next to ``out``, readable by its owner alone. It is then paid for, made
    readable and named, so that after a crash at any moment the same request publishes the same release, or the first one. It runs
    inside `Budget.answering`.
    """
    progress_reporter(ratings.num_ratings)(
        f"Publishing {ratings.num_ratings:,} ratings of {name!r} by {type(publisher).__name__}."
    )
    data = "" if budget is None else ratings.rated().digest()
    if budget is not None:
        planned = Stamped(publisher).prepare(PublicSizes.of(ratings))
        budget.total_after(
            Account("the release", name, ratings.num_users, planned.record, planned.events), data, request
        )
    release = replace(Stamped(publisher).publish(ratings, name), metadata=about)
    if budget is None:
        release.save(out, key)
        return release
    account = Account("the release", name, release.source_users, release.record, release.ledger)
    if request is not None:
        return _publish_for(request, release, account, data, out, budget, key)
    line = budget.spend(account, data)
    try:
        release.save(out, key)
    except BaseException:
        sys.stderr.write(
            f"The release was not written, but its cost stays charged (line {line + 1} of {budget.path}).\n"
        )
        raise
    budget.note_release(line, release.digest)
    return release


def _publish_for(
    request: str, release: Release, account: Account, data: str, out: Path, budget: Budget, key: SigningKey | None
) -> Release:
    unsent = _unsent(budget, out, request)
    try:
        release.save(unsent, key, private=True)
        line = budget.spend(account, data, request)
    except BaseException:
        with suppress(BudgetError, OSError):  # an unreadable budget may have paid for it
            _remove_unpaid(Budget(budget.path), out.parent)
        raise
    budget.note_release(line, release.digest)
    _name_paid(unsent, out)
    return release


def save_chosen(chosen: Path, others: Sequence[Path], out: Path) -> None:
    """Write a release that was chosen among several by results, with a record that counts all of them.

    What the target published for them, next to each, is counted likewise: next to the release, and in a note of its record.
    """
    release = Release.load(chosen).chosen_among([Release.load(other) for other in others])
    beside = [path.parent / TARGET_RELEASE for path in (chosen, *others)]
    told = [json.loads(path.read_text(encoding="utf-8")) for path in beside if path.is_file()]
    if told:
        first, *rest = [(record_of(one["privacy"]), read_ledger(one["privacy"]["ledger"])) for one in told]
        record, ledger = chosen_among(first, rest)
        notes = {**release.record.notes, "projections of all trials": record.summary()}
        release = replace(release, record=replace(release.record, notes=notes))
    release.save(out)
    if told:
        counted = entry_of(record, ledger, told[0]["privacy"]["num_users"])
        write_json(out.parent / TARGET_RELEASE, told[0] | {"privacy": counted})


def budget_summary(budget: Budget) -> str:
    """Return cap, used budget and conditions of a budget in a line."""
    cap = budget.cap
    text = [f"Budget {budget.path}: epsilon {cap.epsilon:g} at delta {shown_delta(cap.delta)}, {cap.relation.value}."]
    for domain, total in budget.total_by_domain().items():
        whose = repr(visible(domain)) if cap.distinct_ratings else "all domains"
        text.append(f"Used by {whose}: {total.shown}.")
    conditions = budget.conditions()
    return " ".join([*text, *([f"Assumes: {'; '.join(conditions)}."] if conditions else [])])
