"""Kills at fixed moments: a process is killed at its n-th operation on files, the same in every run.

What a kill leaves on the disk depends on the operations before it alone. Python announces its own to audit hooks before they
happen; for libraries that write in machine code (tensors, Parquet, CSV) it is done here. Each is two moments: the file that was
last opened to be written, or is about to get its name, is whole at the first, and has half of what was written at the second, as if
the kill had come meanwhile.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import safetensors.torch

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.truncate", "os.chmod")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_DIR_FD = {
    "os.remove": 1,
    "os.rmdir": 1,
    "os.mkdir": 2,
    "os.rename": 2,
    "os.link": 2,
}  # which argument is a folder's number


class Killer:
    """An audit hook that kills its process, and the one that made it, at a moment below a folder; processes forked later share it.

    Args:
        place: Where operations count.
        moment: At which it kills, from 0; None: never, it counts alone.
    """

    def __init__(self, place: Path, moment: int | None) -> None:
        self.place, self.moment = str(place), moment
        self.first = os.getpid()
        self.done = mmap.mmap(-1, 8)  # shared with forks
        self.last, self.before = "", 0  # what was last opened to be written, and its size then

    @property
    def count(self) -> int:
        return int.from_bytes(self.done[:8], "little")

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not ((event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES) or event in _CHANGES):
            return
        path = self._path(event, arguments)
        if not path.startswith(self.place):
            return
        operation = self.count
        self.done[:8] = (operation + 1).to_bytes(8, "little")
        cut, before = (path, 0) if event == "os.rename" else (self.last, self.before)
        if event == "open":
            kept = os.path.exists(path) and not arguments[2] & os.O_TRUNC
            self.last, self.before = path, os.path.getsize(path) if kept else 0
        if self.moment is not None and operation == self.moment // 2:
            if self.moment % 2 and os.path.isfile(cut):
                os.truncate(cut, (before + os.path.getsize(cut)) // 2)
            if os.getpid() != self.first:
                os.kill(self.first, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Hear of all operations of this process from here on."""
        sys.addaudithook(self)
        safetensors.torch.serialize_file = self._told(safetensors.torch.serialize_file)  # type: ignore[attr-defined]
        for write in ("write_parquet", "write_csv"):
            setattr(pl.DataFrame, write, self._told(getattr(pl.DataFrame, write)))

    def _told(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """A library's writer of a file, which is its second argument; it opens that as Python would."""

        def writes(first: object, file: object, *others: Any, **named: Any) -> Any:  # noqa: ANN401  a library's own
            if isinstance(file, str | os.PathLike):
                self("open", (file, "w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
            return write(first, file, *others, **named)

        return writes

    def _path(self, event: str, arguments: tuple[Any, ...]) -> str:
        path = os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else ""
        folder = arguments[_DIR_FD[event]] if event in _DIR_FD else -1
        if path and not os.path.isabs(path):
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd(), path)
        return path


def begun(place: Path, moment: int | None, work: Callable[[], object]) -> int:
    """Begin a work in a fork of this process that is killed at a moment; the fork's number, which somebody has to wait for."""
    process = os.fork()
    if process:
        return process
    try:
        Killer(place, moment).watch()
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(process: int) -> bool:
    """Wait for a fork; whether it was killed. One that failed fails the test."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -signal.SIGKILL), f"code {code}; what it said stands above"
    return code != 0


def done(work: Callable[[], object]) -> None:
    """Do a work in a fork of this process, where whatever it does to its process, such as to begin threads, stays."""
    assert not ended(begun(Path("/"), None, work))


def killed_at(place: Path, moment: int, work: Callable[[], object]) -> bool:
    """Do a work in a fork of this process that is killed at a moment; False if it was through before."""
    return ended(begun(place, moment, work))


def moments(place: Path, work: Callable[[], object], most: int = 20) -> list[int]:
    """Moments of a work, at most so many, evenly spread over all that it has from its first operation to its last.

    The work is done once for that, in a fork.
    """
    counter = Killer(place, None)

    def counted() -> None:
        counter.watch()
        work()

    assert not ended(begun(place, None, counted))
    count = 2 * counter.count
    return (
        sorted({round(number * (count - 1) / (most - 1)) for number in range(most)})
        if count > most
        else list(range(count))
    )
