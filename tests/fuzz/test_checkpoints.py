"""Checkpoints that were damaged or are somebody else's: read as plain values, or refused in one sentence; nothing is executed."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
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


@cases(100)
@given(hits=HITS, at_the_end=ENDS)
def test_a_damaged_checkpoint_is_read_or_refused(whole: bytes, read: Read, hits: list[Hit], at_the_end: bool) -> None:
    read(damaged(whole, hits, at_the_end))


@pytest.mark.slow
@cases(1_000)
@given(hits=HITS, at_the_end=ENDS)
def test_many_damaged_checkpoints_are(whole: bytes, read: Read, hits: list[Hit], at_the_end: bool) -> None:
    read(damaged(whole, hits, at_the_end))


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
