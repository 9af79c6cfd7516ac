"""Where Python looks for the zoo's packages: beside one another, and last in the folder where one stands."""

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import zoo
from zoo.runtime.run_folder import refusal

HOME = str(Path(zoo.__file__).parent.parent)


@pytest.mark.parametrize("before", [["", "/x", HOME, "/y"], ["/x"], ["HERE", "/x", "HERE"]])
def test_the_folder_where_one_stands_is_looked_at_last(
    before: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(tmp_path.resolve())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [here if place == "HERE" else place for place in before])
    importlib.reload(importlib.import_module("zoo.runtime.import_order"))
    assert sys.path[-1] == here
    assert sys.path.count(here) == 1
    assert [place for place in sys.path if place not in (here, HOME)] == [
        p for p in before if p.startswith("/") and p != HOME
    ]
    assert HOME in sys.path


def test_folders_of_our_names_are_not_taken_for_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where ours are found by a finder alone, as in an editable installation: a folder is a package to Python."""
    for name in ("callbacks", "datamodules"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *(place for place in sys.path if place not in ("", HOME))])
    importlib.reload(importlib.import_module("zoo.runtime.import_order"))
    for name in ("callbacks", "datamodules"):
        spec = importlib.machinery.PathFinder.find_spec(name)
        assert spec is not None
        assert spec.origin == str(Path(HOME) / name / "__init__.py")


#: A finder that comes after the folders that Python looks in, as an editable installation has it.
EDITABLE = f"""
import runpy, sys
from importlib.machinery import PathFinder

class Editable:
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{HOME!r} + "/zoo" * name.count(".")]) if name[:3] == "zoo" else None

sys.meta_path.append(Editable)
sys.argv = ["zoo", "--version"]
runpy.run_module("zoo", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("content", [None, "x = 1"], ids=["a folder", "a package"])
def test_the_program_starts_beside_a_folder_of_its_own_name(content: str | None, tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    if content is not None:
        (tmp_path / "zoo" / "__init__.py").write_text(content)
    started = [sys.executable, "-S", "-c", EDITABLE]
    done = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True, env={}, check=False)
    assert done.stdout == f"{zoo.__version__}\n", done.stderr


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder with another package ``callbacks`` in it, as its installer leaves it."""
    (tmp_path / "callbacks").mkdir()
    (tmp_path / "callbacks" / "__init__.py").write_text("def callback(): ...\n")
    about = tmp_path / "callbacks-0.3.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: callbacks\nVersion: 0.3.0\n")
    (about / "RECORD").write_text("callbacks/__init__.py,,\n")
    return tmp_path


@pytest.mark.parametrize("command", ["list", "--help", "fit --help", "configs list", "privacy show x", "recommend x"])
def test_every_command_names_another_package_of_our_name(command: str, other: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zoo", *command.split()],
        cwd=other.parent,
        env={"PYTHONPATH": f"{other}:{HOME}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: Package 'callbacks' at {other}/callbacks/__init__.py is not the zoo's (the installed package 'callbacks').\n"
        f"To repair: pip uninstall callbacks, then pip install -e {HOME}\n"
    )


@pytest.fixture
def overwritten(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """The check, with the search path of this process as it was."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    return importlib.import_module("zoo.runtime.import_order").overwritten


@pytest.mark.thorough
def test_a_package_without_an_owner_and_one_that_is_gone_are_named(
    other: Path, overwritten: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert overwritten() == ""
    (other / "callbacks-0.3.0.dist-info" / "RECORD").unlink()
    file = other / "callbacks" / "__init__.py"
    found = importlib.util.spec_from_file_location("callbacks", file)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    assert "(no installed package owns it)" in overwritten()
    assert f"To repair: Remove or rename {file.parent}, then pip install" in overwritten()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert overwritten().startswith("The zoo's package 'callbacks' is missing. To repair: pip install")


@pytest.mark.parametrize("command", ["list", "configs show pricdr/quickstart"])
def test_nobody_has_to_read_to_the_end(command: str) -> None:
    piped = ["/bin/bash", "-c", f"{sys.executable} -u -m zoo {command} | true; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(piped, cwd=HOME, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")
    assert refusal(BrokenPipeError("of a tracker")) == "BrokenPipeError: of a tracker", "this output is read"
