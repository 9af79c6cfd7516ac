"""NoisyRows: the 0/1 rows with Gaussian noise on every entry, whole or only what is above a threshold.

Both sets, users and items, are fixed in advance: a catalogue and not what occurs in the data. A rating that is there or
not is one entry that is 1 or 0, so its presence is protected with it. The mechanism is not from a paper of cross-domain
recommendation; it is what the projections of PriCDR (Chen et al., WWW 2022) compete with.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import ndtr, ndtri
from scipy.stats import binom, norm

from zoo.privacy.accounting.events import GaussianEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import (
    ONE_RATING,
    ONE_USER,
    Arrays,
    Finding,
    Mechanism,
    MechanismError,
    Plain,
    Statement,
    check_positive,
    of_row,
)
from zoo.privacy.mechanisms.goodness_of_fit import FAR, Squares, counts, dense_rows, far_share, kept_cells, of_squares
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing, round_to_lattice
from zoo.privacy.rows.bounds import l2_sensitivity
from zoo.privacy.rows.cells import bounded, with_zeros
from zoo.privacy.rows.denoising import Cells, GaussianCells, KeptCells

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_CHUNK = 2**20  # noisy numbers made at a time


@dataclass(frozen=True, kw_only=True)
class NoisyRows(Mechanism):
    """Gaussian noise on 0/1 rows; see `NoisyRows.calibrate`.

    Entries whose noisy value is not above the threshold are left out; None keeps all. It lies half-way between two points of
    the lattice that values are rounded to, so that rounding changes nothing about what is kept.
    """

    name = "NoisyRows"
    relations = ONE_RATING | ONE_USER
    tensors, made, checks_noise = frozenset({"rows", "starts"}), "rows", True
    independent_ratings = True

    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    clip: float | None = None  # L2 norm that each user's row is clipped to; for users
    threshold: float | None = None

    def __post_init__(self) -> None:
        """Refuse a clip of ratings, and a threshold off the lattice."""
        super().__post_init__()
        check_positive(self, "noise_multiplier", "clip", "threshold")
        if self.clip is not None and self.relation.unit is not Unit.USER:
            raise MechanismError(f"clip is {self.clip:g}. It bounds whole users; leave it out for ratings.")
        spacing = lattice_spacing(self.noise_std)
        if self.threshold is not None and not (self.threshold / spacing - 0.5).is_integer():
            raise MechanismError(
                f"threshold is {self.threshold!r}. It must lie half-way between multiples of {spacing:g}."
            )

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        relation: Relation = Relation.CHANGE_ONE_RATING,
        clip: float | None = None,
        threshold: float | None = None,
        num_users: int = 1,
        num_items: int = 1,
    ) -> Self:
        """Return the least noise that rows need for an epsilon at delta. Opens no data.

        The threshold is in standard deviations of the noise, at least 0; moved up to the next half-way point of the lattice.
        """
        sensitivity = l2_sensitivity(relation, 1.0, clip)
        if threshold is not None and not 0 <= threshold < math.inf:
            raise ValueError(
                f"threshold must be a number of at least 0, in standard deviations of the noise, got {threshold!r}. Below 0 "
                "more than half of all cells are kept: leave it out, and all are."
            )
        multiplier = 1 / gauss_mu(epsilon, delta)
        sigma = multiplier * sensitivity
        return cls(
            relation=relation,
            delta=delta,
            noise_multiplier=multiplier,
            clip=clip,
            threshold=None if threshold is None else half_way(threshold * sigma, sigma),
            num_users=num_users,
            num_items=num_items,
        )

    @property
    def event(self) -> GaussianEvent:
        """One Gaussian release."""
        return GaussianEvent(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """1 for a rating; ``clip`` for zero-out, twice that for replacement."""
        return of_row(self.relation, self.clip)

    @property
    def noise_std(self) -> float:
        """``noise_multiplier sensitivity``."""
        return self.noise_multiplier * self.sensitivity

    @property
    def statement(self) -> Statement:
        """That of a 0/1 matrix with public sets."""
        users = self.relation.unit is Unit.USER
        return Statement(
            ("binary_ratings", "public_sets", *(("rows_clipped",) if users else ())),
            ("sets", "evaluation_items", *(() if users else ("several_ratings_sqrt",))),
        )

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Noise, lattice and threshold, and the sizes."""
        kept: dict[str, Plain] = {} if self.threshold is None else {"threshold": self.threshold}
        return {"sigma": self.noise_std, "grid": lattice_spacing(self.noise_std), **kept, **super().public_inputs}

    @property
    def cells(self) -> Cells | None:
        """How entries were drawn, for a denoiser; None for clipped rows, which are no 0/1 entries."""
        if self.clip is not None:
            return None
        if self.threshold is None:
            return GaussianCells(self.noise_std)
        return KeptCells.above(self.threshold, self.noise_std)

    def check(self, tensors: Arrays) -> list[Finding]:
        """Lattice, and squares of all entries; above a threshold how many are kept, and how many of them are large."""
        sigma, threshold = self.noise_std, self.threshold
        if threshold is not None:
            zero, one = (float(ndtr((value - threshold) / sigma)) for value in (0.0, 1.0))
            # Of a zero's values half are at least that; rounding moves them by half a step.
            middle = sigma * float(norm.isf(zero / 2)) - lattice_spacing(sigma)
            kept = kept_cells(self, tensors, sigma, threshold, middle)
            above = Finding("too few of its values are large", float(binom.cdf(kept.large, kept.total, 0.5)))
            return [*counts(kept, zero, one), above]
        rows = dense_rows(self, tensors, self.num_items)
        cells = self.clip is None
        squares = Squares.of(rows, sigma, centred=False, cells=cells)
        found = of_squares(squares, sigma, centred=False, independent=True)
        if cells:
            share = far_share(sigma, FAR * sigma + lattice_spacing(sigma))
            found.append(
                Finding("too few values are far from both 0 and 1", float(binom.cdf(squares.far, rows.size, share)))
            )
        return found


def half_way(value: float, sigma: float) -> float:
    """The least number from ``value`` up that lies half-way between two points of the lattice of noise ``sigma``."""
    spacing = lattice_spacing(sigma)
    return (math.ceil(value / spacing - 0.5) + 0.5) * spacing


def noisy_rows(rows: csr_array, plan: NoisyRows, noise: NoiseSource) -> Singles:
    """All cells of 0/1 rows ``(users, items)`` with noise, float32, rounded to the public lattice; as dense as it looks.

    Those not above the threshold, if there is one, are 0. Protects what ``plan.relation`` says, with the L2 sensitivity
    ``plan.sensitivity``. Whatever is done with the result is post-processing. Noise is drawn user by user.
    """
    rows = bounded(rows, plan.clip)
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


def noisy_rows_above(rows: csr_array, plan: NoisyRows, noise: NoiseSource) -> csr_array:
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

    rows = bounded(rows, plan.clip)
    share = kept_probability(rows.data, threshold, sigma)
    kept = noise.uniform(len(share)) < share
    of_ones = values(rows.data[kept], share[kept], int(kept.sum()))
    of_zero = kept_probability(0.0, threshold, sigma)
    return with_zeros(rows, kept, of_ones, float(of_zero), lambda count: values(0.0, of_zero, count), noise)
