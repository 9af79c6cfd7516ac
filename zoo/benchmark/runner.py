"""Run each cell in its own process, so that a failed one does not stop the rest."""

import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from zoo.benchmark.cell import LOG, Cell
from zoo.benchmark.grid import BenchmarkError

#: Seconds that a cell waits for another process to release its folder, such as one whose command was just killed.
PATIENCE = 60.0
#: Exit code of a cell whose folder was not released: the log there is another process's.
HELD = 75


class FolderInUseError(BenchmarkError):
    """A folder that another process works in."""


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    cell: Cell
    seconds: float
    error: str = ""  # why it failed; empty if it is finished


def run_cells(
    cells: Sequence[Cell],
    processes: int,
    threads: int,
    ended: Callable[[Outcome], None],
    keep_checkpoints: bool = False,
) -> list[Outcome]:
    """Run cells in this order, `processes` at a time with `threads` each; return the outcomes as they came.

    A process pool would lose all running cells when the system kills one, so each has its own process, forked from one with the
    libraries imported. Output goes to ``log.txt`` of the cell's folder. A cell starts after the one that searches its settings.
    """
    context, waiting, outcomes = _context(), list(cells), list[Outcome]()
    running: dict[Any, tuple[Cell, BaseProcess, float]] = {}  # by what is ready when the process has ended
    try:
        while waiting or running:
            unfinished = {cell.name for cell in (*waiting, *(cell for cell, *_ in running.values()))}
            able = [cell for cell in waiting if not cell.waits_for(unfinished)]
            for cell in able[: processes - len(running)]:
                waiting.remove(cell)
                new = context.Process(target=_work, args=(cell, threads, keep_checkpoints), name=cell.name)
                new.start()
                running[new.sentinel] = cell, new, time.perf_counter()
            for sentinel in multiprocessing.connection.wait([*running]):
                cell, process, began = running.pop(sentinel)
                outcomes.append(Outcome(cell, time.perf_counter() - began, _error(process, cell)))
                ended(outcomes[-1])
    finally:
        for _, process, _ in running.values():
            process.kill()
        for _, process, _ in running.values():
            process.join()
    return outcomes


@contextmanager
def locked(path: Path, message: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a path; raise `FolderInUseError` if another process holds it for longer than `patience` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=patience):
            yield
    except Timeout as error:
        raise FolderInUseError(message) from error


def _context() -> SpawnContext | ForkServerContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Seconds of imports, once instead of in every cell.
    context.set_forkserver_preload(["zoo.runtime.import_order", "zoo.benchmark.fit"])
    return context


def _error(process: BaseProcess, cell: Cell) -> str:
    process.join()
    if process.exitcode == 0 and cell.finished() is not None:
        return ""
    if process.exitcode == HELD:
        return "another process is running it"
    if process.exitcode is not None and process.exitcode < 0:
        return f"its process was killed by signal {-process.exitcode}"
    try:
        lines = (cell.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError as error:
        return f"its folder could not be made or read ({error})"
    return lines[-1] if lines else f"its process ended with code {process.exitcode}"


def _work(cell: Cell, threads: int, keep_checkpoints: bool) -> None:
    """The whole life of a cell's process."""
    _end_with_parent()
    import torch

    torch.set_num_threads(threads)
    try:
        with locked(cell.folder, f"Another process is running {cell.name}.", PATIENCE):
            if cell.finished() is None:  # another process may have run it since the command looked
                log = cell.begin().open("w", encoding="utf-8")
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                cell.run(keep_checkpoints)  # the last line of an error's traceback is what the command prints
    except FolderInUseError:
        sys.exit(HELD)


def _end_with_parent() -> None:
    """Stop with the benchmark, because the next attempt writes into the same folder."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if not parent.is_alive():  # before anything is written
        os._exit(1)

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
