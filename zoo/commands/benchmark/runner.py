"""Runs cells in processes of their own: one that fails, or dies, does not stop the rest."""

import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess

from zoo.commands.benchmark.cell import LOG, Cell


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
    """Run cells in this order, several at a time with so many threads each; gives the outcomes as they came.

    Each cell has a process of its own, forked from one that has the libraries imported: its memory is its own, and so is
    its end. Whatever it prints is in ``log.txt`` of its folder. Where this is interrupted, the running cells are stopped.
    A cell whose settings another one searches is put off until that one has ended.
    """
    context = _context()
    waiting, outcomes = list(cells), list[Outcome]()
    running: dict[object, tuple[BaseProcess, Cell, float]] = {}
    try:
        while waiting or running:
            while len(running) < processes and (
                cell := _next(waiting, [at_work for _, at_work, _ in running.values()])
            ):
                waiting.remove(cell)
                process = context.Process(target=_work, args=(cell, threads, keep_checkpoints), name=cell.name)
                process.start()
                running[process.sentinel] = (process, cell, time.perf_counter())
            for sentinel in multiprocessing.connection.wait([at_work.sentinel for at_work, _, _ in running.values()]):
                ended_process, cell, began = running.pop(sentinel)
                outcome = Outcome(cell, time.perf_counter() - began, _error(ended_process, cell))
                outcomes.append(outcome)
                ended(outcome)
    finally:
        for left, _, _ in running.values():
            left.kill()
    return outcomes


def _next(waiting: Sequence[Cell], running: Sequence[Cell]) -> Cell | None:
    """The first cell that waits for no search of another."""
    ahead = {cell.name for cell in (*waiting, *running)}
    return next((cell for cell in waiting if (by := cell.searcher.name) == cell.name or by not in ahead), None)


def _context() -> SpawnContext | ForkServerContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Seconds of imports, once instead of in every cell.
    context.set_forkserver_preload(["zoo.here_last", "zoo.commands.benchmark.fit"])
    return context


def _error(process: BaseProcess, cell: Cell) -> str:
    process.join()
    if process.exitcode == 0 and cell.finished() is not None:
        return ""
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
        log = cell.begin().open("w", encoding="utf-8")
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        cell.run(keep_checkpoints)
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

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
