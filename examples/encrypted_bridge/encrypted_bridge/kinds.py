"""Kinds of releases: encrypted places of a target's users, and the encrypted map that a source makes of them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from encrypted_bridge.mechanism import EncryptedBridge
from encrypted_bridge.parameters import DEGREE, MODULUS, MOST_DIRECTIONS, num_blocks
from zoo.data.rows import DenseRows
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.record import PrivacyRecord, RecordError
from zoo.release.files import ReleaseError
from zoo.release.layouts import Layout, Map


class Encrypted(Layout):
    """Ciphertexts: whole numbers below the modulus of `encrypted_bridge.parameters`. They have no rows."""

    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """Refuse: one ciphertext is of many users."""
        raise ReleaseError("An encrypted release is not cut to some of its users. Hand it over whole.")

    def module(self) -> DenseRows:
        """Refuse, and say what to do."""
        raise ReleaseError(f"A release of kind {self.kind!r} has no rows to read. {self.before_training}")

    def _expect_below_modulus(self, *names: str) -> None:
        for name in names:
            numbers = self.tensors[name]
            if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < MODULUS:
                raise ReleaseError(f"Tensor {name!r} must hold numbers in [0, {MODULUS}), as ciphertexts do.")

    def _expect_hidden(self, **halves: Tensor) -> None:
        """Refuse second halves (count, degree) of zeros: such a ciphertext is its message, and no encryption makes one."""
        for name, half in halves.items():
            if not bool(half.any(dim=-1).all()):
                raise ReleaseError(
                    f"Tensor {name!r} has a ciphertext whose second half is all zeros, which hides nothing."
                )


class EncryptedPlaces(Encrypted):
    """``places`` (blocks, 2, degree), ciphertexts of users' places, ``public_key`` (2, degree) and ``directions`` (1,), int64."""

    kind = "encrypted_places"
    before_training = "It is for the source party, which makes a map of it with EncryptedBridgePublisher."

    def check(self, num_users: int) -> None:
        """Of as many ciphertexts as so many users take."""
        self._expect(dict.fromkeys(("places", "public_key", "directions"), torch.int64))
        places, public_key, directions = (self.tensors[name] for name in ("places", "public_key", "directions"))
        if directions.shape != (1,) or not 1 <= int(directions) <= MOST_DIRECTIONS:
            raise ReleaseError(f"Tensor 'directions' must hold one number from 1 to {MOST_DIRECTIONS}.")
        blocks = num_blocks(num_users, int(directions))
        if tuple(places.shape) != (blocks, 2, DEGREE) or tuple(public_key.shape) != (2, DEGREE):
            raise ReleaseError(
                f"Encrypted places of {num_users} users need places ({blocks}, 2, {DEGREE}) and public_key (2, {DEGREE}); got "
                f"{tuple(places.shape)} and {tuple(public_key.shape)}."
            )
        self._expect_below_modulus("places", "public_key")
        self._expect_hidden(places=places[:, 1], public_key=public_key[1:])

    @property
    def width(self) -> int:
        """Directions of a place."""
        return int(self.tensors["directions"])


class EncryptedMap(Encrypted):
    """A `Map` before it is decrypted: ``bodies`` (kept, directions) and ``masks`` (kept, degree), int64, for the ``map``."""

    kind = "encrypted_map"
    before_training = (
        "Decrypt it at the target and pass the result: python -m encrypted_bridge decrypt RELEASE --key FILE --out DIR."
    )

    def check(self, num_users: int) -> None:
        """Of items that there are, each once, as a map is."""
        names = ("bodies", "masks", "items")
        self._expect({**dict.fromkeys(names, torch.int64), "counts": torch.float32})
        bodies, masks, items = (self.tensors[name] for name in names)
        if (
            bodies.ndim != 2
            or not 1 <= bodies.shape[1] <= MOST_DIRECTIONS
            or tuple(masks.shape) != (len(bodies), DEGREE)
        ):
            raise ReleaseError(
                f"An encrypted map needs bodies (kept, 1 to {MOST_DIRECTIONS} directions) and masks (kept, {DEGREE}); got "
                f"{tuple(bodies.shape)} and {tuple(masks.shape)}."
            )
        as_map = {"map": torch.zeros(bodies.shape), "items": items, "counts": self.tensors["counts"]}
        Map(as_map).check(num_users)
        self._expect_below_modulus("bodies", "masks")
        self._expect_hidden(masks=masks)

    def check_record(self, record: PrivacyRecord, ledger: Iterable[PrivacyEvent]) -> None:
        """Refuse a claim of another mechanism."""
        if record.claims and not isinstance(record.mechanism, EncryptedBridge):
            raise RecordError(
                f"The record is of {record.mechanism.name}. An encrypted map is made by {EncryptedBridge.name!r}."
            )

    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """Return the same map for every index."""
        return dict(self.tensors)

    @property
    def width(self) -> int:
        """Directions of the map."""
        return int(self.tensors["bodies"].shape[1])
