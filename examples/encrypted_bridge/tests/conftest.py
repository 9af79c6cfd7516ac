"""Parties of the tests, and the reason to skip them where the package is not installed."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from zoo.runtime.plugins import brought


@pytest.fixture(autouse=True, scope="session")
def _installed() -> None:
    """Skip all tests unless the package and its library are installed."""
    if "encrypted_map" not in brought("release kinds"):
        pytest.skip("not installed: pip install -e examples/encrypted_bridge")
    pytest.importorskip("tenseal", reason="not installed: pip install -e examples/encrypted_bridge")


@pytest.fixture(scope="session")
def key_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ed25519PrivateKey, Path]:
    """A key that signs releases, and the file of its public key."""
    key, path = Ed25519PrivateKey.generate(), tmp_path_factory.mktemp("keys") / "trusted.pub"
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return key, path
