"""Choosing among releases by what came of them: the cost is that of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.record import Guarantee, PrivacyRecord, RecordError

#: Public input that says among how many releases this one was chosen.
TRIED = "releases it was chosen among, by results"

Account = tuple[PrivacyRecord, tuple[PrivacyEvent, ...]]


def chosen_among(chosen: Account, others: Sequence[Account]) -> Account:
    """Record and ledger of a release that was chosen among several of the same data by looking at results.

    The choice depends on all of the releases, so it is accounted for as if all of them were handed over (Liu & Talwar,
    STOC 2019, give less for a random number of trials, which a search with a fixed number is not).

    Args:
        chosen: Record and ledger of the release that is used.
        others: Those of the releases that were tried and not used.

    Returns:
        A record whose epsilon is that of the joined ledger, at the largest delta of the releases; without a guarantee
        where one of them has none.

    Raises:
        RecordError: If the releases protect different things: their losses do not add up.
    """
    record, ledger = chosen
    if not others:
        return chosen
    records = [record, *(other for other, _ in others)]
    joined = (*ledger, *(event for _, events in others for event in events))
    tried = sum(int(r.public_inputs.get(TRIED, 1)) for r in records)
    inputs = {**record.public_inputs, TRIED: tried}
    compositions = sum(r.compositions for r in records)
    record = replace(record, public_inputs=inputs, compositions=compositions)
    if unproved := [r for r in records if r.guarantee is Guarantee.NONE]:
        if record.guarantee is Guarantee.PROVED:
            record = record.without_guarantee(f"chosen among releases without guarantee ({unproved[0].reason})")
        return record, joined
    relations = {r.relation for r in records}
    if len(relations) > 1:
        raise RecordError(
            f"Releases under the relations {sorted(str(r) for r in relations)} cannot be counted together. Search over "
            "settings that leave the relation alone."
        )
    accountant = Accountant(record.relation)
    for event in joined:
        accountant.compose(event)
    delta = max(float(r.delta or 0) for r in records)
    has_mu = all(r.mu is not None for r in records)
    return (
        replace(
            record,
            epsilon=accountant.epsilon(delta),
            delta=delta,
            mu=accountant.mu if has_mu else None,
            requested_epsilon=None,
        ),
        joined,
    )
