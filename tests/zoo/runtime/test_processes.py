"""How many cores a process may use, where it may use fewer than the machine has, and where the system does not say."""

import os
import subprocess
from pathlib import Path

import pytest

from zoo.runtime import processes
from zoo.runtime.processes import commit, cores


def test_the_cores_of_a_process_are_those_that_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 7, 11, 15}, raising=False)
    assert cores() == 4


@pytest.mark.parametrize(("asked", "expected"), [("3", 3), ("9", 4), ("", 4), ("0", 4), ("many", 4)])
def test_a_task_of_slurm_has_no_more_than_it_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 7, 11, 15}, raising=False)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", asked)
    assert cores() == expected


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_where_the_system_does_not_say_they_are_the_machines(
    monkeypatch: pytest.MonkeyPatch, count: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert cores() == expected


def test_the_commit_is_that_of_the_checkout_with_a_mark_for_changed_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*words: str) -> str:
        named = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(named, check=True, capture_output=True, text=True).stdout.strip()

    code = tmp_path / "code.py"
    code.write_text("1\n")
    monkeypatch.setattr(processes, "__file__", str(code))
    git("init")
    assert commit.__wrapped__() == "", "a package inside another repository is no checkout of ours"
    git("add", "code.py")
    git("commit", "-m", "one")
    head = git("rev-parse", "HEAD")
    assert commit.__wrapped__() == head[:12]
    code.write_text("2\n")
    assert commit.__wrapped__() == f"{head[:12]}-dirty"
    monkeypatch.setenv("PATH", "")
    assert commit.__wrapped__() == "", "git is absent"
