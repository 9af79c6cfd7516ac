"""EncryptedBridge: a map that was computed on encrypted positions of the target's users."""

from dataclasses import dataclass

from zoo.privacy.mechanisms.base import Arrays, Finding, MechanismError, Statement
from zoo.privacy.mechanisms.bridge import Bridge


@dataclass(frozen=True, kw_only=True)
class EncryptedBridge(Bridge):
    """A `Bridge` with the same noise; its map is encrypted, or decrypted by the target."""

    name = "BridgePublisher, encrypted"
    tensors, made = frozenset({"map", "masks"}), "a map, encrypted or decrypted"

    @property
    def statement(self) -> Statement:
        """That of a bridge, under the conditions of the protocol and of the encryption."""
        assumptions, not_protected, _ = super().statement
        swapped = tuple({"target_users": "target_encrypted"}.get(code, code) for code in not_protected)
        return Statement((*assumptions, "whole_numbers"), swapped, ("target_follows", "encryption_hard"))

    def check(self, tensors: Arrays) -> list[Finding]:
        """The map where it is decrypted; encrypted it shows its shape alone."""
        if "map" in tensors:
            return super().check(tensors)
        if (shape := tensors["bodies"].shape) != (self.public_inputs["kept_items"], self.num_directions):
            raise MechanismError(f"The record of {self.name} is of another map than one of shape {shape}.")
        return self.check_counts(tensors) if "counts" in tensors else []
