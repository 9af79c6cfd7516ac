"""Leases: one command has a cell, whoever asks at once, dies, sleeps, or has another clock."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kills import begun, ended, killed_at, moments
from tests.zoo.benchmark.processes import wait_until
from zoo.benchmark import lease as module
from zoo.benchmark.lease import PATIENCE, Lease, Leases, Note, State, at_work, is_superseded

NAME, CELL = "music/pricdr/jlt-eps-0.5/seed-0", "digest"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets seconds pass for everybody."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def passing(seconds: float) -> None:
        now[0] += seconds

    return passing


def taken(leases: Leases, name: str = NAME) -> Lease:
    found = leases.take(name, CELL)
    assert found is not None
    return found


def elsewhere(patch: pytest.MonkeyPatch, leases: Leases, name: str = NAME) -> Lease:
    """The same by a command on another machine."""
    with patch.context() as there:
        there.setattr(module, "machine", lambda: "another")
        there.setattr(module.platform, "node", lambda: "far away")
        return taken(leases, name)


def says(path: Path) -> Note:
    found = Note.read(path.read_bytes())
    assert found is not None
    return found


def test_a_cell_is_one_command_s_until_it_ends_there(tmp_path: Path) -> None:
    ours, theirs = Leases(tmp_path), Leases(tmp_path)
    held = taken(ours)
    assert held.path == tmp_path / ".leases" / f"{NAME}.1"
    assert theirs.take(NAME, CELL) is None
    assert theirs.other(NAME) == held.note
    assert says(held.path).processes == (os.getpid(),)
    assert taken(theirs, "music/pricdr/jlt-eps-0.5/seed-1").path.name == "seed-1.1"
    for number, state in enumerate((State.FAILED, State.FINISHED, State.STOPPED), 1):
        held.end(state)
        found = theirs.other(NAME)
        assert (None if found is None else found.state) == (None if state is State.STOPPED else state)
        held = taken(theirs)
        assert held.path.name == f"seed-0.{number + 1}", "nobody gets a number that was somebody's"


def test_what_failed_before_a_command_began_is_free_and_what_fails_since_then_is_not(tmp_path: Path) -> None:
    ours = Leases(tmp_path)
    taken(ours).end(State.FAILED)
    held = taken(ours, "held")
    with Leases(tmp_path) as theirs:
        assert theirs.other(NAME) is None
        held.end(State.FAILED)
        found = theirs.other("held")
        assert found is not None
        assert found.state is State.FAILED


@pytest.mark.processes
def test_of_all_who_want_a_cell_at_once_one_gets_it(tmp_path: Path) -> None:
    def want() -> None:
        while not (tmp_path / "go").exists():
            time.sleep(0.001)
        if Leases(tmp_path).take(NAME, CELL) is not None:
            (tmp_path / f"taken by {os.getpid()}").touch()

    forks = [begun(tmp_path, None, want) for _ in range(6)]
    (tmp_path / "go").touch()
    assert not any(list(map(ended, forks)))
    assert len(list(tmp_path.glob("taken by *"))) == 1


def test_who_does_not_see_yet_that_a_cell_was_taken_does_not_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a network, where what was asked a moment ago is remembered."""
    held, late = taken(Leases(tmp_path)), Leases(tmp_path)
    monkeypatch.setattr(late, "_number", lambda name: 0)
    before = held.path.read_bytes()
    assert late.take(NAME, CELL) is None
    assert held.path.read_bytes() == before


def test_what_stands_still_for_long_is_nobody_s_whatever_the_time_of_day(
    tmp_path: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Leases(tmp_path), Leases(tmp_path)
    held = elsewhere(monkeypatch, there)
    held.note = replace(held.note, taken="2101-01-01T00:00:00+00:00")
    stopped: list[bool] = []
    held.is_run_by(12, lambda: stopped.append(True))
    for _ in range(9):  # renewed now and then
        clock(PATIENCE / 3)
        held.renew()
        assert here.take(NAME, CELL) is None
        assert here.other(NAME) is not None
    clock(PATIENCE - 1)
    assert here.take(NAME, CELL) is None
    clock(1)
    assert here.other(NAME) is None
    ours = taken(here)
    assert is_superseded(held.path)
    assert not is_superseded(ours.path)
    before = held.path.read_bytes()
    held.renew()
    assert (held.lost, stopped) == (True, [True])
    held.end(State.FINISHED)
    held.renew()
    assert stopped == [True]
    assert held.path.read_bytes() == before, "who has lost a cell says nothing of it any more"


def test_who_sees_a_lease_for_the_first_time_waits_whole(
    tmp_path: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can know when it was written: the clocks of two machines are not compared."""
    elsewhere(monkeypatch, Leases(tmp_path))
    clock(100 * PATIENCE)
    late = Leases(tmp_path)
    assert late.take(NAME, CELL) is None
    clock(PATIENCE)
    assert taken(late).path.name == "seed-0.2"


@pytest.mark.parametrize("content", [b"", b'{"state": "he', b"[]", b'{"state": "lent"}', b"\xff"])
def test_half_a_lease_is_somebody_s_for_as_long(tmp_path: Path, clock: Callable[[float], None], content: bytes) -> None:
    """Of one who was killed between making the file and writing to it."""
    path = tmp_path / ".leases" / f"{NAME}.1"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    leases = Leases(tmp_path)
    assert leases.take(NAME, CELL) is None
    clock(PATIENCE)
    assert taken(leases).path.name == "seed-0.2"


def test_who_cannot_renew_lets_go_before_another_takes(tmp_path: Path, clock: Callable[[float], None]) -> None:
    held = taken(Leases(tmp_path))
    stopped: list[bool] = []
    held.is_run_by(None, lambda: stopped.append(True))
    held.path.unlink()  # as a folder that cannot be reached
    clock(PATIENCE / 2 - 1)
    held.renew()
    assert not held.lost
    clock(1)
    held.renew()
    assert (held.lost, stopped) == (True, [True])


@pytest.mark.processes
def test_on_one_machine_nobody_waits_for_the_dead(tmp_path: Path) -> None:
    def take_and_die() -> None:
        held = taken(Leases(tmp_path))
        held.is_run_by(os.getppid(), lambda: None)  # a cell that outlives its command
        (tmp_path / ".now").touch()

    assert killed_at(tmp_path / ".now", 0, take_and_die)
    leases = Leases(tmp_path)
    assert leases.take(NAME, CELL) is None, "somebody still writes there"
    path = tmp_path / ".leases" / f"{NAME}.1"
    path.write_bytes(path.read_bytes().replace(b", %d]" % os.getpid(), b"]"))
    assert at_work(tmp_path) is None
    assert taken(leases).path.name == "seed-0.2"
    assert at_work(tmp_path) == os.uname().nodename


def test_leases_are_renewed_while_a_command_lives_and_let_go_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT", 0.01)
    with Leases(tmp_path) as leases:
        held, done = taken(leases), taken(leases, "done")
        done.end(State.FINISHED)
        wait_until(lambda: says(held.path).beat > 1, "nobody renews the lease")
    assert says(held.path).state is State.STOPPED
    assert says(done.path).state is State.FINISHED


@pytest.mark.processes
def test_wherever_a_command_is_killed_the_others_run_what_is_left_and_nothing_twice(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    def work(place: Path) -> None:
        leases = Leases(place)
        for _ in range(2):
            for name in ("a", "b"):
                if (held := None if leases.other(name) else leases.take(name, CELL)) is not None:
                    if not (place / f"{name} is done").exists():
                        (place / f"{name} by {os.getpid()}").touch()
                        (place / f"{name} is done").touch()
                    held.end(State.FINISHED)
            clock(PATIENCE)

    (tmp_path / "counted").mkdir()
    for moment in moments(tmp_path / "counted", lambda: work(tmp_path / "counted"), most=100)[1::4]:
        place = tmp_path / str(moment)
        place.mkdir()
        assert killed_at(place, moment, lambda place=place: work(place))  # type: ignore[misc]
        work(place)
        assert len(list(place.glob("* is done"))) == 2
        assert len(list(place.glob("* by *"))) <= 3, "at most the one that was in hand is begun a second time"
