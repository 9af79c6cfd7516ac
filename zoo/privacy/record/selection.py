"""Selection of one release among several by results: it costs what all of them cost."""

from collections.abc import Sequence
from dataclasses import replace

from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.derived import Selection
from zoo.privacy.record.record import PrivacyRecord, RecordError
from zoo.privacy.record.shared_projection import mean_seeds, refuse_shared_projection, seed_of

Ledger = tuple[PrivacyEvent, ...]
RecordAndLedger = tuple[PrivacyRecord, Ledger]
"""Record and ledger of one release."""


def chosen_among(chosen: RecordAndLedger, others: Sequence[RecordAndLedger]) -> RecordAndLedger:
    """Return record and ledger of a release that was chosen among releases of the same data by looking at results.

    The choice depends on all releases, so it costs as much as publishing all. (Liu & Talwar, STOC 2019, give less for a
    random number of trials only.) Epsilon is that of the joined ledger, at the largest delta of the releases, and holds if the
    noise of each was decided before any was seen. The record has no guarantee if one of them has none.

    Raises:
        RecordError: The releases have different relations, share a projection (`refuse_shared_projection`), or state more than
            their ledger gives.
    """
    if not others:
        return chosen
    records = [chosen[0], *(record for record, _ in others)]
    refuse_shared_projection(records)
    if any(record.exceeds(events) for record, events in (chosen, *others)):
        raise RecordError("A release states more than its ledger. Omit it.")
    if any(record.is_earlier and "unstated" in record.conditions for record in records):
        raise RecordError("A release is of schema 1, which states no conditions of its steps. Omit it.")
    ledger = (*chosen[1], *(event for _, events in others for event in events))
    unproved = next((record for record in records if not record.claims), None)
    relations = {record.relation for record in records}
    if unproved is None and len(relations) > 1:
        raise RecordError(f"The relations are {sorted(map(str, relations))}. Releases compose under one only.")
    seeds = set[str]().union(*map(mean_seeds, records)) - {str(seed_of(chosen[0]))}
    selection = Selection(
        num_candidates=sum(1 if one.selection is None else one.selection.num_candidates for one in records),
        events=ledger,
        delta=max(float(record.delta or 0) for record in records),
        has_mu=all(record.mu is not None for record in records),
        conditions=tuple(dict.fromkeys(condition for record in records for condition in record.conditions)),
        seeds=tuple(sorted(seeds)),
    )
    record = replace(chosen[0], selection=selection)
    if unproved is not None and record.claims:
        record = record.without_guarantee(f"chosen among releases without guarantee ({unproved.reason})")
    return record, ledger
