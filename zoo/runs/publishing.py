"""Publishing at a source party: read its ratings, pay for a release, then write it."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from datamodules import CrossDomainDataModule
from datamodules.cache import progress_reporter
from zoo.data.ratings import Ratings
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.record.record import rounded_up, shown_delta
from zoo.privacy.spending.budget import Budget
from zoo.privacy.spending.total import Account
from zoo.publishers.base import PublicSizes, Publisher, Stamped
from zoo.release.metadata import ReleaseMetadata, Statement
from zoo.release.release import Release
from zoo.release.signature import SigningKey
from zoo.runs.inputs import UsageError
from zoo.runs.processes import is_first
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import visible


def publish(
    publisher: Publisher,
    data: CrossDomainDataModule,
    out: Path | str,
    *,
    source: str | None = None,
    budget: Path | str | None = None,
    sign: Path | str | None = None,
    about: Statement = Statement(),  # noqa: B008  frozen
) -> Release:
    """Publish a source domain of a datamodule at the party that owns it; opens no other domain's data.

    Args:
        publisher: Turns the ratings into a release.
        data: Reads the source domain.
        out: Folder to write; must not exist.
        source: Which source domain, where there are several.
        budget: File that remembers what was spent and refuses what its cap does not allow.
        sign: PEM file of this party's private Ed25519 key.
        about: What is said of the release to whoever gets it; public.

    Returns:
        The release, as it was written; ``print(release.record)`` says what it guarantees. Other processes than the first of a run,
        which come to the same line of a script later, get the one that it has written, and pay nothing.

    Raises:
        UsageError: There are several sources, and none is named; or this is not the first process, and that has not published yet.
        FileExistsError: There is something at ``out``: a release is never overwritten.
        BudgetExceededError: The budget cannot pay for it.
    """
    names, out = data.sources, Path(out)
    if source is None and len(names) != 1:
        raise UsageError(
            f"This experiment has the sources {list(names)}; say which is yours: --source NAME, in Python source=NAME."
        )
    name = source or names[0]
    if not is_first():
        return _of_the_first(out)
    if out.exists():
        raise FileExistsError(f"{out} exists, and a release is never overwritten. Choose another path or remove it.")
    # What cannot be read is said before anything is spent.
    paid_from = None if budget is None else Budget(Path(budget))
    key = None if sign is None else SigningKey.read(Path(sign))
    ratings = data.source(name)
    published = ReleaseMetadata.today(about, f"cdr-zoo {VERSION}")
    return publish_release(publisher, ratings, name, out, published, paid_from, key)


def _of_the_first(out: Path) -> Release:
    """What the first process of a run has published, in another that runs the same script: nothing is published twice."""
    if not out.is_dir():
        raise UsageError(
            f"This process is not the first of its run, which alone publishes, and there is no release at {out} yet. Publish "
            "before several processes are started: python -m zoo publish."
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
) -> Release:
    """Publish the ratings of a domain, and write the release to a folder, signed if there is a key.

    With a budget, a release that it cannot pay is refused before its noise is drawn; and again, if others have spent in the
    meantime, before it is written. What it costs is on the disk before the release is. What is refused before costs nothing, for
    nothing has left the process.
    """
    progress_reporter(ratings.num_ratings)(
        f"Publishing {ratings.num_ratings:,} ratings of {name!r} by {type(publisher).__name__}."
    )
    data = "" if budget is None else ratings.digest()
    if budget is not None:
        planned = Stamped(publisher).prepare(PublicSizes.of(ratings))
        budget.total_after(Account("the release", name, ratings.num_users, planned.record, planned.events), data)
    release = replace(Stamped(publisher).publish(ratings, name), metadata=about)
    if budget is None:
        release.save(out, key)
        return release
    line = budget.spend(Account("the release", name, release.source_users, release.record, release.ledger), data)
    try:
        release.save(out, key)
    except BaseException:
        sys.stderr.write(f"What the release costs was spent (line {line + 1} of {budget.path}) and stays so.\n")
        raise
    budget.note_release(line, release.digest)
    return release


def save_chosen(chosen: Path, others: Sequence[Path], out: Path) -> None:
    """Write a release that was chosen among several by their results, with a record that counts all of them."""
    Release.load(chosen).chosen_among([Release.load(other) for other in others]).save(out)


def spent_in_words(budget: Budget) -> str:
    """What was spent of a budget, and under which conditions that is all."""
    cap = budget.cap
    said = [f"Budget {budget.path}: epsilon {cap.epsilon:g} at delta {shown_delta(cap.delta)}, {cap.relation.value}."]
    for domain, epsilon in budget.epsilon_by_domain().items():
        whose = "all domains together" if cap.relation.unit is Unit.USER else repr(visible(domain))
        said.append(f"Spent by {whose}: {rounded_up(epsilon)}.")
    if conditions := dict.fromkeys(
        text for spent in budget.entries for text in spent.account.record.sentences("conditions")
    ):
        said.append(f"That holds if {'; and if '.join(conditions)}.")
    return " ".join(said)
