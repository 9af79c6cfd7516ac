"""Cells in processes of their own: their order, and what is left when a cell or the benchmark ends before its time."""

import json
import multiprocessing
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.zoo.benchmark.processes import POPULARITY, is_held, run, run_into, times, unruly_methods, wait_until
from zoo.benchmark.cell import CELL, cells_of
from zoo.benchmark.grid import Benchmark, BenchmarkError
from zoo.benchmark.lease import Lease, Leases, State
from zoo.benchmark.runner import LOOK, Outcome, _may_begin, run_cells
from zoo.runtime.run_folder import write_json

pytestmark = pytest.mark.usefixtures("cell_server")

Made = Callable[..., Benchmark]
Write = Callable[..., Path]


@pytest.fixture
def unruly(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place with the unruly methods."""
    with unruly_methods(place, monkeypatch):
        yield place


def test_a_cell_whose_folder_cannot_be_made_is_reported_and_the_others_finish(
    write: Write, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write(systems={"Blocked": POPULARITY, "Other": POPULARITY})
    (place / "out" / "music").mkdir(parents=True)
    (place / "out" / "music" / "blocked").write_text("a file where a folder should be")
    with pytest.raises(SystemExit) as ended:
        run("--config", config, "--runs", "out", "--processes", "1")
    assert (place / "out" / "music" / "other" / "seed-0" / CELL).is_file()
    assert ended.value.code == 1
    assert "Blocked, seed 0: failed" in capsys.readouterr().out


def test_running_cells_end_with_an_interrupted_benchmark(unruly: Path, made: Made) -> None:
    benchmark = made(systems={"Quick": POPULARITY, "Patient": POPULARITY | {"settings": {"model": "unruly.Patient"}}})

    def interrupt(outcome: Outcome) -> None:
        wait_until(lambda: is_held(unruly / "held"), "no cell waits")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(cells_of(benchmark, Path("out")), processes=2, threads=1, ended=interrupt)
    wait_until(lambda: not is_held(unruly / "held"), "the process of a cell still lives")
    assert [path.parent.parent.name for path in (unruly / "out").rglob(CELL)] == ["quick"]


def test_cells_are_run_in_their_order_and_so_many_at_a_time(place: Path, made: Made) -> None:
    cells = cells_of(made(seeds=[2, 0]), Path("out"))
    begun: list[list[int]] = []
    outcomes = run_cells(
        cells,
        processes=1,
        threads=1,
        ended=lambda outcome: begun.append([cell.seed for cell in cells if cell.folder.exists()]),
    )
    assert begun == [[2], [2, 0]], "the second begins when the first has ended"
    assert [outcome.cell for outcome in outcomes] == cells
    assert all(outcome.error == "" and outcome.seconds > 0 for outcome in outcomes)


def test_a_cell_waits_for_the_search_of_another(made: Made) -> None:
    search = {"trials": 1, "seeds": "first", "parameters": {"model.l2": {"choices": [1.0]}}}
    ease = {"config": "popularity.yaml", "settings": {"model": "EASE"}}
    systems = {"EASE": {**ease, "search": search}, "Searching itself": {**ease, "search": search | {"seeds": "each"}}}
    first, own, second, other = cells_of(made(seeds=[0, 1], systems=systems), Path("out"))
    everything = {cell.name for cell in (first, own, second, other)}
    assert [_may_begin(cell, everything) for cell in (first, own, second, other)] == [True, True, False, True]
    assert _may_begin(second, everything - {first.name})


def test_what_others_run_is_left_to_them_and_waited_for(
    made: Made, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is finished there, one fails there, and nothing is left to be run here."""
    cells = cells_of(made(seeds=[0, 1]), Path("out"))
    theirs = Leases(Path("out"))
    finishing, failing = (theirs.take(cell.name, cell.digest) for cell in cells)
    assert finishing is not None
    assert failing is not None
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            cells[1].begin().write_text("so far so good\nValueError: no", encoding="utf-8")
            failing.end(State.FAILED)
        if len(slept) == 4:
            finishing.end(State.FINISHED)  # and the file is not to be seen yet
        if len(slept) == 6:
            cells[0].begin()
            write_json(cells[0].folder / CELL, {"settings": cells[0].settings(), "seconds": 3.5})

    monkeypatch.setattr("zoo.benchmark.runner.time.sleep", sleep)
    told: list[Outcome] = []
    assert run_cells(cells, processes=1, threads=1, ended=told.append) == told
    here = platform.node()
    assert told == [Outcome(cells[1], 0.0, "ValueError: no", here), Outcome(cells[0], 3.5, "", here)]
    assert slept == [LOOK] * 6


def test_another_version_of_a_cell_that_is_being_run_is_refused(made: Made, place: Path) -> None:
    (cell,) = cells_of(made(), Path("out"))
    assert Leases(Path("out")).take(cell.name, "another digest") is not None
    with pytest.raises(
        BenchmarkError, match=r"Another version of music/popularity/seed-0 is being run in out, by a comm"
    ):
        run_cells([cell], processes=1, threads=1, ended=lambda outcome: None)
    assert not cell.folder.exists()


def test_a_cell_that_was_lost_is_run_once_more_and_never_finished_by_who_lost_it(
    made: Made, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another command takes it over as soon as it is begun here, and is stopped then."""
    (cell,) = cells_of(made(), Path("out"))
    took: list[bool] = []

    def taken_over(self: Leases, name: str, digest: str) -> Lease | None:
        if (lease := take(self, name, digest)) is not None and not took:
            took.append(True)
            other = lease.path.with_name("seed-0.2")
            other.write_text(json.dumps(asdict(replace(lease.note, state=State.STOPPED))))
        return lease

    take = Leases.take
    monkeypatch.setattr(Leases, "take", taken_over)
    (outcome,) = run_cells([cell], processes=1, threads=1, ended=lambda outcome: None)
    assert outcome.error == ""
    assert cell.finished() is not None
    assert sorted(path.name for path in Path("out/.leases/music/popularity").iterdir()) == [
        "seed-0.1",
        "seed-0.2",
        "seed-0.3",
    ]


Started = tuple[Callable[[], int | None], Callable[[], None]]


def forked(place: Path, arguments: list[str]) -> Started:
    """The command in a process that has the libraries from the start: its code once it has ended, and what kills it."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=run_into, args=(place / "said.txt", arguments))
    process.start()
    return (lambda: process.exitcode), process.kill


def whole(place: Path, arguments: list[str]) -> Started:
    """The command as a user gives it."""
    with (place / "said.txt").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "zoo", "benchmark", *arguments],
            stdout=said,
            stderr=said,
            env=os.environ | {"PYTHONPATH": str(place)},
        )
    return process.poll, process.kill


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("start", [forked, whole])
def test_a_killed_benchmark_goes_on_where_it_was(
    unruly: Path, write: Write, start: Callable[[Path, list[str]], Started]
) -> None:
    patient = POPULARITY | {"settings": {"model": "unruly.Patient"}}
    write(systems={"Quick": POPULARITY, "Patient": patient, "Last": POPULARITY})
    arguments = ["--config", "bench.yaml", "--runs", "out", "--processes", "1"]
    music, half = unruly / "out" / "music", unruly / "out" / "music" / "patient" / "seed-0"
    code, kill = start(unruly, arguments)
    try:
        wait_until(lambda: is_held(unruly / "held") or code() is not None, "the second cell has not begun")
    finally:
        kill()
    wait_until(lambda: code() is not None, "the benchmark still lives")
    assert code() == -9, (unruly / "said.txt").read_text()
    wait_until(lambda: not is_held(unruly / "held"), "a cell outlives the benchmark that was killed")
    assert [path.parent.parent.name for path in music.rglob(CELL)] == ["quick"]
    assert half.is_dir()
    assert not (music / "last").exists()

    before = times(music / "quick")
    (unruly / "go").touch()
    run(*arguments)
    assert times(music / "quick") == before
    assert sorted(path.parent.parent.name for path in music.rglob(CELL)) == ["last", "patient", "quick"]
