"""Files that are whole or not there, and what is said on a terminal: refusals and names, in which nothing is obeyed."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from datamodules import Synthetic
from tests.kills import killed_at, moments
from tests.samples import MARKUP, UNPRINTABLE
from zoo.runtime import run_folder
from zoo.runtime.run_folder import (
    atomic_folder,
    atomic_write,
    load_tensors,
    refusal,
    visible,
    write_json,
    write_together,
)


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (lambda: zoo.BPR(np.int64(8)), "1 of BPR is np.int64(8). Pass 8 "),
        (lambda: zoo.DMF(layers=[64, np.int32(8)]), "layers of DMF is np.int32(8). Pass 8 "),
        (lambda: zoo.JLT(epsilon=np.float64(0.5)), "epsilon of JLT is np.float64(0.5). Pass 0.5 "),
        (lambda: Synthetic(link=torch.tensor(0.5)), "link of Synthetic is tensor(0.5000). Pass 0.5 "),
    ],
)
def test_numbers_of_arrays_are_refused(made: Callable[[], object], place: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"Argument {place}(`.item()`).")):
        made()


def test_what_a_terminal_would_obey_is_written_out() -> None:
    for text in UNPRINTABLE.values():
        said = visible(text)
        assert said.isprintable()
        assert said != text
        assert said.encode("ascii").decode("unicode_escape") == text, "and nothing is lost"


@pytest.mark.parametrize("text", ["", "Bücher 本", "a\u00a0b", MARKUP, "back\\slash 'quoted'"])
def test_what_has_a_shape_stays(text: str) -> None:
    assert visible(text) == text


def test_a_refusal_keeps_its_lines_and_obeys_nothing() -> None:
    error = ValueError("No list at \x1b[31mpath\x1b[0m.\nAnother \u202eline.\r")
    assert refusal(error) == "ValueError: No list at \\x1b[31mpath\\x1b[0m.\nAnother \\u202eline.\\r"


def test_a_refusal_is_what_the_class_itself_said() -> None:
    error = ValueError("Does not validate against any of the types")
    error.__cause__ = TypeError("epsilon must be positive")
    assert refusal(error) == "TypeError: epsilon must be positive"


def fill(path: Path) -> None:
    """Half a file, and no room for the rest."""
    with atomic_write(path) as temporary:
        temporary.write_text("[1, ")
        raise OSError(28, "No space left on device")


def test_what_could_not_be_written_whole_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, 1)
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_json(path, object())
    with pytest.raises(OSError, match="No space left"):
        fill(path)
    assert path.read_text() == "1\n"
    assert list(tmp_path.iterdir()) == [path]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_two_who_write_one_file_do_not_write_into_one_another_s(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    with atomic_write(path) as ours:
        ours.write_text("ou")
        write_json(path, "theirs")
        with ours.open("a") as file:
            file.write("rs")
        assert path.read_text() == '"theirs"\n'
    assert path.read_text() == "ours"
    assert names(tmp_path) == ["x.json"]


def test_what_a_killed_process_left_of_a_file_goes_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "is_process_dead", lambda of, number: (of, number) == ("abc", 12))
    stay = [
        ".x.json.abc-13-0000.tmp",
        ".x.json.abd-12-0000.tmp",
        ".x.json.tmp",
        ".y.json.abc-12-0000.tmp",
        "x.json.bak",
    ]
    for name in [*stay, ".x.json.abc-12-00ff.tmp"]:
        (tmp_path / name).touch()
    (tmp_path / ".x.json.abc-12-ffff.tmp").mkdir()
    (tmp_path / ".x.json.abc-12-ffff.tmp" / "in a folder").touch()
    write_json(tmp_path / "x.json", 1)
    assert names(tmp_path) == sorted([*stay, "x.json"])


def write_folder(path: Path) -> None:
    with atomic_folder(path) as folder:
        (folder / "a").write_text("aaaa")
        (folder / "b").write_text("bbbb")


def test_a_folder_is_whole_and_for_everybody_or_not_there(tmp_path: Path) -> None:
    write_folder(tmp_path / "deep" / "made")
    assert {oct(path.stat().st_mode)[-3:] for path in (tmp_path / "deep").rglob("*")} == {"755", "644"}
    with pytest.raises(OSError, match="not empty"):
        write_folder(tmp_path / "deep" / "made")
    assert names(tmp_path / "deep") == ["made"]


@pytest.mark.thorough
@pytest.mark.processes
@pytest.mark.parametrize("write", ["file", "folder", "together"])
def test_wherever_a_writer_is_killed_nothing_half_written_has_the_name(tmp_path: Path, write: str) -> None:
    """And whoever writes next finds nothing in the way, and leaves nothing of it."""
    (tmp_path / "counted").mkdir()
    texts = {"last": "2222", "a": "2222"}
    works = {
        "file": lambda place: write_json(place / "last", "2222"),
        "folder": lambda place: write_folder(place / "made"),
        "together": lambda place: write_together(place, texts, last="last"),
    }
    before = dict.fromkeys(texts, "1111") if write == "together" else {}
    for moment in moments(tmp_path, partial(works[write], tmp_path / "counted"), most=12):
        place = tmp_path / str(moment)
        place.mkdir()
        for name, text in before.items():
            (place / name).write_text(text)
        assert killed_at(place, moment, partial(works[write], place))
        found = {
            path.name: path.read_text() for path in place.rglob("[!.]*") if path.is_file() and ".tmp" not in str(path)
        }
        assert set(found.values()) <= {"1111", "2222", '"2222"\n', "aaaa", "bbbb"}
        assert write != "folder" or found.keys() in (set(), {"a", "b"})
        assert "last" not in found or len(set(found.values())) == 1, (
            "what the last file stands beside is as old as it is"
        )
        if not (place / "made").exists():
            works[write](place)
        assert not [name for name in names(place) if name.startswith(".")]


def test_texts_that_belong_together_stay_as_they_are_where_one_cannot_be_written(tmp_path: Path) -> None:
    write_together(tmp_path, {"last": "1", "a": "1"}, last="last")
    with pytest.raises(UnicodeEncodeError):
        write_together(tmp_path, {"last": "2", "a": "\ud83d"}, last="last")
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == {"last": "1", "a": "1"}


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=rf"\[Errno 28\] No space: '{tmp_path}/x'"), atomic_write(tmp_path / "x"):
        raise OSError(28, "No space")  # as the system says it of a file that is open
    with pytest.raises(FileNotFoundError, match="another"), atomic_write(tmp_path / "x"):
        (tmp_path / "another").read_text()


def test_a_private_folder_stays_its_owner_s(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "made", private=True) as folder:
        (folder / "a").touch(0o600)
    assert oct((tmp_path / "made").stat().st_mode)[-3:] == "700"
    assert oct((tmp_path / "made" / "a").stat().st_mode)[-3:] == "600"


def test_of_this_machine_it_is_known_which_processes_have_ended() -> None:
    from zoo.runtime.processes import is_process_dead, machine

    assert not is_process_dead(machine(), os.getpid())
    assert not is_process_dead(machine(), 1), "somebody else's lives, too"
    gone = os.fork() or os._exit(0)
    os.waitpid(gone, 0)
    assert is_process_dead(machine(), gone) == bool(machine())
    assert not is_process_dead("another", gone), "who knows"
    assert not is_process_dead("", gone)
    assert is_process_dead(machine(), 2**64) == bool(machine())


def test_values_that_name_one_another_are_not_written_out(tmp_path: Path) -> None:
    """A file of a few kilobytes; a message about it would have ten thousand million parts."""
    value: list[Any] = ["a"]
    for _ in range(10):
        value = [value] * 10
    torch.save({"zoo": {"paths": value}}, tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match="is no checkpoint, or is damaged"):
        load_tensors(tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=r"null is no checkpoint, or is damaged \(FileNotFoundError"):
        load_tensors(Path("/dev/null"))
