"""A release in several files, read with distrust."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from tests.samples import binary, edit_json, memory_below, some_ratings
from zoo import JLT, Nothing, Release
from zoo.release import files
from zoo.release.files import (
    LONGEST_NAME,
    MANIFEST,
    TENSORS,
    ReleaseError,
    all_finite,
    check_values,
    save_tensors,
    shard_name,
    tensor_digest,
)

Manifest = dict[str, Any]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nine users in files of four, four and one."""
    monkeypatch.setattr("zoo.publishers.projected.LAZY_BYTES", 0)
    monkeypatch.setattr("zoo.release.lazy_rows.SHARD_BYTES", 80)
    return JLT(epsilon=2.0, num_components=5).publish(binary(), "book").save(tmp_path / "book")


def replace_shard(path: Path, number: int, tensors: dict[str, torch.Tensor]) -> None:
    """Another shard with an honest digest."""
    save_file(tensors, path / shard_name(number))
    honest = {name: tensor_digest(tensor) for name, tensor in tensors.items()}
    edit_json(path / MANIFEST, lambda m: m["shards"][number - 1].update(sha256=honest))


def test_files_are_put_together_in_one_tensor(saved: Path) -> None:
    parts = [load_file(saved / shard_name(number))["rows"] for number in (1, 2, 3)]
    assert [len(part) for part in parts] == [4, 4, 1]
    rows = Release.load(saved).tensors["rows"]
    assert torch.equal(rows, torch.cat(parts))
    assert rows.is_contiguous()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(shards={}), "shards must be a list"),
        (lambda m: m.update(shards=[]), "the shards hold 0 users. It has 9 ids"),
        (lambda m: m["shards"].pop(), "the shards hold 8 users. It has 9 ids"),
        (lambda m: m["shards"].reverse(), r"shard 1 must be tensors-00001\.safetensors, got 'tensors-00003"),
        (lambda m: m["shards"].append(m["shards"][0]), r"shard 4 must be tensors-00004\.safetensors"),
        (lambda m: m["shards"][0].update(file="../other.safetensors"), "shard 1 must be"),
        (lambda m: m["shards"][0].update(file=7), "shard 1 must be .* got '7'"),
        (lambda m: m["shards"].insert(0, "tensors"), "each shard must name exactly file, users and sha256"),
        (lambda m: m["shards"][0].pop("sha256"), "each shard must name exactly file, users and sha256"),
        (lambda m: m["shards"][0].update(extra=1), "must name exactly file"),
        (lambda m: m["shards"][1].update(users=[3, 8]), "must hold users from 4, got 3 to 8"),
        (lambda m: m["shards"][1].update(users=[5, 8]), "must hold users from 4, got 5"),
        (lambda m: m["shards"][1].update(users=[4, 4]), "must hold users from 4, got 4 to 4"),
        (lambda m: m["shards"][1].update(users=[4, -1]), "must hold users from 4"),
        (lambda m: m["shards"][2].update(users=[8, 10]), "the shards hold 10 users. It has 9 ids"),
        (
            lambda m: m["shards"][0].update(users=[0, 5]) or m["shards"][1].update(users=[5, 8]),
            r"\(4, 5\). Expected users 0 to 5",
        ),
        (lambda m: m["shards"][0].update(users=[0.0, 4.0]), "must be two integers"),
        (lambda m: m["shards"][0].update(users=[False, 4]), "must be two integers"),
        (lambda m: m["shards"][0].update(users="04"), "must be two integers"),
        (lambda m: m["shards"][0].update(users=[0, 2, 4]), "must be two integers"),
        (lambda m: m["shards"][0].update(sha256={}), "differs from its SHA-256 in release.json"),
        (
            lambda m: m["shards"][0].update(sha256={"rows": "0" * 64}),
            "00001.* differs from its SHA-256 in release.json",
        ),
        (lambda m: m["shards"][2].update(sha256=None), "00003.* differs from its SHA-256 in release.json"),
        (lambda m: m.update(user_ids=m["user_ids"][1:]), "the shards hold 9 users. It has 8 ids"),
        (lambda m: m.update(user_ids=["u1"] * 9), "A user id is repeated"),
        (lambda m: m.update(schema=1), r"must hold exactly .*'sha256'"),
        (lambda m: m.update(sha256={}), "must hold exactly"),
        (lambda m: m.update(kind="ratings"), "tensors must be exactly"),
        (lambda m: m["record"].update(epsilon=0.1), "epsilon is 0.1"),
        (
            lambda m: m.update(ledger=[{"type": "PureEvent", "epsilon": e} for e in range(1, 1002)]),
            "The ledger has 1,001 different events. Allowed: 1,000",
        ),
    ],
)
def test_a_hostile_manifest_is_refused(saved: Path, change: Callable[[Manifest], object], message: str) -> None:
    edit_json(saved / MANIFEST, change)
    with pytest.raises(ValueError, match=message):
        Release.load(saved)


def test_a_missing_file_is_noticed(saved: Path) -> None:
    for number in (3, 2, 1):
        (saved / shard_name(number)).unlink()
        with pytest.raises(ReleaseError, match=rf"it has no tensors-0000{number}.safetensors. Ask the source party"):
            Release.load(saved)


def test_a_file_too_many_is_noticed(saved: Path) -> None:
    for name in (TENSORS, shard_name(4), "tensors-1.safetensors"):
        shutil.copy(saved / shard_name(1), saved / name)
        with pytest.raises(ReleaseError, match=rf"holds \['{name}'\], which release.json does not name"):
            Release.load(saved)
        (saved / name).unlink()


@pytest.mark.parametrize("number", [1, 3])
def test_a_truncated_file_is_refused(saved: Path, number: int) -> None:
    path = saved / shard_name(number)
    whole = path.read_bytes()
    for keep in (0, 7, 90, -1):
        path.write_bytes(whole[:keep])
        with pytest.raises(ReleaseError, match=rf"{path.name} cannot be read .* Ask the source party for it again"):
            Release.load(saved)


def test_a_flipped_bit_is_noticed(saved: Path) -> None:
    content = bytearray((saved / shard_name(2)).read_bytes())
    content[-3] ^= 1
    (saved / shard_name(2)).write_bytes(bytes(content))
    with pytest.raises(ReleaseError, match=r"00002.safetensors differs from its SHA-256 in release.json"):
        Release.load(saved)


def test_files_in_another_order_are_noticed(saved: Path) -> None:
    first, second = (saved / shard_name(number) for number in (1, 2))
    other = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(other)
    with pytest.raises(ReleaseError, match=r"00001.safetensors differs from its SHA-256 in release.json"):
        Release.load(saved)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"rows": torch.zeros(4, 5, dtype=torch.float64)}, r"must be float32 .* got F64 of shape \(4, 5\)"),
        ({"rows": torch.zeros(4, 5, dtype=torch.bfloat16)}, "must be float32 .* got BF16"),
        ({"rows": torch.zeros(4)}, r"must be float32 of shape \(users, width >= 1\), got F32 of shape \(4,\)"),
        ({"rows": torch.zeros(4, 0)}, "must be float32 of shape"),
        ({"rows": torch.zeros(4, 6)}, r"rows of shape \(4, 6\). Expected users 4 to 8, width 5"),
        ({"rows": torch.zeros(3, 5)}, r"rows of shape \(3, 5\). Expected users 4 to 8"),
        ({"columns": torch.zeros(4, 5)}, r"must be exactly \['rows'\], got \['columns'\]"),
        ({"rows": torch.zeros(4, 5), "more": torch.zeros(1)}, r"must be exactly \['rows'\], got \['more', 'rows'\]"),
        ({"rows": torch.full((4, 5), torch.nan)}, "has NaN or values beyond"),
        ({"rows": torch.full((4, 5), torch.inf)}, "has NaN or values beyond"),
    ],
)
def test_rows_of_another_shape_are_refused(saved: Path, tensors: dict[str, torch.Tensor], message: str) -> None:
    replace_shard(saved, 2, tensors)
    with pytest.raises(ReleaseError, match=message):
        Release.load(saved)


@pytest.mark.thorough
def test_nothing_is_allocated_for_rows_that_are_not_there(saved: Path) -> None:
    """A wide first row and many ids ask for terabytes; the other files' sizes are looked at first."""
    replace_shard(saved, 1, {"rows": torch.zeros(1, 2**20)})
    edit_json(saved / MANIFEST, lambda m: m.update(user_ids=[f"u{i}" for i in range(2**20)]))
    edit_json(
        saved / MANIFEST,
        lambda m: [s.update(users=u) for s, u in zip(m["shards"], ([0, 1], [1, 5], [5, 2**20]), strict=True)],
    )
    with pytest.raises(ReleaseError, match=r"rows of shape \(4, 5\). Expected users 1 to 5, width 1048576"):
        Release.load(saved)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
def test_digests_do_not_depend_on_the_layout(dtype: torch.dtype) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    assert tensor_digest(tensor) == tensor_digest(tensor.T.contiguous().T)
    assert tensor_digest(tensor) != tensor_digest(tensor.reshape(4, 3))
    assert tensor_digest(torch.zeros(0, 4, dtype=dtype)) != tensor_digest(torch.zeros(4, 0, dtype=dtype))


def test_finiteness_is_looked_for_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.release.files._FINITE", 4)
    for at in range(10):
        tensor = torch.zeros(5, 2)
        assert all_finite(tensor)
        check_values("rows", tensor)
        for bad in (2e12, -2e12, np.nan):
            tensor.view(-1)[at] = bad
            with pytest.raises(ReleaseError, match="'rows' has NaN or values beyond"):
                check_values("rows", tensor)
        assert not all_finite(tensor)


def test_whatever_lies_beside_the_files_of_a_release_is_refused(saved: Path) -> None:
    """Of one file and of several alike: what nobody signed should not be handed on as part of a release."""
    one = JLT(epsilon=2.0, num_components=5).publish(binary(), "book").materialize().save(saved.parent / "one")
    for path, name, folder in product((saved, one), (".DS_Store", "run.sh", "\x1b[2Jx"), (False, True)):
        beside = path / name
        beside.mkdir() if folder else beside.touch()
        with pytest.raises(ReleaseError, match=r"which release.json does not name") as caught:
            Release.load(path)
        assert str(caught.value).isprintable()
        beside.rmdir() if folder else beside.unlink()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("{", '{"__metadata__":{"ratings":"u1 rated i7"},', 1),
        lambda text: text.replace("{", '{"__metadata__":{},', 1),
        lambda text: text.replace('"dtype"', '"note":"u1 rated i7","dtype"', 1),
        lambda text: text.replace(":", " : "),
        lambda text: text + 64 * " ",
        lambda text: text.replace('"dtype":"F32",', "").replace("]}}", '],"dtype":"F32"}}'),
    ],
    ids=["metadata", "no metadata", "unknown key", "blanks inside", "blanks after", "another order"],
)
def test_a_file_of_tensors_holds_nothing_that_its_digests_do_not_cover(
    saved: Path, change: Callable[[str], str]
) -> None:
    """The tensors are read unchanged, so digests and signature are those of the honest release."""
    one = JLT(epsilon=2.0, num_components=5).publish(binary(), "book").materialize().save(saved.parent / "one")
    for file in (saved / shard_name(3), one / TENSORS):
        content = file.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        text = change(content[8:end].decode().rstrip()).encode()
        text += b" " * (-len(text) % 8)
        file.write_bytes(len(text).to_bytes(8, "little") + text + content[end:])
        assert load_file(file).keys() == {"rows"}
        with pytest.raises(ReleaseError, match="beside its tensors"):
            Release.load(file.parent)


def hostile(path: Path, ids: list[str], rest: bytes = b"") -> Path:
    """A release of so many users whose manifest holds these ids, and these bytes besides."""
    release = JLT(epsilon=2.0, num_components=5).publish(binary(), "book").materialize().save(path)
    manifest = json.loads((path / MANIFEST).read_text())
    rows = {"rows": torch.zeros(len(ids), 1)}
    save_file(rows, path / TENSORS)
    manifest |= {"user_ids": ids, "sha256": {name: tensor_digest(tensor) for name, tensor in rows.items()}}
    (path / MANIFEST).write_bytes(json.dumps(manifest).encode() + rest)
    return release


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([*map(str, range(19_999)), "x" * 100_000], "has 100,000 characters: 'xxx.* Allowed: 256"),
        ([*map(str, range(99_999)), "x" * 256], "98 MiB in all. Use ids of similar length"),
    ],
    ids=["one of 100,000 characters", "one of 256 among many short ones"],
)
def test_one_long_id_does_not_take_memory_for_all(tmp_path: Path, ids: list[str], message: str) -> None:
    """The first took 7.5 GiB: a numpy array gives every id the room of the longest."""
    path = hostile(tmp_path / "book", ids)
    sent = sum(file.stat().st_size for file in path.iterdir())
    with memory_below(30 * sent), pytest.raises(ReleaseError, match=message):
        Release.load(path)


def test_a_release_without_numbers_of_its_users_may_have_many(tmp_path: Path) -> None:
    users = np.array([f"u{number}" for number in range(300_000)])
    release = replace(Nothing("map").publish(binary(), "book").materialize(), user_ids=users)
    path = release.save(tmp_path / "book")
    assert (path / MANIFEST).stat().st_size > 3 * files.MANIFEST_BYTES
    assert Release.load(path).num_users == 300_000


def test_a_manifest_larger_than_its_tensors_let_it_be_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_ROOM", 2**20)
    path = hostile(tmp_path / "book", ["u"], b" " * 2**26)
    said = r"release.json has more than the 1,\d{3},\d{3} bytes allowed"
    with memory_below(2**23), pytest.raises(ReleaseError, match=said):
        Release.load(path)
    with (path / "other.safetensors").open("wb") as hole:  # takes no room on disk, and no manifest names it
        hole.truncate(2**40)
    with memory_below(2**23), pytest.raises(ReleaseError, match=said):
        Release.load(path)
    with (path / MANIFEST).open("r+b") as sparse:
        sparse.truncate(2**12)
        sparse.truncate(2**26)
    (path / "other.safetensors").rename(path / shard_name(1))
    with memory_below(2**23), pytest.raises(ReleaseError, match="has zero bytes"):
        Release.load(path)


def test_a_shape_that_torch_refuses_is_refused_in_one_line(tmp_path: Path) -> None:
    """Its product is 0, so the file's own format allows it."""
    path = JLT(epsilon=2.0, num_components=5).publish(binary(), "book").materialize().save(tmp_path / "book")
    head = json.dumps({"rows": {"dtype": "F32", "shape": [2**63, 0], "data_offsets": [0, 0]}}).encode()
    (path / TENSORS).write_bytes(len(head).to_bytes(8, "little") + head)
    with pytest.raises(ReleaseError, match=r"Ask the source party for (it|the folder) again") as caught:
        Release.load(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(ReleaseError, match="Overflow"), files._readable(path):
        load_file(path / TENSORS)


def test_a_header_of_many_names_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = JLT(epsilon=2.0, num_components=5).publish(binary(), "book").materialize().save(tmp_path / "book")
    head = b"{" + b" " * 2**20 + b"}"
    (path / TENSORS).write_bytes(len(head).to_bytes(8, "little") + head)
    monkeypatch.setattr(files, "load_file", Mock(side_effect=AssertionError))
    with pytest.raises(ReleaseError, match=r"header of 1,048,578 bytes\. Allowed: 1,048,568"):
        Release.load(path)


def test_values_in_place_of_ids_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bytes of such a value take 72 in memory; the file may be as large as the longest ids of its users."""
    path = hostile(tmp_path / "book", [*map(str, range(2000))])
    text = (path / MANIFEST).read_text()
    (path / MANIFEST).write_text(text.replace('"1999"', '"{},{},\\"", ' + "{}," * 1_500_000 + "{}"))
    said = r"the 1,\d{3},\d{3} bytes outside strings allowed"
    with memory_below(2**25), pytest.raises(ReleaseError, match=said):
        Release.load(path)
    (path / MANIFEST).write_text("[" + '{"":0},' * 500_000 + "{}]")  # texts allow commas, and no values
    with memory_below(2**25), pytest.raises(ReleaseError, match=said):
        Release.load(path)
    (path / MANIFEST).write_text('"' + '\\"' * 5_000)  # each inner quote would start a search to the end
    looked, match = [], files.STRING.finditer
    monkeypatch.setattr(files, "STRING", Mock(finditer=lambda content: looked.extend(match(content)) or looked))
    with pytest.raises(ReleaseError, match="is no JSON"):
        Release.load(path)
    assert len(looked) == 1


def test_only_user_ids_make_a_manifest_larger(tmp_path: Path) -> None:
    path = hostile(tmp_path / "book", [*map(str, range(2000))])
    edit_json(path / MANIFEST, lambda m: m.update(ledger=m["ledger"] * 20_000))
    with pytest.raises(ReleaseError, match="1,048,576 bytes allowed without user ids"):
        Release.load(path)


def test_no_id_is_published_that_nobody_would_read(saved: Path) -> None:
    release = Release.load(saved)
    longest = np.array([*release.user_ids[1:], "x" * LONGEST_NAME])
    assert replace(release, user_ids=longest).num_users == 9
    with pytest.raises(ReleaseError, match="A user id has 257 characters"):
        replace(release, user_ids=np.array([*release.user_ids[1:], "x" * (LONGEST_NAME + 1)]))
    with pytest.raises(ReleaseError, match="A domain has 257 characters"):
        replace(release, domain="x" * (LONGEST_NAME + 1))


def test_a_release_of_the_widest_ids_is_read_again(tmp_path: Path) -> None:
    """Written in JSON a character takes up to twelve bytes; one user's row may take four."""
    ids = np.array([chr(0x20000 + number) * LONGEST_NAME for number in range(2000)])
    ratings = some_ratings(users=2000, items=7)
    ratings.matrix.data[:] = 1
    ratings = replace(ratings, user_ids=ids)
    release = JLT(epsilon=2.0, num_components=1).publish(ratings, "book").materialize()
    assert (release.save(tmp_path / "book") / MANIFEST).stat().st_size > 2000 * 12 * LONGEST_NAME
    assert Release.load(tmp_path / "book").user_ids.tolist() == ids.tolist()


def test_tensors_without_room_are_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a command answers in words."""

    def full(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("zoo.release.files.save_file", full)
    with pytest.raises(OSError, match=r"x cannot be written \(.*No space left on device"):
        save_tensors({"rows": torch.zeros(10, 10)}, Path("x"))
