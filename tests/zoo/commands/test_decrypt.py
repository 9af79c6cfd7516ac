"""``decrypt``: from the target's command to its next one, with what stands in between, and refusals of one sentence."""

import sys
from pathlib import Path

import pytest

from datamodules import Evaluation, Synthetic
from tests.samples import binary
from tests.zoo.commands.test_recommend import ended
from zoo import BridgePublisher, ProjectionPublisher, Release
from zoo.release.files import ReleaseError
from zoo.release.signature import SigningKey

pytest.importorskip("tenseal", reason="encrypted places are an extra: pip install 'cdr-zoo[encryption]'")


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, encrypted places and an encrypted map."""
    folder = tmp_path_factory.mktemp("exchange")
    ProjectionPublisher(num_directions=2, secret_key=folder / "own.key").publish(binary(), "music").save(
        folder / "places"
    )
    BridgePublisher(4.0, received=folder / "places").publish(binary(), "book").save(folder / "encrypted")
    return folder


def test_the_map_is_decrypted_and_its_record_printed(
    exchange: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["decrypt", exchange / "encrypted", "--key", exchange / "own.key", "--out", tmp_path / "map"]
    assert ended(given, monkeypatch) == ""
    out = capsys.readouterr().out
    assert "mechanism      BridgePublisher, encrypted" in out
    assert "condition      the target follows the protocol" in out
    assert out.endswith(f"Release of 'book' (map, 9 users): {tmp_path / 'map'}\n")
    made, encrypted = Release.load(tmp_path / "map"), Release.load(exchange / "encrypted")
    assert (made.kind, made.record, made.ledger) == ("map", encrypted.record, encrypted.ledger)
    assert "never overwritten" in ended(given, monkeypatch)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["encrypted", "--key", "absent", "--out", "m"], "No file of keys at"),
        (["places", "--key", "own.key", "--out", "m"], "what is decrypted is of kind 'encrypted_map'"),
        (["absent", "--key", "own.key", "--out", "m"], "is no release: there is no such folder"),
        (["encrypted", "--key", "encrypted/release.json", "--out", "m"], "Take the file that publishing made"),
    ],
)
def test_what_cannot_be_decrypted_is_a_sentence(
    exchange: Path, given: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [part if part.startswith("--") else exchange / part for part in given]
    assert said in ended(["decrypt", *paths], monkeypatch)
    assert not (exchange / "m").exists()


def test_without_the_library_one_is_told_what_to_install(exchange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    said = ended(
        ["decrypt", exchange / "encrypted", "--key", exchange / "own.key", "--out", exchange / "m"], monkeypatch
    )
    assert "pip install 'cdr-zoo[encryption]'" in said


def test_who_trusts_keys_takes_signed_maps_alone(
    exchange: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signed by the source as it published; the decrypted release is the target's own and has no signature."""
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "pub.pem").write_bytes(public)
    Release.load(exchange / "encrypted").save(tmp_path / "signed", SigningKey(key))
    options = ["--key", exchange / "own.key", "--trusted", tmp_path / "pub.pem", "--out"]
    assert "is not signed" in ended(["decrypt", exchange / "encrypted", *options, tmp_path / "no"], monkeypatch)
    assert ended(["decrypt", tmp_path / "signed", *options, tmp_path / "map"], monkeypatch) == ""
    assert {file.name for file in (tmp_path / "map").iterdir()} == {"release.json", "tensors.safetensors"}


def test_fit_is_told_to_decrypt_first(tmp_path: Path) -> None:
    settings = {"num_users": 40, "num_items": 30, "seed": 1, "evaluation": Evaluation(split="cold_start")}
    data = Synthetic(**settings)
    data.read_target()
    ProjectionPublisher(num_directions=2, secret_key=tmp_path / "own.key").publish(data.train, "music").save(
        tmp_path / "places"
    )
    path = (
        BridgePublisher(4.0, received=tmp_path / "places").publish(data.source("book"), "book").save(tmp_path / "map")
    )
    there = Synthetic(**settings, releases={"book": path})
    there.setup("fit")
    with pytest.raises(
        ReleaseError, match=r"is encrypted\. Decrypt it with the file of keys, .* python -m zoo decrypt"
    ):
        there.read_releases()
