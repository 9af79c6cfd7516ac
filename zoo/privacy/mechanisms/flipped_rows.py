"""FlippedRows: randomised response for every entry of the 0/1 rows; of a large matrix, a share of the reported ones.

Users and items are fixed in advance, so a rating's presence is protected with it; see `zoo.privacy.mechanisms.noisy_rows`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.events import RandomisedResponseEvent
from zoo.privacy.accounting.gaussian import check_epsilon
from zoo.privacy.accounting.pure import flip_probability
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import ONE_RATING, Arrays, Finding, Mechanism, Plain, Statement, check_positive
from zoo.privacy.mechanisms.goodness_of_fit import counts, kept_cells
from zoo.privacy.randomness.bernoulli import bernoulli
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.cells import bounded, with_zeros
from zoo.privacy.rows.denoising import KeptCells

Singles = npt.NDArray[np.float32]

_FALSE_ONES = 2**23  # zeros that randomised response reports as ones, on average, before thinning sets in


@dataclass(frozen=True, kw_only=True)
class FlippedRows(Mechanism):
    """Flips of 0/1 entries, which cost epsilon with no delta; see `FlippedRows.calibrate`."""

    name = "FlippedRows"
    relations = ONE_RATING
    tensors, made, checks_noise = frozenset({"rows", "starts"}), "rows", True

    relation: Relation = Relation.CHANGE_ONE_RATING
    flip_probability: float  # of each entry to be reported wrongly; a multiple of 2^-53
    keep: float  # probability of each reported one to be kept

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        super().__post_init__()
        check_positive(self, "flip_probability", most=0.5)
        check_positive(self, "keep", most=1.0)

    @classmethod
    def calibrate(cls, *, epsilon: float, num_users: int, num_items: int, keep: float | None = None) -> Self:
        """Return how often entries must be flipped for an epsilon, and how much of the outcome is kept. Opens no data.

        Thinning the reported ones needs no privacy and costs none. It is there for large catalogues, where flips make far
        more ones than there are ratings: with ``keep`` left out, as many are kept as bring the false ones down to 2^23 on
        average, which public sizes decide.
        """
        check_epsilon(epsilon)
        flip = flip_probability(epsilon)
        if keep is None:
            keep = min(1.0, _FALSE_ONES / max(1.0, num_users * num_items * flip))
        if not 0 < keep <= 1:
            raise ValueError(
                f"keep must lie in (0, 1], got {keep!r}. It is the share of the reported ones that are kept."
            )
        return cls(flip_probability=flip, keep=keep, num_users=num_users, num_items=num_items)

    @property
    def event(self) -> RandomisedResponseEvent:
        """One flip: a rating is one entry."""
        return RandomisedResponseEvent(self.flip_probability)

    @property
    def sensitivity(self) -> float:
        """1."""
        return 1.0

    @property
    def sensitivity_norm(self) -> str:
        """Of bits."""
        return "L1"

    @property
    def noise_std(self) -> float:
        """Of a flip."""
        return math.sqrt(self.flip_probability * (1 - self.flip_probability))

    @property
    def statement(self) -> Statement:
        """That of a 0/1 matrix with public sets."""
        return Statement(("binary_ratings", "public_sets"), ("sets", "evaluation_items", "several_ratings_linear"))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Both probabilities, and the sizes."""
        drawn: dict[str, Plain] = {"flip_probability": self.flip_probability, "keep": self.keep}
        return {**drawn, "draws": "exact, from integers", **super().public_inputs}

    @property
    def cells(self) -> KeptCells:
        """How entries were drawn, for a denoiser."""
        return KeptCells.flipped(self.flip_probability, self.keep)

    def check(self, tensors: Arrays) -> list[Finding]:
        """How many ones there are, of all, of each user and of each item."""
        p = self.flip_probability
        return counts(kept_cells(self, tensors), self.keep * p, self.keep * (1 - p))


def flipped_rows(rows: csr_array, plan: FlippedRows, noise: NoiseSource) -> csr_array:
    """Randomised response for every cell of 0/1 rows: the reported ones, and of those the ones that are kept.

    Protects one rating, its presence included: neighbours differ in one cell, L1 sensitivity 1. Costs
    ``plan.epsilon`` with no delta. Whatever is done with the result is post-processing, as thinning is.

    A one is reported with probability ``1 - p`` and then kept with ``keep``; a zero appears with ``keep * p``, drawn
    without looking at most of them (`sampled_zeros`). All draws are from integers and have exactly these
    probabilities: there is no noise in floating point here, and no caveat about it.

    The result, ones ``(users, items)`` in float32, is sorted by cell, whatever a cell held. How many are true is private: it
    is in no log.
    """
    rows = bounded(rows, None)
    flip, keep = Fraction(plan.flip_probability), Fraction(plan.keep)
    kept = bernoulli((1 - flip) * keep, rows.nnz, noise)

    def ones(count: int) -> Singles:
        return np.ones(count, dtype=np.float32)

    return with_zeros(rows, kept, ones(int(kept.sum())), flip * keep, ones, noise)
