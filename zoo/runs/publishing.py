"""Publishing at a source party: pay for a release, then write it."""

import sys
from dataclasses import replace
from pathlib import Path

from zoo.data.ratings import Ratings
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.record.record import rounded_up, shown_delta
from zoo.privacy.spending.budget import Budget
from zoo.privacy.spending.total import Account
from zoo.publisher import PublicSizes, Publisher
from zoo.release.about import About
from zoo.release.release import Release
from zoo.release.signature import SigningKey
from zoo.run_folder import visible


def publish_release(
    publisher: Publisher,
    ratings: Ratings,
    name: str,
    out: Path,
    about: About,
    budget: Budget | None = None,
    key: SigningKey | None = None,
) -> Release:
    """Publish the ratings of a domain, and write the release to a folder, signed if there is a key.

    With a budget, a release that it cannot pay is refused before its noise is drawn; and again, if others have spent in the
    meantime, before it is written. What it costs is on the disk before the release is. What is refused before costs nothing, for
    nothing has left the process.
    """
    data = "" if budget is None else ratings.digest()
    if budget is not None:
        planned = publisher.prepare(PublicSizes.of(ratings))
        budget.after(Account("the release", name, ratings.num_users, planned.record, planned.events), data)
    release = replace(publisher.publish(ratings, name), about=about)
    if budget is None:
        release.save(out, key)
        return release
    line = budget.spend(Account("the release", name, release.source_users, release.record, release.ledger), data)
    try:
        release.save(out, key)
    except BaseException:
        sys.stderr.write(f"What the release costs was spent (line {line + 1} of {budget.path}) and stays so.\n")
        raise
    budget.published(line, release.digest)
    return release


def spent_in_words(budget: Budget) -> str:
    """What was spent of a budget, and under which conditions that is all."""
    cap = budget.cap
    said = [f"Budget {budget.path}: epsilon {cap.epsilon:g} at delta {shown_delta(cap.delta)}, {cap.relation.value}."]
    for domain, epsilon in budget.spent_by_domain().items():
        whose = "all domains together" if cap.relation.unit is Unit.USER else repr(visible(domain))
        said.append(f"Spent by {whose}: {rounded_up(epsilon)}.")
    if conditions := dict.fromkeys(text for spent in budget.spent for text in spent.account.record.conditions):
        said.append(f"That holds if {'; and if '.join(conditions)}.")
    return " ".join(said)
