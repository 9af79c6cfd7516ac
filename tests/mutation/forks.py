"""Copies of a tree in which tests are run side by side, with one slip each, by forks of a process that has the libraries."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from tests.mutation.edit import Edit

NOT_COPIED = (".git", "__pycache__", "*.egg-info", ".venv", "venv", "wandb", ".*_cache", ".hypothesis", "site")
HERE = Path(__file__).parents[2]
#: Exit code of a fork that tested nothing, or another tree than its copy.
ASTRAY = 99


def _left_out(tree: Path, folder: str, names: list[str]) -> set[str]:
    """Names in a folder that a copy of the tree does without; what runs leave lies at the top, and `zoo/runs` is code."""
    left_out: set[str] = shutil.ignore_patterns(*NOT_COPIED)(folder, names)
    return left_out | ({"runs"} if Path(folder) == Path(tree) else set())


@dataclass(frozen=True)
class Question:
    """Tests to run in a copy, with one slip or with none."""

    tests: tuple[str, ...]
    edit: Edit | None = None


@dataclass(frozen=True)
class Answer:
    """What became of them.

    Attributes:
        question: What was asked.
        code: Pytest's exit code; None if it took too long.
        failed: Tests that failed, or files that could not be read; with a slip, the first.
        seconds: How long it took.
    """

    question: Question
    code: int | None
    failed: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class _Fork:
    question: Question
    copy: Path
    scratch: Path
    original: str
    began: float


class _Failures:
    """A plugin that writes down what failed at once, should the process come to no good end."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._keep(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._keep(report)

    def _keep(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(report.nodeid) + "\n")


def _answer(question: Question, copy: Path, scratch: Path) -> NoReturn:
    """Run the tests and end, in a process that was forked for nothing else."""
    code = ASTRAY
    try:
        os.setsid()
        with (scratch / "log.txt").open("w", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.chdir(copy)
        # By its date and size, bytecode of two slips within a second could not be told apart.
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy)}
        sys.path[:] = [str(copy), *(entry for entry in sys.path if Path(entry).resolve() != HERE)]
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        sys.modules["__main__"] = ModuleType(
            "__main__"
        )  # else processes that a test starts import the runner as theirs
        importlib.invalidate_caches()
        options = [
            *("-q", "-m", "not slow"),
            *("-p", "no:xdist", "-p", "no:cacheprovider"),
            f"--basetemp={scratch / 'tmp'}",
            f"--rootdir={copy}",
        ]
        stop = ["-x"] if question.edit else []
        code = int(pytest.main([*options, *stop, *question.tests], plugins=[_Failures(scratch / "failed.txt")]))
        if strangers := [name for name, module in sys.modules.items() if _is_astray(name, module, copy)]:
            print("Imported from another tree:", strangers)
            code = ASTRAY
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _is_astray(name: str, module: ModuleType, copy: Path) -> bool:
    """Whether a module has the name of one of the tree's and was found elsewhere."""
    file, package = getattr(module, "__file__", None), name.split(".")[0]
    ours = package == "tests" or (copy / package / "__init__.py").is_file()
    return ours and file is not None and not Path(file).is_relative_to(copy)


class Copies:
    """Copies of a tree.

    Args:
        tree: What is copied.
        place: An empty folder for the copies.
        jobs: How many there are.
        timeout: Seconds after which tests of a slip are ended.
    """

    def __init__(self, tree: Path, place: Path, jobs: int, timeout: float) -> None:
        self.place, self.jobs, self.timeout = place.resolve(), jobs, timeout
        self.free = [self.place / f"copy-{number}" for number in range(jobs)]
        self.forks: dict[int, _Fork] = {}
        for copy in self.free:
            shutil.copytree(tree, copy, ignore=partial(_left_out, tree), symlinks=True)

    def answers(self, questions: Sequence[Question]) -> Iterator[Answer]:
        """Ask all of them, as many at a time as there are copies, and give the answers as they are found."""
        waiting = list(questions)
        try:
            while waiting or self.forks:
                while waiting and self.free:
                    self._ask(waiting.pop(0), self.free.pop())
                for process, fork in list(self.forks.items()):
                    ended, status = os.waitpid(process, os.WNOHANG)
                    late = fork.question.edit is not None and time.monotonic() - fork.began > self.timeout
                    if ended or late:
                        _end(process)
                        yield self._heard(self.forks.pop(process), os.waitstatus_to_exitcode(status) if ended else None)
                time.sleep(0.02)
        finally:
            for process in self.forks:
                _end(process)

    def _ask(self, question: Question, copy: Path) -> None:
        original = ""
        if question.edit is not None:
            file = copy / question.edit.file
            original = file.read_text(encoding="utf-8")
            file.write_text(question.edit.applied(original), encoding="utf-8")
        scratch = Path(tempfile.mkdtemp(dir=self.place))
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process == 0:
            _answer(question, copy, scratch)
        self.forks[process] = _Fork(question, copy, scratch, original, time.monotonic())

    def _heard(self, fork: _Fork, code: int | None) -> Answer:
        question = fork.question
        if code == ASTRAY:
            raise RuntimeError(
                f"The copy was not what was tested: {(fork.scratch / 'log.txt').read_text(encoding='utf-8')[-3000:]}"
            )
        kept = fork.scratch / "failed.txt"
        failed = kept.read_text(encoding="utf-8").splitlines() if kept.is_file() else []
        if question.edit is not None:
            (fork.copy / question.edit.file).write_text(fork.original, encoding="utf-8")
        for folder in (
            fork.scratch,
            fork.copy / ".hypothesis",
        ):  # examples that failed on one slip are no help with another
            shutil.rmtree(folder, ignore_errors=True)
        self.free.append(fork.copy)
        return Answer(question, code, tuple(map(json.loads, failed)), round(time.monotonic() - fork.began, 1))


def _end(process: int) -> None:
    """End a process, if it has not ended, and whatever it started."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process, 0)
