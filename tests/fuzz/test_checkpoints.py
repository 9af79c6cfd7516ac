"""Checkpoints that were damaged or are somebody else's: read as plain values, or refused in one sentence; nothing is executed."""

import copy
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given

from tests.fuzz.damage import ENDS, HITS, Hit, cases, damaged, refusal_of
from zoo.runs.inputs import UsageError, read_checkpoint

Read = Callable[[bytes], bool]


@pytest.fixture(scope="module")
def whole(finished: Path) -> bytes:
    """A checkpoint of a run."""
    return (finished / "checkpoints" / "last.ckpt").read_bytes()


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Whether content is read; anything else than a refusal is raised."""

    def reader(content: bytes) -> bool:
        path = tmp_path / "x.ckpt"
        path.write_bytes(content)
        try:
            return "zoo" in read_checkpoint(path)
        except UsageError as refused:
            refusal_of(refused, path.name)
            return False

    return reader


@cases(100, 1_000)
@given(hits=HITS, at_the_end=ENDS)
def test_a_damaged_checkpoint_is_read_or_refused(whole: bytes, read: Read, hits: list[Hit], at_the_end: bool) -> None:
    read(damaged(whole, hits, at_the_end))


@pytest.mark.parametrize("how", ["packed", "twice", "claimed"])
def test_an_archive_that_unpacks_to_more_than_its_size_is_not_opened(
    whole: bytes, read: Read, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed entries, entries that lie upon one another, and sizes that nothing stands behind."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(whole)) as before, zipfile.ZipFile(made, "w") as after:
        for entry in before.infolist():
            kind = zipfile.ZIP_DEFLATED if how == "packed" else zipfile.ZIP_STORED
            after.writestr(entry.filename, before.read(entry), kind)
        if how == "twice":
            entries = after.filelist
            large = max(entries, key=lambda entry: entry.file_size)
            for number in range(3):
                again = copy.copy(large)
                again.filename = f"{large.filename}{number}"
                entries.append(again)
        elif how == "claimed":
            after.filelist[-1].file_size = 2**31
    content = made.getvalue()
    if how == "packed":
        assert zipfile.ZipFile(made).testzip() is None, "which zip itself has nothing against"
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("opened"))
    assert not read(content)


PART = torch.zeros(2**16)


@pytest.mark.parametrize(
    ("tensors", "allowed"),
    [
        ([torch.zeros(1).expand(2**30)], False),
        ([torch.zeros(2**30, device="meta")], False),
        ([PART[:] for _ in range(100)], False),
        ([PART] * 100, False),
        ([PART, PART[:], PART[1:]], True),
    ],
)
def test_tensors_that_grow_when_they_are_copied_are_refused(
    whole: bytes, read: Read, tensors: list[torch.Tensor], allowed: bool
) -> None:
    made = io.BytesIO()
    torch.save(torch.load(io.BytesIO(whole), weights_only=True) | {"state_dict": {"x": tensors}}, made)
    assert read(made.getvalue()) is allowed


class Evil:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


def test_nothing_in_a_checkpoint_is_executed(whole: bytes, read: Read, tmp_path: Path) -> None:
    assert read(whole)
    assert not read(pickle.dumps(Evil(tmp_path / "executed")))
    assert not (tmp_path / "executed").exists()
