"""Publishers of an encrypted bridge: encrypted embeddings at the target, and the map at the source."""

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from encrypted_bridge.decryption import KeyPair, check_new
from encrypted_bridge.kinds import EncryptedMap, EncryptedPlaces
from encrypted_bridge.mechanism import PUBLIC_KEY, EncryptedBridge, places_record
from encrypted_bridge.parameters import check_directions, check_room
from encrypted_bridge.protocol import encrypted_map, encrypted_places, through_encryption
from zoo import BridgePublisher, Publisher, Ratings, Release
from zoo.data.directions import check_form, directions_of
from zoo.data.ratings import index_of
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.audits.bridge import bridge_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.bridge import Bridge
from zoo.privacy.randomness.noise import NoiseSource
from zoo.publishers.base import PlannedRelease, PublicSizes
from zoo.release.files import tensor_digest


class EncryptedProjectionPublisher(Publisher):
    """Release encrypted user embeddings (CKKS) in the leading directions of a domain: the target's part of an encrypted bridge.

    The release holds ciphertexts under two keys and the public keys; the secret keys are written to a file at the target. The
    embeddings are secret if ring learning with errors is hard and no decrypted map reaches the source. This is not differential
    privacy. User ids and settings are not encrypted; the number of items and the filters of the data are not in the release.
    The target publishes before the source builds the map with `EncryptedBridgePublisher`.

    Args:
        secret_key: New file for the keys, in an existing folder. Only its owner can read it, and it stays at the target. It is
            written first: if publishing fails, it can be removed.
        num_directions: Width of an embedding.
        item_damping: Ratings are divided by this power of the count of their item, before rows are scaled to unit length; 0: no
            damping of popular items.
    """

    def __init__(self, secret_key: Path, num_directions: int = 6, item_damping: float = 0.5) -> None:
        check_form(num_directions, item_damping)
        check_directions(num_directions)
        self.secret_key, self.num_directions, self.item_damping = Path(secret_key), num_directions, item_damping

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan ciphertexts, whose ledger has no guarantee: the holder of the secret key reads everything."""
        record = places_record(self.item_damping)
        return PlannedRelease.of_tensors(record, NonPrivateEvent(), sizes, self._tensors, EncryptedPlaces.kind)

    def _tensors(self, target: Ratings, _: str) -> Mapping[str, Tensor]:
        check_new(self.secret_key)
        made = encrypted_places(directions_of(target.matrix, self.num_directions, self.item_damping).projections)
        public_key = torch.from_numpy(made.public_key)
        KeyPair(torch.from_numpy(made.secret), public_key).save(self.secret_key)
        directions = torch.tensor([self.num_directions])
        return {"places": torch.from_numpy(made.places), "public_key": public_key, "directions": directions}


class EncryptedBridgePublisher(BridgePublisher):
    """Release a map of encrypted embeddings, like `zoo.BridgePublisher`: the source's part of an encrypted bridge.

    The source computes the noisy map on ciphertexts. The target decrypts it: ``python -m encrypted_bridge decrypt``. Noise and
    epsilon are those of the plain map, under further conditions in the record.

    Args:
        epsilon: Privacy loss of sums and map together; null with `attack_success`.
        received: Folder of the release of `EncryptedProjectionPublisher`.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users, or of entries if one rating is protected.
        relation: `zero_out_one_user`, `replace_one_user` or `change_one_rating`.
        clip: L2 norm that users' rows are clipped to: a public number.
        kept_items: Number of items of the map, those with the largest noisy sums; null: all.
        counts_share: Share of the squared mu for the sums.
        noise_seed: Null: noise from the operating system. A number makes the noise repeatable, and anybody who knows it can
            subtract the noise: the record then says `guarantee: none`.
        trusted: Public keys (PEM file or folder), one of which must have signed ``received``. The source cannot inspect encrypted
            embeddings, so accept only signed ones.
        attack_success: Instead of epsilon: largest success rate of an attack on a yes-or-no fact with even odds, such as 0.6.
            Under `zero_out_one_user` the fact is whether a user's ratings were used at all.
    """

    projections_kind = EncryptedPlaces.kind

    def __init__(
        self,
        epsilon: float | None,
        received: Path,
        delta: float | None = None,
        relation: Literal["zero_out_one_user", "replace_one_user", "change_one_rating"] = "zero_out_one_user",
        clip: float = 1.0,
        kept_items: int | None = 400,
        counts_share: float = 0.1,
        noise_seed: int | None = None,
        trusted: Path | None = None,
        attack_success: float | None = None,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            relation,
            clip,
            kept_items,
            counts_share,
            received=received,
            noise_seed=noise_seed,
            trusted=trusted,
            attack_success=attack_success,
        )

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan the plain map, and refuse sizes whose encryption errors are too large for its sensitivity."""
        plain, places = self.plan_for(sizes), self.target_projections()
        assert places is not None
        plan = EncryptedBridge(**{entry.name: getattr(plain, entry.name) for entry in fields(plain)})
        check_room(plan, int(plan.public_inputs["kept_items"]), places.width, places.num_users)
        made_with = {PUBLIC_KEY: tensor_digest(places.tensors[PUBLIC_KEY]), "encrypted places": places.digest}
        notes, tensors = self.notes(places) | made_with, partial(self.tensors, plan)
        return PlannedRelease.of(plan, self.noise_seed, sizes, tensors, kind=EncryptedMap.kind, notes=notes)

    def mapped(self, given: Release, source: Ratings, plan: Bridge, noise: NoiseSource) -> NamedTuple:
        """Return the arrays of the encrypted map."""
        places, public_key = (given.tensors[name].numpy() for name in ("places", "public_key"))
        known = index_of(source.user_ids, given.user_ids)
        return encrypted_map(source.matrix, places, public_key, given.width, plan, noise, known)

    def audits(self) -> list[Audit]:
        """Return the audit of the plain map through the encryption, which is slow."""
        plan = self.plan_for(PublicSizes(num_users=1, num_items=1))
        return [bridge_audit(EncryptedBridge.name, plan, through_encryption)]
