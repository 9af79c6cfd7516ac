"""Benchmarks in processes of their own: cells that fail or die there, and what is left of them."""

import contextlib
import fcntl
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zoo.benchmark import command

#: Methods of another package: one that kills its process, and one that holds a lock for as long as its process lives.
UNRULY = '''
import fcntl, os, signal, time
from pathlib import Path
from zoo.methods.popularity import Popularity

class Lethal(Popularity):
    """Dies as it is built."""
    def build(self, sizes):
        print("so far so good", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

class Patient(Popularity):
    """Waits until it may go on; a minute at most, so that nothing is left behind."""
    def build(self, sizes):
        super().build(sizes)
        global file
        file = Path("held").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(1200):
            if Path("go").exists():
                return
            time.sleep(0.05)
'''
POPULARITY = {"config": "popularity.yaml"}
#: Fails when its data are read, which a check does not do: nobody passes the filter.
ABSENT = POPULARITY | {"settings": {"data.filters.min_user_ratings": 999}, "seeds": [0]}


@contextlib.contextmanager
def unruly_methods(place: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """They can be imported by what is run in the place; none of them outlives the block."""
    (place / "unruly.py").write_text(UNRULY, encoding="utf-8")
    patch.syspath_prepend(str(place))
    patch.setitem(sys.modules, "unruly", None)  # so that it is put back
    del sys.modules["unruly"]
    try:
        yield
    finally:
        (place / "go").touch()


def zoo_benchmark(*arguments: object) -> None:
    command.main([*map(str, arguments), *([] if "--processes" in arguments else ["--processes", "2"])])


def times(folder: Path) -> dict[str, int]:
    """When each file of the runs was last written."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def is_held(path: Path) -> bool:
    """Whether a process has the lock."""
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Where it never is, this fails after some minutes; no test depends on how long it takes."""
    for _ in range(3600):
        if true():
            return
        time.sleep(0.05)
    pytest.fail(f"Waited in vain: {what}.")
