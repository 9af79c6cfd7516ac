"""Releases as files: written whole, read with distrust."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.samples import MARKUP, UNPRINTABLE, binary, edit_json
from zoo import JLT, NoisyRows, Nothing, Plaintext, Release
from zoo.data.rows import SparseRows
from zoo.privacy.record.record import UnderstatedPrivacyError
from zoo.release.files import MANIFEST, TENSORS, ReleaseError, tensor_digest


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return JLT(epsilon=2.0, num_components=5).publish(binary(), "book").save(tmp_path / "book")


def test_a_release_can_be_handed_over(saved: Path) -> None:
    assert sorted(p.name for p in saved.iterdir()) == sorted([MANIFEST, TENSORS])
    assert saved.stat().st_mode & 0o777 == 0o755
    assert all(p.stat().st_mode & 0o777 == 0o644 for p in saved.iterdir())
    assert [p.name for p in saved.parent.iterdir()] == ["book"]


def test_a_release_is_never_overwritten(saved: Path) -> None:
    with pytest.raises(FileExistsError, match="never overwritten"):
        Plaintext().publish(binary(), "book").save(saved)


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("zoo.release.release.save_tensors", fail)
    with pytest.raises(OSError, match="disk full"):
        Plaintext().publish(binary(), "book").save(tmp_path / "book")
    assert list(tmp_path.iterdir()) == []


def test_rows_and_bags_agree() -> None:
    ratings = binary()
    release = Plaintext().publish(ratings, "book")
    index = torch.tensor([2, 0, 2])
    dense = torch.from_numpy(ratings.matrix.toarray())[index]
    assert torch.equal(release.rows(index), dense)
    sparse = release.device_rows()
    assert isinstance(sparse, SparseRows)
    items, offsets, weights = sparse.bags(index)
    summed = torch.nn.functional.embedding_bag(items, torch.eye(7), offsets, mode="sum", per_sample_weights=weights)
    assert torch.equal(summed, dense)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(schema=4), "has schema 4. Allowed: <= 3. Upgrade"),
        (lambda m: m.update(schema=3), r"must hold exactly \['about', .*'sha256'"),
        (lambda m: m.update(schema=2), r"must hold exactly .*'shards'"),
        (lambda m: m.pop("schema"), "names no schema"),
        (lambda m: m.update(schema=True), "names no schema"),
        (lambda m: m.pop("ledger"), "must hold exactly"),
        (lambda m: m.update(extra=1), "must hold exactly"),
        (lambda m: m.update(kind="pickle"), "Release kind .* is unknown"),
        (lambda m: m.update(user_ids="abc"), "user_ids must be a list"),
        (lambda m: m.update(user_ids=[1] * 9), "user ids must be strings"),
        (lambda m: m.update(user_ids=["u1"] * 9), "A user id is repeated"),
        (lambda m: m.update(user_ids=m["user_ids"][1:]), r"must have shape \(8, 1 <= width"),
        (lambda m: m["record"].update(epsilon=-1.0), "epsilon"),
        (lambda m: m["record"].update(surprise=1), "unknown fields"),
        (lambda m: m["ledger"][0].update(type="FreeLunchEvent"), "type of the event is 'FreeLunchEvent'"),
        (lambda m: m.update(ledger=[]), "Its ledger has no private release"),
        (lambda m: m.update(ledger=[{"type": "NoOpEvent"}]), "Its ledger has no private release"),
        (lambda m: m["record"].update(noise_scale=0.0), "noise_scale is 0.0"),
        (lambda m: m.update(domain=""), "A domain is ''"),
        (lambda m: m.update(schema=0), "schema 0. Allowed: >= 1"),
    ],
)
def test_a_hostile_manifest_is_refused(saved: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    edit_json(saved / MANIFEST, change)
    with pytest.raises(ValueError, match=message):
        Release.load(saved)


def test_names_that_a_terminal_would_obey_are_refused(saved: Path) -> None:
    release = Release.load(saved)
    own = release.user_ids.tolist()
    for name in UNPRINTABLE.values():
        for what, change in (("domain", {"domain": name}), ("user id", {"user_ids": [*own[:4], name, *own[5:]]})):
            edit_json(
                saved / MANIFEST, lambda m, change=change: m.update({"domain": "book", "user_ids": own, **change})
            )  # type: ignore[misc]
            with pytest.raises(ReleaseError, match=rf"A {what} is .* printable characters") as caught:
                Release.load(saved)
            assert str(caught.value).isprintable()
        with pytest.raises(ReleaseError, match=r"A domain is .* Allowed: printable characters"):
            replace(release, domain=name)
        if not name.endswith("\x00"):  # which an array of texts cannot hold
            with pytest.raises(ReleaseError, match=r"A user id is .* printable characters"):
                replace(release, user_ids=np.array([*own[1:], name]))


def test_any_printable_name_is_taken(saved: Path) -> None:
    for name in ("Bücher", "本", "a b", "书 [x]", MARKUP):
        edit_json(saved / MANIFEST, lambda m, name=name: m.update(domain=name, user_ids=[*m["user_ids"][1:], name]))  # type: ignore[misc]
        assert Release.load(saved).domain == Release.load(saved).user_ids[-1] == name


def test_ratings_as_they_are_may_not_claim_a_guarantee() -> None:
    proved, plain = JLT(epsilon=2.0, num_components=5).publish(binary(), "book"), Plaintext().publish(binary(), "book")
    with pytest.raises(ReleaseError, match="Unprocessed ratings have none"):
        replace(plain, record=proved.record, ledger=proved.ledger)


def test_a_record_may_not_state_less_than_its_ledger(saved: Path) -> None:
    edit_json(saved / MANIFEST, lambda m: m["ledger"][0].update(noise_multiplier=0.5))
    with pytest.raises(UnderstatedPrivacyError, match=r"epsilon is 2 .*The ledger gives"):
        Release.load(saved)


@pytest.mark.parametrize(("users", "delta"), [(9, 0.5), (1000, 0.001)])
def test_a_delta_that_hands_over_one_user_is_refused(users: int, delta: float) -> None:
    release = NoisyRows(epsilon=2.0).publish(binary(), "book")
    mechanism = replace(release.record.mechanism, delta=delta, num_users=users)
    with pytest.raises(ReleaseError, match=f"delta is .*below 1/{users} \\(users\\)"):
        replace(release, record=replace(release.record, mechanism=mechanism))


def test_a_release_of_an_earlier_version_is_read_with_its_digest() -> None:
    """As bundles, checkpoints and budgets name it."""
    release = Release.load(Path(__file__).parent / "release_of_0.3.0")
    assert release.digest == "c55d9b8aab2aba98b3873cdb5c25e3c5daa297f260be88061d2edc68a735b516"
    assert release.record.summary() == "rating (change one rating), eps 4.00, delta 1e-05, proved"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 1, "schema": 1}', "schema is given twice"),
        ('{"schema": NaN}', "holds NaN"),
        ('{"schema": 1e999}', "holds 1e999"),
        ("{", "is no JSON"),
        ("[" * 99999, "is no JSON"),
    ],
)
def test_a_manifest_that_is_no_honest_json_is_refused(saved: Path, text: str, message: str) -> None:
    (saved / MANIFEST).write_text(text)
    with pytest.raises(ReleaseError, match=message):
        Release.load(saved)


def test_truncated_tensors_are_refused(saved: Path) -> None:
    whole = (saved / TENSORS).read_bytes()
    for keep in (0, 7, 100, -1):
        (saved / TENSORS).write_bytes(whole[:keep])
        with pytest.raises(ReleaseError, match=r"cannot be read .* Ask the source party for it again"):
            Release.load(saved)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"rows": torch.full((9, 5), torch.nan)}, "has NaN or values beyond"),
        ({"rows": torch.full((9, 5), torch.inf)}, r"NaN or values beyond 1e\+12"),
        ({"rows": torch.full((9, 5), -1.01e12)}, "has NaN or values beyond"),
        ({"rows": torch.zeros(9, 5, dtype=torch.float64)}, "must be torch.float32"),
        ({"rows": torch.zeros(9, 5, dtype=torch.bfloat16)}, "must be torch.float32"),
        ({"rows": torch.zeros(9)}, r"must have shape \(9, 1 <= width <= 2\*\*24\), got \(9,\)"),
        ({"rows": torch.zeros(9, 0)}, r"must have shape"),
        ({"columns": torch.zeros(9, 5)}, r"must be exactly \['rows'\]"),
    ],
)
def test_tensors_of_another_shape_are_refused(saved: Path, tensors: dict[str, torch.Tensor], message: str) -> None:
    save_file(tensors, saved / TENSORS)
    honest = {name: tensor_digest(tensor) for name, tensor in tensors.items()}
    edit_json(saved / MANIFEST, lambda m: m.update(sha256=honest))
    with pytest.raises(ReleaseError, match=message):
        Release.load(saved)


def test_what_was_read_stays_what_it_was_whoever_writes_to_the_file(saved: Path) -> None:
    """A file that is mapped into memory would change after it was checked."""
    release = Release.load(saved)
    before = release.tensors["rows"].clone()
    with (saved / TENSORS).open("r+b") as file:
        file.seek(-40, 2)
        file.write(bytes(40))
    assert torch.equal(release.tensors["rows"], before)


@pytest.mark.parametrize("kind", ["rows", "ratings"])
def test_a_release_of_nobody_is_written_and_read(kind: Literal["rows", "ratings"], tmp_path: Path) -> None:
    release = Nothing(kind).publish(binary(), "book")
    assert Release.load(release.save(tmp_path / "book")).digest == release.digest


def test_a_flipped_bit_is_noticed(saved: Path) -> None:
    content = bytearray((saved / TENSORS).read_bytes())
    content[-3] ^= 1
    (saved / TENSORS).write_bytes(bytes(content))
    with pytest.raises(ReleaseError, match=r"differs from its SHA-256 in release.json"):
        Release.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": torch.full((1,), 99)}, "equally long items and weights"),
        ({"starts": torch.zeros(10, dtype=torch.int64)}, "must rise from 0 to the number of entries"),
        ({"num_items": torch.tensor([1])}, r"must lie in \[0, 1\)"),
        ({"num_items": torch.tensor([0])}, "one number from 1"),
        ({"num_items": torch.tensor([2**24 + 1])}, r"one number from 1 to 2\*\*24"),
    ],
)
def test_compressed_rows_that_point_outside_are_refused(change: dict[str, torch.Tensor], message: str) -> None:
    release = Plaintext().publish(binary(), "book")
    with pytest.raises(ReleaseError, match=message):
        Release("ratings", "book", {**release.tensors, **change}, release.user_ids, release.record, release.ledger)


def test_a_folder_that_is_no_release_is_refused(tmp_path: Path, saved: Path) -> None:
    with pytest.raises(
        ReleaseError, match=r"absent is no release: there is no such folder\. Pass .*--data\.releases\.NAME PATH"
    ):
        Release.load(tmp_path / "absent")
    with pytest.raises(ReleaseError, match=rf"no such folder\. Did you mean {saved.name}\? Pass the"):
        Release.load(saved.with_name(f"{saved.name}s"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReleaseError, match=r"is no release: it has no release.json"):
        Release.load(tmp_path / "empty")
    (saved / TENSORS).unlink()
    with pytest.raises(ReleaseError, match=r"it has no tensors.safetensors. Ask the source party for the whole folder"):
        Release.load(saved)


def test_a_pickle_is_never_read(saved: Path) -> None:
    torch.save({"rows": torch.zeros(9, 5)}, saved / TENSORS)
    with pytest.raises(ReleaseError, match=r"cannot be read"):
        Release.load(saved)


def test_ids_are_strings_whatever_they_look_like() -> None:
    assert JLT(epsilon=1.0, num_components=2).publish(binary(), "book").user_ids.dtype.kind == "U"
    assert np.array_equal(binary().user_ids, Plaintext().publish(binary(), "b").user_ids)
