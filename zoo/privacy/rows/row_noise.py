"""Rows without projection: Gaussian noise on a 0/1 matrix, or randomised response for every cell; whole, or only what is kept.

Both sets, users and items, are fixed in advance: a catalogue and not what occurs in the data. A rating that is there or
not is one cell that is 1 or 0, so its presence is protected with it. Neither mechanism is from a paper of cross-domain
recommendation; they are what the projections of PriCDR (Chen et al., WWW 2022) compete with.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import ndtr, ndtri

from zoo.privacy.accounting.events import GaussianEvent, RandomisedResponseEvent
from zoo.privacy.accounting.gaussian import check_epsilon, gauss_mu
from zoo.privacy.accounting.pure import flip_probability
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.bernoulli import bernoulli, cells_of, sampled_zeros
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing, round_to_lattice
from zoo.privacy.rows.bounds import clip_rows, l2_sensitivity
from zoo.privacy.rows.plan import RowsPlan

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_CHUNK = 2**20  # noisy numbers made at a time
_FALSE_ONES = 2**23  # zeros that randomised response reports as ones, on average, before thinning sets in


@dataclass(frozen=True, kw_only=True)
class NoisePlan(RowsPlan):
    """Gaussian noise on rows; see `plan_noise`.

    Cells whose noisy value is not above the threshold are left out; None keeps all. It lies half-way between two points of
    the lattice that values are rounded to, so that rounding changes nothing about what is kept.
    """

    mu: float
    threshold: float | None


@dataclass(frozen=True, kw_only=True)
class RandomisedResponsePlan(RowsPlan):
    """Flips of cells, which cost epsilon with no delta; see `plan_randomised_response`."""

    flip_probability: float  # of each cell to be reported wrongly; a multiple of 2^-53
    keep: float  # probability of each reported one to be kept


def plan_noise(
    *,
    epsilon: float,
    delta: float,
    relation: Relation = Relation.CHANGE_ONE_RATING,
    clip: float | None = None,
    threshold: float | None = None,
) -> NoisePlan:
    """How much Gaussian noise rows need for an epsilon at delta. Opens no data.

    The threshold is in standard deviations of the noise, at least 0; moved up to the next half-way point of the lattice.
    """
    sensitivity = l2_sensitivity(relation, 1.0, clip)
    mu = gauss_mu(epsilon, delta)
    sigma = sensitivity / mu
    if threshold is not None and not 0 <= threshold < math.inf:
        raise ValueError(
            f"threshold must be a number of at least 0, in standard deviations of the noise, got {threshold!r}. Below 0 "
            "more than half of all cells are kept: leave it out, and all are."
        )
    return NoisePlan(
        relation=relation,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        sensitivity=sensitivity,
        clip=clip,
        noise_std=sigma,
        event=GaussianEvent(sigma / sensitivity),
        threshold=None if threshold is None else half_way(threshold * sigma, sigma),
    )


def half_way(value: float, sigma: float) -> float:
    """The least number from ``value`` up that lies half-way between two points of the lattice of noise ``sigma``."""
    spacing = lattice_spacing(sigma)
    return (math.ceil(value / spacing - 0.5) + 0.5) * spacing


def plan_randomised_response(
    *, epsilon: float, num_users: int, num_items: int, keep: float | None = None
) -> RandomisedResponsePlan:
    """How often cells must be flipped for an epsilon, and how much of the outcome is kept. Opens no data.

    Thinning the reported ones needs no privacy and costs none. It is there for large catalogues, where flips make far
    more ones than there are ratings: with ``keep`` left out, as many are kept as bring the false ones down to 2^23 on
    average, which public sizes decide.
    """
    check_epsilon(epsilon)
    flip = flip_probability(epsilon)
    if keep is None:
        keep = min(1.0, _FALSE_ONES / max(1.0, num_users * num_items * flip))
    if not 0 < keep <= 1:
        raise ValueError(f"keep must lie in (0, 1], got {keep!r}. It is the share of the reported ones that are kept.")
    return RandomisedResponsePlan(
        relation=Relation.CHANGE_ONE_RATING,
        epsilon=epsilon,
        delta=0.0,
        sensitivity=1.0,
        sensitivity_norm="L1",
        noise_std=(flip * (1 - flip)) ** 0.5,
        event=RandomisedResponseEvent(flip),
        flip_probability=flip,
        keep=keep,
    )


def noisy_rows(rows: csr_array, plan: NoisePlan, noise: NoiseSource) -> Singles:
    """All cells of 0/1 rows ``(users, items)`` with noise, float32, rounded to the public lattice; as dense as it looks.

    Those not above the threshold, if there is one, are 0. Protects what ``plan.relation`` says, with the L2 sensitivity
    ``plan.sensitivity``. Whatever is done with the result is post-processing. Noise is drawn user by user.
    """
    rows = _bounded(rows, plan.clip)
    num_users, num_items = rows.shape
    result = np.empty((num_users, num_items), dtype=np.float32)
    step = max(1, _CHUNK // max(num_items, 1))
    for first in range(0, num_users, step):
        part = rows[first : first + step].toarray()
        noisy = round_to_lattice(part + plan.noise_std * noise.normal(part.shape), plan.noise_std)
        result[first : first + step] = noisy if plan.threshold is None else np.where(noisy > plan.threshold, noisy, 0)
    return result


def kept_probability(value: float | Floats, threshold: float, sigma: float) -> Floats:
    """Probability that a cell with this value is above the threshold after noise: ``Phi((value - threshold)/sigma)``."""
    return np.asarray(ndtr((np.asarray(value) - threshold) / sigma))


def noisy_rows_above(rows: csr_array, plan: NoisePlan, noise: NoiseSource) -> csr_array:
    """The cells of 0/1 rows whose noisy value is above the threshold t, with that value: the law of `noisy_rows`.

    The pairs (cell, value above t) are a function of all noisy values, so they cost what those cost, and protect the
    same under the same relation; L2 sensitivity ``plan.sensitivity``; afterwards anything may be done.

    All noisy values are never drawn: of 10^10 cells some 10^7 are kept. A cell of value v is kept with probability
    ``p = Phi((v - t)/sigma)``; for zeros p is a float, drawn exactly (see `sampled_zeros`). Its value is the normal law's above
    t, by the inverse survival function of one uniform U: ``v - sigma Phi^-1(p U)``, without the sums of four that
    `NoiseSource.normal` is hardened by.

    The result ``(users, items)``, float32, is sorted by cell, whatever a cell held. How many cells were zeros, and how many
    ones were kept, is private: it is in no log.
    """
    if plan.threshold is None:
        raise ValueError("The plan has no threshold, so every cell is kept: use noisy_rows, or plan with a threshold.")
    threshold, sigma = plan.threshold, plan.noise_std
    # Above the threshold by at least half a step of the lattice: what the rounding of floats must not undo.
    least = threshold + lattice_spacing(sigma) / 2

    def values(means: Floats | float, shares: Floats, count: int) -> Singles:
        drawn = means - sigma * ndtri(noise.uniform(count) * shares)
        return np.maximum(round_to_lattice(drawn, sigma), least).astype(np.float32)

    rows = _bounded(rows, plan.clip)
    share = kept_probability(rows.data, threshold, sigma)
    kept = noise.uniform(len(share)) < share
    of_ones = values(rows.data[kept], share[kept], int(kept.sum()))
    of_zero = kept_probability(0.0, threshold, sigma)
    return _kept(rows, kept, of_ones, float(of_zero), lambda count: values(0.0, of_zero, count), noise)


def flipped_rows(rows: csr_array, plan: RandomisedResponsePlan, noise: NoiseSource) -> csr_array:
    """Randomised response for every cell of 0/1 rows: the reported ones, and of those the ones that are kept.

    Protects one rating, its presence included: neighbours differ in one cell, L1 sensitivity 1. Costs
    ``plan.epsilon`` with no delta. Whatever is done with the result is post-processing, as thinning is.

    A one is reported with probability ``1 - p`` and then kept with ``keep``; a zero appears with ``keep * p``, drawn
    without looking at most of them (`sampled_zeros`). All draws are from integers and have exactly these
    probabilities: there is no noise in floating point here, and no caveat about it.

    The result, ones ``(users, items)`` in float32, is sorted by cell, whatever a cell held. How many are true is private: it
    is in no log.
    """
    rows = _bounded(rows, None)
    flip, keep = Fraction(plan.flip_probability), Fraction(plan.keep)
    kept = bernoulli((1 - flip) * keep, rows.nnz, noise)

    def ones(count: int) -> Singles:
        return np.ones(count, dtype=np.float32)

    return _kept(rows, kept, ones(int(kept.sum())), flip * keep, ones, noise)


def _bounded(rows: csr_array, clip: float | None) -> csr_array:
    """A float64 copy, sorted and clipped; refused if it is no 0/1 matrix."""
    rows = rows.astype(np.float64, copy=True)
    rows.sum_duplicates()
    if not (rows.data == 1).all():
        wrong = rows.data[rows.data != 1]
        raise ValueError(
            f"Rows must be 0/1: every stored value 1, and every cell stored once. {len(wrong)} are not, the first is "
            f"{wrong[0]:g}. Make ratings binary first."
        )
    return rows if clip is None else clip_rows(rows, clip)


def _kept(
    rows: csr_array,
    kept: npt.NDArray[np.bool_],
    of_ones: Singles,
    zero_probability: Fraction | float,
    of_zeros: Callable[[int], Singles],
    noise: NoiseSource,
) -> csr_array:
    """Kept ones with their values, and zeros kept with a probability: one matrix ``(users, items)``, sorted by cell.

    Sorted, for an order in which ones came first would tell them from zeros. Zeros are drawn a chunk of users at a time;
    a cell is its number ``(user - first user) * items + item`` within the chunk, so sorting numbers sorts by user and item.
    """
    starts = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
    ones = csr_array((np.ones(len(of_ones), dtype=bool), rows.indices[kept], starts), shape=rows.shape)
    items, weights = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
    counts = np.zeros(rows.shape[0] + 1, dtype=np.int64)
    for users, zeros in sampled_zeros(rows, zero_probability, noise):
        values = np.concatenate([of_zeros(len(zeros)), of_ones[ones.indptr[users.start] : ones.indptr[users.stop]]])
        cells = np.concatenate([zeros, cells_of(ones, users)])
        order = np.argsort(cells, kind="stable")
        places, columns = np.divmod(cells[order], rows.shape[1])
        items.append(columns.astype(np.int32))
        weights.append(values[order])
        counts[users.start + 1 : users.stop + 1] = np.bincount(places, minlength=users.stop - users.start)
    return csr_array((np.concatenate(weights), np.concatenate(items), np.cumsum(counts)), shape=rows.shape)
