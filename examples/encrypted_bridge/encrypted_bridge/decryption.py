"""A target's secret key, in a file of its own, and the map that it decrypts."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from encrypted_bridge.kinds import EncryptedMap
from encrypted_bridge.mechanism import PUBLIC_KEY, EncryptedBridge
from encrypted_bridge.parameters import DEGREE, MODULUS
from encrypted_bridge.protocol import decrypted_map
from zoo.release.files import ReleaseError, tensor_digest
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys
from zoo.runtime.run_folder import saying_where

_LARGEST = 2**18  # bytes of a file of keys, twice what it needs


class SecretKeyError(ReleaseError):
    """A file of keys that cannot be read, or is of other keys than a map was made with."""


@dataclass(frozen=True)
class KeyPair:
    """What a target's file of keys holds. Whoever has it reads every place that was encrypted with it: it stays at the target."""

    secret_key: Tensor = field(repr=False)  # (degree,), int64
    public_key: Tensor  # (2, degree), int64; handed over with the places

    def save(self, path: Path) -> Path:
        """Write the keys to a new file that its owner alone may read and write, whole or not at all.

        Raises:
            FileExistsError: There is something at the path: keys are never overwritten, nor used for two lots of places.
            FileNotFoundError: Its folder does not exist.
        """
        check_new(path)
        content = save({"secret_key": self.secret_key.contiguous(), "public_key": self.public_key.contiguous()})
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with saying_where(path):
                with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                _take_place(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return path

    @classmethod
    def read(cls, path: Path | str) -> KeyPair:
        """The keys of a file; `SecretKeyError` if it holds anything else."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"No file of keys at {path}. It was made where the places were encrypted.")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        try:
            found = load(content) if len(content) <= _LARGEST else {}
        except (SafetensorError, ValueError) as error:
            raise SecretKeyError(f"{path} cannot be read ({error}). Take the file that publishing made.") from error
        shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in found.items()}
        if shapes != {"secret_key": ((DEGREE,), torch.int64), "public_key": ((2, DEGREE), torch.int64)} or not all(
            0 <= int(tensor.min()) <= int(tensor.max()) < MODULUS for tensor in found.values()
        ):
            raise SecretKeyError(f"{path} holds no keys of this encryption. Take the file that publishing made.")
        return cls(found["secret_key"], found["public_key"])


def _take_place(temporary: Path, path: Path) -> None:
    """Give a file its name, unless there is one: a link takes nobody's place, and a rename does where links are unknown."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        check_new(path)
        raise
    except OSError:
        check_new(path)
        temporary.rename(path)


def check_new(path: Path) -> None:
    """Refuse a path where there is something, `FileExistsError`, or whose folder is not there, `FileNotFoundError`."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(
            f"{path} exists, and keys are never overwritten: without them what was encrypted is lost. Choose another path."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"No folder {path.parent} for the file of keys {path.name}. Make it, apart from what is handed over, or choose another."
        )


def decrypted(release: Release, keys: KeyPair) -> Release:
    """The map of an encrypted one, an ordinary release of kind ``map`` with the same record, ledger and words.

    Raises:
        ReleaseError: The release is no encrypted map, or its numbers cannot have the noise that the record claims.
        SecretKeyError: It was made with other keys.
    """
    if release.kind != EncryptedMap.kind:
        raise ReleaseError(
            f"The release is of kind {release.kind!r}, and what is decrypted is of kind {EncryptedMap.kind!r}."
        )
    made_with = release.record.public_inputs.get(PUBLIC_KEY)
    if not isinstance(made_with, str):
        raise ReleaseError(
            "The record of the map does not say which public key it was made with. Ask the source for it again."
        )
    if made_with != tensor_digest(keys.public_key):
        raise SecretKeyError(
            "The map was made with another public key than that of the file of keys. Take the keys of the places that this "
            "source was given."
        )
    bodies, masks = (release.tensors[name].numpy() for name in ("bodies", "masks"))
    mechanism = release.record.mechanism
    if not isinstance(mechanism, EncryptedBridge):
        raise ReleaseError(f"The record is of {mechanism.name}, and an encrypted map is of {EncryptedBridge.name}.")
    table = torch.from_numpy(decrypted_map(bodies, masks, keys.secret_key.numpy(), mechanism.noise_std))
    tensors = {"map": table, "items": release.tensors["items"], "counts": release.tensors["counts"]}
    made = replace(release, kind="map", tensors=tensors)
    made.check_noise()  # which nobody could see before
    return made


def decrypt(encrypted: Path | str, key: Path | str, out: Path | str, *, trusted: Path | str | None = None) -> Release:
    """Decrypt the map that a source has published, and write it as a release that `zoo.fit` reads.

    Args:
        encrypted: Folder of the source's release, of kind ``encrypted_map``.
        key: File of keys that `EncryptedProjectionPublisher` wrote.
        out: Folder to write; must not exist.
        trusted: Public keys, one of which must have signed what the source published; the decrypted release has no signature.

    Returns:
        The release, as it was written, with the record and the ledger of the encrypted one.

    Raises:
        FileExistsError: There is something at ``out``.
        FileNotFoundError: There is no file of keys, or no release.
        SignatureError: None of the trusted keys has signed the release.
        ReleaseError: The release is damaged, of another kind, made with other keys, or cannot have the noise that it claims.
        MissingLibraryError: TenSEAL is not installed.
    """
    out = Path(out)
    if out.exists():
        raise FileExistsError(f"{out} exists, and a release is never overwritten. Choose another path or remove it.")
    keys = KeyPair.read(key)
    release = Release.load(encrypted, None if trusted is None else TrustedKeys.read(trusted))
    made = decrypted(release, keys)
    made.save(out)
    return made
