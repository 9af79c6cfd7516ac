"""``fit --help`` is written down, is what the command line itself prints, and gives way where that would be another."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from zoo.__main__ import answered
from zoo.commands import kept_help

NO_PLUGINS = SimpleNamespace(groups={"console_scripts"})


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without packages that plug in, such as that in examples/encrypted_bridge."""
    monkeypatch.setattr(kept_help, "entry_points", lambda: NO_PLUGINS)


@pytest.mark.usefixtures("cell_server")
def test_the_text_is_what_the_command_line_prints() -> None:
    made_with, _, text = kept_help.KEPT.read_text(encoding="utf-8").partition("\n")
    if made_with != kept_help.installed():
        pytest.skip(f"kept for {made_with}; here is {kept_help.installed()}")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")) as pool:
        assert text == pool.submit(kept_help.live_help).result(), "run python docs/generate.py"


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_it_is_printed_and_nothing_is_imported_for_it(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_help, "installed", lambda: kept_help.KEPT.read_text(encoding="utf-8").split("\n")[0])
    monkeypatch.setattr(kept_help, "live_help", None)
    assert answered(["fit", option])
    assert capsys.readouterr().out.startswith("usage: python -m zoo [options] fit [-c CONFIG]\n")
    assert not answered(["fit", option, "--model.help"])


def test_other_versions_and_plugins_are_asked_themselves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept_help, "KEPT", tmp_path / "kept.txt")
    assert kept_help.kept_help() is None
    kept_help.KEPT.write_text(f"{kept_help.installed()}\nusage\n", encoding="utf-8")
    assert kept_help.kept_help() == "usage\n"
    assert "pytorch-lightning 2." in kept_help.installed()
    monkeypatch.setattr(kept_help, "entry_points", lambda: SimpleNamespace(groups={"console_scripts", "zoo.methods"}))
    assert kept_help.kept_help() is None
    monkeypatch.setattr(kept_help, "entry_points", lambda: NO_PLUGINS)
    monkeypatch.setattr(kept_help, "version", lambda name: f"0.{len(name)}")
    assert kept_help.kept_help() is None
    assert not answered(["fit", "--help"])


def test_the_text_is_kept_below_what_made_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept_help, "KEPT", tmp_path / "kept.txt")
    monkeypatch.setattr(kept_help, "live_help", lambda: f"as wide as {os.linesep!r}\n")
    kept_help.keep()
    assert kept_help.kept_help() == f"as wide as {os.linesep!r}\n"
