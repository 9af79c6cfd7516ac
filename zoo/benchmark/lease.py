"""Leases: who has which cell in hand, so that several commands, on several machines, divide the cells of one folder.

A lease is a file under ``.leases`` of the benchmark's folder: ``seed-0.1`` for the first time that somebody took the cell,
``seed-0.2`` for the second; the highest number counts. It is made exclusively (``O_EXCL``), so of all who want a number one
gets it, and nobody removes or renames a lease, so nobody gets a number that was somebody's. Its owner writes it anew, with a
count, every `BEAT` seconds. Whoever has seen it stand still for `PATIENCE` seconds takes the cell by the next number; an
owner who comes back finds that number and lets go. Who could not write for half as long lets go unasked. On one machine
nobody waits for an owner that was killed: the system knows which processes live.

What is assumed of the folder: that one alone makes a file exclusively, and that what one machine has written and closed
another reads within half of `PATIENCE`. Local folders are so, and NFS (from version 3 on, with its usual caches), SMB, Lustre
and GPFS; folders that stand for an object storage are not. Of clocks: that a second takes about as long everywhere. The time
of day is written down for people and read by nobody. Nothing rests on locks, on links, or on a process that ends in order.

What is left: a machine that sleeps for longer than `PATIENCE` and wakes in the middle of a cell may write into its folder
until, within a moment, it looks at its lease. It never writes ``cell.json``, by which a cell counts as finished.
"""

import json
import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from zoo.runtime.processes import has_ended, machine
from zoo.runtime.run_folder import saying_where

#: Of the folder of a benchmark.
LEASES = ".leases"
#: Seconds from one renewal to the next, and after which one that stands still is nobody's.
BEAT, PATIENCE = 15.0, 120.0
#: Bytes of a lease, at least: renewed where it stands, it needs no room that a full disk has not.
_SIZE = 1024


class State(StrEnum):
    """What became of a cell that somebody took."""

    HELD = "held"  # is being run
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"  # its owner let go of it before its end


@dataclass(frozen=True)
class Note:
    """What a lease says."""

    state: State
    cell: str  # SHA-256 of the settings that it is run with
    host: str
    machine: str
    processes: tuple[int, ...]  # of the command, and of the cell once it runs
    taken: str  # UTC by that machine's clock, for people
    beat: int = 0

    @classmethod
    def read(cls, content: bytes) -> "Note | None":
        """What stands in a lease; None if that is half of one, or none."""
        try:
            found = json.loads(content)
            note = cls(**found | {"state": State(found["state"]), "processes": tuple(found["processes"])})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        texts, numbers = (note.cell, note.host, note.machine, note.taken), (*note.processes, note.beat)
        fits = all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)
        return note if fits else None

    @property
    def is_over(self) -> bool:
        """Whether it is known that nobody runs the cell any more: its owner says so, or its processes have ended."""
        return self.state is not State.HELD or all(has_ended(self.machine, number) for number in self.processes)


class Lease:
    """A cell that this process has in hand.

    Attributes:
        lost: Whether somebody else has it, or may have it, by now.
    """

    def __init__(self, path: Path, note: Note) -> None:
        self.path, self.note, self.lost = path, note, False
        self._stop: Callable[[], None] = lambda: None
        self._written = time.monotonic()
        self._one = threading.Lock()  # its owner and the thread that renews it write one after the other
        self._write(note)

    def is_run_by(self, process: int | None, stop: Callable[[], None]) -> None:
        """Name the process that runs the cell, and what ends it should the lease be lost."""
        with self._one:
            self._stop = stop
            self._write(replace(self.note, processes=(os.getpid(), *([process] if process else []))))

    def renew(self) -> None:
        """Say that its owner lives; where that is too late, or was impossible for too long, it is lost and the cell is stopped."""
        with self._one:
            if self.lost or self.note.state is not State.HELD:
                return
            try:
                if not is_superseded(self.path):
                    self._write(replace(self.note, beat=self.note.beat + 1))
                    return
            except OSError:  # the folder cannot be reached, or written to, for now
                if time.monotonic() - self._written < PATIENCE / 2:
                    return
            self.lost = True
            self._stop()

    def end(self, state: State) -> None:
        """Say what became of the cell, unless somebody else has it by now."""
        with self._one:
            self.lost = self.lost or is_superseded(self.path)
            if not self.lost:
                self._write(replace(self.note, state=state))

    def _write(self, note: Note) -> None:
        """Over what stands there: a file that was made once is never made again."""
        with saying_where(self.path):
            descriptor = os.open(self.path, os.O_WRONLY)
            try:
                os.write(descriptor, json.dumps(asdict(note)).encode().ljust(_SIZE))
            finally:
                os.close(descriptor)
        self.note, self._written = note, time.monotonic()


class Leases:
    """The leases of one command; they are renewed for as long as it is entered.

    Args:
        root: Folder of the benchmark.
    """

    def __init__(self, root: Path) -> None:
        self._folder = root / LEASES
        self._held: list[Lease] = []
        self._seen: dict[
            Path, tuple[bytes, float]
        ] = {}  # what a lease said, and since when by this process's own clock
        self._before: dict[str, int] = {}
        self._over = threading.Event()
        self._renewal = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        for name, number, path in _latest(self._folder):
            note = Note.read(path.read_bytes())
            self._before[name] = number if note is not None and note.state is not State.HELD else number - 1
        self._renewal.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of what is held."""
        self._over.set()
        self._renewal.join()
        for lease in self._held:
            if lease.note.state is State.HELD:
                with suppress(OSError):  # then it stands still
                    lease.end(State.STOPPED)

    def other(self, name: str) -> Note | None:
        """Who has a cell, or what became of it in other hands since this command began; None if anybody may take it."""
        number = self._number(name)
        if not number:
            return None
        note, still = self._look(self._path(name, number))
        if note is None or still >= PATIENCE:
            return None
        if note.state is State.HELD:
            return None if note.is_over else note
        return None if note.state is State.STOPPED or number <= self._before.get(name, 0) else note

    def take(self, name: str, cell: str) -> Lease | None:
        """The cell, for this command to run with settings of this digest; None if another command has it, or is as quick."""
        number = self._number(name)
        if number:
            note, still = self._look(self._path(name, number))
            if not (note is not None and note.is_over) and still < PATIENCE:
                return None
        path = self._path(name, number + 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            return None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        lease = Lease(path, Note(State.HELD, cell, platform.node(), machine(), (os.getpid(),), now))
        self._held.append(lease)
        return lease

    def _renew(self) -> None:
        while not self._over.wait(BEAT):
            for lease in list(self._held):
                lease.renew()

    def _look(self, path: Path) -> tuple[Note | None, float]:
        """What a lease says, and for how long it has been seen to say so."""
        content, now = path.read_bytes(), time.monotonic()
        if self._seen.get(path, (b"", 0.0))[0] != content or path not in self._seen:
            self._seen[path] = content, now
        return Note.read(content), now - self._seen[path][1]

    def _number(self, name: str) -> int:
        """The highest number that a cell was taken by, 0 for none."""
        number = 0
        while self._path(name, number + 1).exists():
            number += 1
        return number

    def _path(self, name: str, number: int) -> Path:
        return self._folder / f"{name}.{number}"


def is_superseded(path: Path) -> bool:
    """Whether somebody has taken a cell by a later number than this lease's."""
    stem, _, number = path.name.rpartition(".")
    return path.with_name(f"{stem}.{int(number) + 1}").exists()


def at_work(root: Path) -> str | None:
    """The host of a command that has a cell of a folder in hand, as far as is known; None if all have ended."""
    for _, _, path in _latest(root / LEASES):
        note = Note.read(path.read_bytes())
        if note is not None and not note.is_over:
            return note.host
    return None


def _latest(folder: Path) -> list[tuple[str, int, Path]]:
    """Name, number and path of the lease that counts, of each cell that was ever taken."""
    found: dict[str, tuple[str, int, Path]] = {}
    for path in folder.rglob("*.*"):
        name, _, number = path.relative_to(folder).as_posix().rpartition(".")
        if number.isdecimal() and path.is_file() and (name not in found or int(number) > found[name][1]):
            found[name] = name, int(number), path
    return list(found.values())
