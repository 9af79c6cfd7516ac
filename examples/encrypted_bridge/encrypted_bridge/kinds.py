"""Kinds of releases: encrypted user embeddings, and the encrypted map that a source computes."""

from collections.abc import Iterable

import torch
from torch import Tensor

from encrypted_bridge.mechanism import EncryptedBridge
from encrypted_bridge.parameters import DEGREE, KEYS, MODULUS, MOST_DIRECTIONS, num_blocks
from zoo.data.rows import DenseRows
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.record import PrivacyRecord, RecordError
from zoo.release.files import ReleaseError
from zoo.release.layouts import Layout, Map


class Encrypted(Layout):
    """Ciphertexts: integers below the modulus of `encrypted_bridge.parameters`, without rows."""

    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """Refuse: a ciphertext holds many users."""
        raise ReleaseError("An encrypted release cannot be split by users.")

    def module(self) -> DenseRows:
        """Refuse: there are no rows."""
        raise ReleaseError(f"A release of kind {self.kind!r} has no rows to read. {self.before_training}")

    def _expect_below_modulus(self, *names: str) -> None:
        for name in names:
            numbers = self.tensors[name]
            if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < MODULUS:
                raise ReleaseError(f"Tensor {name!r} must hold integers in [0, {MODULUS}).")

    def _expect_hidden(self, **halves: Tensor) -> None:
        """Refuse ciphertexts whose second half (count, degree) is zero: they hide nothing."""
        for name, half in halves.items():
            if not bool(half.any(dim=-1).all()):
                raise ReleaseError(f"Tensor {name!r} has a ciphertext with second half 0.")


class EncryptedPlaces(Encrypted):
    """Embeddings under two keys: ``places`` (2, blocks, 2, degree), ``public_key`` (2, 2, degree), ``directions`` (1,), int64."""

    kind = "encrypted_places"
    before_training = "Hand it to the source party, which computes a map with EncryptedBridgePublisher."

    def check(self, num_users: int) -> None:
        """Check shapes and numbers."""
        self._expect(dict.fromkeys(("places", "public_key", "directions"), torch.int64))
        places, public_key, directions = (self.tensors[name] for name in ("places", "public_key", "directions"))
        if directions.shape != (1,) or not 1 <= int(directions) <= MOST_DIRECTIONS:
            raise ReleaseError(f"Tensor 'directions' must be one number from 1 to {MOST_DIRECTIONS}.")
        blocks = num_blocks(num_users, int(directions))
        if tuple(places.shape) != (KEYS, blocks, 2, DEGREE) or tuple(public_key.shape) != (KEYS, 2, DEGREE):
            raise ReleaseError(
                f"Of {num_users} users, places must be ({KEYS}, {blocks}, 2, {DEGREE}), public_key ({KEYS}, 2, "
                f"{DEGREE}); got {tuple(places.shape)}, {tuple(public_key.shape)}."
            )
        self._expect_below_modulus("places", "public_key")
        self._expect_hidden(places=places[:, :, 1], public_key=public_key[:, 1])

    @property
    def width(self) -> int:
        """Width of an embedding."""
        return int(self.tensors["directions"])


class EncryptedMap(Encrypted):
    """An encrypted `Map`: ``bodies`` (2, kept, directions) and ``masks`` (2, kept, degree), int64, not ``map``."""

    kind = "encrypted_map"
    before_training = (
        "Decrypt it at the target and pass the result: python -m encrypted_bridge decrypt RELEASE --key FILE --out DIR."
    )

    def check(self, num_users: int) -> None:
        """Check shapes, items and numbers."""
        names = ("bodies", "masks", "items")
        self._expect({**dict.fromkeys(names, torch.int64), "counts": torch.float32})
        bodies, masks, items = (self.tensors[name] for name in names)
        if (
            bodies.ndim != 3
            or len(bodies) != KEYS
            or not 1 <= bodies.shape[2] <= MOST_DIRECTIONS
            or tuple(masks.shape) != (*bodies.shape[:2], DEGREE)
        ):
            raise ReleaseError(
                f"bodies must be ({KEYS}, kept, 1 to {MOST_DIRECTIONS}), masks ({KEYS}, kept, {DEGREE}); got "
                f"{tuple(bodies.shape)}, {tuple(masks.shape)}."
            )
        as_map = {"map": torch.zeros(bodies.shape[1:]), "items": items, "counts": self.tensors["counts"]}
        Map(as_map).check(num_users)
        self._expect_below_modulus("bodies", "masks")
        self._expect_hidden(masks=masks)

    def check_record(self, record: PrivacyRecord, ledger: Iterable[PrivacyEvent]) -> None:
        """Refuse a claim of another mechanism."""
        if record.claims and not isinstance(record.mechanism, EncryptedBridge):
            raise RecordError(f"The record is of {record.mechanism.name}, not {EncryptedBridge.name!r}.")

    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """Return the same map for every index."""
        return dict(self.tensors)

    @property
    def width(self) -> int:
        """Width of the map."""
        return int(self.tensors["bodies"].shape[2])
