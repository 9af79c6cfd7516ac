"""Releases through one public projection: which of them may be composed.

The calibrations `unit` and `max` hold for every projection, so their releases compose like any others. The guarantee of a random
projection (`gaussian`, `paper`) is a mean over projections, for data that do not depend on the one drawn. The bound for several
(`zoo.privacy.accounting.gaussian_mixture.mixture_delta`) allows any dependence of the projections, but needs data that are settled
before any is known. The seed is public after the first release, so a second release through it has no guarantee.
"""

from collections.abc import Iterable

from zoo.privacy.mechanisms.jlt import OF_EVERY_PROJECTION
from zoo.privacy.record.derived import Derived
from zoo.privacy.record.fields import RecordError


def seed_of(record: Derived) -> str | None:
    """Return the seed of a release's projection, or None."""
    seed = getattr(record.mechanism, "seed", record.mechanism.public_inputs.get("projection_seed"))
    return None if seed is None else str(seed)


def mean_seeds(record: Derived) -> set[str]:
    """Return the seeds of the projections over which a record's guarantee is a mean."""
    seed, others = seed_of(record), set() if record.selection is None else {*record.selection.seeds}
    stated = record.mechanism.public_inputs.get("calibration") in OF_EVERY_PROJECTION
    holds = getattr(record.mechanism, "holds_for_every_projection", stated)
    return others if seed is None or holds else {seed, *others}


def refuse_shared_projection(records: Iterable[Derived]) -> None:
    """Refuse to compose releases of which two share a projection that a guarantee is a mean over.

    Releases without a guarantee are skipped: their total has none. The order of releases is unknown, so a release that holds
    for every projection also counts as the second.

    Raises:
        RecordError: Two records have the same seed, and the guarantee of one is a mean over projections.
    """
    seen: dict[str, tuple[int, bool]] = {}  # by seed: the first release, and whether its guarantee is a mean
    for number, record in enumerate(records, 1):
        if not record.claims:
            continue
        means, own = mean_seeds(record), seed_of(record)
        for seed in sorted(means | (set() if own is None else {own})):
            first, mean = seen.get(seed, (0, False))
            if first and (mean or seed in means):
                raise RecordError(
                    f"Releases {first} and {number} share the projection with seed {seed}. "
                    "Publish the second without a seed; count each release once."
                )
            seen[seed] = (first or number, mean or seed in means)
