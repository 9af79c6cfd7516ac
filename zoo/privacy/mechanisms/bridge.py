"""A map from a source's items to a target's directions: summed over the users whom both know, with Gaussian noise.

The sum is over users, so what one of them adds is bounded by the user's own row and by the length of the target's projection,
while what it says of tastes grows with the number of users.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.stats import chi2

from zoo.privacy.accounting.events import ComposedEvent, GaussianEvent
from zoo.privacy.accounting.gaussian import check_sensitivity, gauss_mu
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
from zoo.privacy.mechanisms.goodness_of_fit import Squares, of_squares, unrounded
from zoo.privacy.mechanisms.vectors import clip_vectors
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.bounds import clip_rows

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

LONGEST = 1.0
"""Length of a target's projection of one user, at most."""


@dataclass(frozen=True, kw_only=True)
class Bridge(Mechanism):
    """Noise on a map and on the counts that are published before it; see `Bridge.calibrate`."""

    name = "BridgePublisher"
    relations = ONE_RATING | ONE_USER
    tensors, made, checks_noise = frozenset({"map"}), "a map", True

    noise_multiplier: float  # standard deviation of the map's noise over the sensitivity
    clip: float  # L2 norm that each user's row is clipped to, under every relation
    counts_share: float  # of the squared mu that the counts take
    kept_items: int | None = None  # items with the largest noisy counts, which the map has; None: all
    num_directions: int = 1

    def __post_init__(self) -> None:
        """Refuse shares beyond 1."""
        super().__post_init__()
        check_positive(self, "noise_multiplier", "clip", "kept_items", "num_directions")
        if not 0 < self.counts_share < 1:
            raise MechanismError(
                f"counts_share must lie between 0 and 1, got {self.counts_share}: what the counts take of the budget, e.g. 0.1."
            )

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        relation: Relation = Relation.ZERO_OUT_ONE_USER,
        clip: float = 1.0,
        counts_share: float = 0.1,
        kept_items: int | None = None,
        num_directions: int = 1,
        num_users: int = 1,
        num_items: int = 1,
    ) -> Self:
        """Return how much Gaussian noise a map, and the counts before it, need for an epsilon at delta together. Opens no data.

        Published are first the sums of the users' rows ``r_u`` (0/1, clipped to an L2 norm of ``clip``), and then
        ``C = sum_u r_u q_u'`` over the items with the largest noisy sums, rows cut to these items and clipped to ``clip`` again;
        ``q_u`` is the target's projection of the same user, of length 1 at most, and zero for one whom it does not know.

        Sensitivity (L2 of either, Frobenius of the map), the projections being given: zeroing out a user's row moves the sums by
        at most ``clip``, and the map by at most ``clip |q_u| <= clip``; replacing it by twice that. One rating moves a 0/1 row by
        1, and cutting a row to some columns and clipping it to a ball are projections, which bring no two points further apart:
        so it moves both by at most 1, whatever ``clip``. With ``clip`` 1 rows are of unit length, and one rating costs what the
        user does.

        Which items the map has depends on the noisy sums alone. The two releases compose exactly (Dong, Roth & Su 2022): squares
        of mu add up, and ``counts_share`` of the sum is that of the counts.
        """
        if relation.unit not in (Unit.USER, Unit.RATING):
            raise ValueError(
                f"A map hides who has rated what, so users or ratings are protected, not {relation.value!r}. Take "
                "zero_out_one_user, replace_one_user or change_one_rating."
            )
        check_sensitivity(clip)
        if not 0 < counts_share < 1:
            raise ValueError(
                f"counts_share must lie between 0 and 1, got {counts_share}: what the counts take of the budget, e.g. 0.1."
            )
        if kept_items is not None and kept_items < 1:
            raise ValueError(f"kept_items must be at least 1, or null for all items; got {kept_items}.")
        return cls(
            relation=relation,
            delta=delta,
            noise_multiplier=1 / (gauss_mu(epsilon, delta) * math.sqrt(1 - counts_share)),
            clip=clip,
            counts_share=counts_share,
            kept_items=kept_items,
            num_directions=num_directions,
            num_users=num_users,
            num_items=num_items,
        )

    @property
    def event(self) -> ComposedEvent:
        """Two Gaussian releases, of the map and of the counts."""
        of_counts = self.noise_multiplier * math.sqrt((1 - self.counts_share) / self.counts_share)
        return ComposedEvent((GaussianEvent(self.noise_multiplier), GaussianEvent(of_counts)))

    @property
    def sensitivity(self) -> float:
        """1 for a rating; ``clip`` for zero-out, twice that for replacement."""
        return of_row(self.relation, self.clip)

    @property
    def noise_std(self) -> float:
        """Of the map's noise."""
        return self.noise_multiplier * self.sensitivity

    @property
    def counts_std(self) -> float:
        """Standard deviation of the noise on each count."""
        return self.noise_std * math.sqrt((1 - self.counts_share) / self.counts_share)

    @property
    def statement(self) -> Statement:
        """That of a 0/1 matrix with public sets, and of what lies beside the map."""
        users = self.relation.unit is Unit.USER
        return Statement(
            ("binary_ratings", "public_sets", "bridge_rows_clipped", "projections_given"),
            (
                "sets",
                "evaluation_items",
                "personal_recommendations",
                "target_users",
                "metrics",
                *(() if users else ("several_ratings_sqrt",)),
            ),
        )

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Settings of the map, and the sizes."""
        return {
            "num_directions": self.num_directions,
            "row_clip": self.clip,
            "sigma": self.noise_std,
            "counts_share": self.counts_share,
            "counts_scale": self.counts_std,
            "kept_items": min(self.kept_items or self.num_items, self.num_items),
            **super().public_inputs,
        }

    def check(self, tensors: Arrays) -> list[Finding]:
        """Lattice and squares of the map, and of the counts, of which those of popular items are large."""
        table, kept = tensors["map"], self.public_inputs["kept_items"]
        if table.shape != (kept, self.num_directions):
            raise MechanismError(
                f"The record of {self.name} is of a map of {kept} items and {self.num_directions} directions. The map has the "
                f"shape {table.shape}."
            )
        squares = Squares.of(table, self.noise_std, centred=False, cells=False)
        return [*of_squares(squares, self.noise_std, centred=False, independent=True), *self.check_counts(tensors)]

    def check_counts(self, tensors: Arrays) -> list[Finding]:
        """Lattice and squares of the counts, which are released as well."""
        noisy = tensors["counts"]
        if len(noisy) != self.num_items:
            raise MechanismError(
                f"The record of {self.name} is of {self.num_items} items. There are {len(noisy)} counts."
            )
        squares = Squares.of(noisy[:, None], self.counts_std, centred=False, cells=False)
        few = chi2.cdf(unrounded(squares.of_rows.sum(), len(noisy), self.counts_std) / self.counts_std**2, len(noisy))
        return [Finding("the counts vary too little", float(few))]


class NoisyMap(NamedTuple):
    """What is published; anything may be done with it."""

    items: npt.NDArray[np.int64]  # which items the map has, rising, (kept,)
    map: Singles  # from items to directions, (kept, directions)
    counts: Singles  # sums of the clipped rows, (items,)


def noisy_map(
    rows: csr_array, projections: npt.NDArray[np.floating[Any]], plan: Bridge, noise: NoiseSource
) -> NoisyMap:
    """The counts and the map of 0/1 rows (users, items) and projections (users, directions), noised as the mechanism says.

    All numbers lie on the public lattice of their noise. Rows and projections are clipped here, whatever was done before; one user
    is one row of both. Memory is that of the ratings and of the map.
    """
    if projections.ndim != 2 or len(projections) != rows.shape[0]:
        raise ValueError(
            f"Each of {rows.shape[0]} users has a projection, of zeros if there is none; got the shape {projections.shape}."
        )
    counts, items, clipped = chosen_items(rows, plan, noise)
    summed: Floats = np.asarray(clipped.T @ clip_vectors(projections[:, None, :], LONGEST)[:, 0, :])
    summed = round_to_lattice(summed + plan.noise_std * noise.normal(summed.shape), plan.noise_std)
    return NoisyMap(items, summed.astype(np.float32), counts.astype(np.float32))


def chosen_items(rows: csr_array, plan: Bridge, noise: NoiseSource) -> tuple[Floats, npt.NDArray[np.int64], csr_array]:
    """Noisy counts (items,), the items of a map by them (kept,), and the rows cut to these and clipped again (users, kept)."""
    counts: Floats = np.asarray(clip_rows(rows, plan.clip).sum(axis=0), dtype=np.float64).ravel()
    counts = round_to_lattice(counts + plan.counts_std * noise.normal(counts.shape), plan.counts_std)
    kept = min(rows.shape[1], plan.kept_items or rows.shape[1])
    items = np.sort(np.argsort(-counts, kind="stable")[:kept]).astype(np.int64)
    return counts, items, clip_rows(csr_array(rows.tocsc()[:, items].tocsr()), plan.clip)
