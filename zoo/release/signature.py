"""Signatures of releases by Ed25519 keys that parties exchange beforehand.

A signature covers the bytes of the stored manifest, which names the SHA-256 of every tensor, so it covers all files. It
proves the publisher and that nothing was altered, not that the record is true. The arithmetic is that of the library
`cryptography` (RFC 8032).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.release.files import MANIFEST, SIGNATURE, ReleaseError
from zoo.runtime.settings_files import read_json, user_path

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALGORITHM = "Ed25519"
MAKE_KEYS = "openssl genpkey -algorithm ed25519 -out key.pem && openssl pkey -in key.pem -pubout -out key.pub.pem"
"""Command that makes a key pair; the first file stays with the source party."""

_LARGEST = 2**16  # allowed bytes of a file of keys or of a signature
_BEGIN = b"-----BEGIN "
_OF_ANYTHING = frozenset(
    {
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        *(first + "ff" * 30 + "7f" for first in ("ec", "ed", "ee")),
    }
)
"""Public keys of small order, without the sign bit, with which signatures can be forged. libsodium refuses the same."""


class SignatureError(ReleaseError):
    """A release without the required signature, or unreadable keys."""


class SigningKey:
    """A source party's private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw().hex()  # the public key, 64 hexadecimal digits

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """Return the key of a PEM file; `SignatureError` if it is encrypted or holds anything else."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        content = _small_file(path)
        try:
            key = load_pem_private_key(content, None)
        except TypeError as error:
            raise SignatureError(f"{path} is encrypted. Decrypt it: openssl pkey -in {path} -out PLAIN.") from error
        except UnsupportedAlgorithm:
            key = None
        except ValueError as error:
            raise SignatureError(f"{path} holds no private key in PEM form. Make a pair with: {MAKE_KEYS}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise SignatureError(f"{path} holds a key that is not {ALGORITHM}. Make a pair with: {MAKE_KEYS}")
        return cls(key)

    def signature(self, content: bytes) -> str:
        """Return the signature file's text for a manifest."""
        return _text({"algorithm": ALGORITHM, "public_key": self.public, "signature": self._key.sign(content).hex()})


@dataclass(frozen=True)
class TrustedKeys:
    """Public keys of the parties whose releases a target accepts."""

    keys: frozenset[str]  # each as 64 hexadecimal digits
    path: Path  # where they were read

    @classmethod
    def read(cls, path: Path | str) -> TrustedKeys:
        """Return the keys of a PEM file, or of all files of a folder; `SignatureError` for other files, or none."""
        path = user_path(path)
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        keys = frozenset(key for file in files for key in _public_keys(file))
        if not keys:
            raise SignatureError(f"{path} holds no public key. Ask for key.pub.pem.")
        return cls(keys, path)


def check_signature(folder: Path, content: bytes, trusted: TrustedKeys | None) -> str | None:
    """Return the public key that signed a manifest's bytes, as 64 hexadecimal digits; None without a signature.

    `SignatureError` if a signature does not match, and, with trusted keys, if there is none or it is by another key.
    """
    path = folder / SIGNATURE
    if not path.is_symlink() and not path.exists():
        if trusted is not None:
            raise SignatureError(f"{folder} is not signed. {trusted.path} requires it. Ask for one with --sign KEY.")
        return None
    key, signature = _read_signature(path)
    if trusted is not None and key not in trusted.keys:
        raise SignatureError(
            f"{folder} is signed by the key {key}, not by the {len(trusted.keys)} of {trusted.path}. Confirm it out "
            "of band."
        )
    if not _fits(key, signature, content):
        raise SignatureError(
            f"{path} is not the signature of {MANIFEST} by the key {key}: one was altered. Ask for the folder again."
        )
    return key


def _read_signature(path: Path) -> tuple[str, str]:
    content = _small_file(path)
    try:
        values: Any = read_json(content.decode("utf-8"), path)
    except (ValueError, RecursionError) as error:
        raise SignatureError(f"{path} is no JSON, so no signature. Ask for it again.") from error
    lengths = {"public_key": 64, "signature": 128}
    right = isinstance(values, dict) and values.keys() == {"algorithm", *lengths} and values["algorithm"] == ALGORITHM
    if not right or not all(_is_hex(values[name], length) for name, length in lengths.items()):
        raise SignatureError(
            f"{path} is no signature. Needed: algorithm {ALGORITHM!r}, public_key (64 hexadecimal), signature (128)."
        )
    if content.replace(b"\r\n", b"\n") != _text({name: values[name] for name in ("algorithm", *lengths)}).encode():
        raise SignatureError(f"{path} has text beside its signature: it was altered. Ask for it again.")
    return values["public_key"], values["signature"]


def _text(values: dict[str, str]) -> str:
    return json.dumps(values, indent=1) + "\n"


def _is_hex(text: object, length: int) -> bool:
    return isinstance(text, str) and len(text) == length and set(text) <= set("0123456789abcdef")


def _fits(key: str, signature: str, content: bytes) -> bool:
    """Whether it is the signature of these bytes; never for a key of small order."""
    if key[:-2] + f"{int(key[-2:], 16) & 0x7F:02x}" in _OF_ANYTHING:
        return False
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def _public_keys(path: Path) -> Iterator[str]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _small_file(path)
    if b"PRIVATE KEY" in content:
        raise SignatureError(f"{path} holds a private key. Only public keys can be trusted. Replace the pair.")
    for block in content.split(_BEGIN)[1:]:
        try:
            key = load_pem_public_key(_BEGIN + block)
        except UnsupportedAlgorithm:
            key = None
        except ValueError as error:
            raise SignatureError(f"{path} holds an invalid public key in PEM form ({error}).") from error
        if not isinstance(key, Ed25519PublicKey):
            raise SignatureError(f"{path} holds a key that is not {ALGORITHM}.")
        yield key.public_bytes_raw().hex()


def _small_file(path: Path) -> bytes:
    if not path.is_file():
        raise SignatureError(f"No key or signature at {path}.")
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise SignatureError(f"{path} has more than {_LARGEST:,} bytes, too many for a key.")
    return content
