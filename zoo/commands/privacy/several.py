"""Group privacy: what a guarantee for one rating gives for several ratings of one person."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.privacy.accounting.accountant import UnsupportedEventError, attack_success_of, epsilon_of, flattened
from zoo.privacy.accounting.events import (
    EventError,
    GaussianEvent,
    GaussianProjectionEvent,
    LaplaceEvent,
    NoOpEvent,
    PrivacyEvent,
    PureEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
)
from zoo.privacy.accounting.pure import flips_epsilon
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.words import CLAIMED_BY
from zoo.privacy.rows.group_stretch import group_stretch
from zoo.privacy.rows.public_matrix import PublicMatrix

#: Numbers of ratings of one person that are shown.
GROUPS = (1, 2, 5, 10, 50)
#: Most multiplications to analyse a projection: some seconds, e.g. 5,000 items at width 400.
MOST_PRODUCTS = 10**10

ANALYSED = "The costs of k ratings are computed from the inner products of the columns of the named projection."
TOO_LARGE = "The projection is too large to analyse here, so k ratings cost k times mu, the worst case."
FEW_ITEMS = "The record states fewer items than components, which no row can show, so k ratings cost k times mu, the worst case."


@dataclass(frozen=True)
class Several:
    """Privacy loss of several ratings of one person together."""

    ratings: int
    epsilon: float | None  # at the record's delta; None if unknown
    guess: float | None  # largest success rate of a yes-or-no attack


def several_ratings(record: PrivacyRecord, ledger: Sequence[PrivacyEvent]) -> list[Several]:
    """Return the privacy loss for each of :data:`GROUPS`, using the projection that the record names if possible."""
    stretched, found = stretches(record, ledger, GROUPS), []
    for ratings in GROUPS:
        stretch = stretched.get(ratings)
        epsilon = group_epsilon(record, ledger, ratings, stretch)
        together = None if epsilon is None else group_events(record, ledger, ratings, stretch)
        found.append(Several(ratings, epsilon, None if together is None else attack_success_of(together)))
    return found


def basis(record: PrivacyRecord, ledger: Sequence[PrivacyEvent]) -> list[str]:
    """Return in words how `several_ratings` used the projection of the record; [] without one."""
    matrix = projection_of(record)
    if matrix is None:
        return []
    if not is_analysable(matrix):
        return [TOO_LARGE]
    if matrix.num_items < matrix.dim:
        return [FEW_ITEMS]
    return [ANALYSED] if _single_gaussian(ledger) else []


def _single_gaussian(ledger: Sequence[PrivacyEvent]) -> bool:
    return len(ledger) == 1 and isinstance(ledger[0], GaussianEvent)


def projection_of(record: PrivacyRecord) -> PublicMatrix | None:
    """Return the public matrix of a record, not yet computed; None if the guarantee is not for this matrix."""
    mechanism = record.mechanism
    if not isinstance(mechanism, JLT) or not mechanism.holds_for_every_projection:
        return None
    try:
        return mechanism.matrix()
    except ValueError:  # invalid numbers of another party
        return None


def is_analysable(matrix: PublicMatrix) -> bool:
    """Return whether a matrix is small enough to compute its Gram matrix in seconds."""
    return matrix.fits and matrix.num_items**2 * matrix.dim <= MOST_PRODUCTS


def stretches(record: PrivacyRecord, ledger: Sequence[PrivacyEvent], sizes: Sequence[int]) -> dict[int, float]:
    """Return bounds of the mu of k ratings of one person in units of the mu of one rating, by k; at most k, the general bound.

    Computed for a single release with a named projection that is small enough and has at least as many items as components;
    otherwise {}. A size above the stated number of items is left out: no release shows that number.
    """
    matrix = projection_of(record)
    if matrix is None or not is_analysable(matrix) or matrix.num_items < matrix.dim or not _single_gaussian(ledger):
        return {}
    longest = float(matrix.column_norms().max())
    possible = [size for size in sizes if size <= matrix.num_items]
    return {size: min(size, bound / longest) for size, bound in group_stretch(matrix, possible).items()}


def group_epsilon(
    record: PrivacyRecord, ledger: Sequence[PrivacyEvent], ratings: int, stretch: float | None = None
) -> float | None:
    """Return epsilon for several ratings of one person at the record's delta, or None; ``stretch`` as in `group_events`."""
    try:
        together = group_events(record, ledger, ratings, stretch)
        return None if record.delta is None or together is None else epsilon_of(together, record.delta)
    except (EventError, UnsupportedEventError):
        return None


def group_events(
    record: PrivacyRecord, ledger: Sequence[PrivacyEvent], ratings: int, stretch: float | None = None
) -> list[PrivacyEvent] | None:
    """Return the ledger for several ratings of one person together, or None if it is unknown.

    The shift of a Gaussian release grows at most with the number of ratings. It grows with the square root if each rating moves
    its own coordinate, or if a Gaussian matrix independent of the data projects the row: the norm of the projected change then
    has the same distribution for all cells. ``stretch`` is a smaller bound of the growth if one is known (`stretches`). The
    mechanisms of other candidates of a selection, and of another package, are unknown, so all of them count at worst.
    """
    if record.exceeds(ledger):
        return None
    outside = any(code.startswith(CLAIMED_BY) for code in record.conditions)
    independent = record.mechanism.independent_ratings and record.selection is None and not outside
    worst, through = math.sqrt(ratings) if independent else float(ratings), ratings if outside else math.sqrt(ratings)
    factor = worst if stretch is None or outside else min(worst, stretch)
    grown: list[PrivacyEvent] = []
    for event, count in (single for one in ledger for single in flattened(one, 1.0)):
        more: PrivacyEvent
        if isinstance(event, RandomisedResponseEvent):
            p = event.flip_probability
            more = SelfComposedEvent(event, ratings) if independent else PureEvent(ratings * flips_epsilon(p, p))
        elif isinstance(event, GaussianEvent):
            more = GaussianEvent(event.noise_multiplier / factor)
        elif isinstance(event, GaussianProjectionEvent):
            more = GaussianProjectionEvent(event.noise_multiplier / through, event.dim)
        elif isinstance(event, LaplaceEvent | PureEvent):  # k steps, whatever the mechanism is
            more = PureEvent(ratings * epsilon_of([event], 0.0))
        elif isinstance(event, NoOpEvent):
            continue
        else:
            return None
        grown.append(more if count == 1 else SelfComposedEvent(more, int(count)))
    return grown
