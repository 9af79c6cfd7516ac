"""``--help`` shows the first options; ``--help-all`` all of them, cached below everything that the text depends on."""

import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from zoo.__main__ import answer
from zoo.commands import cached_help

TEXT = "usage: ünlike\n"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty cache, and a note of each time that the text is computed."""
    made: list[str] = []
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cached_help, "entry_points", lambda: SimpleNamespace(groups={"console_scripts"}))
    monkeypatch.setattr(cached_help, "live_help", lambda command: made.append(command) or TEXT)
    return made


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_shows_the_first_options(option: str, computed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for command, more in (("fit", ["--config", "x"]), ("publish", [])):
        assert answer([command, *more, option])
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1] == f"All options: python -m zoo {command} --help-all"
        assert 10 <= sum(line.startswith("  --") for line in lines) <= 16
        assert max(map(len, lines)) <= 88
    assert not answer(["fit", "--model.help", option])
    assert computed == []


def test_help_all_is_computed_once(computed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("fit", "publish", "fit"):
        assert answer([command, "--help-all"])
        assert capsys.readouterr().out == TEXT
    assert computed == ["fit", "publish"]


@pytest.mark.parametrize("command", cached_help.COMMANDS)
def test_first_options_are_in_the_full_list(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["zoo"])
    monkeypatch.setenv("COLUMNS", "80")
    full = cached_help.live_help(command)
    assert full.startswith(f"usage: python -m zoo {command} --config FILE [options]\n\n")
    for first in re.findall(r"^  (--\S+)", cached_help.first_options(command), re.M):
        option = first.removesuffix(".ARGUMENT")
        assert re.search(rf"^  (-\S+( \S+)?, )?{re.escape(option)}[ ,\n]", full, re.M), first


@pytest.mark.parametrize("changed", ["library", "version", "code", "plugin"])
def test_what_it_depends_on_is_asked_again(
    changed: str, computed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if changed == "code":  # a tree of one file
        file = tmp_path / "tree" / "zoo" / "commands" / "cached_help.py"
        file.parent.mkdir(parents=True)
        file.touch()
        monkeypatch.setattr(cached_help, "__file__", str(file))
    assert cached_help.all_options("fit") == TEXT
    match changed:
        case "library":
            monkeypatch.setattr(cached_help, "version", lambda name: f"0.{len(name)}")
        case "version":
            monkeypatch.setattr(cached_help, "VERSION", "99")
        case "code":
            file.write_text("# edited")
            later = time.time() + 5
            os.utime(file, (later, later))
        case "plugin":
            monkeypatch.setattr(cached_help, "entry_points", lambda: SimpleNamespace(groups={"zoo.methods"}))
    assert cached_help.all_options("fit") == TEXT
    assert computed == ["fit"] * 2


def test_a_cache_that_cannot_be_written_is_done_without(computed: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert [cached_help.all_options("fit"), cached_help.all_options("fit")] == [TEXT, TEXT]
    assert computed == ["fit"] * 2
