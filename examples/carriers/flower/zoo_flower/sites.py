"""Folders of the parties: certificates, keys, settings and budgets; and the parties that their settings describe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from zoo.privacy.spending.budget import Budget, Cap

if TYPE_CHECKING:
    from zoo.runs.exchange import SourceParty, TargetParty

SETTINGS, TARGET = "zoo.json", "target"
_DAYS = 365  # validity of certificates


def provision(config: Path, sources: Sequence[str], out: Path, cap: Cap) -> None:
    """Make the folders of the target, with a TLS certificate for loopback, and of each source, with a key for its node."""
    if out.exists():
        raise FileExistsError(f"{out} exists. Choose another folder.")
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = _certificate("releases", authority.public_key(), "releases", authority, ca=True)
    for name in (TARGET, *sources):
        folder = out / name
        folder.mkdir(parents=True)
        (folder / "ca.crt").write_bytes(root.public_bytes(Encoding.PEM))
        shutil.copy(config, folder / "experiment.yaml")
        settings: dict[str, Any] = {"limit": 2**32}
        if name != TARGET:
            settings = {"domain": name, "budget": "budget.jsonl", "outbox": "outbox", "sign": None}
            Budget.create(folder / settings["budget"], cap)
            key = ec.generate_private_key(ec.SECP384R1())
            _write_secret(folder / "node", key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
            public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            for place in (folder, out / TARGET):
                (place / f"{name}.pub").write_bytes(public + b"\n")
        (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    target = out / TARGET
    made = _certificate("localhost", server.public_key(), "releases", authority, ca=False)
    (target / "server.crt").write_bytes(made.public_bytes(Encoding.PEM))
    _write_secret(target / "server.key", server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def source_party(folder: Path) -> SourceParty:
    """Return the source party of a folder: its experiment, domain, budget, outbox and key."""
    from datamodules import CrossDomainDataModule
    from zoo.commands.privacy.plan import read_settings
    from zoo.runs.exchange import SourceParty
    from zoo.runs.inputs import instantiate, make_publisher

    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    parsed = read_settings(folder / "experiment.yaml", [])
    return SourceParty(
        make_publisher(parsed.publisher),
        instantiate("data", CrossDomainDataModule, parsed.data),
        settings["domain"],
        folder / settings["budget"],
        folder / settings["outbox"],
        None if settings["sign"] is None else folder / settings["sign"],
    )


def target_party(folder: Path, run: Mapping[str, Any], sources: Sequence[str]) -> TargetParty:
    """Return the target party of a folder for the settings of a run; a Flower message starts a process, so parts are large."""
    from zoo.runs.exchange import TargetParty

    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    epsilon = float(run["epsilon"]) or None
    request = str(run["request"])
    return TargetParty(
        folder / "inbox", sources, request, epsilon=epsilon, limit=settings["limit"], part=2**26, patience=1
    )


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
