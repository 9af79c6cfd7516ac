"""``decrypt``: from the target's command to its next one, with what stands in between, and refusals of one sentence."""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import zoo
from datamodules import Evaluation, Synthetic
from encrypted_bridge.__main__ import main
from encrypted_bridge.publishers import EncryptedBridgePublisher, EncryptedProjectionPublisher
from zoo import Release
from zoo.methods.bridge import place
from zoo.release.files import ReleaseError
from zoo.release.signature import SigningKey
from zoo.testing.tiny import ratings


def ended(arguments: list[object]) -> str:
    """Return the message that the command ends with; empty if it succeeds."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as error:
        return str(error.code)
    return ""


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, encrypted places and an encrypted map."""
    folder = tmp_path_factory.mktemp("exchange")
    EncryptedProjectionPublisher(num_directions=2, secret_key=folder / "own.key").publish(ratings(), "music").save(
        folder / "places"
    )
    EncryptedBridgePublisher(4.0, received=folder / "places").publish(ratings(), "book").save(folder / "encrypted")
    return folder


def test_the_map_is_decrypted_and_its_record_printed(
    exchange: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["decrypt", exchange / "encrypted", "--key", exchange / "own.key", "--out", tmp_path / "map"]
    (tmp_path / "second.key").hardlink_to(exchange / "own.key")
    assert "own.key has 2 hard links" in ended(given)
    (tmp_path / "second.key").unlink()
    assert ended(given) == ""
    out = capsys.readouterr().out
    assert "mechanism      BridgePublisher, encrypted" in out
    assert "condition      the target follows the protocol" in out
    assert out.endswith(f"Release of 'book' (map, 9 users): {tmp_path / 'map'}\n")
    assert "has been used: own.key.used exists" in ended([*given[:-1], tmp_path / "again"])
    (tmp_path / "link.key").symlink_to(exchange / "own.key")
    linked = [*given[:3], tmp_path / "link.key", "--out", tmp_path / "again"]
    assert "has been used: own.key.used exists" in ended(linked)
    made, encrypted = Release.load(tmp_path / "map"), Release.load(exchange / "encrypted")
    assert (made.kind, made.record, made.ledger) == ("map", encrypted.record, encrypted.ledger)
    # The noise of both parties is printed, and `Bridge` computes its gain with it: a large map has no signal under more noise.
    stated = made.record.public_inputs
    assert float(stated["sigma_decrypted"]) >= 1.03 * float(stated["sigma"])
    assert f"public input   sigma_decrypted = {stated['sigma_decrypted']}" in out
    edge = torch.full_like(made.tensors["map"], 1.01 * float(stated["sigma"]))
    assert not place(replace(made, tensors={**made.tensors, "map": edge}), ratings(), 9).any()
    assert "never overwritten" in ended(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["encrypted", "--key", "absent", "--out", "m"], "No key file at"),
        (["places", "--key", "own.key", "--out", "m"], "It must be 'encrypted_map'"),
        (["absent", "--key", "own.key", "--out", "m"], "is no release: there is no such folder"),
        (["encrypted", "--key", "encrypted/release.json", "--out", "m"], "Pass the file that publishing wrote"),
    ],
)
def test_what_cannot_be_decrypted_is_a_sentence(exchange: Path, given: list[str], said: str) -> None:
    paths = [part if part.startswith("--") else exchange / part for part in given]
    assert said in ended(["decrypt", *paths])
    assert not (exchange / "m").exists()


def test_without_the_library_one_is_told_what_to_install(exchange: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    said = ended(["decrypt", exchange / "encrypted", "--key", exchange / "own.key", "--out", exchange / "m"])
    assert "Install it: pip install 'tenseal" in said


def test_who_trusts_keys_takes_signed_maps_alone(
    exchange: Path, tmp_path: Path, key_pair: tuple[Ed25519PrivateKey, Path]
) -> None:
    """Signed by the source as it published; the decrypted release is the target's own and has no signature."""
    key, public = key_pair
    own = shutil.copy(exchange / "own.key", tmp_path / "own.key")
    Release.load(exchange / "encrypted").save(tmp_path / "signed", SigningKey(key))
    options = ["--key", own, "--trusted", public, "--out"]
    assert "is not signed" in ended(["decrypt", exchange / "encrypted", *options, tmp_path / "no"])
    assert ended(["decrypt", tmp_path / "signed", *options, tmp_path / "map"]) == ""
    assert {file.name for file in (tmp_path / "map").iterdir()} == {"release.json", "tensors.safetensors"}


def test_fit_is_told_to_decrypt_first(tmp_path: Path) -> None:
    settings = {"num_users": 40, "num_items": 30, "seed": 1, "evaluation": Evaluation(split="cold_start")}
    data = Synthetic(**settings)
    data.read_target()
    EncryptedProjectionPublisher(num_directions=2, secret_key=tmp_path / "own.key").publish(data.train, "music").save(
        tmp_path / "places"
    )
    path = (
        EncryptedBridgePublisher(4.0, received=tmp_path / "places")
        .publish(data.source("book"), "book")
        .save(tmp_path / "map")
    )
    there = Synthetic(**settings, releases={"book": path})
    there.setup("fit")
    with pytest.raises(
        ReleaseError, match=r"of kind 'encrypted_map'\. Decrypt it at the target .*: python -m encrypted_bridge decrypt"
    ):
        there.read_releases()


@pytest.mark.slow
def test_the_exchange_runs_by_commands_and_the_map_trains_a_bridge(tmp_path: Path) -> None:
    """Four commands of the README, by short names of publishers, and the record that the run keeps."""
    common = [
        "--model",
        "Bridge",
        "--data",
        "Synthetic",
        "--data.num_users",
        "40",
        "--data.num_items",
        "30",
        "--data.seed",
        "1",
    ]
    common += ["--data.evaluation.split", "cold_start"]
    one_epoch = ["--trainer.max_epochs", "1", "--trainer.accelerator", "cpu", "--trainer.default_root_dir", "runs"]

    def run(module: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    places = ["--publisher", "EncryptedProjectionPublisher", "--publisher.secret_key", "own.key"]
    swapped = ["--data.target", "book", "--data.sources", "[music]"]
    run("zoo", "publish", *common, *swapped, *places, "--out", "places")
    bridge = ["--publisher", "EncryptedBridgePublisher", "--publisher.epsilon", "4", "--publisher.received", "places"]
    run("zoo", "publish", *common, *bridge, "--out", "encrypted")
    run("encrypted_bridge", "decrypt", "encrypted", "--key", "own.key", "--out", "map")
    page = run("zoo", "fit", *common, "--data.releases.book", "map", *one_epoch)
    assert "claim of encrypted_bridge.publishers.EncryptedBridgePublisher" in " ".join(page.split())
    assert zoo.load(tmp_path / "runs" / "Bridge" / "version_0")
