"""Folders of the parties: certificates and keys next to their settings."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from zoo.commands.parties import SETTINGS, TARGET, write_settings

_DAYS = 365  # validity of certificates


def provision(options: argparse.Namespace) -> None:
    """Make the folders of the target, with a TLS certificate for loopback, and of each source, with a key for its node.

    Args:
        options: ``folder`` to write, which must not exist, and those of `zoo.commands.parties.provision_options`.
    """
    out: Path = options.folder
    if out.exists():
        raise FileExistsError(f"{out} exists. Choose another folder.")
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = _certificate("releases", authority.public_key(), "releases", authority, ca=True)
    for name in (TARGET, *options.sources):
        folder = out / name
        folder.mkdir(parents=True)
        (folder / "ca.crt").write_bytes(root.public_bytes(Encoding.PEM))
        write_settings(folder / SETTINGS, name, options)
        if name != TARGET:
            key = ec.generate_private_key(ec.SECP384R1())
            _write_secret(folder / "node", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
            public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            for place in (folder, out / TARGET):
                (place / f"{name}.pub").write_bytes(public + b"\n")
    target = out / TARGET
    made = _certificate("localhost", server.public_key(), "releases", authority, ca=False)
    (target / "server.crt").write_bytes(made.public_bytes(Encoding.PEM))
    _write_secret(target / "server.key", server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _certificate(
    name: str, public: ec.EllipticCurvePublicKey, issuer: str, key: ec.EllipticCurvePrivateKey, *, ca: bool
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    if not ca:
        names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(key, hashes.SHA256())


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
