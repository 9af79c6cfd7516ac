"""NoisyRows: Gaussian noise on every 0/1 entry, with all entries released or only those above a threshold.

The lists of users and items are fixed in advance, so an entry is 1 or 0, and the presence of a rating is protected with it. The
mechanism is not from a paper of cross-domain recommendation; it is a baseline for PriCDR's projections (Chen et al., WWW 2022).
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import log_ndtr, ndtr, ndtri, ndtri_exp
from scipy.stats import binom

from zoo.privacy.accounting.gaussian import target_mu
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import (
    ONE_RATING,
    ONE_USER,
    Arrays,
    Finding,
    GaussianMechanism,
    MechanismError,
    Plain,
    Statement,
    check_positive,
)
from zoo.privacy.mechanisms.goodness_of_fit import (
    FAR,
    Squares,
    count_findings,
    dense_rows,
    far_share,
    released_counts,
    square_findings,
)
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing, round_to_lattice
from zoo.privacy.rows.bounds import l2_sensitivity
from zoo.privacy.rows.denoising import EntryModel, GaussianEntries, SparseEntries
from zoo.privacy.rows.entries import bounded, with_zeros

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_CHUNK = 2**20  # noisy numbers per chunk


@dataclass(frozen=True, kw_only=True)
class NoisyRows(GaussianMechanism):
    """Gaussian noise on 0/1 rows; see `NoisyRows.calibrate`.

    Entries whose noisy value is not above the threshold are left out; None releases all. The threshold is half-way between two
    points of the lattice, so rounding does not change which entries are released.
    """

    name = "NoisyRows"
    relations = ONE_RATING | ONE_USER
    tensors, output_name, checks_noise = frozenset({"rows", "starts"}), "rows", True
    independent_ratings = True

    clip: float | None = None  # L2 norm that each user's row is clipped to, for the user as privacy unit
    threshold: float | None = None

    def __post_init__(self) -> None:
        """Refuse a clip for ratings, and a threshold off the lattice."""
        super().__post_init__()
        check_positive(self, "noise_multiplier", "clip", "threshold")
        if self.clip is not None and self.relation.unit is not Unit.USER:
            raise MechanismError(f"clip is {self.clip:g}. Omit it for ratings.")
        spacing = lattice_spacing(self.noise_std)
        if self.threshold is not None and not (self.threshold / spacing - 0.5).is_integer():
            raise MechanismError(
                f"threshold is {self.threshold!r}. Allowed: half-way between multiples of {spacing:g}."
            )

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float | None = None,
        attack_success: float | None = None,
        delta: float,
        relation: Relation = Relation.CHANGE_ONE_RATING,
        clip: float | None = None,
        threshold: float | None = None,
        num_users: int = 1,
        num_items: int = 1,
    ) -> Self:
        """Return the mechanism with the least noise for epsilon at delta, or for an attack success. Opens no data.

        ``threshold`` is in standard deviations of the noise, at least 0. It is rounded up to the next midpoint of the lattice.
        """
        sensitivity = l2_sensitivity(relation, 1.0, clip)
        if threshold is not None and not 0 <= threshold < math.inf:
            raise ValueError(f"threshold is {threshold!r}. Allowed: >= 0 (standard deviations of the noise), or None.")
        multiplier = 1 / target_mu(epsilon, delta, attack_success)
        sigma = multiplier * sensitivity
        return cls(
            relation=relation,
            delta=delta,
            noise_multiplier=multiplier,
            clip=clip,
            threshold=None if threshold is None else lattice_midpoint(threshold * sigma, sigma),
            num_users=num_users,
            num_items=num_items,
        )

    @property
    def statement(self) -> Statement:
        """Codes of a 0/1 matrix with public lists."""
        users = self.relation.unit is Unit.USER
        return Statement(
            ("binary_ratings", "public_sets", *(("rows_clipped",) if users else ())),
            ("sets", "evaluation_items", *(() if users else ("several_ratings_sqrt",))),
        )

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Noise, lattice, threshold and sizes."""
        kept: dict[str, Plain] = {} if self.threshold is None else {"threshold": self.threshold}
        return {"sigma": self.noise_std, "grid": lattice_spacing(self.noise_std), **kept, **super().public_inputs}

    @property
    def entry_model(self) -> EntryModel | None:
        """How entries were drawn, for a denoiser; None for clipped rows, which are not 0/1."""
        if self.clip is not None:
            return None
        if self.threshold is None:
            return GaussianEntries(self.noise_std)
        return SparseEntries.above(self.threshold, self.noise_std)

    def check(self, tensors: Arrays) -> list[Finding]:
        """Test the lattice and the squares of all entries or, with a threshold, the counts of entries and of large values."""
        sigma, threshold = self.noise_std, self.threshold
        if threshold is not None:
            zero, one = (float(ndtr((value - threshold) / sigma)) for value in (0.0, 1.0))
            # Half of a zero's values are at least that; rounding moves them by half a step. `zero` may underflow, its log not.
            middle = -sigma * float(ndtri_exp(log_ndtr(-threshold / sigma) - math.log(2))) - lattice_spacing(sigma)
            kept = released_counts(self, tensors, sigma, threshold, middle)
            above = Finding("too few of its values are large", float(binom.cdf(kept.large, kept.total, 0.5)))
            return [*count_findings(kept, zero, one), above]
        rows = dense_rows(self, tensors, self.num_items)
        binary = self.clip is None
        squares = Squares.of(rows, sigma, centred=False, binary=binary)
        found = square_findings(squares, sigma, centred=False, independent=True)
        if binary:
            share = far_share(sigma, FAR * sigma + lattice_spacing(sigma))
            few = float(binom.cdf(squares.far, rows.size, share))
            found.append(Finding("too few values are far from both 0 and 1", few))
        return found


def lattice_midpoint(value: float, sigma: float) -> float:
    """Return the least midpoint between two points of the lattice of noise ``sigma`` that is at least ``value``."""
    spacing = lattice_spacing(sigma)
    return (math.ceil(value / spacing - 0.5) + 0.5) * spacing


def noisy_rows(rows: csr_array, plan: NoisyRows, noise: NoiseSource) -> Singles:
    """Return all entries of 0/1 rows ``(users, items)`` with noise, float32, dense, rounded to the public lattice.

    Entries that are not above the threshold, if there is one, are 0. Protects the privacy unit of ``plan.relation``, with the L2
    sensitivity ``plan.sensitivity``. Any use of the result is post-processing. Noise is drawn user by user.
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
    """Return the probability that an entry is above the threshold after noise: ``Phi((value - threshold)/sigma)``."""
    return np.asarray(ndtr((np.asarray(value) - threshold) / sigma))


def noisy_rows_above(rows: csr_array, plan: NoisyRows, noise: NoiseSource) -> csr_array:
    """Return the entries of 0/1 rows whose noisy value is above the threshold t, in distribution as by `noisy_rows`.

    The pairs (entry, value above t) are a function of all noisy values. So they cost the same and protect the same under the
    same relation, with the L2 sensitivity ``plan.sensitivity``; any use of them is post-processing.

    Not all noisy values are drawn: of 10^10 entries about 10^7 are released. An entry of value v is released with probability
    ``p = Phi((v - t)/sigma)``; for zeros p is a float, drawn exactly (see `sample_zeros`). Its value follows the normal law above
    t, by the inverse survival function of one uniform U: ``v - sigma Phi^-1(p U)``, without the hardening of
    `NoiseSource.normal`.

    The result ``(users, items)``, float32, is sorted by entry, whatever an entry contains. The numbers of released ones and
    zeros are private and are not logged.
    """
    if plan.threshold is None:
        raise ValueError("threshold is None. Use noisy_rows, or set a threshold.")
    threshold, sigma = plan.threshold, plan.noise_std
    # At least half a step of the lattice above the threshold, so that float rounding cannot move a value below it.
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
