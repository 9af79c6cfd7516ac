"""Accounts of small releases, for tests of what several cost together."""

from dataclasses import replace
from pathlib import Path

from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import GaussianEvent, PrivacyEvent, RandomisedResponseEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.spending.total import Account

RATING, USER = Relation.CHANGE_ONE_RATING, Relation.ZERO_OUT_ONE_USER


def account(
    name: str,
    multiplier: float = 2.0,
    domain: str = "book",
    relation: Relation = RATING,
    delta: float = 1e-5,
    num_users: int = 900,
    conditions: tuple[str, ...] = (),
    seed: int | None = None,
    flips: float | None = None,
    event: PrivacyEvent | None = None,
    **public: str | int,
) -> Account:
    """Of one Gaussian release of this noise over sensitivity, of one flipped bit, or of another event."""
    gaussian = flips is None and event is None
    event = event or (GaussianEvent(multiplier) if flips is None else RandomisedResponseEvent(flips))
    record = PrivacyRecord.proved_unless_seeded(
        "Test",
        NoiseSource.of(seed),
        relation,
        epsilon=Accountant(relation, [event]).epsilon(delta),
        delta=delta,
        mu=1 / multiplier if gaussian else None,
        sensitivity=1.0,
        sensitivity_norm="L2" if flips is None else "L1",
        noise_scale=multiplier,
        clip=1.0,
        conditions=conditions,
        public_inputs=public,
    )
    return Account(name, domain, num_users, record, (event,))


def made(given: Account, digest: str, folder: str) -> Account:
    """The same of a release that is there."""
    return replace(given, digest=digest, folder=Path(folder))
