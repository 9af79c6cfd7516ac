"""Rows that are made while they are saved: once, in order, whole or not at all."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import binary
from zoo import JLT, Release
from zoo.release.files import MANIFEST, ReleaseError, tensor_digest
from zoo.release.lazy_rows import LazyRows, late_progress

Floats = npt.NDArray[np.float64]


def lazy(rows: Floats, parts: list[int] | None = None, *, centre: bool = False) -> LazyRows:
    """Rows yielded in parts of these sizes."""
    ends = np.cumsum([0, *(parts or [len(rows)])])
    return LazyRows(*rows.shape, lambda: (rows[a:b] for a, b in pairwise(ends)), centre=centre)


def release(tensors: LazyRows) -> Release:
    """The rows as somebody's release."""
    made = JLT(epsilon=8.0, num_components=2, noise_seed=1).publish(binary(), "book")  # no claim: the rows are made up
    users = np.array([f"u{i}" for i in range(tensors.num_users)])
    return Release("rows", "book", tensors, users, made.record, made.ledger)


@pytest.fixture
def rows() -> Floats:
    return np.random.default_rng(0).integers(-1000, 1000, (9, 4)) / 64


@given(data=st.data(), users=st.integers(1, 20), shard_users=st.integers(1, 8), centre=st.booleans())
@settings(max_examples=25, deadline=None)
def test_parts_and_files_of_any_size_give_the_same_rows(
    data: st.DataObject, users: int, shard_users: int, centre: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, users))) | {0, users})
    parts = np.diff(cuts).tolist() or [users]
    rows = np.random.default_rng(users).integers(-1000, 1000, (users, 3)) / 64
    expected = torch.from_numpy((rows - rows.mean(axis=0) * centre).astype(np.float32))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zoo.release.lazy_rows.SHARD_BYTES", 12 * shard_users)
        patch.setattr("zoo.release.lazy_rows._PART", 2)
        made = release(lazy(rows, parts, centre=centre))
        path = made.save(tmp_path_factory.mktemp("release") / "book")
    loaded = Release.load(path)
    assert torch.equal(loaded.tensors["rows"], expected)
    assert torch.equal(release(lazy(rows, parts, centre=centre)).tensors["rows"], expected)
    assert loaded.digest == made.digest
    shards = json.loads((path / MANIFEST).read_text())["shards"]
    assert [stop - start for start, stop in (shard["users"] for shard in shards)] == [
        min(shard_users, users - start) for start in range(0, users, shard_users)
    ]


def test_the_manifest_names_files_users_and_digests(
    rows: Floats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoo.release.lazy_rows.SHARD_BYTES", 64)
    path = release(lazy(rows)).save(tmp_path / "book")
    manifest = json.loads((path / MANIFEST).read_text())
    assert manifest["schema"] == 2
    parts = torch.from_numpy(rows.astype(np.float32)).split(4)
    assert manifest["shards"] == [
        {"file": f"tensors-0000{n}.safetensors", "users": users, "sha256": {"rows": tensor_digest(part)}}
        for n, users, part in zip((1, 2, 3), ([0, 4], [4, 8], [8, 9]), parts, strict=True)
    ]
    assert sorted(p.name for p in path.iterdir()) == [MANIFEST, *(shard["file"] for shard in manifest["shards"])]
    assert path.stat().st_mode & 0o777 == 0o755
    assert all(p.stat().st_mode & 0o777 == 0o644 for p in path.iterdir())
    assert [p.name for p in tmp_path.iterdir()] == ["book"]


def test_nothing_is_made_before_it_is_saved(rows: Floats, tmp_path: Path) -> None:
    made = []

    def chunks() -> Iterator[Floats]:
        made.append(1)
        yield rows

    tensors = LazyRows(9, 4, chunks)
    ours = release(tensors)
    assert (ours.lazy, ours.sparse, ours.width, ours.num_users) == (True, False, 4, 9)
    assert (list(tensors), len(tensors), "rows" in tensors, "starts" in tensors) == (["rows"], 1, True, False)
    with pytest.raises(ReleaseError, match=r"not made yet. Save or"):
        _ = ours.digest
    assert not made
    ours.save(tmp_path / "book")
    assert made == [1]


def test_a_second_draw_is_refused(rows: Floats, tmp_path: Path) -> None:
    ours = release(lazy(rows))
    with pytest.raises(FileExistsError, match="never overwritten"):
        ours.save(tmp_path)  # before anything is made
    ours.save(tmp_path / "book")
    again = "were made already.* Read it with Release.load from .*book"
    with pytest.raises(ReleaseError, match=again):
        ours.save(tmp_path / "other")
    with pytest.raises(ReleaseError, match=again):
        ours.rows(torch.tensor([0]))
    with pytest.raises(ReleaseError, match=again):
        ours.materialize()
    assert [p.name for p in tmp_path.iterdir()] == ["book"]
    assert ours.digest == Release.load(tmp_path / "book").digest


def test_a_release_made_in_memory_is_an_ordinary_one(rows: Floats, tmp_path: Path) -> None:
    ours = release(lazy(rows, centre=True))
    whole = ours.materialize()
    assert (ours.lazy, whole.lazy) == (False, False)
    assert torch.equal(ours.rows(torch.arange(9)), whole.tensors["rows"])
    assert whole.materialize() is whole
    for name, made in (("one", ours), ("two", ours), ("three", whole)):
        loaded = Release.load(made.save(tmp_path / name))
        assert loaded.digest == ours.digest == whole.digest
        assert torch.equal(loaded.tensors["rows"], whole.tensors["rows"])
    assert torch.equal(ours.tensors_of(torch.tensor([3]))["rows"], whole.tensors["rows"][3:4])


@pytest.mark.parametrize(
    "where",
    ["zoo.release.lazy_rows.save_tensors", "zoo.release.lazy_rows.load_file", "zoo.runtime.run_folder.Path.rename"],
)
def test_nothing_half_written_is_left(
    rows: Floats, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    ours = release(lazy(rows, centre=True))
    monkeypatch.setattr(where, fail)
    with pytest.raises(OSError, match="disk full"):
        ours.save(tmp_path / "book")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    with pytest.raises(ReleaseError, match=r"Making them failed. Or publish anew"):
        ours.save(tmp_path / "book")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([np.zeros((8, 4))], "8 rows were made for 9 users"),
        ([np.zeros((5, 4)), np.zeros((5, 4))], r"Rows have shape \(5, 4\). Allowed: \(4, 4\)"),
        ([np.zeros((9, 3))], r"Rows have shape \(9, 3\)"),
        ([np.full((9, 4), np.nan)], "Tensor 'rows' has NaN or values beyond"),
        ([np.full((9, 4), 1e300)], "Tensor 'rows' has NaN or values beyond"),
    ],
)
def test_rows_that_are_not_what_was_announced_are_refused(parts: list[Floats], message: str, tmp_path: Path) -> None:
    for use in (lambda ours: ours.save(tmp_path / "book"), lambda ours: ours.materialize()):
        with pytest.raises(ReleaseError, match=message):
            use(release(LazyRows(9, 4, lambda: iter(parts))))
    assert list(tmp_path.iterdir()) == []


def test_rows_of_others_are_refused(rows: Floats) -> None:
    ours = release(lazy(rows))
    with pytest.raises(ReleaseError, match=r"must have shape \(8, 1 <= width <= 2\*\*24\), got \(9, 4\)"):
        Release("rows", "book", lazy(rows), ours.user_ids[:8], ours.record, ours.ledger)
    with pytest.raises(ValueError, match="num_users and width are 0 and 4"):
        LazyRows(0, 4, lambda: iter([]))
    with pytest.raises(KeyError):
        lazy(rows)["starts"]


@pytest.mark.parametrize(("terminal", "patience", "shown"), [("1", 0.0, True), ("1", 60.0, False), ("0", 0.0, False)])
def test_progress_shows_on_a_terminal_after_a_while(
    terminal: str, patience: float, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    monkeypatch.setattr("zoo.release.lazy_rows._PATIENCE", patience)
    with late_progress("Writing the release", 10) as advance:
        for _ in range(10):
            advance(1)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("Writing the release" in printed.err) == shown
