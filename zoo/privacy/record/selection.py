"""Choosing among releases by what came of them: the cost is that of all of them."""

from collections.abc import Sequence
from dataclasses import replace

from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.record import Guarantee, PrivacyRecord, RecordError
from zoo.privacy.record.shared_projection import OTHER_SEEDS, SEED, mean_seeds, refuse_shared_projection
from zoo.privacy.record.texts import TRIED as TRIED

Ledger = tuple[PrivacyEvent, ...]
RecordAndLedger = tuple[PrivacyRecord, Ledger]
"""Those of one release."""


def chosen_among(chosen: RecordAndLedger, others: Sequence[RecordAndLedger]) -> RecordAndLedger:
    """Record and ledger of a release that was chosen among several of the same data by looking at results.

    The choice depends on all of the releases, so it is accounted for as if all of them were handed over (Liu & Talwar,
    STOC 2019, give less for a random number of trials, which a search with a fixed number is not). The record's epsilon is
    that of the joined ledger, at the largest delta of the releases; it is without a guarantee where one of them has none.
    `RecordError` if the releases protect different things, for then their losses do not add up, or share a projection
    that they must not (`refuse_shared_projection`).
    """
    if not others:
        return chosen
    records = [chosen[0], *(record for record, _ in others)]
    refuse_shared_projection(records)
    seeds = sorted(set[str]().union(*map(mean_seeds, records)) - {str(chosen[0].public_inputs.get(SEED))})
    ledger = (*chosen[1], *(event for _, events in others for event in events))
    tried = sum(int(record.public_inputs.get(TRIED, 1)) for record in records)
    record = replace(
        chosen[0],
        public_inputs={**chosen[0].public_inputs, TRIED: tried, **({OTHER_SEEDS: " ".join(seeds)} if seeds else {})},
        compositions=sum(record.compositions for record in records),
    )
    unproved = next((record for record in records if not record.claims), None)
    if unproved is not None:
        if record.claims:
            record = record.without_guarantee(f"chosen among releases without guarantee ({unproved.reason})")
        return record, ledger
    relations = {other.relation for other in records}
    if len(relations) > 1:
        raise RecordError(
            f"Releases under the relations {sorted(map(str, relations))} cannot be counted together. Search over "
            "settings that leave the relation alone."
        )
    together = Accountant(record.relation, ledger)
    delta = max(float(other.delta or 0) for other in records)
    mu = together.mu if all(other.mu is not None for other in records) else None
    # Nobody asked for this epsilon.
    conditions = tuple(dict.fromkeys(condition for other in records for condition in other.conditions))
    return replace(
        record,
        guarantee=Guarantee.CONDITIONAL if conditions else Guarantee.PROVED,
        conditions=conditions,
        epsilon=together.epsilon(delta),
        delta=delta,
        mu=mu,
        requested_epsilon=None,
    ), ledger
