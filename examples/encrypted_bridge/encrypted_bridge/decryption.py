"""Key file of a target, and decryption of a map."""

from __future__ import annotations

import os
import secrets
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from encrypted_bridge.ckks import Ckks
from encrypted_bridge.kinds import EncryptedMap
from encrypted_bridge.mechanism import PUBLIC_KEY, EncryptedBridge
from encrypted_bridge.parameters import DEGREE, KEYS, MODULUS
from encrypted_bridge.protocol import agree, decrypted_map, decrypted_maps
from zoo.privacy.randomness.noise import NoiseSource
from zoo.release.files import ReleaseError, tensor_digest
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys
from zoo.runtime.run_folder import saying_where

_LARGEST = 2**18  # bytes of a key file, at most


class SecretKeyError(ReleaseError):
    """A key file that cannot be read, does not fit a map, or was used before."""


class RefusedError(ReleaseError):
    """A map that was decrypted and refused. The message is the same for every cause, so that the source learns nothing else."""

    def __init__(self) -> None:
        super().__init__(
            "Decryption refused (code R1). The keys are used up. Do not tell the source, and send it no embeddings of these "
            "users again: each answer can reveal a bit about them."
        )


@dataclass(frozen=True)
class KeyPair:
    """Keys of a target. They decrypt its embeddings, so the file stays at the target."""

    secret_key: Tensor = field(repr=False)  # (keys, degree), int64
    public_key: Tensor  # (keys, 2, degree), int64; part of the release

    def save(self, path: Path) -> Path:
        """Write the keys atomically to a new file that only its owner can read.

        Raises:
            FileExistsError: The path exists: keys are never overwritten or used twice.
            FileNotFoundError: The folder does not exist.
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
        """Read a key file; raise a `SecretKeyError` if it is invalid."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"No key file at {path}. Publishing the encrypted embeddings wrote it.")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        try:
            found = load(content) if len(content) <= _LARGEST else {}
        except (SafetensorError, ValueError) as error:
            raise SecretKeyError(f"{path} cannot be read ({error}). Pass the file that publishing wrote.") from error
        shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in found.items()}
        if shapes != {
            "secret_key": ((KEYS, DEGREE), torch.int64),
            "public_key": ((KEYS, 2, DEGREE), torch.int64),
        } or not all(0 <= int(tensor.min()) <= int(tensor.max()) < MODULUS for tensor in found.values()):
            raise SecretKeyError(f"{path} has no keys of this encryption. Pass the file that publishing wrote.")
        return cls(found["secret_key"], found["public_key"])


def _take_place(temporary: Path, path: Path) -> None:
    """Give a file its name without replacing another: by a link, or by a rename if links are unsupported."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        check_new(path)
        raise
    except OSError:
        check_new(path)
        temporary.rename(path)


def check_new(path: Path) -> None:
    """Raise a `FileExistsError` if the path exists, or a `FileNotFoundError` if its folder does not."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} exists, and keys are never overwritten. Choose another path.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"No folder {path.parent} for the key file {path.name}. Make it.")


def _check_fits(release: Release, keys: KeyPair) -> EncryptedBridge:
    """Refuse what is public to be wrong, before a key is used; return the mechanism."""
    if release.kind != EncryptedMap.kind:
        raise ReleaseError(f"The release is of kind {release.kind!r}. It must be {EncryptedMap.kind!r}.")
    made_with = release.record.public_inputs.get(PUBLIC_KEY)
    if not isinstance(made_with, str):
        raise ReleaseError("The record of the map names no public key. Ask for it again.")
    if made_with != tensor_digest(keys.public_key):
        raise SecretKeyError("The map was made with another public key. Pass this source's key file.")
    mechanism = release.record.mechanism
    if not isinstance(mechanism, EncryptedBridge):
        raise ReleaseError(f"The record is of {mechanism.name}, not {EncryptedBridge.name}.")
    Ckks()  # says whether the library is installed
    table = torch.zeros(release.tensors["bodies"].shape[1:])  # as received: a record may state any size
    # A map that cannot be written would say later that both maps agreed.
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        _as_map(release, table).save(Path(folder) / "map")
    return mechanism


def _as_map(release: Release, table: Tensor) -> Release:
    tensors = {"map": table, "items": release.tensors["items"], "counts": release.tensors["counts"]}
    return replace(release, kind="map", tensors=tensors)


def _use_once(key: Path, release: Release) -> None:
    """Write next to a key file, atomically, which release it decrypts; no other and no second time from now on.

    Raises:
        SecretKeyError: The keys have been used.
    """
    key = key.resolve()  # a symbolic link to the file is the same keys
    if (names := key.stat().st_nlink) > 1:
        raise SecretKeyError(f"{key} has {names} hard links, and its note has one name. Remove all but one.")
    used = key.with_name(f"{key.name}.used")
    try:
        with open(os.open(used, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(f"{release.digest}\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise SecretKeyError(
            f"{key} has been used: {used.name} exists. Keys decrypt one map. Publish again."
        ) from error


def _decrypted(release: Release, keys: KeyPair, mechanism: EncryptedBridge) -> Release:
    """Return the decrypted map; every check runs before the one answer."""
    bodies, masks = (release.tensors[name].numpy() for name in ("bodies", "masks"))
    try:
        maps = decrypted_maps(bodies, masks, keys.secret_key.numpy())
        table = torch.from_numpy(decrypted_map(maps, mechanism, NoiseSource.os()))
        accepted = agree(maps, mechanism)
        made = _as_map(release, table)
        made.check_noise()
    except (ValueError, RuntimeError):  # the latter is SEAL's
        accepted = False
    if not accepted:
        raise RefusedError
    return made


def decrypt(encrypted: Path | str, key: Path | str, out: Path | str, *, trusted: Path | str | None = None) -> Release:
    """Decrypt the map of a source and write it as a release for `zoo.fit`: once for each key file.

    The map has noise of the target's own. A note beside the key file (``.used``) says that the keys were used.

    Args:
        encrypted: Folder of the release of the source, of kind ``encrypted_map``.
        key: Key file that `EncryptedProjectionPublisher` wrote.
        out: Folder to write; must not exist.
        trusted: Public keys, one of which must have signed the release; the decrypted release has no signature.

    Returns:
        The written release, with record and ledger of the encrypted one.

    Raises:
        FileExistsError: ``out`` exists.
        FileNotFoundError: The key file or the release does not exist.
        SignatureError: No trusted key has signed the release.
        ReleaseError: The release is damaged, of another kind, or made with other keys.
        SecretKeyError: The keys cannot be read, are of another map, or were used before.
        RefusedError: The maps under the two keys differ, or fail the noise test; the message does not say which.
        MissingLibraryError: TenSEAL is not installed.
    """
    out = Path(out)
    if out.exists():
        raise FileExistsError(f"{out} exists, and a release is never overwritten. Choose another path.")
    keys = KeyPair.read(key)
    release = Release.load(encrypted, None if trusted is None else TrustedKeys.read(trusted))
    mechanism = _check_fits(release, keys)
    _use_once(Path(key), release)
    made = _decrypted(release, keys, mechanism)
    made.save(out)
    return made
