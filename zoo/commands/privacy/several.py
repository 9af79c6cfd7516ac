"""What a guarantee for one rating is worth for several ratings of one person."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.privacy.accounting.accountant import UnsupportedEventError, attack_success_of, epsilon_of
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    NoOpEvent,
    PrivacyEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
)
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.rows.group_stretch import group_stretch
from zoo.privacy.rows.public_matrix import PublicMatrix

#: How many ratings of one person are told of.
GROUPS = (1, 2, 5, 10, 50)
#: Products of two numbers beyond which a projection is not looked into: some seconds, e.g. 5,000 items at width 400.
MOST_PRODUCTS = 10**10

LOOKED_INTO = (
    "The projection that the record names was made anew: k ratings cost what it makes of k changes in one row at most, by the "
    "inner products of its columns."
)
TOO_LARGE = (
    "The projection is too large to be looked into here: k ratings cost k times mu, which is the worst that can be."
)


@dataclass(frozen=True)
class Several:
    """So many ratings of one person together."""

    ratings: int
    epsilon: float | None  # at the record's delta; None where it is not known
    guess: float | None  # how often a yes-or-no question about them is answered rightly at most


def several_ratings(record: PrivacyRecord, ledger: Sequence[PrivacyEvent]) -> list[Several]:
    """What each of :data:`GROUPS` costs, through the projection that the record names where it can be looked into."""
    stretched, made = stretches(record, ledger, GROUPS), []
    for ratings in GROUPS:
        stretch = stretched.get(ratings)
        epsilon = group_epsilon(record, ledger, ratings, stretch)
        together = None if epsilon is None else group_events(record, ledger, ratings, stretch)
        made.append(Several(ratings, epsilon, None if together is None else attack_success_of(together)))
    return made


def basis(record: PrivacyRecord, ledger: Sequence[PrivacyEvent]) -> list[str]:
    """What `several_ratings` rests on, in words, where the record names a projection."""
    matrix = projection_of(record)
    if matrix is None:
        return []
    if not looked_into(matrix):
        return [TOO_LARGE]
    return [LOOKED_INTO] if _single_gaussian(ledger) else []


def _single_gaussian(ledger: Sequence[PrivacyEvent]) -> bool:
    return len(ledger) == 1 and isinstance(ledger[0], GaussianEvent)


def projection_of(record: PrivacyRecord) -> PublicMatrix | None:
    """The matrix that a record names, not yet computed; None for another mechanism, or a guarantee that is a mean over matrices."""
    mechanism = record.mechanism
    if not isinstance(mechanism, JLT) or not mechanism.holds_for_every_projection:
        return None
    try:
        return mechanism.matrix()
    except ValueError:  # the numbers may come from another party
        return None


def looked_into(matrix: PublicMatrix) -> bool:
    """Whether a matrix is small enough for sums of its Gram matrix to be made while somebody waits."""
    return matrix.fits and matrix.num_items**2 * matrix.dim <= MOST_PRODUCTS


def stretches(record: PrivacyRecord, ledger: Sequence[PrivacyEvent], sizes: Sequence[int]) -> dict[int, float]:
    """How many times the mu of one rating so many ratings of one person have at most, by their number.

    For a single release through a projection that the record names and that is small enough; else nothing. For every k at most
    k, which is what holds for any matrix.
    """
    matrix = projection_of(record)
    if matrix is None or not looked_into(matrix) or not _single_gaussian(ledger):
        return {}
    longest = float(matrix.column_norms().max())
    return {size: min(size, bound / longest) for size, bound in group_stretch(matrix, sizes).items()}


def group_epsilon(
    record: PrivacyRecord, ledger: Sequence[PrivacyEvent], ratings: int, stretch: float | None = None
) -> float | None:
    """Epsilon for that many ratings of one person together, at the record's delta; None where it is not known.

    ``stretch`` as of `group_events`.
    """
    together = group_events(record, ledger, ratings, stretch)
    if record.delta is None or together is None:
        return None
    try:
        return epsilon_of(together, record.delta)
    except UnsupportedEventError:
        return None


def group_events(
    record: PrivacyRecord, ledger: Sequence[PrivacyEvent], ratings: int, stretch: float | None = None
) -> list[PrivacyEvent] | None:
    """A ledger as it is for that many ratings of one person together; None where it is not known.

    The shift of a Gaussian release grows with the number of ratings at worst, and with its square root where every
    rating moves a coordinate of its own, or a Gaussian matrix that the data do not depend on: it stretches a change of one
    person's row by a norm of the same law, whichever cells it is in. Where more is known, ``stretch`` says how much it grows
    at most (`stretches`).
    """
    worst = math.sqrt(ratings) if record.mechanism.independent_ratings else float(ratings)
    factor = worst if stretch is None else min(worst, stretch)
    grown: list[PrivacyEvent] = []
    for event in ledger:
        if isinstance(event, RandomisedResponseEvent) and len(ledger) == 1:
            return [SelfComposedEvent(event, ratings)]
        if isinstance(event, GaussianEvent):
            grown.append(GaussianEvent(event.noise_multiplier / factor))
        elif isinstance(event, GaussianProjectionEvent):
            grown.append(GaussianProjectionEvent(event.noise_multiplier / math.sqrt(ratings), event.dim))
        elif not isinstance(event, NoOpEvent):
            return None
    return grown
