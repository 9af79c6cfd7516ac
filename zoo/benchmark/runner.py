"""Execute each run in its own process, so that a failed one does not stop the rest."""

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

from zoo.benchmark.grid import BenchmarkError
from zoo.benchmark.runs import LOG, BenchmarkRun

#: Seconds to wait until another process, such as one whose command was just killed, releases a run's folder.
LOCK_TIMEOUT = 60.0
#: Exit code of a run whose folder was not released: the log is another process's.
FOLDER_IN_USE = 75


class FolderInUseError(BenchmarkError):
    """Another process uses the folder."""


@dataclass(frozen=True)
class Outcome:
    """Result of a run."""

    run: BenchmarkRun
    seconds: float
    error: str = ""  # empty if it finished


def run_all(
    runs: Sequence[BenchmarkRun],
    processes: int,
    threads: int,
    ended: Callable[[Outcome], None],
    keep_checkpoints: bool = False,
) -> list[Outcome]:
    """Execute runs in order, `processes` at a time with `threads` each; return outcomes in order of completion.

    A process pool would fail whenever the system kills one process, so each run has its own process, forked from one with the
    libraries imported. Output goes to ``log.txt`` of the run's folder. A run starts after the one that searches its settings.
    """
    context, waiting, outcomes = _context(), list(runs), list[Outcome]()
    running: dict[Any, tuple[BenchmarkRun, BaseProcess, float]] = {}  # by sentinel
    try:
        while waiting or running:
            unfinished = {run.name for run in (*waiting, *(run for run, *_ in running.values()))}
            ready = [run for run in waiting if not run.waits_for(unfinished)]
            for run in ready[: processes - len(running)]:
                waiting.remove(run)
                new = context.Process(target=_work, args=(run, threads, keep_checkpoints), name=run.name)
                new.start()
                running[new.sentinel] = run, new, time.perf_counter()
            for sentinel in multiprocessing.connection.wait([*running]):
                run, process, began = running.pop(sentinel)
                outcomes.append(Outcome(run, time.perf_counter() - began, _error(process, run)))
                ended(outcomes[-1])
    finally:
        for _, process, _ in running.values():
            process.kill()
        for _, process, _ in running.values():
            process.join()
    return outcomes


@contextmanager
def locked(path: Path, message: str, timeout: float = 0.0) -> Iterator[None]:
    """Hold the lock of a path; raise `FolderInUseError` if another process holds it for `timeout` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=timeout):
            yield
    except Timeout as error:
        raise FolderInUseError(message) from error


def _context() -> SpawnContext | ForkServerContext:
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Imports take seconds: once instead of in every run.
    context.set_forkserver_preload(["zoo.runtime.import_order", "zoo.benchmark.fit"])
    return context


def _error(process: BaseProcess, run: BenchmarkRun) -> str:
    process.join()
    if process.exitcode == 0 and run.finished() is not None:
        return ""
    if process.exitcode == FOLDER_IN_USE:
        return "another process is running it"
    if process.exitcode is not None and process.exitcode < 0:
        return f"its process was killed by signal {-process.exitcode}"
    try:
        lines = (run.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError as error:
        return f"its folder cannot be read ({error})"
    return lines[-1] if lines else f"its process ended with code {process.exitcode}"


def _work(run: BenchmarkRun, threads: int, keep_checkpoints: bool) -> None:
    _stop_with_parent()
    import torch

    torch.set_num_threads(threads)
    try:
        with locked(run.folder, f"Another process is running {run.name}.", LOCK_TIMEOUT):
            if run.finished() is None:  # another process may have finished it meanwhile
                log = run.prepare_folder().open("w", encoding="utf-8")
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                run.execute(keep_checkpoints)  # the last line of an error's traceback is what the command prints
    except FolderInUseError:
        sys.exit(FOLDER_IN_USE)


def _stop_with_parent() -> None:
    """Stop with the benchmark command, since the next one writes to the same folder."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if not parent.is_alive():  # before anything is written
        os._exit(1)

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
