"""Plugins: known by name before they are imported; a broken one is a sentence, and stops nothing else."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zoo
from datamodules import Synthetic
from tests.quickstart import PROJECTED
from tests.samples import binary
from zoo import NoisyRows, Release
from zoo.benchmark.grid import publisher_class
from zoo.commands.configs import origin
from zoo.commands.listing import listing
from zoo.release.files import ReleaseError
from zoo.release.layouts import Dense, UnknownKindError
from zoo.runs.bundle import BundleError, _class
from zoo.runs.cli import ZooCLI
from zoo.runs.import_policy import importing_nothing
from zoo.runtime import plugins
from zoo.testing.tiny import SYNTHETIC

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "plugin"

METHODS = '''
import zoo
MARK = "imported"

class Newest(zoo.Popularity):
    """Ranks what is \x1b[31mnew first."""
'''
KINDS = """
from zoo.release.layouts import Dense

class Pairs(Dense):
    kind = "pairs"
    before_training = "Unpack it first: python -m a_plugin."

class Triples(Dense):
    kind = "pairs"
"""
POINTS = {
    "zoo.methods": {
        "Newest": "a_plugin.methods:Newest",
        "Gone": "a_plugin.absent:Gone",
        "Broken": "a_plugin.broken:Broken",
        "Unnamed": "a_plugin.methods:Unnamed",
        "Value": "a_plugin.methods:MARK",
        "Popularity": "a_plugin.methods:Newest",
        "Nowhere": "another_package:Nowhere",
        "Twice": "a_plugin.methods:Newest",
    },
    "zoo.publishers": {"Handed": "a_plugin.publishers:Handed"},
    "zoo.release_kinds": {
        "pairs": "a_plugin.kinds:Pairs",
        "rows": "a_plugin.kinds:Pairs",
        "triples": "a_plugin.kinds:Triples",
        "handed": "a_plugin.publishers:Handed",
        "gone": "a_plugin.absent:Gone",
    },
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two installed packages, as their installer leaves them, of which the second brings one name again."""
    place = tmp_path / "site"
    package = place / "a_plugin"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "methods.py").write_text(METHODS, encoding="utf-8")
    (package / "kinds.py").write_text(KINDS, encoding="utf-8")
    (package / "broken.py").write_text("class Broken(\n")
    (package / "publishers.py").write_text("import zoo\n\nclass Handed(zoo.Plaintext):\n    '''Hands over.'''\n")
    for name, points in (("a-plugin", POINTS), ("b-plugin", {"zoo.methods": {"Twice": "a_plugin.methods:Newest"}})):
        about = place / f"{name.replace('-', '_')}-1.2.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        lines = [
            line for group, of in points.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in of.items()))
        ]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(place)
    plugins.brought.cache_clear()
    yield place
    plugins.brought.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_plugin"]:
        del sys.modules[name]


def line(name: str) -> str:
    (found,) = [line for line in listing().splitlines() if line.split()[:1] == [name]]
    return " ".join(found.split())


def test_what_lies_in_the_working_directory_is_not_installed(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that was received there is not, nor does it hide one of its name that is installed."""

    def versions() -> set[str]:
        plugins.brought.cache_clear()
        every = [plugin for kind in plugins.GROUPS for plugin in plugins.brought(kind).values()]
        return {plugin.package for plugin in every if plugin.package.startswith("a-plugin")}

    here = installed.parent / "received"
    shutil.copytree(installed, here)
    (here / "a_plugin-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: a-plugin\nVersion: 9\n")
    monkeypatch.syspath_prepend(here)
    assert versions() == {"a-plugin 9"}, "of two on the path the first counts"
    for name in (str(here), "."):
        monkeypatch.setattr(sys, "path", [name, *sys.path[1:]])
        monkeypatch.chdir(here)
        assert versions() == {"a-plugin 1.2"}
    monkeypatch.chdir(installed)
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert versions() == set()


@pytest.mark.thorough
@pytest.mark.usefixtures("installed")
def test_list_names_them_with_their_package_and_imports_nothing() -> None:
    assert line("Newest") == r"Newest Ranks what is \x1b[31mnew first. [a-plugin 1.2: a_plugin.methods.Newest]"
    assert line("Handed") == "Handed Hands over. [a-plugin 1.2: a_plugin.publishers.Handed]"
    assert "a_plugin" not in sys.modules
    for gone in ("Gone", "Nowhere"):
        assert "has no file. Reinstall or uninstall the package" in line(gone)
    assert "cannot be read (SyntaxError)" in line("Broken")
    assert "a_plugin" not in line("Popularity"), "a name of ours stays ours"
    assert not [line for line in listing().splitlines() if line.split()[:1] == ["Twice"]]
    assert origin("Newest") == "the installed package a-plugin 1.2"


@pytest.mark.thorough
@pytest.mark.usefixtures("installed")
def test_a_short_name_is_imported_when_it_is_asked_for(
    cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ours = cli("fit", *PROJECTED[:2], "--model", "Popularity", "--publisher", "null", "--trainer.fast_dev_run", "true")
    assert type(ours.model) is zoo.Popularity
    assert "a_plugin" not in sys.modules
    with pytest.raises(SystemExit):
        cli("fit", *PROJECTED, "--model", "Newst")
    assert "unknown class 'Newst'. Did you mean Newest?" in capsys.readouterr().err
    (tmp_path / "own.yaml").write_text("model: {class_path: Newest}\ndata: {class_path: Synthetic}\n")
    run = cli("fit", "--config", tmp_path / "own.yaml", "--trainer.fast_dev_run", "true")
    assert type(run.model).__module__ == "a_plugin.methods"


@pytest.mark.usefixtures("installed")
def test_a_broken_one_is_a_sentence(cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (
        (
            "Gone",
            "Gone of the installed package a-plugin 1.2 cannot be imported (ModuleNotFoundError: No module named ",
        ),
        ("Broken", "Broken of the installed package a-plugin 1.2 cannot be imported (SyntaxError: "),
        ("Unnamed", "cannot be imported (AttributeError: "),
        ("Value", "Value of the installed package a-plugin 1.2 is a_plugin"),
    ):
        with pytest.raises(SystemExit):
            cli("fit", *PROJECTED, "--model", name)
        first, second, *_ = capsys.readouterr().err.splitlines()
        assert said in first
        assert f"unknown class {name!r}" in second


@pytest.mark.usefixtures("installed")
def test_files_may_name_them() -> None:
    """Whoever installed the package has said that the zoo may import it."""
    assert publisher_class({"class_path": "Handed"}).__module__ == "a_plugin.publishers"
    assert _class("a_plugin.methods.Newest").__name__ == "Newest"
    with pytest.raises(BundleError, match="not one of the zoo"):
        _class("a_plugin.methods.Other")
    assert "a_plugin" in plugins.packages()
    with importing_nothing(Path("x")):
        pass


def released(kind: str, path: Path) -> Path:
    """Return the folder of a release whose manifest names a kind."""
    NoisyRows(epsilon=2.0).publish(binary(), "book").save(path)
    manifest = path / "release.json"
    manifest.write_text(manifest.read_text().replace('"kind": "rows"', f'"kind": "{kind}"'), encoding="utf-8")
    return path


@pytest.mark.usefixtures("installed")
def test_a_release_kind_is_plugged_in(tmp_path: Path) -> None:
    """Its class is imported when a release names it; a target is told what to do with it."""
    assert type(Release.load(released("rows", tmp_path / "ours")).layout) is Dense, "a kind of ours stays ours"
    assert "a_plugin" not in sys.modules
    path = released("pairs", tmp_path / "pairs")
    loaded = Release.load(path)
    assert (loaded.kind, loaded.width, type(loaded.layout).__module__) == ("pairs", 7, "a_plugin.kinds")
    data = Synthetic(**SYNTHETIC, releases={"book": path})
    data.setup("fit")
    with pytest.raises(
        ReleaseError, match=r"pairs is a release of kind 'pairs'\. Unpack it first: python -m a_plugin\."
    ):
        data.read_releases()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "a_plugin.kinds:Pairs",
            "is unknown. Known: rows, ratings, generator, embeddings, map, .*gone, handed, pairs, triples\\.",
        ),
        ("os", "is unknown. Known: .*Install its package"),
        ("triples", "triples of the installed package a-plugin 1.2 is no such Layout"),
        ("handed", "handed of the installed package a-plugin 1.2 is no such Layout"),
        ("gone", "gone of the installed package a-plugin 1.2 cannot be imported"),
    ],
)
def test_a_kind_that_nobody_knows_is_refused(kind: str, said: str, tmp_path: Path) -> None:
    before = set(sys.modules)
    with pytest.raises(UnknownKindError, match=said) as refused:
        Release.load(released(kind, tmp_path / "there"))
    assert str(refused.value).startswith(str(tmp_path / "there"))
    assert "again" not in str(refused.value), "another copy of the release would not help"
    assert "installed package" in str(refused.value) or not set(sys.modules) - before


def test_without_plugins_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "brought", lambda _: {})
    assert plugins.import_named(["--config", "/proc/self/mem.yaml", "Newest"]) == []


@pytest.mark.slow
def test_the_example_is_installed_listed_run_and_passes_its_tests(tmp_path: Path) -> None:
    place, here = tmp_path / "site", tmp_path / "here"
    here.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    copy = tmp_path / "plugin"
    shutil.copytree(EXAMPLE, copy)  # a build leaves folders behind
    subprocess.run([*pip, "--target", str(place), str(copy)], check=True, timeout=600)

    def run(*arguments: str) -> str:
        environment = {"PYTHONPATH": f"{place}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=here, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    listed = run("zoo", "list")
    for name in ("RowMap", "LaplaceRows", "Shops", "StopWhenGood"):
        assert any(line.split()[:1] == [name] and "[shop-zoo 0.1.0: shop_zoo." in line for line in listed.splitlines())
    page = " ".join(run("zoo", "fit", "--config", str(EXAMPLE / "example.yaml")).split())
    assert "RowMap" in page
    assert "not audited here" in page
    assert "user_id" not in run("zoo", "recommend", "runs/RowMap/version_0", "--users", "customer0001", "--k", "2")
    run("zoo", "export", "runs/RowMap/version_0", "--out", "bundle")
    assert " passed" in run("pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"), "--rootdir", str(EXAMPLE))


@pytest.mark.slow
def test_the_zoo_needs_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; import zoo, zoo.__main__; zoo.PriCDR; zoo.fit; zoo.load"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=600)
    assert zoo.__version__
