"""What a guarantee for one rating says of several ratings of one person, and of a guess."""

from __future__ import annotations

import math
from collections.abc import Sequence

from zoo.privacy.accounting.accountant import UnsupportedEventError, epsilon_of
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    NoOpEvent,
    PrivacyEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
)
from zoo.privacy.record.record import PrivacyRecord

#: Ratings of one person that a page tells of.
GROUPS = (1, 2, 5, 10, 50)
#: Mechanisms whose cells have noise of their own: k cells move k coordinates by 1 each.
OWN_NOISE = frozenset({"NoisyRows"})


def group_epsilon(record: PrivacyRecord, ledger: Sequence[PrivacyEvent], ratings: int) -> float | None:
    """Epsilon for that many ratings of one person together, at the record's delta; None where it is not known.

    The shift of a Gaussian release grows with the number of ratings at worst, and with its square root where every
    rating moves a coordinate of its own, or a Gaussian matrix that the data do not depend on: it stretches a change of one
    person's row by a norm of the same law, whichever cells it is in.
    """
    if record.delta is None:
        return None
    factor = math.sqrt(ratings) if record.mechanism in OWN_NOISE else float(ratings)
    grown: list[PrivacyEvent] = []
    for event in ledger:
        if isinstance(event, RandomisedResponseEvent) and len(ledger) == 1:
            return epsilon_of([SelfComposedEvent(event, ratings)], record.delta)
        if isinstance(event, GaussianEvent):
            grown.append(GaussianEvent(event.noise_multiplier / factor))
        elif isinstance(event, GaussianProjectionEvent):
            grown.append(GaussianProjectionEvent(event.noise_multiplier / math.sqrt(ratings), event.dim))
        elif not isinstance(event, NoOpEvent):
            return None
    try:
        return epsilon_of(grown, record.delta)
    except UnsupportedEventError:
        return None


def best_guess(epsilon: float, delta: float) -> float:
    """How often a yes-or-no fact with even odds can be guessed at most by whoever sees the release."""
    return min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))


def share(probability: float) -> str:
    """A probability in words that never make it smaller than it is."""
    percent = math.ceil(probability * 10_000) / 100
    return "all" if percent >= 100 else f"{percent:.2f} %"
