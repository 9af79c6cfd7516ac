"""Releases through one public projection: which may be counted together.

The calibrations `unit` and `max` hold for every projection, so releases that share one compose like any others. Those of a
random projection (`gaussian`, `paper`) promise a mean over projections for data that do not depend on the one drawn. The
accountant's bound for several of them (`zoo.privacy.accounting.gaussian_mixture.mixture_delta`) is for projections that depend on
each other in any way, one that is used twice included, but for data settled before any is known. The seed of a release is public
afterwards: of data that may have changed since, a second release through the same projection promises nothing.
"""

from collections.abc import Iterable

from zoo.privacy.mechanisms.jlt import OF_EVERY_PROJECTION
from zoo.privacy.record.derived import Derived
from zoo.privacy.record.fields import RecordError


def seed_of(record: Derived) -> str | None:
    """Return the seed of the projection of a release; None without one."""
    seed = getattr(record.mechanism, "seed", record.mechanism.public_inputs.get("projection_seed"))
    return None if seed is None else str(seed)


def mean_seeds(record: Derived) -> set[str]:
    """Return seeds of the projections over which a record's guarantee is a mean."""
    seed, others = seed_of(record), set() if record.selection is None else {*record.selection.seeds}
    stated = record.mechanism.public_inputs.get("calibration") in OF_EVERY_PROJECTION
    holds = getattr(record.mechanism, "holds_for_every_projection", stated)
    return others if seed is None or holds else {seed, *others}


def refuse_shared_projection(records: Iterable[Derived]) -> None:
    """Refuse to count releases together of which two share a projection that a guarantee is a mean over.

    For whatever adds up releases, before it does. Those without a guarantee are passed over, for then the sum has none. Which
    came first is not known, so a release that would hold for every projection counts as the second too.

    Raises:
        RecordError: If two of the records name the same seed, and the guarantee of one is a mean over projections.
    """
    seen: dict[str, tuple[int, bool]] = {}  # by seed: where it was named first, and whether under a mean
    for number, record in enumerate(records, 1):
        if not record.claims:
            continue
        means, own = mean_seeds(record), seed_of(record)
        for seed in sorted(means | (set() if own is None else {own})):
            first, mean = seen.get(seed, (0, False))
            if first and (mean or seed in means):
                raise RecordError(
                    f"Releases {first} and {number} go through one projection, of seed {seed}, and the guarantee of one is a "
                    "mean over projections that nobody knew before: the first made it public. If this is one release given "
                    "twice, give it once; else publish the second with a projection of its own, by leaving its seed out."
                )
            seen[seed] = (first or number, mean or seed in means)
