"""Common base of publishers of projected rows: settings, plan, record, and rows in memory or made while saved."""

import secrets
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from zoo.data.ratings import Ratings
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.greedy_rows import ONES, greedy_audit, greedy_items
from zoo.privacy.audits.one_run import OneRunAudit
from zoo.privacy.audits.projection import (
    audited_items,
    canary_audit,
    canary_sizes,
    longest_column,
    projection_audit,
    random_projection_audit,
)
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.jlt import JLT as Projection
from zoo.privacy.mechanisms.jlt import OF_EVERY_PROJECTION, Calibration, release_chunks, release_rows
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import unprotected_record, warn_once
from zoo.privacy.rows.public_matrix import PublicMatrix
from zoo.privacy.rows.svd_lift import Floats, lifted_ratings
from zoo.publishers.base import PlannedRelease, PublicSizes, Publisher
from zoo.release.lazy_rows import LazyRows

LAZY_BYTES = 2**28
"""Size of the published rows beyond which they are made while the release is saved."""

_AUDITED_USERS = 1  # number of users of an audited claim; a default delta is then 1e-5


class Projected(Publisher):
    """Base of publishers of ``(M R + w N) / sqrt(n')``, M public, N Gaussian; see `JLT` and `SJLT` for their guarantees.

    Args:
        epsilon: Privacy loss; null with `attack_success`.
        num_components: Width n' of the published rows.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users, or of entries if one rating is protected.
        calibration: `unit` (columns of M of equal norm; least noise), `gaussian` (M as in the paper; the only one for
            users), `max` (largest column of the drawn M), or `paper` (the paper's w; the record states the actual epsilon).
        relation: `change_one_rating`, `zero_out_one_user` or `replace_one_user`.
        rating_range: Largest rating; 1 for binary data.
        clip: L2 norm that users' rows are clipped to; for users only.
        centre: Whether to subtract the published mean row.
        seed: Seed of M, public and in the record. Null: drawn from the operating system for each release (0 with a ``noise_seed``,
            which repeats it). A number repeats M, which the calibrations `unit` and `max` allow: they hold for every M. The
            others do not hold for a matrix known in advance: the record then says `guarantee: none`.
        noise_seed: Null: noise from the operating system. A number repeats the release, and makes the noise subtractable: the
            record then says `guarantee: none`.
        paper_faithful: Whether to publish the paper's printed form, for comparison: ratings centred first, singular values
            lifted by the paper's w, a secret M. Slow, and whole in memory. The record states the actual epsilon, or says
            `guarantee: none` and warns once: JLT's with fewer items than users, and SJLT's always.
        attack_success: Instead of epsilon: largest success rate of an attack on a yes-or-no fact with even odds, such as 0.6.
            Under `zero_out_one_user` the fact is whether a user's ratings were used at all.
    """

    mechanism: ClassVar[type[Projection]]

    def __init__(
        self,
        epsilon: float | None = None,
        num_components: int = 400,
        delta: float | None = None,
        calibration: Calibration = "unit",
        relation: Literal["change_one_rating", "zero_out_one_user", "replace_one_user"] = "change_one_rating",
        rating_range: float = 1.0,
        clip: float | None = None,
        centre: bool = True,
        seed: int | None = None,
        noise_seed: int | None = None,
        paper_faithful: bool = False,
        attack_success: float | None = None,
    ) -> None:
        if paper_faithful and calibration not in ("unit", "paper"):
            raise ValueError(f"paper_faithful takes the paper's noise, and calibration is {calibration!r}. Choose one.")
        self.epsilon, self.num_components, self.delta = epsilon, num_components, delta
        self.relation, self.attack_success = Relation(relation), attack_success
        self.calibration, self.centre, self.seed = calibration, centre, seed
        self.noise_seed, self.paper_faithful = noise_seed, paper_faithful
        self._plan = partial(
            self.mechanism.calibrate,
            epsilon=epsilon,
            attack_success=attack_success,
            dim=num_components,
            calibration="paper" if paper_faithful else calibration,
            relation=self.relation,
            rating_range=rating_range,
            clip=clip,
        )
        # Check settings before data are opened; the matrix and its longest column come later.
        self._plan(delta=1e-5 if delta is None else delta, largest_norm=1.0 if calibration == "max" else None)

    @abstractmethod
    def matrix(self, num_items: int, seed: int) -> PublicMatrix:
        """Return the public M of a seed; not that of ``paper_faithful``, which is secret."""

    @abstractmethod
    def lifted_rows(self, lifted: Floats, plan: Projection, noise: NoiseSource) -> Floats:
        """Return the paper's printed form of the lifted ratings ``(items, users)``, ``(users, dim)``."""

    def drawn_matrix(self, num_items: int) -> PublicMatrix:
        """Return M of one release: of the given seed, or of a fresh one; of 0 in a repeatable release."""
        if self.seed is not None or self.noise_seed is not None:
            return self.matrix(num_items, self.seed or 0)
        return self.matrix(num_items, secrets.randbits(63))

    def projection(self, sizes: PublicSizes, matrix: PublicMatrix) -> Projection:
        """Return the mechanism with M, its noise and its guarantee, from public settings alone."""
        delta = sizes.delta(self.delta, self.relation)
        public: dict[str, Any] = {
            "num_users": sizes.num_users,
            "num_items": sizes.num_items,
            "seed": None if self.paper_faithful else matrix.seed,
            "centred": self.centre,
            **matrix.settings,
        }
        if self.calibration != "max":
            return self._plan(delta=delta, **public)
        return self._plan(delta=delta, largest_norm=float(matrix.column_norms().max()), **public)

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan one Gaussian release of all users' rows, lazy if they are many; the paper's form may have no guarantee."""
        matrix = self.drawn_matrix(sizes.num_items)
        plan = self.projection(sizes, matrix)
        tensors = partial(self._tensors, plan, matrix)
        if (weakness := plan.weakness) is not None:
            label = NoiseSource.of(self.noise_seed).label
            record = unprotected_record(
                plan.name, weakness, sizes.steps, noise_source=label, public_inputs=plan.public_inputs
            )
            return PlannedRelease.of_tensors(record, NonPrivateEvent(), sizes, tensors)
        known = self.seed is not None and not self._holds_for_every_matrix
        withdrawn = "projection_known_before" if known else None
        return PlannedRelease.of(plan, self.noise_seed, sizes, tensors, withdrawn=withdrawn)

    @property
    def _holds_for_every_matrix(self) -> bool:
        """Whether the guarantee holds for each M, or M is secret."""
        return self.calibration in OF_EVERY_PROJECTION or self.paper_faithful

    def _tensors(self, plan: Projection, matrix: PublicMatrix, source: Ratings, domain: str) -> Mapping[str, Tensor]:
        _check_ratings(plan, source, domain)
        noise = NoiseSource.of(self.noise_seed)
        if self.paper_faithful:
            rows = self.lifted_rows(lifted_ratings(source.matrix, plan, centre=self.centre), plan, noise)
        elif 4 * source.num_users * plan.dim > LAZY_BYTES:
            chunks = release_chunks(source.matrix, plan, matrix, noise)
            return LazyRows(source.num_users, plan.dim, lambda: chunks, centre=self.centre)
        else:
            rows = release_rows(source.matrix, plan, matrix, noise)
            if self.centre:
                rows -= rows.mean(axis=0)
        if plan.weakness is not None:
            text = f"{plan.name} with paper_faithful has no guarantee here: {plan.weakness}."
            warn_once(text, 4)  # at the line that publishes
        return {"rows": torch.from_numpy(rows.astype(np.float32))}

    def audits(self) -> list[Audit | OneRunAudit]:
        """Return audits of one rating or user in two worlds, with a matrix drawn as for a release and of its width.

        Claims for every matrix are audited by the worst change for this one; others by the worst change for another matrix, and by
        random matrices. Ratings are also audited by many of them in one release.
        """
        if self.paper_faithful:
            return []  # audited with the published forms
        if self.seed is not None and not self._holds_for_every_matrix:
            return []  # without a claim
        sizes = PublicSizes(_AUDITED_USERS, audited_items(self.num_components))
        matrix = self.drawn_matrix(sizes.num_items)
        plan = self.projection(sizes, matrix)
        name = f"{plan.name} {plan.calibration}"
        made: list[Audit | OneRunAudit] = [projection_audit(name, plan, matrix, items=longest_column(matrix))]
        if plan.mu is None:
            # The attacker chooses the row for this matrix before the release's is drawn.
            known = self.drawn_matrix(sizes.num_items)
            items = greedy_items(known, min(ONES, sizes.num_items // 2))
            made = [
                greedy_audit(f"{name}, greedy for another matrix", plan, matrix, items),
                random_projection_audit(f"{name}, over matrices", plan),
            ]
        if plan.relation.unit is not Unit.USER:
            canaries, num_items = canary_sizes(plan.dim)
            few = self.drawn_matrix(num_items)
            made.append(canary_audit(f"{name}, one run", self.projection(sizes, few), few, canaries))
        return made


def _check_ratings(plan: Projection, source: Ratings, domain: str) -> None:
    """Refuse ratings that would be clamped without notice; clipping of rows is requested."""
    data = source.matrix.data
    if plan.rating_range is None or not len(data):
        return
    if not 0 <= float(data.min()) <= float(data.max()) <= plan.rating_range:
        raise ValueError(
            f"Ratings of {domain!r} lie in [{data.min():g}, {data.max():g}], beyond [0, {plan.rating_range:g}]. Set "
            "filters.threshold or rating_range."
        )
