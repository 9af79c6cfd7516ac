"""A bridge with encrypted places, from one party to the other and back: what is handed over, its record, what is refused."""

import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array, hstack

from encrypted_bridge.decryption import KeyPair, RefusedError, SecretKeyError, decrypt
from encrypted_bridge.mechanism import ENCRYPTED, PLACES, EncryptedBridge
from encrypted_bridge.parameters import DEGREE, FLOOD, MODULUS
from encrypted_bridge.protocol import decrypted_map
from encrypted_bridge.publishers import EncryptedBridgePublisher, EncryptedProjectionPublisher
from zoo import BridgePublisher, Partial, Plaintext, ProjectionPublisher, Ratings, Release, Shuffled
from zoo.data.ratings import Step
from zoo.privacy.mechanisms.base import MechanismError
from zoo.privacy.mechanisms.goodness_of_fit import refuse_unlikely
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing, round_to_lattice
from zoo.privacy.record.record import Guarantee, PrivacyRecord, RecordError, unprotected_record
from zoo.privacy.record.steps import recorded_steps
from zoo.release.files import MANIFEST, TENSORS, ReleaseError
from zoo.testing.tiny import ratings


def target() -> Ratings:
    """Ratings of other items by the source's users, in another order, without one of them."""
    made = ratings(9, 12, seed=4)
    return Ratings(made.matrix[::-1][:8], made.user_ids[::-1][:8], made.item_ids)


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the target's file of keys, and with the places that it hands over."""
    folder = tmp_path_factory.mktemp("target")
    (folder / "own").mkdir()
    publisher = EncryptedProjectionPublisher(num_directions=2, secret_key=folder / "own" / "music.key")
    publisher.publish(target(), "music").save(folder / "places")
    return folder


def own_key(handed_over: Path, folder: Path) -> Path:
    """Return a copy of the target's key file, since keys decrypt once."""
    return shutil.copy(handed_over / "own" / "music.key", folder / "music.key")


def bridge(handed_over: Path, epsilon: float = 4.0, **settings: Any) -> EncryptedBridgePublisher:  # noqa: ANN401
    return EncryptedBridgePublisher(epsilon, received=handed_over / "places", **settings)


def plain(**settings: Any) -> BridgePublisher:  # noqa: ANN401
    return BridgePublisher(4.0, projections=ProjectionPublisher(num_directions=2), **settings).for_target(target())


def test_what_the_target_decrypts_is_the_map_of_the_plain_publisher(handed_over: Path, tmp_path: Path) -> None:
    """With the same noise and the target's own: nine users whose places are a thousandth shorter, on a lattice. The noise of
    14 numbers is below 7 deviations but for 4 in 10^11 draws, and half of them on the plain map's own point for fewer."""
    bridge(handed_over, noise_seed=3).publish(ratings(), "book").save(tmp_path / "encrypted")
    made = decrypt(tmp_path / "encrypted", own_key(handed_over, tmp_path), tmp_path / "map")
    expected = plain(noise_seed=3).publish(ratings(), "book")
    assert made.kind == "map"
    assert Release.load(tmp_path / "map").digest == made.digest
    assert torch.equal(made.tensors["items"], expected.tensors["items"])
    assert torch.equal(made.tensors["counts"], expected.tensors["counts"])
    apart, sigma = (made.tensors["map"] - expected.tensors["map"]).abs(), float(expected.record.public_inputs["sigma"])
    assert apart.max() <= 9 * 1.2e-3 + lattice_spacing(sigma) + 7 * FLOOD * sigma
    assert apart.median() > 0
    assert list(made.user_ids) == list(ratings().user_ids)


def test_the_secret_key_is_its_owners_alone_and_in_nothing_that_is_handed_over(
    handed_over: Path, tmp_path: Path
) -> None:
    file = handed_over / "own" / "music.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["music.key"]  # nothing of a temporary name is left
    secret = KeyPair.read(file).secret_key[0]
    release = bridge(handed_over).publish(ratings(), "book").save(tmp_path / "encrypted")
    numbers = [secret.numpy().tobytes()[at : at + 64] for at in (0, 8192, 32704)]
    for folder in (handed_over / "places", release):
        assert {path.name for path in folder.iterdir()} == {MANIFEST, TENSORS}
        content = b"".join(path.read_bytes() for path in folder.iterdir())
        assert not any(part in content for part in numbers)
        assert str(int(secret[0])).encode() not in content
    assert all(part in file.read_bytes() for part in numbers)


def test_places_are_hidden_by_encryption_which_is_no_differential_privacy(handed_over: Path) -> None:
    release = Release.load(handed_over / "places")
    assert (release.kind, release.num_users, release.width) == ("encrypted_places", 8, 2)
    assert release.record.guarantee is Guarantee.NONE
    assert release.record.summary().startswith(
        "none (the users' positions are encrypted, which is no differential privacy"
    )
    assert EncryptedProjectionPublisher(secret_key=Path("x")).audits() == []


def seen_by_the_source(folder: Path) -> tuple[str, dict[str, tuple[Any, ...]]]:
    """All but ciphertexts, keys and their hashes: the manifest, and shapes of the tensors."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["sha256"] = [*manifest["sha256"]]
    found = Release.load(folder)
    return json.dumps(manifest), {name: (part.dtype, *part.shape) for name, part in found.tensors.items()}


def test_an_item_that_one_rating_adds_to_the_target_does_not_reach_the_source(tmp_path: Path) -> None:
    """Two worlds: with and without one rating of an item that no other user has, and here with another filter as well."""
    small, rare = target(), csr_array(([1.0], ([3], [0])), shape=(8, 1))
    wide = csr_array(hstack([small.matrix, rare]))
    assert (wide.sum(), wide.shape) == (small.matrix.sum() + 1, (8, 13))
    filtered = Step("users with at least 2 and items with at least 1 of them (one pass)", "counts_decide", "row")
    worlds = (small, Ratings(wide, small.user_ids, np.append(small.item_ids, "rare"), (*small.applied, filtered)))
    for number, world in enumerate(worlds):
        publisher = EncryptedProjectionPublisher(tmp_path / f"{number}.key", num_directions=2)
        publisher.publish(world, "music").save(tmp_path / str(number))
    assert seen_by_the_source(tmp_path / "0") == seen_by_the_source(tmp_path / "1")
    record = Release.load(tmp_path / "0").record
    assert (record.public_inputs, record.steps) == ({"item_damping": 0.5}, ())


def test_places_whose_record_has_sizes_and_steps_are_still_read(handed_over: Path, tmp_path: Path) -> None:
    """As earlier versions wrote it."""
    release = Release.load(handed_over / "places")
    inputs = {"width": 2, "item_damping": 0.25, "num_users": 8, "num_items": 12, "num_layers": 1}
    codes = release.record.mechanism.statement.not_protected
    earlier = unprotected_record(
        PLACES, ENCRYPTED, recorded_steps([Step("split")]), public_inputs=inputs, not_protected=codes
    )
    replace(release, record=earlier).save(tmp_path / "places")
    made = EncryptedBridgePublisher(4.0, received=tmp_path / "places").publish(ratings(), "book")
    assert made.record.public_inputs["item_damping"] == 0.25


def test_the_record_of_the_map_names_what_encryption_rests_on(handed_over: Path) -> None:
    encrypted, bare = bridge(handed_over).publish(ratings(), "book").record, plain().publish(ratings(), "book").record
    assert (encrypted.guarantee, bare.guarantee) == (Guarantee.CONDITIONAL, Guarantee.PROVED)
    maker = "encrypted_bridge.mechanism.EncryptedBridge"
    assert encrypted.conditions == ("target_follows", "encryption_hard", f"claimed_by:{maker}")
    assert (encrypted.epsilon, encrypted.sensitivity, encrypted.noise_scale) == (4.0, 1.0, bare.noise_scale)
    assert {"whole_numbers", "maps_agree"} <= set(encrypted.assumptions)
    assert "target_encrypted" in encrypted.not_protected
    assert "target_users" not in encrypted.not_protected
    assert any(
        "sees their ids, the record of their release and" in text for text in encrypted.sentences("not_protected")
    )
    assert any("ring learning with errors" in text for text in encrypted.sentences("conditions"))
    claim = encrypted.claimed_by(EncryptedBridgePublisher).sentences("conditions")[-1]
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert f'"{claim}"' in " ".join(readme.split())
    limited = EncryptedBridgePublisher(None, handed_over / "places", attack_success=0.6).forecast(8, 7)
    assert limited.attack_success == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("conditions", codes) for codes in ([], ["target_follows"], ["encryption_hard"])),
        *((name, []) for name in ("assumptions", "not_protected")),
        *(("epsilon", 2.0), ("mu", 0.1), ("noise_scale", 0.1), ("sensitivity", 0.5)),
    ],
)
def test_a_record_that_states_something_else_is_refused(handed_over: Path, name: str, value: object) -> None:
    written = bridge(handed_over).publish(ratings(), "book").record.to_dict()
    assert PrivacyRecord.from_dict(written).mechanism.name == "BridgePublisher, encrypted"
    with pytest.raises(RecordError, match=name):
        PrivacyRecord.from_dict(_with(written, name, value))


def _with(written: dict[str, Any], name: str, value: object) -> dict[str, Any]:
    """The record with another value wherever it states this fact."""
    changed = {key: _with(part, name, value) if isinstance(part, dict) else part for key, part in written.items()}
    return changed | ({name: value} if name in written else {})


def test_a_seeded_map_has_no_guarantee(handed_over: Path) -> None:
    record = bridge(handed_over, noise_seed=3).publish(ratings(), "book").record
    assert (record.guarantee, record.epsilon, record.conditions) == (Guarantee.NONE, None, ())


def test_every_release_has_masks_of_its_own(handed_over: Path) -> None:
    publisher = bridge(handed_over, noise_seed=3)
    first, second = (publisher.publish(ratings(), "book").tensors["masks"] for _ in range(2))
    assert (first != second).float().mean() > 0.99


def test_a_map_without_its_noise_is_refused_when_it_is_decrypted(handed_over: Path, tmp_path: Path) -> None:
    """60 items of nobody, so that all is noise, and of that a thousandth; before it is decrypted nobody sees it."""
    nobody = ratings(9, 60, density=0.0)
    release = bridge(handed_over, epsilon=4.0).publish(nobody, "book")
    silent = bridge(handed_over, epsilon=1e6, delta=1e-5).publish(nobody, "book")
    swapped = {name: silent.tensors[name] for name in ("bodies", "masks")}
    lying = replace(release, tensors={**release.tensors, **swapped})
    lying.save(tmp_path / "lying")
    with pytest.raises(RefusedError):
        decrypt(tmp_path / "lying", own_key(handed_over, tmp_path), tmp_path / "map")


def test_a_map_that_cannot_be_written_is_refused_before_its_keys_are_used(
    handed_over: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge(handed_over, epsilon=4.0).publish(ratings(9, 8), "book").save(tmp_path / "map")
    key = own_key(handed_over, tmp_path)

    def too_large(*_: object) -> None:
        raise ReleaseError("release.json has more bytes than allowed.")

    monkeypatch.setattr(Release, "save", too_large)
    with pytest.raises(ReleaseError, match="more bytes than allowed"):
        decrypt(tmp_path / "map", key, tmp_path / "out")
    assert not key.with_name(f"{key.name}.used").exists()


def test_the_targets_own_noise_does_not_stand_for_the_sources() -> None:
    plan = EncryptedBridge.calibrate(
        epsilon=8.0, delta=1e-7, num_items=20_000, kept_items=20_000, num_directions=6, num_users=500_000
    )
    counts = round_to_lattice(plan.counts_std * NoiseSource.seeded(3).normal((20_000,)), plan.counts_std).astype(
        np.float32
    )
    others = {"counts": counts, "items": np.arange(20_000)}
    nothing = np.zeros((2, 20_000, 6))
    noisy = nothing + plan.noise_std * NoiseSource.seeded(4).normal((20_000, 6))
    assert plan.map_std > 2 * plan.noise_std, "the target adds more than the source"
    refuse_unlikely(plan, {"map": decrypted_map(noisy, plan, NoiseSource.seeded(5)), **others})
    with pytest.raises(MechanismError, match="they vary too little"):
        refuse_unlikely(plan, {"map": decrypted_map(nothing, plan, NoiseSource.seeded(5)), **others})


def test_other_keys_than_the_maps_are_refused(handed_over: Path, tmp_path: Path) -> None:
    EncryptedProjectionPublisher(num_directions=2, secret_key=tmp_path / "other.key").publish(target(), "music")
    bridge(handed_over).publish(ratings(), "book").save(tmp_path / "encrypted")
    with pytest.raises(SecretKeyError, match=r"made with another public key\. Pass this source"):
        decrypt(tmp_path / "encrypted", tmp_path / "other.key", tmp_path / "map")
    assert not (tmp_path / "map").exists()


def test_a_plain_release_is_not_decrypted(handed_over: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"of kind 'encrypted_places'. It must be 'encrypted_map'"):
        decrypt(handed_over / "places", handed_over / "own" / "music.key", tmp_path / "map")


def test_keys_are_never_overwritten(handed_over: Path) -> None:
    file = handed_over / "own" / "music.key"
    before = file.read_bytes()
    with pytest.raises(FileExistsError, match="keys are never overwritten"):
        EncryptedProjectionPublisher(num_directions=2, secret_key=file).publish(target(), "music")
    with pytest.raises(FileExistsError, match="Choose another path"):
        KeyPair.read(file).save(file)
    assert file.read_bytes() == before


def test_keys_are_written_where_a_disk_knows_no_links(
    handed_over: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", unknown)
    file = KeyPair.read(handed_over / "own" / "music.key").save(tmp_path / "music.key")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == (handed_over / "own" / "music.key").read_bytes()
    assert [path.name for path in file.parent.iterdir()] == ["music.key"]


def test_a_release_is_never_overwritten_by_a_decrypted_one(handed_over: Path) -> None:
    with pytest.raises(FileExistsError, match="never overwritten"):
        decrypt(handed_over / "places", handed_over / "own" / "music.key", handed_over / "places")


@pytest.mark.parametrize("content", [b"", b"\x00" * 50, b"x" * 2**19], ids=["empty", "no header", "too long"])
def test_a_damaged_file_of_keys_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(content)
    with pytest.raises(SecretKeyError, match="Pass the file that publishing wrote"):
        KeyPair.read(tmp_path / "k")
    with pytest.raises(FileNotFoundError, match="No key file at"):
        KeyPair.read(tmp_path / "absent")


def test_a_truncated_file_of_keys_is_refused(handed_over: Path, tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes((handed_over / "own" / "music.key").read_bytes()[:-9])
    with pytest.raises(SecretKeyError, match="cannot be read"):
        KeyPair.read(tmp_path / "k")


def copied(folder: Path, into: Path) -> Path:
    into.mkdir()
    for file in folder.iterdir():
        (into / file.name).write_bytes(file.read_bytes())
    return into


@pytest.mark.parametrize("cut", [1, 2**15, 2**17])
def test_truncated_places_are_a_sentence_at_the_source(handed_over: Path, tmp_path: Path, cut: int) -> None:
    there = copied(handed_over / "places", tmp_path / "places")
    (there / TENSORS).write_bytes((there / TENSORS).read_bytes()[:-cut])
    with pytest.raises(ReleaseError, match="cannot be read"):
        EncryptedBridgePublisher(4.0, received=there).publish(ratings(), "book")


def test_places_that_somebody_changed_on_the_way_are_a_sentence(handed_over: Path, tmp_path: Path) -> None:
    there = copied(handed_over / "places", tmp_path / "places")
    content = bytearray((there / TENSORS).read_bytes())
    content[-5] ^= 1
    (there / TENSORS).write_bytes(bytes(content))
    with pytest.raises(ReleaseError, match="differs from its SHA-256"):
        EncryptedBridgePublisher(4.0, received=there).publish(ratings(), "book")


def places_with(**tensors: torch.Tensor) -> Any:  # noqa: ANN401
    return lambda kept: {**kept, **tensors}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (places_with(directions=torch.tensor([0])), "'directions' must be one number from 1 to 2048"),
        (places_with(directions=torch.tensor([2**40])), "'directions' must be one number from 1 to 2048"),
        (places_with(directions=torch.tensor([1, 2])), "'directions' must be one number from 1 to 2048"),
        (places_with(directions=torch.tensor([4096])), "'directions' must be one number from 1 to 2048"),
        (places_with(directions=torch.tensor([2048])), r"8 users, places must be \(2, 4, 2, 4096\)"),
        (places_with(places=torch.zeros(2, 1, 2, DEGREE).long()), "'places' has a ciphertext with second half 0"),
        (places_with(public_key=torch.ones(2, 2, DEGREE).long() * torch.tensor([[1], [0]])), "'public_key' has a ciphertext with"),
        (places_with(places=torch.zeros(2, 1, 2, 7).long()), r"got \(2, 1, 2, 7\), \(2, 2, 4096\)"),
        (places_with(places=torch.full((2, 1, 2, DEGREE), -1)), r"'places' must hold integers in \[0, 1152921504606830593\)"),
        (places_with(public_key=torch.full((2, 2, DEGREE), MODULUS)), "Tensor 'public_key' must hold integers in"),
        (places_with(places=torch.zeros(2, 1, 2, DEGREE)), r"'places' must be torch\.int64, got torch\.float32"),
        (places_with(more=torch.zeros(1)), "The tensors must be exactly"),
    ],
)  # fmt: skip
def test_places_that_are_none_are_refused(handed_over: Path, tensors: Any, message: str) -> None:  # noqa: ANN401
    release = Release.load(handed_over / "places")
    with pytest.raises(ReleaseError, match=message):
        replace(release, tensors=tensors(release.tensors))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"bodies": torch.zeros(7).long()}, r"must be \(2, kept, 1 to 2048\), masks \(2, kept, 4096\); got \(7,\)"),
        ({"bodies": torch.zeros(1, 7, 2).long()}, r"got \(1, 7, 2\), \(2, 7, 4096\)"),
        ({"masks": torch.zeros(2, 6, DEGREE).long()}, r"got \(2, 7, 2\), \(2, 6, 4096\)"),
        ({"masks": torch.full((2, 7, DEGREE), MODULUS)}, "Tensor 'masks' must hold integers in"),
        ({"masks": torch.zeros(2, 7, DEGREE).long()}, "'masks' has a ciphertext with second half 0"),
        ({"bodies": torch.full((2, 7, 2), -5)}, "Tensor 'bodies' must hold integers in"),
        ({"items": torch.tensor([0, 1, 2, 3, 4, 5, 9])}, r"Tensor 'items' must rise and lie in \[0, 7\)"),
        ({"counts": torch.full((7,), torch.nan)}, "NaN or values beyond"),
    ],
)  # fmt: skip
def test_an_encrypted_map_that_is_none_is_refused(
    handed_over: Path, tensors: dict[str, torch.Tensor], message: str
) -> None:
    release = bridge(handed_over).publish(ratings(), "book")
    with pytest.raises(ReleaseError, match=message):
        replace(release, tensors={**release.tensors, **tensors})


def test_a_header_that_claims_another_shape_than_its_record_is_refused(handed_over: Path, tmp_path: Path) -> None:
    folder = bridge(handed_over).publish(ratings(), "book").save(tmp_path / "encrypted")
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["record"]["parameters"]["num_directions"] = 5
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ReleaseError, match=r"has shape \(7, 2\), unlike"):
        Release.load(folder)


def test_controls_and_parts_go_through_encryption_too(handed_over: Path) -> None:
    """Wrong people; of fewer users a map is the same map; of ciphertexts nobody cuts users out."""
    shuffled = Shuffled(bridge(handed_over)).publish(ratings(), "book")
    assert shuffled.record.public_inputs["rows"] == "shuffled among the users (control)"
    assert Partial(bridge(handed_over), share=0.5).publish(ratings(), "book").num_users == 4
    with pytest.raises(ReleaseError, match="cannot be split by users"):
        Release.load(handed_over / "places").tensors_of(torch.tensor([0]))
    with pytest.raises(ReleaseError, match="has no rows to read"):
        shuffled.rows(torch.tensor([0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EncryptedProjectionPublisher(Path("x"), num_directions=5000), "num_directions is 5000"),
        (lambda: EncryptedBridgePublisher(-1.0, Path("x")), "epsilon"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(make: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=message):
        make()


def test_a_release_of_another_kind_is_still_refused(tmp_path: Path) -> None:
    folder = Plaintext().publish(target(), "music").save(tmp_path / "plain")
    with pytest.raises(ValueError, match="It must have kind 'encrypted_places'"):
        EncryptedBridgePublisher(1.0, received=folder).publish(ratings(), "book")


def test_the_plain_publisher_refuses_encrypted_places(handed_over: Path) -> None:
    with pytest.raises(ValueError, match="It must have kind 'embeddings'"):
        BridgePublisher(1.0, received=handed_over / "places").publish(ratings(), "book")


def test_the_audit_of_such_a_publisher_goes_through_the_encryption(handed_over: Path) -> None:
    (audit,) = bridge(handed_over).audits()
    assert audit.name == "BridgePublisher, encrypted"
    assert audit.residuals is None
