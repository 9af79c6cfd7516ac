"""Mechanism of a map that is computed on encrypted user embeddings, and the record of such embeddings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from encrypted_bridge.parameters import flood
from zoo.privacy.mechanisms.base import Arrays, Finding, MechanismError, Plain, Statement
from zoo.privacy.mechanisms.bridge import Bridge
from zoo.privacy.record.record import PrivacyRecord, unprotected_record

PLACES = "EncryptedProjectionPublisher"
PUBLIC_KEY = "public_key"
"""Public input of the record of an encrypted map: SHA-256 of its public key."""
ENCRYPTED = (
    "the users' positions are encrypted, which is no differential privacy: the secret keys decrypt them all, and without the keys "
    "and the decrypted map they are hidden if ring learning with errors is hard"
)
"""Why there is no guarantee for encrypted positions."""


@dataclass(frozen=True, kw_only=True)
class EncryptedBridge(Bridge):
    """A `zoo.privacy.mechanisms.bridge.Bridge` with the same noise; its map is encrypted, or decrypted by the target."""

    name = "BridgePublisher, encrypted"
    tensors, output_name = frozenset({"map", "masks"}), "a map, encrypted or decrypted"
    sentences: ClassVar[Mapping[str, str]] = {
        "whole_numbers": (
            "rows, positions and noise are rounded to integers; encryption errors are bounded, and positions and rows are "
            "shortened to leave room for them"
        ),
        "target_follows": (
            "the target follows the protocol, which the source cannot check: keys are drawn as specified, and positions have "
            "length 1 at most; a deviating target, and readers of its map, get no guarantee"
        ),
        "encryption_hard": (
            "ring learning with errors is hard at these parameters: towards the target and holders of the encrypted map, the "
            "guarantee is computational"
        ),
        "maps_agree": (
            "for the target's keys: the target decrypts once, refuses maps that differ under its two keys, and adds noise of its "
            "own; a source that deviates can then make both maps agree only by sums over positions"
        ),
        "target_encrypted": (
            "the target's users: the source sees their ids, the record of their release and ciphertexts of their positions; "
            "the decrypted map reveals information about the positions to its readers, and a source that reads it learns sums "
            "of its choice; a source that learns whether its map was accepted learns a bit about a sum of its choice"
        ),
    }

    @property
    def map_std(self) -> float:
        """Standard deviation of both parties' noise together on a number of the decrypted map."""
        kept = int(super().public_inputs["kept_items"])
        return math.hypot(self.noise_std, flood(self, kept, self.num_directions))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Those of a bridge, and `map_std`."""
        return {**super().public_inputs, "sigma_decrypted": self.map_std}

    @property
    def statement(self) -> Statement:
        """Statement of a bridge with the conditions of protocol and encryption."""
        assumptions, not_protected, _ = super().statement
        swapped = tuple({"target_users": "target_encrypted"}.get(code, code) for code in not_protected)
        return Statement((*assumptions, "whole_numbers", "maps_agree"), swapped, ("target_follows", "encryption_hard"))

    def check(self, tensors: Arrays) -> list[Finding]:
        """Check a decrypted map; of an encrypted one only the shape."""
        if "map" in tensors:
            return super().check(tensors)
        if (shape := tensors["bodies"].shape[1:]) != (self.public_inputs["kept_items"], self.num_directions):
            raise MechanismError(f"The map has shape {shape}, unlike the record of {self.name}.")
        return self.check_counts(tensors) if "counts" in tensors else []


def places_record(item_damping: float) -> PrivacyRecord:
    """Return the record of encrypted positions, which have no guarantee: the secret key decrypts them.

    The source reads it. So it has neither sizes nor earlier steps, but the one setting that the record of the map repeats.
    """
    open_ = ("users", "influence_on_others", "metrics", "evaluation_items", "training_failure")
    return unprotected_record(PLACES, ENCRYPTED, public_inputs={"item_damping": item_damping}, not_protected=open_)
