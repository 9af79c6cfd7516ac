"""Signatures of releases: who published, and that nothing was altered."""

import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.samples import binary, edit_json
from zoo import JLT, Plaintext, Release
from zoo.release.files import MANIFEST, SIGNATURE, TENSORS, ReleaseError, manifest_bytes
from zoo.release.signature import SignatureError, SigningKey, TrustedKeys, check_signature

ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of the group that Ed25519 signs in; added to the second half of a signature it must not verify (RFC 8032, 5.1.7)."""


def private(
    path: Path, key: Ed25519PrivateKey | EllipticCurvePrivateKey | None = None, secret: bytes | None = None
) -> Path:
    key = key or Ed25519PrivateKey.generate()
    encryption = NoEncryption() if secret is None else BestAvailableEncryption(secret)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return private(tmp_path / "source.pem")


@pytest.fixture
def trusted(key: Path) -> TrustedKeys:
    return TrustedKeys.read(key.with_suffix(".pub"))


@pytest.fixture
def signed(tmp_path: Path, key: Path) -> Path:
    release = JLT(epsilon=2.0, num_components=5).publish(binary(), "book")
    return release.save(tmp_path / "book", SigningKey.read(key))


def test_a_signed_release_is_read_by_who_trusts_its_key_and_by_everybody_else(
    signed: Path, trusted: TrustedKeys, key: Path
) -> None:
    assert sorted(file.name for file in signed.iterdir()) == [MANIFEST, SIGNATURE, TENSORS]
    assert Release.load(signed, trusted).digest == Release.load(signed).digest
    public = SigningKey.read(key).public
    assert check_signature(signed, manifest_bytes(signed), None) == public
    assert trusted.keys == {public}


def test_openssl_makes_keys_and_agrees_with_the_signature(tmp_path: Path, signed: Path) -> None:
    """The command that the documentation names, and an implementation that is not ours."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    made, public = tmp_path / "made.pem", tmp_path / "made.pub.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", made], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", made, "-pubout", "-out", public], check=True, capture_output=True)
    folder = Plaintext().publish(binary(), "book").save(tmp_path / "other", SigningKey.read(made))
    assert Release.load(folder, TrustedKeys.read(public)).domain == "book"
    raw = tmp_path / "raw"
    raw.write_bytes(bytes.fromhex(json.loads((folder / SIGNATURE).read_text())["signature"]))
    verify = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin", "-in", folder / MANIFEST]
    done = subprocess.run([*verify, "-sigfile", raw], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_a_signature_nothing_is_read_where_keys_are_trusted(signed: Path, trusted: TrustedKeys) -> None:
    (signed / SIGNATURE).unlink()
    with pytest.raises(SignatureError, match=r"book is not signed.*with --sign KEY"):
        Release.load(signed, trusted)
    assert Release.load(signed).domain == "book"


def test_another_key_is_not_trusted(signed: Path, tmp_path: Path) -> None:
    other = TrustedKeys.read(private(tmp_path / "other.pem").with_suffix(".pub"))
    with pytest.raises(SignatureError, match=r"by the key [0-9a-f]{64}, not by the 1 of .*other.pub"):
        Release.load(signed, other)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["record"].update(epsilon=2.5),
        lambda m: m.update(domain="music"),
        lambda m: m.update(user_ids=m["user_ids"][::-1]),
        lambda m: None,  # the same values in other bytes
    ],
)
def test_an_altered_manifest_is_refused(signed: Path, trusted: TrustedKeys, change: Callable[[Any], object]) -> None:
    edit_json(signed / MANIFEST, change)
    for keys in (trusted, None):
        with pytest.raises(SignatureError, match=r"is not the signature of release.json by the key .*altered"):
            Release.load(signed, keys)


def test_altered_tensors_are_refused_under_a_signature_of_the_manifest(signed: Path, trusted: TrustedKeys) -> None:
    content = bytearray((signed / TENSORS).read_bytes())
    content[-1] ^= 1
    (signed / TENSORS).write_bytes(bytes(content))
    with pytest.raises(ReleaseError, match=r"differs from its SHA-256 in release.json"):
        Release.load(signed, trusted)


def test_the_signature_of_another_release_does_not_fit(
    signed: Path, trusted: TrustedKeys, key: Path, tmp_path: Path
) -> None:
    other = Plaintext().publish(binary(), "book").save(tmp_path / "other", SigningKey.read(key))
    shutil.copy(signed / SIGNATURE, other / SIGNATURE)
    with pytest.raises(SignatureError, match="one was altered"):
        Release.load(other, trusted)


def malleable(values: dict[str, Any]) -> None:
    first, second = values["signature"][:64], int.from_bytes(bytes.fromhex(values["signature"][64:]), "little")
    values["signature"] = first + (second + ORDER).to_bytes(32, "little").hex()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(signature="0" * 128), "one was altered"),
        (lambda s: s.update(signature=s["signature"][::-1]), "one was altered"),
        (malleable, "one was altered"),
        (lambda s: s.update(signature="0" * 126), "is no signature. Needed: algorithm"),
        (lambda s: s.update(signature=s["signature"].upper()), "is no signature"),
        (lambda s: s.update(signature=7), "is no signature"),
        (lambda s: s.update(public_key="é" * 64), "is no signature"),
        (lambda s: s.update(public_key="00" * 32), "not by the 1"),
        (lambda s: s.update(algorithm="none"), "is no signature"),
        (lambda s: s.pop("algorithm"), "is no signature"),
        (lambda s: s.update(more="x"), "is no signature"),
    ],
)
def test_a_hostile_signature_is_refused(
    signed: Path, trusted: TrustedKeys, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit_json(signed / SIGNATURE, change)
    with pytest.raises(SignatureError, match=message):
        Release.load(signed, trusted)


@pytest.mark.parametrize("change", [lambda text: text + " \t" * 1000, lambda text: " ".join(text.split())])
def test_another_text_of_a_signature_is_refused(
    signed: Path, trusted: TrustedKeys, change: Callable[[str], str]
) -> None:
    (signed / SIGNATURE).write_text(change((signed / SIGNATURE).read_text()))
    with pytest.raises(SignatureError, match="has text beside its signature"):
        Release.load(signed, trusted)


def test_tensors_in_another_order_are_refused(tmp_path: Path, key: Path, trusted: TrustedKeys) -> None:
    """Under a valid signature: no digest covers where a file has each tensor."""
    path = Plaintext().publish(binary(), "book").save(tmp_path / "plain", SigningKey.read(key))
    content = (path / TENSORS).read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header, data, moved = json.loads(content[8:end]), b"", {}
    for name, entry in reversed(header.items()):
        begin, stop = entry["data_offsets"]
        moved[name] = {**entry, "data_offsets": [len(data), len(data) + stop - begin]}
        data += content[end + begin : end + stop]
    for changed in (moved, dict(reversed(header.items()))):
        text = json.dumps(changed, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        (path / TENSORS).write_bytes(
            len(text).to_bytes(8, "little") + text + (data if changed is moved else content[end:])
        )
        with pytest.raises(ReleaseError, match=r"or another order|cannot be read"):
            Release.load(path, trusted)


def test_somebody_elses_signature_under_a_trusted_name_is_refused(
    signed: Path, trusted: TrustedKeys, tmp_path: Path
) -> None:
    forged = json.loads(SigningKey.read(private(tmp_path / "forger.pem")).signature(manifest_bytes(signed)))
    edit_json(signed / SIGNATURE, lambda s: s.update(signature=forged["signature"]))
    with pytest.raises(SignatureError, match="one was altered"):
        Release.load(signed, trusted)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no JSON, so"),
        (b"\xff\xfe", "is no JSON, so"),
        (b"[" * 60_000, "is no JSON, so"),
        (b"null", "is no signature. Needed:"),
        (b'"' + b"x" * 70_000 + b'"', "has more than 65,536 bytes"),
    ],
)
def test_what_is_no_signature_is_refused(signed: Path, trusted: TrustedKeys, content: bytes, message: str) -> None:
    (signed / SIGNATURE).write_bytes(content)
    with pytest.raises(SignatureError, match=message):
        Release.load(signed, trusted)


def test_nothing_is_understood_before_it_is_known_who_signed(signed: Path, trusted: TrustedKeys) -> None:
    (signed / MANIFEST).write_text("[" * 100)
    with pytest.raises(SignatureError):
        Release.load(signed, trusted)


# keys


def test_keys_of_a_folder_and_of_one_file_are_trusted_together(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    names = []
    for name in ("a", "b"):
        made = private(tmp_path / f"{name}.pem")
        shutil.move(made.with_suffix(".pub"), folder / f"{name}.pub")
        names.append(SigningKey.read(made).public)
    assert TrustedKeys.read(folder).keys == set(names)
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(file.read_bytes() for file in sorted(folder.iterdir())))
    assert TrustedKeys.read(both).keys == set(names)


def test_keys_that_cannot_be_used_are_refused(tmp_path: Path, key: Path) -> None:
    curve = private(tmp_path / "curve.pem", generate_private_key(SECP256R1()))
    secret = private(tmp_path / "secret.pem", secret=b"x")
    odd = private(tmp_path / "odd.pem", generate_private_key(SECP256R1()))  # of a curve that the library does not know
    for file in (odd, odd.with_suffix(".pub")):
        head, *lines, tail = file.read_bytes().splitlines()
        content = b64decode(b"".join(lines)).replace(
            bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2b24030302080105")
        )
        file.write_bytes(b"\n".join([head, b64encode(content), tail, b""]))
    (tmp_path / "text.pem").write_text("no key")
    (tmp_path / "empty").mkdir()
    for path, message in (
        (curve, "holds a key that is not Ed25519"),
        (odd, "holds a key that is not Ed25519"),
        (secret, "is encrypted. Decrypt it"),
        (tmp_path / "text.pem", "holds no private key in PEM form. Make a pair with: openssl genpkey"),
        (tmp_path / "absent.pem", "No key or signature at"),
    ):
        with pytest.raises(SignatureError, match=message):
            SigningKey.read(path)
    for path, message in (
        (curve.with_suffix(".pub"), "holds a key that is not Ed25519"),
        (odd.with_suffix(".pub"), "holds a key that is not Ed25519"),
        (key, "holds a private key. Only public keys can be trusted"),
        (tmp_path / "text.pem", "holds no public key"),
        (tmp_path / "empty", "holds no public key"),
        (tmp_path / "absent.pem", "No key or signature at"),
    ):
        with pytest.raises(SignatureError, match=message):
            TrustedKeys.read(path)
    broken = tmp_path / "broken.pub"
    broken.write_bytes(key.with_suffix(".pub").read_bytes().replace(b"MCow", b"AAAA"))
    with pytest.raises(SignatureError, match="holds an invalid public key"):
        TrustedKeys.read(broken)


P, D = 2**255 - 19, -121665 * pow(121666, -1, 2**255 - 19)
Point = tuple[int, int]


def added(one: Point, other: Point) -> Point:
    """Of two points of the curve of Ed25519 (RFC 8032, 5.1.4)."""
    (a, b), (c, d) = one, other
    product = D * a * b * c * d
    return (a * d + b * c) * pow(1 + product, -1, P) % P, (b * d + a * c) * pow(1 - product, -1, P) % P


def small_order() -> set[Point]:
    """The eight points whose eightfold is the neutral one: multiples of what is left of a point after the large order."""
    for y in range(2, 99):
        square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
        x = pow(square, (P + 3) // 8, P)
        x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
        if x * x % P != square:
            continue
        point, left, times = (0, 1), (x, y), ORDER
        while times:
            point, left, times = added(point, left) if times & 1 else point, added(left, left), times >> 1
        found = {(0, 1)}
        multiple = point
        while multiple not in found:
            found.add(multiple)
            multiple = added(multiple, point)
        if len(found) == 8:
            return found
    raise AssertionError


def test_keys_that_anybody_signs_with_sign_nothing(signed: Path) -> None:
    """All points of small order, in every encoding; with the neutral one a constant is the signature of everything."""
    points = small_order()
    keys = {
        (y + again * P | sign << 255)
        for _, y in points
        for again in (0, 1)
        for sign in (0, 1)
        if y + again * P < 2**255
    }
    assert len(points) == 8
    assert len(keys) == 14
    for key in keys:
        public = key.to_bytes(32, "little").hex()
        for first in (public, "01" + "00" * 31):
            values = {"algorithm": "Ed25519", "public_key": public, "signature": first + "00" * 32}
            (signed / SIGNATURE).write_text(json.dumps(values, indent=1) + "\n")
            with pytest.raises(SignatureError, match="is not the signature of"):
                Release.load(signed)


@pytest.mark.parametrize("made", ["folder", "queue", "dangling"])
def test_a_signature_that_is_no_file_is_refused(signed: Path, made: str) -> None:
    path = signed / SIGNATURE
    path.unlink()
    {"folder": path.mkdir, "queue": lambda: os.mkfifo(path), "dangling": lambda: path.symlink_to("absent")}[made]()
    with pytest.raises(SignatureError, match="No key or signature at"):
        Release.load(signed)
