"""JLT: rows projected by a public random matrix, with Gaussian noise."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from zoo.privacy.events import PrivacyEvent
from zoo.privacy.noise import NoiseSource
from zoo.privacy.projection import (
    Calibration,
    ProjectionPlan,
    column_norms,
    plan_projection,
    projection_matrix,
    release_rows,
)
from zoo.privacy.record import Guarantee, PrivacyRecord, default_delta
from zoo.privacy.relation import Relation
from zoo.publisher import Publisher
from zoo.ratings import Ratings
from zoo.release import Release

ALWAYS_OPEN = (
    "the sets of users and items: a user or an item that one rating alone brings in shows",
    "item means, if they are known from elsewhere",
)


class JLT(Publisher):
    """Johnson-Lindenstrauss projection with noise: ``(M R + w N) / sqrt(n')``, M public, N Gaussian.

    Who is protected: one rating (a cell of the matrix, its presence included) or, with ``relation`` on users, all of
    one user's data. Neighbours: ``change_one_rating`` by at most ``rating_range``; ``zero_out_one_user`` or
    ``replace_one_user``. Sensitivity, L2 before projection: ``rating_range``; ``clip`` for zero-out, twice that for
    replacement. Afterwards: anything, as often as wanted. Two releases compose, whether or not they share M.

    Reference: Chen et al., *Differential Private Knowledge Transfer for Privacy-Preserving Cross-Domain
    Recommendation*, WWW 2022, algorithm 1 with JLT.

    Departures: the paper lifts singular values instead of adding noise. With at least as many items as users that has
    the same law; with fewer it protects nobody, so the lift is not offered. M is public, which lets the noise be
    calibrated exactly: at epsilon 1 about a hundredth of the paper's. Rows are centred over users after the noise, which
    is post-processing, so that one rating does not move a whole centred row of the items x users matrix first.

    Args:
        epsilon: Privacy loss.
        num_components: Width n' of the published rows.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        calibration: `unit` (columns of M of equal norm; least noise), `gaussian` (M as in the paper; the only one for
            users), `max` (largest column of the realised M), or `paper` (the paper's w; the record states the epsilon
            that this noise really gives).
        relation: `change_one_rating`, `zero_out_one_user` or `replace_one_user`.
        rating_range: Largest rating; 1 for binary data.
        clip: L2 norm that users' rows are clipped to; for users only.
        centre: Whether to subtract the published mean row.
        seed: Of M, public and in the record.
        noise_seed: Null: noise from the operating system. A number makes the release repeatable, and anybody who knows
            it can subtract the noise: the record then says `guarantee: none`.

    Raises:
        ValueError: If an argument is out of range or does not go with the others.
    """

    def __init__(
        self,
        epsilon: float,
        num_components: int = 400,
        delta: float | None = None,
        calibration: Calibration = "unit",
        relation: Literal["change_one_rating", "zero_out_one_user", "replace_one_user"] = "change_one_rating",
        rating_range: float = 1.0,
        clip: float | None = None,
        centre: bool = True,
        seed: int = 0,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon, self.num_components, self.delta = epsilon, num_components, delta
        self.calibration, self.relation = calibration, Relation(relation)
        self.rating_range, self.clip = rating_range, clip
        self.centre, self.seed, self.noise_seed = centre, seed, noise_seed
        # Refuse bad settings now, before data are opened; the matrix, and with it its longest column, comes later.
        self._projection(1e-5 if delta is None else delta, largest_norm=1.0 if calibration == "max" else None)

    def _projection(self, delta: float, largest_norm: float | None = None) -> ProjectionPlan:
        return plan_projection(
            epsilon=self.epsilon,
            delta=delta,
            dim=self.num_components,
            calibration=self.calibration,
            relation=self.relation,
            rating_range=self.rating_range,
            clip=self.clip,
            largest_norm=largest_norm,
        )

    def projection(self, num_users: int, num_items: int) -> ProjectionPlan:
        """How much noise, and what it proves; from public settings alone.

        Raises:
            ValueError: If delta is not below one over the number of users.
        """
        delta = default_delta(num_users) if self.delta is None else self.delta
        if delta >= 1 / num_users:
            raise ValueError(
                f"delta {delta:g} is not below one over the {num_users} users, at which handing over one user's data whole "
                f"would count as private. Take {default_delta(num_users):g} or less, or leave it out."
            )
        if self.calibration != "max":
            return self._projection(delta)
        norms = column_norms(projection_matrix("max", self.num_components, num_items, self.seed))
        return self._projection(delta, largest_norm=float(norms.max()))

    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """One Gaussian release."""
        return [self.projection(num_users, num_items).event]

    def publish(self, source: Ratings, domain: str) -> Release:
        """Noisy projected rows of all users.

        Raises:
            ValueError: If the source has a rating outside ``[0, rating_range]``, or no user.
        """
        data = source.matrix.data
        if self.clip is None and len(data) and not 0 <= float(data.min()) <= float(data.max()) <= self.rating_range:
            raise ValueError(
                f"Ratings of {domain!r} lie in [{data.min():g}, {data.max():g}], beyond [0, {self.rating_range:g}], so one "
                "could change by more than is protected. Set filters.threshold (ratings then count as 1), or rating_range."
            )
        plan = self.projection(source.num_users, source.num_items)
        noise = NoiseSource.of(self.noise_seed)
        rows, event = release_rows(source.matrix, plan, self.seed, noise)
        if self.centre:
            rows = rows - rows.mean(axis=0)
        tensors = {"rows": torch.from_numpy(rows.astype(np.float32))}
        return Release("rows", domain, tensors, source.user_ids, self._record(source, plan, noise), (event,))

    def _record(self, source: Ratings, plan: ProjectionPlan, noise: NoiseSource) -> PrivacyRecord:
        record = PrivacyRecord(
            mechanism="JLT",
            guarantee=Guarantee.PROVED if noise.private else Guarantee.NONE,
            noise_source=noise.label,
            unit=plan.relation.unit,
            relation=plan.relation,
            epsilon=plan.epsilon if noise.private else None,
            delta=plan.delta if noise.private else None,
            mu=plan.mu if noise.private else None,
            sensitivity=plan.sensitivity,
            sensitivity_norm="L2",
            clip=plan.clip,
            noise_scale=plan.noise_std,
            public_inputs={
                "num_components": plan.dim,
                "calibration": plan.calibration,
                "projection_seed": self.seed,
                "w": plan.w,
                "centred after the noise": self.centre,
                "num_users": source.num_users,
                "num_items": source.num_items,
            },
            assumptions=self._assumptions(source, plan),
            not_protected=self._not_protected(plan),
            requested_epsilon=plan.requested_epsilon if noise.private else None,
            reason=None if noise.private else "seeded noise",
        )
        return record

    @staticmethod
    def _assumptions(source: Ratings, plan: ProjectionPlan) -> tuple[str, ...]:
        if plan.clip is None:
            bound = f"ratings lie in [0, {plan.rating_range:g}], and one that is absent counts as 0"
        else:
            bound = f"rows are clipped to an L2 norm of {plan.clip:g} before projection"
        counted = [f"done to the data before, and not accounted for: {step}" for step in source.applied]
        independent = (
            [] if plan.calibration in ("unit", "max") else ["the data were not chosen after seeing the projection"]
        )
        return (bound, "the sets of users and items are public, or treated as such", *independent, *counted)

    @staticmethod
    def _not_protected(plan: ProjectionPlan) -> tuple[str, ...]:
        per_user = plan.relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER)
        group = () if per_user else ("several ratings of one user together: k of them cost k times mu at worst",)
        return (*ALWAYS_OPEN, *group, "held-out items of this domain, where they are used to evaluate")
