"""What every release of rows settles before any rating is read."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.relation import Relation


@dataclass(frozen=True, kw_only=True)
class RowsPlan:
    """What noise on rows will be and what it will spend, computed from public settings alone.

    Attributes:
        relation: Neighbouring relation of the guarantee; its unit is who is protected.
        epsilon: Proved privacy loss at delta.
        delta: Probability beyond which nothing is promised.
        mu: Of the Gaussian release that this is, if it is one.
        requested_epsilon: The epsilon that the paper's formula was given, where it is not the proved one.
        sensitivity: Norm of what one change under the relation adds to the ratings, bounded and before any projection.
        sensitivity_norm: Which norm.
        clip: L2 norm that each user's row is clipped to (unit user), else None.
        noise_std: Standard deviation of the noise on each published number.
        event: What the ledger gets.
    """

    relation: Relation
    epsilon: float
    delta: float
    mu: float | None = None
    requested_epsilon: float | None = None
    sensitivity: float
    sensitivity_norm: str = "L2"
    clip: float | None = None
    noise_std: float
    event: PrivacyEvent
