"""LaplaceRows: the 0/1 rows with Laplace noise on every cell."""

from collections.abc import Mapping

import torch
from torch import Tensor

from zoo import Publisher, Ratings
from zoo.privacy.accounting.events import LaplaceEvent
from zoo.privacy.accounting.pure import laplace_scale
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource, laplace_noise, round_to_lattice
from zoo.privacy.record.record import PrivacyRecord
from zoo.publishers.base import PlannedRelease, PublicSizes


class LaplaceRows(Publisher):
    """The 0/1 matrix with Laplace noise on every cell, rounded to a public lattice.

    Who is protected: one rating (a cell of the matrix, its presence included). Neighbours: ``change_one_rating``. Sensitivity,
    L1: 1. Costs epsilon with no delta, for exact real arithmetic. Afterwards: anything, as often as wanted. An example of how a
    mechanism is written; `zoo.FlippedRows` tells more of ratings at the same epsilon.

    Its records say "the claim of shop_zoo.publishers.LaplaceRows is true, not audited here": nobody but its author has looked.

    Args:
        epsilon: Privacy loss.
        noise_seed: Null: noise from the operating system. A number makes the release repeatable, and anybody who knows it can
            subtract the noise: the record then says `guarantee: none`.
    """

    def __init__(self, epsilon: float, noise_seed: int | None = None) -> None:
        self.scale = laplace_scale(epsilon, 1.0)  # refuses a bad epsilon before data are opened
        self.epsilon, self.noise_seed = epsilon, noise_seed

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """One release of all users' rows, settled but for the ratings."""
        record = PrivacyRecord.proved_unless_seeded(
            "LaplaceRows",
            NoiseSource.of(self.noise_seed),
            Relation.CHANGE_ONE_RATING,
            epsilon=self.epsilon,
            delta=0.0,
            requested_epsilon=self.epsilon,
            sensitivity=1.0,
            sensitivity_norm="L1",
            noise_scale=self.scale,
            conditions=sizes.conditions(Relation.CHANGE_ONE_RATING),
            assumptions=("every rating is 0 or 1", *sizes.done_before),
            public_inputs={"num_users": sizes.num_users, "num_items": sizes.num_items},
        )

        def tensors(source: Ratings, domain: str) -> Mapping[str, Tensor]:
            if not source.binary:
                raise ValueError(
                    f"Ratings of {domain!r} are not all 1. Set filters.threshold, so that they count as 1."
                )
            cells = source.matrix.toarray()
            noisy = cells + laplace_noise(NoiseSource.of(self.noise_seed), self.scale, cells.shape)
            return {"rows": torch.from_numpy(round_to_lattice(noisy, self.scale)).float()}

        return PlannedRelease.of_tensors(record, LaplaceEvent(self.scale), sizes, tensors)
