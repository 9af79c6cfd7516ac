"""``fit --help`` is cached below everything that it depends on, and computed where it may differ."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from zoo.__main__ import answered
from zoo.commands import cached_help

TEXT = "usage: ünlike\n"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An empty cache, and a note of each time that the text is computed."""
    made: list[str] = []
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cached_help, "entry_points", lambda: SimpleNamespace(groups={"console_scripts"}))
    monkeypatch.setattr(cached_help, "live_help", lambda: made.append("again") or TEXT)
    return made


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_it_is_computed_once(option: str, computed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert answered(["fit", option])
        assert capsys.readouterr().out == TEXT
    assert computed == ["again"]
    assert not answered(["fit", option, "--model.help"])


@pytest.mark.parametrize("changed", ["library", "version", "code", "plugin"])
def test_what_it_depends_on_is_asked_again(
    changed: str, computed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if changed == "code":  # a tree of one file
        file = tmp_path / "tree" / "zoo" / "commands" / "cached_help.py"
        file.parent.mkdir(parents=True)
        file.touch()
        monkeypatch.setattr(cached_help, "__file__", str(file))
    assert cached_help.fit_help() == TEXT
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
    assert cached_help.fit_help() == TEXT
    assert computed == ["again"] * 2


def test_a_cache_that_cannot_be_written_is_done_without(computed: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert [cached_help.fit_help(), cached_help.fit_help()] == [TEXT, TEXT]
    assert computed == ["again"] * 2
