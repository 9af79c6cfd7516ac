"""A disk without room, and a folder that may not be written: a sentence with the path, and nothing half written."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
import torch
from matplotlib.figure import Figure

from callbacks.best_checkpoint import WholeCheckpoints
from datamodules.public_lists import write_users
from zoo.commands.configs import copy_config
from zoo.release.files import save_tensors
from zoo.runtime.run_folder import atomic_write, write_json, write_table

ROOM = 2048
MANY = list(range(20_000))


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes: what writes meets an error of the system, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def save_figure(path: Path) -> None:
    figure = Figure()
    figure.add_subplot().plot(MANY)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="svg")


def copy_to_full_disk(path: Path) -> None:
    (path.parent / "long.txt").write_text("#" * 10 * ROOM)  # written where there is room
    with room_for(ROOM):
        copy_config(path.parent / "long.txt", path)


#: Every way that something is written, by the name of its file.
WRITERS: dict[str, Callable[[Path], object]] = {
    "cases.parquet": lambda path: write_table(path, pl.DataFrame({"a": MANY})),
    "best.csv": lambda path: write_table(path, pl.DataFrame({"a": MANY})),
    "users.csv": lambda path: write_users(list(map(str, MANY)), path),
    "x.json": lambda path: write_json(path, MANY),
    "tensors.safetensors": lambda path: save_tensors({"a": torch.zeros(9999)}, path),
    "best.ckpt": lambda path: WholeCheckpoints().save_checkpoint({"a": torch.zeros(9999)}, path),
    "figure.svg": save_figure,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_a_sentence_with_the_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=f"{tmp_path}/{name}") as refused, room_for(ROOM):
        WRITERS[name](tmp_path / name)
    assert "File too large" in str(refused.value)
    assert not list(tmp_path.iterdir())
    WRITERS[name](tmp_path / name)
    assert (tmp_path / name).stat().st_size > ROOM


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_cannot_be_written_is(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"{tmp_path}/file"):
        WRITERS[name](tmp_path / "file" / name)


def test_a_config_is_copied_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large"):
        copy_to_full_disk(tmp_path / "mine.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["long.txt"]


def test_a_checkpoint_leaves_nothing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's own way is by the system's folder for temporary files."""
    for name in ("tmp", "runs"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    opened = []
    monkeypatch.setattr(torch, "save", lambda _, file: opened.append(Path(file.name)))
    WholeCheckpoints().save_checkpoint({"a": 1}, tmp_path / "runs" / "best.ckpt")
    assert [path.parent.name for path in opened] == ["runs"]
    assert not list((tmp_path / "tmp").iterdir())
    assert opened[0].name.startswith(".best.ckpt.")
    with pytest.raises(TypeError, match="storage_options is 1"):
        WholeCheckpoints().save_checkpoint({}, tmp_path / "best.ckpt", 1)
