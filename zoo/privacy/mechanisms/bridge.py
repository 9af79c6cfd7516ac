"""A map from a source's items to a target's directions: a sum over the common users, with Gaussian noise.

The contribution of one user is bounded by the user's own row and by the length of the target's projection, while the signal grows
with the number of users.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.accounting.events import ComposedEvent, GaussianEvent
from zoo.privacy.accounting.gaussian import check_sensitivity, target_mu
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
from zoo.privacy.mechanisms.goodness_of_fit import Squares, square_findings
from zoo.privacy.mechanisms.vectors import clip_vectors
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.bounds import clip_rows

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

LONGEST = 1.0
"""Largest length of the target's projection of one user."""


@dataclass(frozen=True, kw_only=True)
class Bridge(GaussianMechanism):
    """Noise on a map and on the counts that are published before it; see `Bridge.calibrate`.

    ``noise_multiplier`` and ``noise_std`` are those of the map.
    """

    name = "BridgePublisher"
    relations = ONE_RATING | ONE_USER
    tensors, output_name, checks_noise = frozenset({"map"}), "a map", True
    independent_ratings = True

    clip: float  # L2 norm that each user's row is clipped to, under every relation
    counts_share: float  # of the squared mu, for the counts
    kept_items: int | None = None  # number of items in the map: those with the largest noisy counts; None: all
    num_directions: int = 1

    def __post_init__(self) -> None:
        """Refuse shares outside (0, 1)."""
        super().__post_init__()
        check_positive(self, "noise_multiplier", "clip", "kept_items", "num_directions")
        if not 0 < self.counts_share < 1:
            raise MechanismError(f"counts_share is {self.counts_share}. Allowed: (0, 1), e.g. 0.1.")

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float | None = None,
        attack_success: float | None = None,
        delta: float,
        relation: Relation = Relation.ZERO_OUT_ONE_USER,
        clip: float = 1.0,
        counts_share: float = 0.1,
        kept_items: int | None = None,
        num_directions: int = 1,
        num_users: int = 1,
        num_items: int = 1,
    ) -> Self:
        """Return the mechanism with the least noise on a map and on the counts before it, for its target. Opens no data.

        The target is epsilon at delta, or an attack success.

        First the sums of the users' rows ``r_u`` (0/1, clipped to an L2 norm of ``clip``) are published. Then
        ``C = sum_u r_u q_u'`` is published over the items with the largest noisy sums, with rows cut to these items and clipped
        to ``clip`` again. ``q_u`` is the target's projection of the same user, of length 1 at most, and zero for an unknown user.

        Sensitivity (L2 of either, Frobenius of the map), with the projections fixed: zeroing out a user's row moves the sums by
        at most ``clip``, and the map by at most ``clip |q_u| <= clip``; replacing it moves both by at most twice that. One rating
        moves a 0/1 row by 1. Cutting a row to some columns and clipping it to a ball are projections, which never increase a
        distance. So one rating moves both by at most 1, whatever ``clip`` is. With ``clip`` 1, one rating costs what the user does.

        The items of the map depend on the noisy sums only. The two releases compose exactly (Dong, Roth & Su 2022): squares
        of mu add up, and ``counts_share`` of the sum is for the counts.
        """
        if relation.unit not in (Unit.USER, Unit.RATING):
            raise ValueError(
                f"relation is {relation.value!r}. Allowed: zero_out_one_user, replace_one_user, change_one_rating."
            )
        check_sensitivity(clip)
        if not 0 < counts_share < 1:
            raise ValueError(f"counts_share is {counts_share}. Allowed: (0, 1), e.g. 0.1.")
        return cls(
            relation=relation,
            delta=delta,
            noise_multiplier=1 / (target_mu(epsilon, delta, attack_success) * math.sqrt(1 - counts_share)),
            clip=clip,
            counts_share=counts_share,
            kept_items=kept_items,
            num_directions=num_directions,
            num_users=num_users,
            num_items=num_items,
        )

    @property
    def event(self) -> ComposedEvent:
        """Two Gaussian releases, the map and the counts."""
        of_counts = self.noise_multiplier * math.sqrt((1 - self.counts_share) / self.counts_share)
        return ComposedEvent((GaussianEvent(self.noise_multiplier), GaussianEvent(of_counts)))

    @property
    def map_std(self) -> float:
        """Standard deviation of all noise on a number of the map."""
        return self.noise_std

    @property
    def counts_std(self) -> float:
        """Standard deviation of the noise on each count."""
        return self.noise_std * math.sqrt((1 - self.counts_share) / self.counts_share)

    @property
    def statement(self) -> Statement:
        """Codes of a 0/1 matrix with public lists, and of what is next to the map."""
        several = () if self.relation.unit is Unit.USER else ("several_ratings_sqrt",)
        return Statement(
            ("binary_ratings", "public_sets", "bridge_rows_clipped", "projections_given"),
            ("sets", "evaluation_items", "personal_recommendations", "target_users", "metrics", *several),
        )

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Settings and sizes of the map."""
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
        """Test lattice and squares of the map and of the counts, where large counts are expected."""
        table, shape = tensors["map"], (self.public_inputs["kept_items"], self.num_directions)
        if table.shape != shape:
            raise MechanismError(f"The map has shape {table.shape}. The record of {self.name} has {shape}.")
        squares = Squares.of(table, self.noise_std, centred=False, binary=False)
        findings = square_findings(squares, self.map_std, centred=False, independent=True)
        return [*findings, *self.check_counts(tensors)]

    def check_counts(self, tensors: Arrays) -> list[Finding]:
        """Test lattice and squares of the counts, of all together and of each: an exact zero has no noise.

        Refuse items of the map that the counts do not choose.
        """
        noisy = tensors["counts"]
        if len(noisy) != self.num_items:
            raise MechanismError(
                f"There are {len(noisy)} counts. The record of {self.name} has {self.num_items} items."
            )
        squares = Squares.of(noisy[:, None], self.counts_std, centred=False, binary=False)
        findings = square_findings(squares, self.counts_std, centred=False, independent=True)
        chosen = np.array_equal(tensors["items"], largest_counts(noisy, self.kept_items))
        return [
            *(Finding(f"of the counts, {what.replace('users', 'items')}", found) for what, found in findings),
            Finding("items of the map are not those with the largest counts", float(chosen)),
        ]


class NoisyMap(NamedTuple):
    """The published tensors; any use of them is post-processing."""

    items: npt.NDArray[np.int64]  # items of the map, rising, (kept,)
    map: Singles  # from items to directions, (kept, directions)
    counts: Singles  # sums of the clipped rows, (items,)


def noisy_map(
    rows: csr_array, projections: npt.NDArray[np.floating[Any]], plan: Bridge, noise: NoiseSource
) -> NoisyMap:
    """Return counts and map of 0/1 rows (users, items) and projections (users, directions), with the mechanism's noise.

    All numbers are on the public lattice of their noise. Rows and projections are clipped here; row u of both belongs to user u.
    Memory is that of the ratings and of the map.
    """
    if projections.ndim != 2 or len(projections) != rows.shape[0]:
        raise ValueError(
            f"The projections have shape {projections.shape}. Pass one for each of {rows.shape[0]} users, zeros if "
            "unknown."
        )
    counts, items, clipped = chosen_items(rows, plan, noise)
    summed: Floats = np.asarray(clipped.T @ clip_vectors(projections[:, None, :], LONGEST)[:, 0, :])
    summed = round_to_lattice(summed + plan.noise_std * noise.normal(summed.shape), plan.noise_std)
    return NoisyMap(items, summed.astype(np.float32), counts.astype(np.float32))


def chosen_items(rows: csr_array, plan: Bridge, noise: NoiseSource) -> tuple[Floats, npt.NDArray[np.int64], csr_array]:
    """Return noisy counts (items,), the items of a map (kept,), and the rows cut to these items and clipped (users, kept)."""
    counts: Floats = np.asarray(clip_rows(rows, plan.clip).sum(axis=0), dtype=np.float64).ravel()
    counts = round_to_lattice(counts + plan.counts_std * noise.normal(counts.shape), plan.counts_std)
    items = largest_counts(counts.astype(np.float32), plan.kept_items)
    return counts, items, clip_rows(csr_array(rows.tocsc()[:, items].tocsr()), plan.clip)


def largest_counts(counts: Singles, kept: int | None) -> npt.NDArray[np.int64]:
    """Return the items with the largest released counts (items,), rising; the first of equal ones. ``kept`` None: all."""
    return np.sort(np.argsort(-counts, kind="stable")[:kept]).astype(np.int64)
