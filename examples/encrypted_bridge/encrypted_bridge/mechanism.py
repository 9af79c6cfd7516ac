"""EncryptedBridge: a map that was computed on encrypted positions of the target's users; and the record of such positions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from zoo.privacy.mechanisms.base import Arrays, Finding, MechanismError, Plain, Statement
from zoo.privacy.mechanisms.bridge import Bridge
from zoo.privacy.record.record import PrivacyRecord, unprotected_record
from zoo.privacy.record.steps import RecordedStep

PLACES = "EncryptedProjectionPublisher"
PUBLIC_KEY = "public_key"
"""Public input of an encrypted map's record: SHA-256 of the public key that it was made with."""
ENCRYPTED = (
    "the users' positions are encrypted, which is no differential privacy: the secret key reads them all, and without it they "
    "are hidden as long as ring learning with errors is hard"
)
"""Why there is no guarantee for encrypted positions."""


@dataclass(frozen=True, kw_only=True)
class EncryptedBridge(Bridge):
    """A `zoo.privacy.mechanisms.bridge.Bridge` with the same noise; its map is encrypted, or decrypted by the target."""

    name = "BridgePublisher, encrypted"
    tensors, output_name = frozenset({"map", "masks"}), "a map, encrypted or decrypted"
    sentences: ClassVar[Mapping[str, str]] = {
        "whole_numbers": (
            "under encryption rows, positions and noise are rounded to whole numbers; errors of the encryption are bounded, and "
            "positions are made shorter to leave room for them"
        ),
        "target_follows": (
            "the target follows the protocol: the public key and the positions are its own, the keys drawn as specified and the "
            "positions of length 1 at most, none of which the source can see; a target that deviates is promised nothing, nor is "
            "anybody who gets the map from it"
        ),
        "encryption_hard": (
            "ring learning with errors is hard at the parameters of the encryption: towards the target with its secret key, and "
            "anybody else with the encrypted map, the guarantee is computational"
        ),
        "target_encrypted": (
            "the target's users: the source sees their ids and number, and only ciphertexts of their positions; the decrypted "
            "map tells of the positions to anybody who reads it, and the source, which knows its own noise, would read sums of "
            "them exactly"
        ),
    }

    @property
    def statement(self) -> Statement:
        """That of a bridge, under the conditions of the protocol and of the encryption."""
        assumptions, not_protected, _ = super().statement
        swapped = tuple({"target_users": "target_encrypted"}.get(code, code) for code in not_protected)
        return Statement((*assumptions, "whole_numbers"), swapped, ("target_follows", "encryption_hard"))

    def check(self, tensors: Arrays) -> list[Finding]:
        """Check the map where it is decrypted; encrypted it shows its shape alone."""
        if "map" in tensors:
            return super().check(tensors)
        if (shape := tensors["bodies"].shape) != (self.public_inputs["kept_items"], self.num_directions):
            raise MechanismError(f"The record of {self.name} is of another map than one of shape {shape}.")
        return self.check_counts(tensors) if "counts" in tensors else []


def places_record(inputs: Mapping[str, Plain], steps: Iterable[RecordedStep]) -> PrivacyRecord:
    """Return the record of encrypted positions, which have no guarantee: the secret key reads the positions."""
    open_ = ("users", "influence_on_others", "metrics", "evaluation_items", "training_failure")
    return unprotected_record(PLACES, ENCRYPTED, steps, public_inputs=inputs, not_protected=open_)
