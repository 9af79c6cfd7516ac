"""What every release of rows settles before any rating is read."""

from dataclasses import dataclass

from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.relation import Relation


@dataclass(frozen=True, kw_only=True)
class RowsPlan:
    """What noise on rows will be and what it will spend, computed from public settings alone."""

    relation: Relation  # neighbouring relation of the guarantee; its unit is who is protected
    epsilon: float  # proved privacy loss at delta
    delta: float  # probability beyond which nothing is promised
    mu: float | None = None  # of the Gaussian release that this is, if it is one
    requested_epsilon: float | None = (
        None  # what was asked for, where it is not what this release alone is proved to spend
    )
    sensitivity: float  # norm of what one change adds to the ratings, bounded and before any projection
    sensitivity_norm: str = "L2"
    clip: float | None = None  # L2 norm that each user's row is clipped to (unit user)
    noise_std: float  # standard deviation of the noise on each published number
    event: PrivacyEvent  # what the ledger gets
