"""LaplaceRows: 0/1 rows with Laplace noise."""

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
    """Release the 0/1 matrix with Laplace noise on every entry, rounded to a public lattice.

    Privacy unit: one rating, including its existence. Neighbouring relation: ``change_one_rating``. L1 sensitivity: 1. Loss:
    epsilon with delta 0, in exact real arithmetic. Allowed use: any, any number of times. An example of a mechanism:
    `zoo.FlippedRows` is more accurate at the same epsilon.

    Its condition in records: "the claim of shop_zoo.publishers.LaplaceRows is true, not audited here".

    Args:
        epsilon: Privacy loss.
        noise_seed: Null: noise from the operating system. With a number the release is repeatable, the noise can be subtracted, and
            the record says `guarantee: none`.
    """

    def __init__(self, epsilon: float, noise_seed: int | None = None) -> None:
        self.scale = laplace_scale(epsilon, 1.0)  # refuses a bad epsilon before reading data
        self.epsilon, self.noise_seed = epsilon, noise_seed

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan one release of all rows."""
        record = PrivacyRecord.proved_unless_seeded(
            "LaplaceRows",
            NoiseSource.of(self.noise_seed),
            Relation.CHANGE_ONE_RATING,
            epsilon=self.epsilon,
            delta=0.0,
            sensitivity=1.0,
            sensitivity_norm="L1",
            noise_scale=self.scale,
            conditions=sizes.conditions(Relation.CHANGE_ONE_RATING),
            assumptions=("every rating is 0 or 1", *sizes.done_before),
            public_inputs={"num_users": sizes.num_users, "num_items": sizes.num_items},
        )

        def tensors(source: Ratings, domain: str) -> Mapping[str, Tensor]:
            if not source.binary:
                raise ValueError(f"Ratings of {domain!r} are not all 1. Set filters.threshold.")
            cells = source.matrix.toarray()
            noisy = cells + laplace_noise(NoiseSource.of(self.noise_seed), self.scale, cells.shape)
            return {"rows": torch.from_numpy(round_to_lattice(noisy, self.scale)).float()}

        return PlannedRelease.of_tensors(record, LaplaceEvent(self.scale), sizes, tensors)
