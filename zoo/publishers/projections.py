"""ProjectionPublisher: what a target hands to a source that builds a bridge: its users' places in its own directions."""

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

#: Why there is no guarantee where no noise is asked for.
BARE = "the users' places are handed over without noise"
ENCRYPTED = (
    "the users' places are encrypted, which is no differential privacy: whoever has the secret key reads them all, and nobody "
    "else as long as ring learning with errors is hard"
)


class ProjectionPublisher(Publisher):
    """Releases each user's place in the leading directions of a domain: the target's part of a bridge.

    Who is protected: one user of the target, as far as the user's own place goes. Neighbours: ``zero_out_one_user`` or
    ``replace_one_user``. Sensitivity, L2: 1 for zero-out, twice that for replacement, for places are no longer than 1. Afterwards:
    anything, as often as wanted. What a user's ratings did to the directions, and so to everybody's place, is taken as given,
    and the record says so as a condition. Users without ratings have a place of zeros, so the noise hides who has any. With
    ``epsilon: null`` there is no noise and no guarantee.

    It is run by the target, before the source builds the bridge; see `BridgePublisher`. The package in
    ``examples/encrypted_bridge`` encrypts places instead.

    Args:
        epsilon: Privacy loss; null: no noise and no guarantee.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        num_directions: Width of a place. Fewer carry less and are easier to protect.
        item_damping: Exponent of an item's count that its ratings are divided by, before rows are scaled to unit length; 0 leaves
            popular items all their weight.
        relation: `zero_out_one_user` or `replace_one_user`.
        noise_seed: Null: noise from the operating system. A number makes the release repeatable, and anybody who knows it can
            subtract the noise: the record then says `guarantee: none`.
        secret_key: Must be null. Older configs name it; encryption is now `EncryptedProjectionPublisher` of another package.
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
    ) -> None:
        check_form(num_directions, item_damping)
        if epsilon is None and (delta is not None or noise_seed is not None):
            raise ValueError(
                f"delta and noise_seed go with epsilon; got delta {delta} and noise_seed {noise_seed} without. Set epsilon, e.g. "
                "8.0, or leave them out."
            )
        if secret_key is not None:
            raise ValueError(
                f"secret_key is {str(secret_key)!r} and must be null. To encrypt places, install examples/encrypted_bridge "
                "and take EncryptedProjectionPublisher."
            )
        self.epsilon, self.delta, self.relation = epsilon, delta, Relation(relation)
        self.num_directions, self.item_damping, self.noise_seed = num_directions, item_damping, noise_seed
        if epsilon is not None:
            self._plan(1e-5 if delta is None else delta)  # refuse bad settings now, before data are opened

    def _plan(self, delta: float, sizes: PublicSizes = PublicSizes(1, 1)) -> UserPositions:  # noqa: B008  frozen
        assert self.epsilon is not None
        return UserPositions.calibrate(
            epsilon=self.epsilon,
            delta=delta,
            clip=LONGEST,
            num_layers=1,
            relation=self.relation,
            width=self.num_directions,
            num_users=sizes.num_users,
            num_items=sizes.num_items,
        )

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """One Gaussian release of all users' places, or one that costs everything."""
        inputs: dict[str, Plain] = {
            "width": self.num_directions,
            "item_damping": self.item_damping,
            "num_users": sizes.num_users,
            "num_items": sizes.num_items,
            "num_layers": 1,
        }
        if self.epsilon is None:
            record = unprotected_record(UserPositions.name, BARE, sizes.steps, public_inputs=inputs)
            return PlannedRelease.of_tensors(record, NonPrivateEvent(), sizes, self._bare, "embeddings")
        plan = self._plan(sizes.delta(self.delta), sizes)
        notes: dict[str, Plain] = {"item_damping": self.item_damping}
        return PlannedRelease.of(
            plan, self.noise_seed, sizes, partial(self._noisy, plan), kind="embeddings", notes=notes
        )

    def _bare(self, source: Ratings, _: str) -> Mapping[str, Tensor]:
        places = directions_of(source.matrix, self.num_directions, self.item_damping).projections
        return {"vectors": torch.from_numpy(places).float()[:, None, :]}

    def _noisy(self, plan: UserPositions, source: Ratings, _: str) -> Mapping[str, Tensor]:
        places = directions_of(source.matrix, self.num_directions, self.item_damping).projections
        return {"vectors": torch.from_numpy(noisy_vectors(places[:, None, :], plan, NoiseSource.of(self.noise_seed)))}

    def audits(self) -> list[Audit]:
        """One user's place in two worlds; none where nothing is claimed."""
        if self.epsilon is None:
            return []
        return [vectors_audit(UserPositions.name, self._plan(1e-5 if self.delta is None else self.delta))]
