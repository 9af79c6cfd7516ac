"""What the whole suite shares: tiny data sets under the names that the configs use, and runs that several tests look at.

Libraries are imported where they are used: with ``-n`` this file is read by the process that hands the tests out, too, and no
worker starts before it is through.
"""

from __future__ import annotations

import tests.one_thread  # noqa: F401  before numpy

# isort: split
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from fcntl import LOCK_EX, flock
from functools import cache, partial
from importlib.metadata import entry_points
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.quickstart import PROJECTED

if TYPE_CHECKING:
    from zoo.runs.cli import ZooCLI

# Without bytecode each worker rewrites every assertion (10 s of CPU time), and each command of a test compiles the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: Names the test that a pytest is run for.
OWN = "ZOO_TESTS_OWN_PROCESS"
#: Workers at most: each takes 20 seconds of a core, and 2 GiB at most, before its first test.
MOST_WORKERS, GIB_EACH = 16, 2


def write_csv(
    path: Path,
    rows: list[tuple[str, str]],
    rating: str = "4",
    header: str = "user_id,item_id,rating,timestamp",
    *,
    timed: bool = False,
) -> None:
    ending = f",{rating}," if header.count(",") == 3 else ""
    lines = (f"{user},{item}{ending}{at if timed else ''}" for at, (user, item) in enumerate(rows))
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


def write_domain(folder: Path, domain: str, users: range, num_items: int, each: int, seed: int) -> None:
    """All rows, one validation and one test row and a list of 12 negatives for each user."""
    import numpy as np

    rng = np.random.default_rng(seed)
    rows, valid, test, negatives = [], [], [], []
    for user in users:
        items = [f"{domain}{i}" for i in rng.permutation(num_items)]
        rows += [(f"u{user}", item) for item in items[:each]]
        valid.append((f"u{user}", items[0]))
        test.append((f"u{user}", items[1]))
        negatives += [(f"u{user}", item) for item in items[each : each + 12]]
    write_csv(folder / f"{domain}.csv", rows, timed=folder.name == "amazon-food-kitchen")
    write_csv(folder / f"{domain}_valid.csv", valid)
    write_csv(folder / f"{domain}_test.csv", test)
    write_csv(folder / f"{domain}_negatives.csv", negatives, header="user_id,item_id")


def write_ratings(folder: Path, most: int) -> None:
    """Twenty users' ratings of 9 of 30 items from 0 to ``most``, in order of time; the last two of each user are a test."""
    import numpy as np

    folder.mkdir()
    rng = np.random.default_rng(most)
    rows = [
        f"u{user},i{item},{rng.integers(most + 1)},{time}"
        for user in range(20)
        for time, item in enumerate(rng.permutation(30)[:9])
    ]
    header = "user_id,item_id,rating,timestamp"
    tests = [row for row in rows if row.endswith((",7", ",8"))]
    for stem, part in (("ratings", rows), ("u1_test", tests)):
        (folder / f"{stem}.csv").write_text("\n".join([header, *part]) + "\n", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Tell `tests.fuzz.damage.cases` whether slow tests alone are asked for."""
    os.environ["ZOO_TESTS_SLOW_ALONE"] = str(int(config.option.markexpr == "slow"))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run whole folders in parallel unless ``-n`` says otherwise; single files and debuggers stay in one process.

    Files that are named are run with their thorough tests.
    """
    option = config.option
    by_itself = option.usepdb or option.trace or option.capture == "no" or option.collectonly
    files = all(Path(str(arg).split("::")[0]).suffix == ".py" for arg in config.args)
    if files:
        option.markexpr = option.markexpr.removesuffix(" and not thorough")
    if not (getattr(option, "numprocesses", 0) is not None or hasattr(config, "workerinput") or by_itself or files):
        option.numprocesses, option.dist = _workers(), "worksteal"


def _workers() -> int:
    """Number of workers by cores and memory; 0, which is one process without workers, where there is room for one alone."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    number = min(cores, gib // GIB_EACH, MOST_WORKERS)
    return number if number > 1 else 0


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test marked ``own_process`` is run by a pytest of its own, if it is not its only test already."""
    if pyfuncitem.get_closest_marker("own_process") is None or os.environ.get(OWN) == pyfuncitem.nodeid:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-m", "own_process", "-p", "no:xdist", pyfuncitem.nodeid]
    environment = {**os.environ, OWN: pyfuncitem.nodeid}
    run = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Count all tests of the whole suite for `tests/test_layering.py`, before markers deselect some."""
    here = Path(__file__).parent  # tests of packages in examples/ may be collected, too
    if here in [session.config.invocation_params.dir / arg for arg in session.config.args]:
        session.whole_suite = sum(item.path.is_relative_to(here) for item in items)  # type: ignore[attr-defined]


def pytest_collection_finish() -> None:
    """What has been imported stays: that the garbage collector looks at it again and again takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


#: Further domains of `amazon-many`.
_OTHERS = "beauty cds clothing digital_music electronics games instruments kindle movies pantry phones sports toys"
OTHERS = dict.fromkeys(_OTHERS.split(), range(20))


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data sets: 20 users in each domain, in common or partly so, 30 items."""
    root = tmp_path_factory.mktemp("data")
    # every name that a config or a datamodule's contract uses, with its domains and the users of each
    for name, domains in {
        "douban-book-music": {"book": range(20), "music": range(20)},
        "amazon-books-movies-dense": {"books": range(20), "movies": range(4, 24)},
        "amazon-food-kitchen": {"food": range(20), "kitchen": range(2, 22)},
        "amazon-sport-cloth": {"cloth": range(20), "sport": range(20)},
        "amazon-many": {"books": range(20), "home": range(20), "grocery": range(2, 22)} | OTHERS,
        "ciao": {f"cat{number:02}": range(20) for number in (1, 3, 10, 2, *range(4, 10), *range(11, 25))},
        "apart": {"left": range(20), "right": range(100, 120)},
        "partly": {"left": range(20), "right": range(12, 32), "third": range(8, 28)},
    }.items():
        (root / name).mkdir()
        for seed, (domain, users) in enumerate(domains.items()):
            write_domain(root / name, domain, users, 30, 9, seed)
    for name, most in (("ml-100k", 5), ("rc", 2)):
        write_ratings(root / name, most)
    return root


@pytest.fixture
def zoo_data(tiny_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny data sets under ``$ZOO_DATA``."""
    monkeypatch.setenv("ZOO_DATA", str(tiny_root))
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    return tiny_root


def command(patch: pytest.MonkeyPatch, *arguments: object) -> ZooCLI:
    """What ``python -m zoo`` does with the arguments, in this process."""
    from zoo.runs.cli import ZooCLI

    patch.setattr("sys.argv", ["zoo", *map(str, arguments)])
    patch.delenv("PL_GLOBAL_SEED", raising=False)
    return ZooCLI()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., ZooCLI]:
    """Runs a command in a folder of its own, as ``python -m zoo`` would."""
    from zoo.runs.cli import import_names

    import_names()
    monkeypatch.chdir(tmp_path)
    return partial(command, monkeypatch)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished ``fit`` for tests that only look at it."""
    from zoo.runs.cli import import_names

    import_names()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("finished"))
        patch.setenv("PL_GLOBAL_SEED", "0")  # a run sets it; so it is taken away again
        return Path(str(command(patch, "fit", *PROJECTED).trainer.log_dir)).resolve()


@pytest.fixture(scope="session")
def finished_by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a ``fit`` by two processes, once for all workers of a suite."""
    own = tmp_path_factory.getbasetemp()
    place = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "finished_by_two"
    # Of 25 cases the first process tests 13 in two batches, the second 12 in one.
    two = ("--trainer.devices", "2", "--trainer.strategy", "ddp")
    uneven = ("--data.num_users", "25", "--data.evaluation_batch_size", "12")
    arguments = [sys.executable, "-m", "zoo", "fit", *PROJECTED, *two, *uneven]
    with place.with_suffix(".lock").open("w") as lock:
        flock(lock, LOCK_EX)  # until the file is closed
        if not place.is_dir():
            place.mkdir()
            done = subprocess.run(arguments, cwd=place, capture_output=True, text=True, check=False, timeout=600)
            assert done.returncode == 0, done.stderr
    return place / "runs" / "PriCDR" / "version_0"


@pytest.fixture(scope="session", autouse=True)
def libraries_look_once() -> Iterator[None]:
    """Torch computes on one thread, and what no test changes is not looked up again and again.

    Lightning reads the entry points of all installed packages for each trainer, every frame of a deep stack for each checkpoint,
    and copies each figure that is logged to the device where it is.
    """
    import torch
    from lightning_fabric.utilities import registry
    from pytorch_lightning.trainer.connectors.logger_connector.result import _ResultMetric
    from pytorch_lightning.utilities import model_helpers

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", cache(entry_points))
        patch.setattr(model_helpers, "inspect", SimpleNamespace(stack=list))
        if not torch.cuda.is_available():
            patch.setattr(_ResultMetric, "to", lambda metric, *_, **__: metric)
        yield


@pytest.fixture(scope="session")
def cell_server() -> None:
    """Asks for the process that cells of benchmarks are forked from."""


@pytest.fixture(scope="session", autouse=True)
def early_cell_server(request: pytest.FixtureRequest) -> None:
    """It starts before the first test: it imports for seconds, and what it has imported no cell has to."""
    if any("cell_server" in getattr(item, "fixturenames", ()) for item in request.session.items):
        forkserver.set_forkserver_preload(["zoo.benchmark.fit", "zoo.benchmark.runner", "pytest"])
        forkserver.ensure_running()
