"""Installed outside a clone: the wheel holds what the program needs, and folders where one stands do not stop it."""

import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BUILT_OF = (
    "zoo", "datamodules", "callbacks", "configs", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md",
    "LICENSE",
)  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy, since a build leaves folders behind."""
    copy = tmp_path_factory.mktemp("copy")
    for name in BUILT_OF:
        take = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        take(ROOT / name, copy / name)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(copy / "wheel"), str(copy)], check=True, timeout=900)
    (made,) = (copy / "wheel").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel; the libraries are those at hand."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False, symlinks=True)
    (own,) = place.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, timeout=900)
    libraries = [folder for folder in (*site.getsitepackages(), *sys.path) if folder.endswith("site-packages")]
    (own / "libraries.pth").write_text("\n".join(dict.fromkeys(libraries)) + "\n")
    return place / "bin"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Where somebody stands who has folders of the names of ours: a package, and folders of data."""
    for name in ("callbacks", "datamodules", "zoo", "configs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").touch()
    (tmp_path / "callbacks" / "__init__.py").write_text("raise SystemExit('a callback of the folder where one stands')")
    return tmp_path


def run(here: Path, *command: str | Path) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(here), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(word) for word in command], cwd=here, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("program", [("python", "-m", "zoo"), ("zoo",)], ids=" ".join)
def test_it_lists_copies_and_trains_wherever_one_stands(installed: Path, here: Path, program: tuple[str, ...]) -> None:
    command = (installed / program[0], *program[1:])
    where = run(here, installed / "python", "-c", "import zoo; print(zoo.__file__)")
    assert where.startswith(str(installed.parent)) or program == ("zoo",)
    listed = run(here, *command, "list")
    shipped = {str(path.relative_to(ROOT / "configs").with_suffix("")) for path in (ROOT / "configs").rglob("*.yaml")}
    assert shipped <= {line.split()[0] for line in listed.splitlines() if line.strip()}
    assert not [line for line in listed.splitlines() if str(ROOT) in line]
    run(here, *command, "configs", "copy", "pricdr/quickstart")
    assert (here / "quickstart.yaml").read_bytes() == (ROOT / "configs" / "pricdr" / "quickstart.yaml").read_bytes()
    for config in ("pricdr/quickstart", "quickstart.yaml", "configs/pricdr/quickstart.yaml"):
        run(here, *command, "privacy", "plan", "--config", config)
    said = run(here, *command, "fit", "--config", "pricdr/quickstart", "--trainer.max_epochs", "1")
    assert "Run folder: runs/PriCDR/version_0" in said
    run(here, *command, "fit", "--resume", "runs/PriCDR/version_0", "--trainer.max_epochs", "2")


def test_a_benchmark_runs_there(installed: Path, here: Path) -> None:
    """Its cells are processes of their own, which look for ours in the right place as well."""
    only = ("--only", "music/popularity/*", "--processes", "1")
    said = run(here, installed / "zoo", "benchmark", "--config", "benchmarks/smoke", *only)
    assert "1 of 1 runs are finished" in said
    run(here, installed / "python", "-m", "zoo", "report", "runs/benchmarks/smoke", "--out", "report")


def test_a_package_zoo_there_stops_the_module_alone(installed: Path, here: Path) -> None:
    """``python -m`` looks where one stands before any code of ours is read; `zoo` and ``python -P -m zoo`` do not."""
    (here / "zoo" / "__init__.py").write_text("raise SystemExit('a zoo of the folder where one stands')")
    assert "pricdr/quickstart" in run(here, installed / "zoo", "list")
    assert "pricdr/quickstart" in run(here, installed / "python", "-P", "-m", "zoo", "list")


def test_the_wheel_holds_ours_and_nothing_else(wheel: Path) -> None:
    import zipfile

    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"zoo", "datamodules", "callbacks"}
