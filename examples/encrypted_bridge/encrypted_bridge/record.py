"""Privacy records of encrypted places and maps: the only module that reads or writes a record.

An encrypted map has the mechanism, noise and epsilon of the zoo's `BridgePublisher`, under two further conditions. So its record is
that of the plain map with texts added, and it is checked by the zoo as the record of a plain map.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch import Tensor

from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.record import NO_NOISE, Guarantee, Plain, PrivacyRecord, RecordError
from zoo.privacy.record.texts import BRIDGE, NOT_PROTECTED_BY_VECTORS, TARGET_SIDE
from zoo.release.files import tensor_digest
from zoo.release.plausible import check_noise
from zoo.release.release import Release

MECHANISM = "BridgePublisher, encrypted"
PLACES = "EncryptedProjectionPublisher"
PUBLIC_KEY = "public_key"
"""Public input of an encrypted map's record: SHA-256 of the public key that it was made with."""

# Conditions.
FOLLOWS = (
    "the target follows the protocol: the public key and the places are its own, the keys drawn as told and the places of length 1 "
    "at most, none of which the source can see; of a target that does not, nothing is promised, towards it or whoever has it from "
    "there"
)
ENCRYPTION_HARD = (
    "ring learning with errors is hard at the parameters of the encryption: towards whoever has the encrypted map, the target with "
    "its secret key before all, the guarantee is computational"
)
# Assumption.
WHOLE_NUMBERS = (
    "under encryption rows and places are whole numbers, cut off towards zero, and so is the noise, rounded; errors of the "
    "encryption are bounded, and places are made shorter to leave room for them"
)
# Not protected.
TARGET_ENCRYPTED = (
    "the target's users: the source sees their ids and how many they are, of their places ciphertexts alone; the decrypted map "
    "tells of the places to whoever reads it, and the source, which knows its own noise, would read sums of them exactly"
)
# Why there is no guarantee.
ENCRYPTED = (
    "the users' places are encrypted, which is no differential privacy: whoever has the secret key reads them all, and nobody "
    "else as long as ring learning with errors is hard"
)


def places_record(inputs: Mapping[str, Plain], done_before: tuple[str, ...]) -> PrivacyRecord:
    """Return the record of encrypted places, which have no guarantee: whoever has the secret key has the places."""
    return PrivacyRecord(
        mechanism=PLACES,
        guarantee=Guarantee.NONE,
        noise_source=NO_NOISE,
        public_inputs=inputs,
        assumptions=done_before,
        not_protected=NOT_PROTECTED_BY_VECTORS,
        reason=ENCRYPTED,
    )


def map_record(plain: PrivacyRecord, places: Release) -> PrivacyRecord:
    """Return the record of a map of encrypted places, given that of the plain map with the same noise."""
    made_with = {PUBLIC_KEY: tensor_digest(places.tensors[PUBLIC_KEY]), "encrypted places": places.digest}
    return replace(
        plain,
        mechanism=MECHANISM,
        guarantee=Guarantee.CONDITIONAL if plain.claims else Guarantee.NONE,
        public_inputs={**plain.public_inputs, **made_with},
        conditions=(FOLLOWS, ENCRYPTION_HARD, *plain.conditions) if plain.claims else (),
        assumptions=(*plain.assumptions, WHOLE_NUMBERS),
        not_protected=tuple(TARGET_ENCRYPTED if text == TARGET_SIDE else text for text in plain.not_protected),
    )


def check_map(record: PrivacyRecord, ledger: Iterable[PrivacyEvent], shape: tuple[int, ...]) -> None:
    """Refuse a claim that is not that of an encrypted map of this shape, (kept, directions).

    Raises:
        RecordError: A text is missing, or a number is not what the ledger gives.
    """
    if not record.claims:
        return
    if record.mechanism != MECHANISM:
        raise RecordError(f"An encrypted map is made by {MECHANISM!r}, and the record names {record.mechanism!r}.")
    for name, texts in (
        ("conditions", (FOLLOWS, ENCRYPTION_HARD)),
        ("assumptions", (WHOLE_NUMBERS,)),
        ("not_protected", (TARGET_ENCRYPTED,)),
    ):
        for text in texts:
            if text not in getattr(record, name):
                raise RecordError(f"{MECHANISM}: {name} must say {text!r}. Ask the source party for a correct release.")
    stated = tuple(record.public_inputs.get(name) for name in ("kept_items", "num_directions"))
    if stated != shape:
        raise RecordError(
            f"The record of {MECHANISM} is of a map of {stated[0]} items and {stated[1]} directions, and the map has the shape "
            f"{shape}."
        )
    _as_plain(record).check_against(ledger)


def check_decrypted(record: PrivacyRecord, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a decrypted map that cannot have the noise that its record claims: `ReleaseError`."""
    check_noise(_as_plain(record), tensors)


def noise_std(record: PrivacyRecord) -> float:
    """Return the standard deviation of the noise on each number of the map."""
    if not 1e-300 <= (record.noise_scale or 0.0) <= 1e300:
        raise RecordError(f"{record.mechanism}: noise_scale is {record.noise_scale}. It must be positive.")
    return float(record.noise_scale or 0.0)


def _as_plain(record: PrivacyRecord) -> PrivacyRecord:
    """Return the record as that of a plain map with the same noise."""
    return replace(record, mechanism=BRIDGE, not_protected=(*record.not_protected, TARGET_SIDE))
