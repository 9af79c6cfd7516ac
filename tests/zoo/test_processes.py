"""How many cores a process may use, where it may use fewer than the machine has, and where the system does not say."""

import os

import pytest

from zoo.processes import cores


def test_the_cores_of_a_process_are_those_that_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 7, 11, 15}, raising=False)
    assert cores() == 4


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_where_the_system_does_not_say_they_are_the_machines(
    monkeypatch: pytest.MonkeyPatch, count: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert cores() == expected
