"""Runs cells in processes of their own: one that fails, or dies, does not stop the rest; other commands have their share."""

import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from zoo.benchmark.cell import LOG, Cell
from zoo.benchmark.grid import BenchmarkError
from zoo.benchmark.lease import Lease, Leases, Note, State, is_superseded

#: Seconds after which it is looked again at what other commands have in hand.
LOOK = 1.0


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    cell: Cell
    seconds: float
    error: str = ""  # why it failed; empty if it is finished
    host: str = ""  # where another command ran it; empty if this one did


def run_cells(
    cells: Sequence[Cell],
    processes: int,
    threads: int,
    ended: Callable[[Outcome], None],
    keep_checkpoints: bool = False,
) -> list[Outcome]:
    """Run cells of one folder in this order, several at a time with so many threads each; gives the outcomes as they came.

    Each cell has a process of its own, forked from one that has the libraries imported: its memory is its own, and so is
    its end. Whatever it prints is in ``log.txt`` of its folder. Where this is interrupted, the running cells are stopped.
    A cell whose settings another one searches is put off until that one has ended. What other commands have in hand is left
    to them and waited for: should one be killed, its cells are run here.
    """
    if not cells:
        return []
    with Leases(cells[0].root) as leases:
        return _Share(cells, leases, processes, (threads, keep_checkpoints), ended).run()


@dataclass(frozen=True)
class _AtWork:
    cell: Cell
    process: BaseProcess
    lease: Lease
    began: float


class _Share:
    """What one command does of the cells."""

    def __init__(
        self,
        cells: Sequence[Cell],
        leases: Leases,
        processes: int,
        how: tuple[int, bool],  # threads of a cell, and whether it keeps its checkpoints
        ended: Callable[[Outcome], None],
    ) -> None:
        self.waiting, self.leases, self.processes, self.how, self.ended = list(cells), leases, processes, how, ended
        self.context = _context()
        self.running: dict[Any, _AtWork] = {}  # by what is ready when the process has ended
        self.outcomes: list[Outcome] = []

    def run(self) -> list[Outcome]:
        try:
            while self.waiting or self.running:
                unfinished = {cell.name for cell in (*self.waiting, *(left.cell for left in self.running.values()))}
                for cell in list(self.waiting):
                    if len(self.running) == self.processes:
                        break
                    if _may_begin(cell, unfinished):
                        self._begin(cell)
                self._wait()
        finally:
            for left in self.running.values():
                left.process.kill()
            for left in self.running.values():
                left.process.join()  # before anybody else is told that the cell is free
        return self.outcomes

    def _begin(self, cell: Cell) -> None:
        """Run a cell, unless somebody else does or did."""
        if (note := self.leases.other(cell.name)) is not None:
            self._leave(cell, note)
        elif (lease := self.leases.take(cell.name, cell.digest)) is not None:
            self.waiting.remove(cell)
            if cell.finished() is not None:
                self._end(_of_others(cell, ""), lease)
                return
            process = self.context.Process(target=_work, args=(cell, lease.path, *self.how), name=cell.name)
            process.start()
            self.running[process.sentinel] = _AtWork(cell, process, lease, time.perf_counter())
            lease.is_run_by(process.pid, process.kill)

    def _leave(self, cell: Cell, note: Note) -> None:
        """Leave a cell to another command, and see what became of it there."""
        if note.cell != cell.digest:
            raise BenchmarkError(
                f"Another version of {cell.name} is being run in {cell.root}, by a command on {note.host}. Wait for it, or "
                "choose other --runs."
            )
        failed, finished = note.state is State.FAILED, cell.finished() is not None
        if failed or finished:
            self.waiting.remove(cell)
            self._end(Outcome(cell, 0.0, _last_words(cell), note.host) if failed else _of_others(cell, note.host))

    def _wait(self) -> None:
        """Until a cell has ended; where there is room for another, for a moment."""
        idle = LOOK if self.waiting and len(self.running) < self.processes else None
        if not self.running:  # then there is nothing to wait for but other commands
            if idle is not None:
                time.sleep(idle)
            return
        for sentinel in multiprocessing.connection.wait([*self.running], idle):
            left = self.running.pop(sentinel)
            error = _error(left.process, left.cell)
            if left.lease.lost or is_superseded(left.lease.path):
                self.waiting.append(left.cell)  # whoever has it now may be killed, too
            else:
                self._end(Outcome(left.cell, time.perf_counter() - left.began, error), left.lease)

    def _end(self, outcome: Outcome, lease: Lease | None = None) -> None:
        if lease is not None:
            lease.end(State.FAILED if outcome.error else State.FINISHED)
        self.outcomes.append(outcome)
        self.ended(outcome)


def _may_begin(cell: Cell, unfinished: Collection[str]) -> bool:
    """Whether a cell waits for no search of another."""
    return (searcher := cell.searcher.name) == cell.name or searcher not in unfinished


def _of_others(cell: Cell, host: str) -> Outcome:
    kept = cell.finished() or {}
    return Outcome(cell, float(kept.get("seconds", 0.0)), host=host)


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
    if process.exitcode is not None and process.exitcode < 0:
        return f"its process was killed by signal {-process.exitcode}"
    return _last_words(cell) or f"its process ended with code {process.exitcode}"


def _last_words(cell: Cell) -> str:
    try:
        lines = (cell.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError as error:
        return f"its folder could not be made or read ({error})"
    return lines[-1] if lines else ""


def _work(cell: Cell, lease: Path, threads: int, keep_checkpoints: bool) -> None:
    """The whole life of a cell's process."""
    _end_with_parent()
    import torch

    torch.set_num_threads(threads)
    try:
        log = cell.begin().open("w", encoding="utf-8")
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        cell.run(keep_checkpoints, lambda: not is_superseded(lease))
        sys.stdout.flush()
    except BaseException as error:
        if not isinstance(error, SystemExit):  # the parser's refusal: its own words are the last line of the log
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def _end_with_parent() -> None:
    """Stop when the benchmark is gone: a cell that nobody waits for would write into the folder of the next attempt."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if not parent.is_alive():  # before anything is written
        os._exit(1)

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
