"""What publishers of projected rows have in common: the plan, the release in memory or in files, the record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from zoo.data.ratings import Ratings
from zoo.privacy.accounting.events import NonPrivateEvent, PrivacyEvent
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.canaries import canary_audit, canary_sizes
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.pairs import projection_audit, random_projection_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import Plain, PrivacyRecord, default_delta, unprotected_record
from zoo.privacy.record.record import warn_once as _warn_once
from zoo.privacy.rows.projection import Calibration, ProjectionPlan, plan_projection, release_chunks, release_rows
from zoo.privacy.rows.public_matrix import PublicMatrix
from zoo.privacy.rows.svd_lift import Floats, lifted_ratings
from zoo.publisher import Grid, Publisher
from zoo.release.lazy_rows import LazyRows
from zoo.release.release import Release

LAZY_BYTES = 2**28
"""Size of the published rows beyond which they are made while the release is saved."""

AUDITED_ITEMS = 64
"""Items of the catalogue that an audit runs on; what one rating moves does not depend on how many there are."""

AUDITED_USERS = 1000
"""Users that the default delta of an audited claim is for."""

ALWAYS_OPEN = (
    "the sets of users and items: a user or an item that one rating alone brings in shows",
    "item means, if they are known from elsewhere",
)


class Projected(Publisher):
    """Base of publishers of ``(M R + w N) / sqrt(n')``, M public, N Gaussian; see `JLT` and `SJLT` for what it protects.

    With ``paper_faithful`` the rows are made as the paper prints it, by lifted singular values and a secret M. The record
    then has the guarantee that this really gives, and where it gives none the release says so and warns once.

    Attributes:
        mechanism: Name in the record.
    """

    mechanism: ClassVar[str]

    def __init__(
        self,
        epsilon: float,
        num_components: int,
        delta: float | None,
        calibration: Calibration,
        relation: str,
        rating_range: float,
        clip: float | None,
        centre: bool,
        seed: int,
        noise_seed: int | None,
        paper_faithful: bool,
    ) -> None:
        if paper_faithful and calibration not in ("unit", "paper"):
            raise ValueError(
                f"paper_faithful takes the paper's noise, and calibration is {calibration!r}. Leave out one of them."
            )
        self.epsilon, self.num_components, self.delta = epsilon, num_components, delta
        self.calibration, self.relation = calibration, Relation(relation)
        self.rating_range, self.clip = rating_range, clip
        self.centre, self.seed, self.noise_seed = centre, seed, noise_seed
        self.paper_faithful = paper_faithful
        # Refuse bad settings now, before data are opened; the matrix, and with it its longest column, comes later.
        self._projection(1e-5 if delta is None else delta, largest_norm=1.0 if calibration == "max" else None)

    @abstractmethod
    def matrix(self, num_items: int) -> PublicMatrix:
        """M, public; not that of ``paper_faithful``, which is secret."""

    @abstractmethod
    def lift_weakness(self, num_users: int, num_items: int) -> str | None:
        """Why the form that the paper prints has no guarantee at this size; None where it has one."""

    @abstractmethod
    def _lifted_release(self, lifted: Floats, plan: ProjectionPlan, noise: NoiseSource) -> Floats:
        """The form that the paper prints, from the lifted ratings ``(items, users)``; shape ``(users, dim)``."""

    def _projection(self, delta: float, largest_norm: float | None = None) -> ProjectionPlan:
        return plan_projection(
            epsilon=self.epsilon,
            delta=delta,
            dim=self.num_components,
            calibration="paper" if self.paper_faithful else self.calibration,
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
        return self._planned(num_users, self.matrix(num_items) if self.calibration == "max" else None)

    def _planned(self, num_users: int, matrix: PublicMatrix | None) -> ProjectionPlan:
        delta = default_delta(num_users) if self.delta is None else self.delta
        if delta >= 1 / num_users:
            raise ValueError(
                f"delta {delta:g} is not below one over the {num_users} users, at which handing over one user's data whole "
                f"would count as private. Take {default_delta(num_users):g} or less, or leave it out."
            )
        if self.calibration != "max" or matrix is None:
            return self._projection(delta)
        return self._projection(delta, largest_norm=float(matrix.column_norms().max()))

    def plan(self, num_users: int, num_items: int) -> list[PrivacyEvent]:
        """One Gaussian release; no protection at all where the paper's form has none."""
        if self.paper_faithful and self.lift_weakness(num_users, num_items) is not None:
            return [NonPrivateEvent()]
        return [self.projection(num_users, num_items).event]

    def forecast(self, num_users: int, num_items: int) -> PrivacyRecord:
        """The record that a release would carry."""
        grid = Grid(num_users, num_items)
        plan = self.projection(num_users, num_items)
        noise = NoiseSource.of(self.noise_seed)
        weakness = self.lift_weakness(num_users, num_items) if self.paper_faithful else None
        return self._record(grid, plan, noise) if weakness is None else self._unprotected(grid, plan, noise, weakness)

    def audits(self) -> list[Audit | OneRunAudit]:
        """One rating, or one user, in two worlds: the matrix of a small catalogue, and random matrices where it is random.

        For one rating also many ratings in one release, at full width.
        """
        if self.paper_faithful:
            return []  # another form of the release, audited with the published ones
        matrix = self.matrix(AUDITED_ITEMS)
        plan = self._planned(AUDITED_USERS, matrix)
        name = f"{self.mechanism} {plan.calibration}"
        made: list[Audit | OneRunAudit] = [projection_audit(name, plan, matrix)]
        if plan.mu is None:
            made.append(random_projection_audit(f"{name}, over matrices", plan))
        if plan.relation.unit is not Unit.USER:
            canaries, items = canary_sizes(plan.dim)
            wide = self.matrix(items)
            made.append(canary_audit(f"{name}, one run", self._planned(AUDITED_USERS, wide), wide, canaries))
        return made

    def publish(self, source: Ratings, domain: str) -> Release:
        """Noisy projected rows of all users; lazy if they are many.

        Raises:
            ValueError: If the source has a rating outside ``[0, rating_range]``, or no user.
        """
        self._check_ratings(source, domain)
        noise = NoiseSource.of(self.noise_seed)
        if self.paper_faithful:
            return self._publish_lifted(source, domain, noise)
        matrix = self.matrix(source.num_items)
        plan = self._planned(source.num_users, matrix)
        record = self._record(source, plan, noise)
        if 4 * source.num_users * plan.dim > LAZY_BYTES:
            chunks = release_chunks(source.matrix, plan, matrix, noise)
            lazy = LazyRows(source.num_users, plan.dim, lambda: chunks, centre=self.centre)
            return Release("rows", domain, lazy, source.user_ids, record, (plan.event,))
        rows, event = release_rows(source.matrix, plan, self.seed, noise, matrix=matrix)
        if self.centre:
            rows = rows - rows.mean(axis=0)
        return self._release(source, domain, rows, record, event)

    def _publish_lifted(self, source: Ratings, domain: str, noise: NoiseSource) -> Release:
        plan = self._planned(source.num_users, None)
        lifted = lifted_ratings(source.matrix, plan, centre=self.centre)
        rows = self._lifted_release(lifted, plan, noise)
        weakness = self.lift_weakness(source.num_users, source.num_items)
        if weakness is None:
            return self._release(source, domain, rows, self._record(source, plan, noise), plan.event)
        _warn_once(f"{self.mechanism} with paper_faithful protects nobody here: {weakness}. The record says so.", 3)
        record = self._unprotected(source, plan, noise, weakness)
        return self._release(source, domain, rows, record, NonPrivateEvent())

    def _unprotected(
        self, source: Ratings | Grid, plan: ProjectionPlan, noise: NoiseSource, weakness: str
    ) -> PrivacyRecord:
        return unprotected_record(
            self.mechanism,
            weakness,
            self._applied(source),
            noise_source=noise.label,
            public_inputs=self._inputs(source, plan),
        )

    @staticmethod
    def _release(source: Ratings, domain: str, rows: Floats, record: PrivacyRecord, event: PrivacyEvent) -> Release:
        tensors = {"rows": torch.from_numpy(rows.astype(np.float32))}
        return Release("rows", domain, tensors, source.user_ids, record, (event,))

    def _check_ratings(self, source: Ratings, domain: str) -> None:
        data = source.matrix.data
        if self.clip is None and len(data) and not 0 <= float(data.min()) <= float(data.max()) <= self.rating_range:
            raise ValueError(
                f"Ratings of {domain!r} lie in [{data.min():g}, {data.max():g}], beyond [0, {self.rating_range:g}], so one "
                "could change by more than is protected. Set filters.threshold (ratings then count as 1), or rating_range."
            )

    def _inputs(self, source: Ratings | Grid, plan: ProjectionPlan) -> Mapping[str, Plain]:
        """Public settings and sizes for the record."""
        if self.paper_faithful:
            matrix: dict[str, Plain] = {"form": "as the paper prints it: singular values lifted, M secret"}
        else:
            matrix = {"projection_seed": self.seed}
        return {
            "num_components": plan.dim,
            "calibration": plan.calibration,
            **matrix,
            "w": plan.w,
            f"centred {'before the lift' if self.paper_faithful else 'after the noise'}": self.centre,
            "num_users": source.num_users,
            "num_items": source.num_items,
        }

    def _record(self, source: Ratings | Grid, plan: ProjectionPlan, noise: NoiseSource) -> PrivacyRecord:
        return PrivacyRecord.proved_unless_seeded(
            self.mechanism,
            noise,
            plan.relation,
            epsilon=plan.epsilon,
            delta=plan.delta,
            mu=plan.mu,
            requested_epsilon=plan.requested_epsilon,
            sensitivity=plan.sensitivity,
            sensitivity_norm="L2",
            clip=plan.clip,
            noise_scale=plan.noise_std,
            public_inputs=self._inputs(source, plan),
            assumptions=self._assumptions(source, plan),
            not_protected=self._not_protected(plan),
        )

    @staticmethod
    def _applied(source: Ratings | Grid) -> list[str]:
        return [f"done to the data before, and not accounted for: {step}" for step in source.applied]

    def _assumptions(self, source: Ratings | Grid, plan: ProjectionPlan) -> tuple[str, ...]:
        if plan.clip is None:
            bound = f"ratings lie in [0, {plan.rating_range:g}], and one that is absent counts as 0"
        else:
            bound = f"rows are clipped to an L2 norm of {plan.clip:g} before projection"
        holds_anyway = plan.calibration in ("unit", "max") or self.paper_faithful  # a secret M cannot have been seen
        independent = [] if holds_anyway else ["the data were not chosen after seeing the projection"]
        sets = "the sets of users and items are public, or treated as such"
        return (bound, sets, *independent, *self._applied(source))

    @staticmethod
    def _not_protected(plan: ProjectionPlan) -> tuple[str, ...]:
        per_user = plan.relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER)
        cost = "k times mu at worst" if plan.mu is not None else "as one change that is sqrt(k) times as large"
        group = () if per_user else (f"several ratings of one user together: k of them cost {cost}",)
        return (*ALWAYS_OPEN, *group, "held-out items of this domain, where they are used to evaluate")
