"""Rows without projection: Gaussian noise on a 0/1 matrix, or every cell of it flipped; whole, or only what is kept.

The grid users x items is public: both sets are fixed in advance, a catalogue and not what occurs in the data. A rating
that is there or not is one cell that is 1 or 0, so its presence is protected with it. Neither mechanism is from a paper
of cross-domain recommendation; they are what the projections of PriCDR (Chen et al., WWW 2022) compete with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import ndtr, ndtri

from zoo.privacy.accounting.events import GaussianEvent, RandomisedResponseEvent
from zoo.privacy.accounting.gaussian import check_epsilon, check_sensitivity, gauss_mu
from zoo.privacy.accounting.pure import flip_probability
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.randomness.bernoulli import Integers, bernoulli, cells_of, kept_zeros
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing, round_to_lattice
from zoo.privacy.rows.projection import clip_rows

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_CHUNK = 2**20  # noisy numbers made at a time
_FALSE_ONES = 2**23  # zeros that flips report as ones, on average, before thinning sets in


@dataclass(frozen=True)
class NoisePlan:
    """Gaussian noise on rows and what it spends, computed from public settings alone; see `plan_noise`.

    Attributes:
        relation: Neighbouring relation of the guarantee; its unit is who is protected.
        sigma: Standard deviation of the noise on each cell.
        sensitivity: L2 norm of what one change under the relation adds to the matrix.
        clip: L2 norm that each user's row is clipped to (unit user), else None.
        threshold: Cells whose noisy value is not above it are left out; None keeps all. Half-way between two points of
            the lattice that values are rounded to, so that rounding changes nothing about what is kept.
        epsilon: Proved privacy loss at delta.
        delta: Probability beyond which nothing is promised.
        mu: Of the Gaussian release that this is.
        event: What the ledger gets.
    """

    relation: Relation
    sigma: float
    sensitivity: float
    clip: float | None
    threshold: float | None
    epsilon: float
    delta: float
    mu: float
    event: GaussianEvent


@dataclass(frozen=True)
class FlipPlan:
    """Flips of cells and what they spend, computed from public settings alone; see `plan_flips`.

    Attributes:
        flip_probability: Of each cell to be reported wrongly; a multiple of 2^-53.
        keep: Probability of each reported one to be kept.
        epsilon: Proved privacy loss, with no delta.
        event: What the ledger gets.
    """

    flip_probability: float
    keep: float
    epsilon: float
    event: RandomisedResponseEvent


def plan_noise(
    *,
    epsilon: float,
    delta: float,
    relation: Relation = Relation.CHANGE_ONE_RATING,
    clip: float | None = None,
    threshold: float | None = None,
) -> NoisePlan:
    """How much Gaussian noise rows need for a guarantee. Opens no data.

    Args:
        epsilon: Privacy loss asked for.
        delta: In (0, 1).
        relation: Under a rating relation one cell moves by 1; under ``zero_out_one_user`` a row by at most ``clip`` in
            the L2 norm, under ``replace_one_user`` by twice that.
        clip: L2 norm that rows are clipped to; needed for users, refused for ratings.
        threshold: In standard deviations of the noise, at least 0; moved up to the next half-way point of the lattice.

    Raises:
        ValueError: If an argument is out of range, missing or does not go with the others.
    """
    sensitivity = _sensitivity(relation, clip)
    mu = gauss_mu(epsilon, delta)
    sigma = sensitivity / mu
    if threshold is not None and not 0 <= threshold < math.inf:
        raise ValueError(
            f"threshold must be a number of at least 0, in standard deviations of the noise, got {threshold!r}. Below 0 "
            "more than half of all cells are kept: leave it out, and all are."
        )
    return NoisePlan(
        relation=relation,
        sigma=sigma,
        sensitivity=sensitivity,
        clip=clip,
        threshold=None if threshold is None else half_way(threshold * sigma, sigma),
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        event=GaussianEvent(sigma / sensitivity),
    )


def _sensitivity(relation: Relation, clip: float | None) -> float:
    if relation.unit is not Unit.USER:
        if clip is not None:
            raise ValueError(f"clip bounds a whole user and does nothing for {relation.value!r}; leave it out.")
        return 1.0
    if clip is None:
        raise ValueError(
            f"{relation.value!r} needs clip, the L2 norm that rows are clipped to: a public number, e.g. 5.0."
        )
    check_sensitivity(clip)
    return clip if relation is Relation.ZERO_OUT_ONE_USER else 2 * clip


def half_way(value: float, sigma: float) -> float:
    """The least number from ``value`` up that lies half-way between two points of the lattice of noise ``sigma``."""
    spacing = lattice_spacing(sigma)
    return (math.ceil(value / spacing - 0.5) + 0.5) * spacing


def plan_flips(*, epsilon: float, num_users: int, num_items: int, keep: float | None = None) -> FlipPlan:
    """How often cells must be flipped for a guarantee, and how much of the outcome is kept. Opens no data.

    Thinning the reported ones needs no privacy and costs none. It is there for large catalogues, where flips make far
    more ones than there are ratings.

    Args:
        epsilon: Privacy loss asked for.
        num_users: Public.
        num_items: Public.
        keep: In (0, 1]. None: 1, or as much less as brings the false ones down to 2^23 on average.

    Raises:
        ValueError: If an argument is out of range.
    """
    check_epsilon(epsilon)
    flips = flip_probability(epsilon)
    if keep is None:
        keep = min(1.0, _FALSE_ONES / max(1.0, num_users * num_items * flips))
    if not 0 < keep <= 1:
        raise ValueError(f"keep must lie in (0, 1], got {keep!r}. It is the share of the reported ones that are kept.")
    return FlipPlan(flips, keep, epsilon, RandomisedResponseEvent(flips))


def noisy_rows(rows: csr_array, plan: NoisePlan, noise: NoiseSource) -> Singles:
    """All cells with noise, rounded to the public lattice; those not above the threshold, if there is one, are 0.

    Protects what ``plan.relation`` says, with the L2 sensitivity ``plan.sensitivity``. Whatever is done with the result
    is post-processing.

    Args:
        rows: 0/1, shape ``(users, items)``.
        plan: From `plan_noise`.
        noise: Where the noise comes from; drawn user by user.

    Returns:
        Shape ``(users, items)``, float32; as dense as it looks.

    Raises:
        ValueError: If a stored value is not 1.
    """
    rows = _bounded(rows, plan.clip)
    num_users, num_items = rows.shape
    result = np.empty((num_users, num_items), dtype=np.float32)
    step = max(1, _CHUNK // max(num_items, 1))
    for first in range(0, num_users, step):
        part = rows[first : first + step].toarray()
        noisy = round_to_lattice(part + plan.sigma * noise.normal(part.shape), plan.sigma)
        result[first : first + step] = noisy if plan.threshold is None else np.where(noisy > plan.threshold, noisy, 0)
    return result


def kept_probability(value: float | Floats, threshold: float, sigma: float) -> Floats:
    """Probability that a cell with this value is above the threshold after noise: ``Phi((value - threshold)/sigma)``."""
    share: Floats = np.asarray(ndtr((np.asarray(value) - threshold) / sigma))
    return share


def noisy_rows_above(rows: csr_array, plan: NoisePlan, noise: NoiseSource) -> csr_array:
    """The cells whose noisy value is above the threshold, with that value; the law of `noisy_rows`, at its cost.

    The pairs (cell, value above the threshold) are a function of all noisy values, so they cost what those cost, and
    protect the same under the same relation; L2 sensitivity ``plan.sensitivity``; afterwards anything may be done.

    All noisy values are never drawn. A cell is kept with the probability that its noisy value is above the threshold,
    and its value then drawn from the part of the normal law above it. For zeros that probability is a float, drawn
    exactly; see `kept_zeros`. The values are inverse survival functions of one uniform each, without
    the sums of four that `NoiseSource.normal` is hardened by.

    Args:
        rows: 0/1, shape ``(users, items)``.
        plan: From `plan_noise`, with a threshold.
        noise: Where the noise comes from.

    Returns:
        Shape ``(users, items)``, float32, sorted by cell, whatever a cell held. How many cells were zeros, and how many
        ones were kept, is private: it is in no log.

    Raises:
        ValueError: If the plan has no threshold, or a stored value is not 1.
    """
    if plan.threshold is None:
        raise ValueError("The plan has no threshold, so every cell is kept: use noisy_rows, or plan with a threshold.")
    rows = _bounded(rows, plan.clip)
    share = kept_probability(rows.data, plan.threshold, plan.sigma)
    kept = noise.uniform(len(share)) < share
    ones = _where(rows, kept), _values_above(rows.data[kept], share[kept], plan, noise)
    false = kept_probability(0.0, plan.threshold, plan.sigma)

    def zeros() -> Iterator[tuple[slice, Integers, Singles]]:
        for users, cells in kept_zeros(rows, float(false), noise):
            shares = np.broadcast_to(false, len(cells))
            yield users, cells, _values_above(np.zeros(len(cells)), shares, plan, noise)

    return _merged(rows.shape, *ones, zeros())


def flipped_rows(rows: csr_array, plan: FlipPlan, noise: NoiseSource) -> csr_array:
    """The cells reported as ones after each was flipped at random, and those of them that are kept.

    Protects one rating, its presence included: neighbours differ in one cell, L1 sensitivity 1. Costs
    ``plan.epsilon`` with no delta. Whatever is done with the result is post-processing, as thinning is.

    A one is reported with probability ``1 - p`` and then kept with ``keep``; a zero appears with ``keep * p``, drawn
    without looking at most of them (`kept_zeros`). All draws are from integers and have exactly these
    probabilities: there is no noise in floating point here, and no caveat about it.

    Args:
        rows: 0/1, shape ``(users, items)``.
        plan: From `plan_flips`.
        noise: Where the draws come from.

    Returns:
        Ones, shape ``(users, items)``, float32, sorted by cell, whatever a cell held. How many are true is private: it
        is in no log.

    Raises:
        ValueError: If a stored value is not 1.
    """
    rows = _bounded(rows, None)
    flip, keep = Fraction(plan.flip_probability), Fraction(plan.keep)
    kept = bernoulli((1 - flip) * keep, rows.nnz, noise)

    def zeros() -> Iterator[tuple[slice, Integers, Singles]]:
        for users, cells in kept_zeros(rows, flip * keep, noise):
            yield users, cells, np.ones(len(cells), dtype=np.float32)

    ones = _where(rows, kept)
    return _merged(rows.shape, ones, np.ones(ones.nnz, dtype=np.float32), zeros())


def _bounded(rows: csr_array, clip: float | None) -> csr_array:
    """A float64 copy, sorted and clipped.

    Raises:
        ValueError: If it is no 0/1 matrix.
    """
    rows = rows.astype(np.float64, copy=True)
    rows.sum_duplicates()
    if not (rows.data == 1).all():
        wrong = rows.data[rows.data != 1]
        raise ValueError(
            f"Rows must be 0/1: every stored value 1, and every cell stored once. {len(wrong)} are not, the first is "
            f"{wrong[0]:g}. Make ratings binary first."
        )
    return rows if clip is None else clip_rows(rows, clip)


def _where(rows: csr_array, kept: npt.NDArray[np.bool_]) -> csr_array:
    """The matrix with some of its entries alone; their values are of no account."""
    starts = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
    return csr_array((np.ones(int(kept.sum()), dtype=bool), rows.indices[kept], starts), shape=rows.shape)


def _values_above(means: Floats, shares: Floats, plan: NoisePlan, noise: NoiseSource) -> Singles:
    """Noisy values given that they are above the threshold, rounded to the lattice; shape ``(cells,)``, float32."""
    threshold = 0.0 if plan.threshold is None else plan.threshold
    values = means - plan.sigma * ndtri(noise.uniform(len(means)) * shares)
    # Above the threshold by at least half a step of the lattice: what the rounding of floats must not undo.
    least = threshold + lattice_spacing(plan.sigma) / 2
    return np.maximum(round_to_lattice(values, plan.sigma), least).astype(np.float32)


def _merged(
    shape: tuple[int, int], ones: csr_array, values: Singles, zeros: Iterator[tuple[slice, Integers, Singles]]
) -> csr_array:
    """Kept ones and kept zeros in one matrix, sorted by cell, a chunk of users at a time."""
    items: list[npt.NDArray[np.int32]] = []
    weights: list[Singles] = []
    counts = np.zeros(shape[0] + 1, dtype=np.int64)
    for users, cells, noisy in zeros:
        where = slice(ones.indptr[users.start], ones.indptr[users.stop])
        cells = np.concatenate([cells, cells_of(ones, users)])
        order = np.argsort(cells, kind="stable")
        rows, columns = np.divmod(cells[order], shape[1])
        items.append(columns.astype(np.int32))
        weights.append(np.concatenate([noisy, values[where]])[order])
        counts[users.start + 1 : users.stop + 1] = np.bincount(rows, minlength=users.stop - users.start)
    starts = np.cumsum(counts)
    entries = np.concatenate([*weights, np.zeros(0, np.float32)]), np.concatenate([*items, np.zeros(0, np.int32)])
    return csr_array((*entries, starts), shape=shape)
