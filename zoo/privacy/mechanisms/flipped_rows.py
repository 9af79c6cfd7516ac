"""FlippedRows: randomised response for every 0/1 entry; of a large matrix, a share of the reported ones is released.

Lists of users and items are fixed in advance, so the presence of a rating is protected; see `zoo.privacy.mechanisms.noisy_rows`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.events import RandomisedResponseEvent
from zoo.privacy.accounting.gaussian import check_target
from zoo.privacy.accounting.pure import flip_probability
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import ONE_RATING, Arrays, Finding, Plain, ResponseMechanism, Statement, check_positive
from zoo.privacy.mechanisms.goodness_of_fit import count_findings, released_counts
from zoo.privacy.randomness.bernoulli import bernoulli
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.denoising import SparseEntries
from zoo.privacy.rows.entries import bounded, with_zeros

Singles = npt.NDArray[np.float32]

_FALSE_ONES = 2**23  # mean number of zeros reported as ones, above which the reported ones are thinned


@dataclass(frozen=True, kw_only=True)
class FlippedRows(ResponseMechanism):
    """Flips of 0/1 entries, which cost epsilon with no delta; see `FlippedRows.calibrate`."""

    name = "FlippedRows"
    relations = ONE_RATING
    tensors, output_name, checks_noise = frozenset({"rows", "starts"}), "rows", True
    independent_ratings = True

    relation: Relation = Relation.CHANGE_ONE_RATING
    flip_probability: float  # that an entry is reported wrongly; a multiple of 2^-53
    keep: float  # probability that a reported one is released

    def __post_init__(self) -> None:
        """Check both probabilities."""
        super().__post_init__()
        check_positive(self, "flip_probability", most=0.5)
        check_positive(self, "keep", most=1.0)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float | None = None,
        attack_success: float | None = None,
        num_users: int,
        num_items: int,
        keep: float | None = None,
    ) -> Self:
        """Return the mechanism with the flip probability, and the share of reported ones to release. Opens no data.

        The flips are for epsilon or an attack success.

        Thinning the reported ones costs no privacy. It limits the output of large catalogues, where flips make far more ones
        than there are ratings. By default ``keep`` reduces the false ones to 2^23 on average, which depends on public sizes only.
        """
        check_target(epsilon, attack_success)
        if attack_success is not None:  # that of reading the report
            epsilon = math.log(attack_success / (1 - attack_success))
        flip = flip_probability(epsilon or 0.0)
        if keep is None:
            keep = min(1.0, _FALSE_ONES / max(1.0, num_users * num_items * flip))
        return cls(flip_probability=flip, keep=keep, num_users=num_users, num_items=num_items)

    @property
    def event(self) -> RandomisedResponseEvent:
        """One flip: a rating is one entry."""
        return RandomisedResponseEvent(self.flip_probability)

    @property
    def noise_std(self) -> float:
        """Standard deviation of one reported entry."""
        return math.sqrt(self.flip_probability * (1 - self.flip_probability))

    @property
    def statement(self) -> Statement:
        """Codes of a 0/1 matrix with public lists."""
        return Statement(("binary_ratings", "public_sets"), ("sets", "evaluation_items", "several_ratings_linear"))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Both probabilities, and sizes."""
        drawn: dict[str, Plain] = {"flip_probability": self.flip_probability, "keep": self.keep}
        return {**drawn, "draws": "exact, from integers", **super().public_inputs}

    @property
    def entry_model(self) -> SparseEntries:
        """How entries were drawn, for a denoiser."""
        return SparseEntries.flipped(self.flip_probability, self.keep)

    def check(self, tensors: Arrays) -> list[Finding]:
        """Test the number of ones: in total, per user and per item."""
        p = self.flip_probability
        return count_findings(released_counts(self, tensors), self.keep * p, self.keep * (1 - p))


def flipped_rows(rows: csr_array, plan: FlippedRows, noise: NoiseSource) -> csr_array:
    """Return the released share of the ones that randomised response reports for every entry of 0/1 rows.

    Protects one rating, including its presence: neighbours differ in one entry, L1 sensitivity 1. Costs ``plan.epsilon`` with no
    delta. Any use of the result is post-processing, and so is thinning.

    A one is reported with probability ``1 - p`` and then released with ``keep``; a zero appears with ``keep * p``, drawn
    without visiting most zeros (`sample_zeros`). All draws are from integers and have exactly these probabilities, so the
    guarantee has no floating-point caveat.

    The result, ones ``(users, items)`` in float32, is sorted by entry, whatever an entry contains. The number of true ones is
    private and is not logged.
    """
    rows = bounded(rows, None)
    flip, keep = Fraction(plan.flip_probability), Fraction(plan.keep)
    kept = bernoulli((1 - flip) * keep, rows.nnz, noise)

    def ones(count: int) -> Singles:
        return np.ones(count, dtype=np.float32)

    return with_zeros(rows, kept, ones(int(kept.sum())), flip * keep, ones, noise)
