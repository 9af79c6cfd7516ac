"""ProjectionPublisher: publish the latent positions of a target's users, for a source that builds a bridge."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from zoo.data.directions import check_form, directions_of
from zoo.data.ratings import Ratings
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.rows import vectors_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Plain
from zoo.privacy.mechanisms.bridge import LONGEST
from zoo.privacy.mechanisms.vectors import UserPositions, noisy_vectors
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import unprotected_record
from zoo.publishers.base import PlannedRelease, PublicSizes, Publisher

#: Reason without a guarantee if there is no noise.
BARE = "the users' places are handed over without noise"


class ProjectionPublisher(Publisher):
    """Release each user's latent position in the leading directions of a domain: the target's part of a bridge.

    Privacy unit: one user of the target, limited to the user's own position. Neighbours: ``zero_out_one_user`` or
    ``replace_one_user``. Sensitivity, L2: 1 for zero-out, twice that for replacement, because positions have at most length 1.
    Allowed use: any. The effect of a user's ratings on the directions, and so on all positions, is taken as given; the record
    states this condition. Users without ratings have a position of zeros, so the noise hides which users have any. With
    ``epsilon: null`` there is no noise and no guarantee.

    The target runs it before the source builds the bridge; see `BridgePublisher`. The package in ``examples/encrypted_bridge``
    encrypts positions instead.

    Args:
        epsilon: Privacy loss; null without `attack_success`: no noise and no guarantee.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        num_directions: Width of a position. Fewer carry less and need less noise.
        item_damping: Exponent of an item's count that its ratings are divided by, before rows are scaled to unit length; 0 keeps
            the full weight of popular items.
        relation: `zero_out_one_user` or `replace_one_user`.
        noise_seed: Null: noise from the operating system. A number repeats the release, and makes the noise subtractable: the
            record then says `guarantee: none`.
        secret_key: Must be null. Older configs name it; encryption is now `EncryptedProjectionPublisher` of another package.
        attack_success: Instead of epsilon: largest success rate of an attack on a yes-or-no fact about the user's own position,
            with even odds, such as 0.6. Under `zero_out_one_user` the fact is whether the user's ratings were used at all.

    Examples:
        >>> from datamodules import Synthetic
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> ProjectionPublisher(epsilon=4.0, num_directions=3).publish(ratings, "book").tensors["vectors"].shape
        torch.Size([60, 1, 3])
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        num_directions: int = 6,
        item_damping: float = 0.5,
        relation: Literal["zero_out_one_user", "replace_one_user"] = "zero_out_one_user",
        noise_seed: int | None = None,
        secret_key: Path | None = None,
        attack_success: float | None = None,
    ) -> None:
        check_form(num_directions, item_damping)
        self.has_noise = epsilon is not None or attack_success is not None
        if not self.has_noise and (delta is not None or noise_seed is not None):
            raise ValueError(f"delta and noise_seed go with epsilon; got delta {delta}, noise_seed {noise_seed}.")
        if secret_key is not None:
            raise ValueError("secret_key must be null. To encrypt, use EncryptedProjectionPublisher.")
        self.epsilon, self.delta, self.relation = epsilon, delta, Relation(relation)
        self.attack_success = attack_success
        self.num_directions, self.item_damping, self.noise_seed = num_directions, item_damping, noise_seed
        if self.has_noise:
            self._plan(1e-5 if delta is None else delta)  # refuse bad settings now, before data are opened

    def _plan(self, delta: float, sizes: PublicSizes = PublicSizes(1, 1)) -> UserPositions:  # noqa: B008  frozen
        return UserPositions.calibrate(
            epsilon=self.epsilon,
            attack_success=self.attack_success,
            delta=delta,
            clip=LONGEST,
            num_layers=1,
            relation=self.relation,
            width=self.num_directions,
            num_users=sizes.num_users,
            num_items=sizes.num_items,
        )

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan one Gaussian release of all users' positions, or one without a guarantee."""
        inputs: dict[str, Plain] = {
            "width": self.num_directions,
            "item_damping": self.item_damping,
            "num_users": sizes.num_users,
            "num_items": sizes.num_items,
            "num_layers": 1,
        }
        if not self.has_noise:
            record = unprotected_record(UserPositions.name, BARE, sizes.steps, public_inputs=inputs)
            return PlannedRelease.of_tensors(record, NonPrivateEvent(), sizes, self._bare, "embeddings")
        plan = self._plan(sizes.delta(self.delta, self.relation), sizes)
        notes: dict[str, Plain] = {"item_damping": self.item_damping}
        return PlannedRelease.of(
            plan, self.noise_seed, sizes, partial(self._noisy, plan), kind="embeddings", notes=notes
        )

    def _bare(self, source: Ratings, _: str) -> Mapping[str, Tensor]:
        positions = directions_of(source.matrix, self.num_directions, self.item_damping).projections
        return {"vectors": torch.from_numpy(positions).float()[:, None, :]}

    def _noisy(self, plan: UserPositions, source: Ratings, _: str) -> Mapping[str, Tensor]:
        positions = directions_of(source.matrix, self.num_directions, self.item_damping).projections[:, None, :]
        return {"vectors": torch.from_numpy(noisy_vectors(positions, plan, NoiseSource.of(self.noise_seed)))}

    def audits(self) -> list[Audit]:
        """Return the audit of one user's position in two worlds; none without a claim."""
        if not self.has_noise:
            return []
        return [vectors_audit(UserPositions.name, self._plan(1e-5 if self.delta is None else self.delta))]
