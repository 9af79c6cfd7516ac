"""Cells in processes of their own: their order, and what is left when a cell or the benchmark ends before its time."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.zoo.benchmark.processes import POPULARITY, is_held, run, times, unruly_methods, wait_until
from zoo.benchmark import runner
from zoo.benchmark.cell import CELL, LOG, Cell, cells_of
from zoo.benchmark.grid import Benchmark
from zoo.benchmark.runner import Outcome, _error, _work, locked, run_cells
from zoo.runtime.run_folder import write_json

pytestmark = pytest.mark.usefixtures("cell_server")

Made = Callable[..., Benchmark]
Write = Callable[..., Path]


@pytest.fixture
def unruly(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place with the unruly methods."""
    with unruly_methods(place, monkeypatch):
        yield place


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
    assert [cell.waits_for(everything) for cell in (first, own, second, other)] == [False, False, True, False]
    assert not second.waits_for(everything - {first.name})


@pytest.mark.processes
def test_a_cell_that_another_process_runs_is_left_to_it(
    made: Made, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the job of a cluster; a cell that the other process has finished meanwhile is finished."""
    free, held = cells_of(made(seeds=[0, 1]), Path("out"))

    def work(cell: Cell) -> None:
        monkeypatch.setattr(runner, "PATIENCE", 0.0)
        _work(cell, 1, False)

    with locked(held.folder, "busy"):
        held.begin().write_text("the log of another", encoding="utf-8")
        process = multiprocessing.get_context("fork").Process(target=work, args=(held,))
        process.start()
        assert _error(process, held) == "another process is running it"  # type: ignore[arg-type]
        assert (held.folder / LOG).read_text() == "the log of another"
    free.begin()
    write_json(free.folder / CELL, {"settings": free.settings(), "seconds": 3.5})
    (outcome,) = run_cells([free], processes=1, threads=1, ended=lambda outcome: None)
    assert outcome.error == ""
    assert [path.name for path in free.folder.iterdir()] == [CELL], "nothing was run"


@pytest.mark.slow
@pytest.mark.processes
def test_a_killed_benchmark_goes_on_where_it_was(unruly: Path, write: Write) -> None:
    patient = POPULARITY | {"settings": {"model": "unruly.Patient"}}
    write(systems={"Quick": POPULARITY, "Patient": patient, "Last": POPULARITY})
    arguments = ["--config", "bench.yaml", "--runs", "out", "--processes", "1"]
    music, half = unruly / "out" / "music", unruly / "out" / "music" / "patient" / "seed-0"
    with (unruly / "said.txt").open("w") as said:
        words = [sys.executable, "-m", "zoo", "benchmark", *arguments]
        process = subprocess.Popen(words, stdout=said, stderr=said, env=os.environ | {"PYTHONPATH": str(unruly)})
    try:
        wait_until(lambda: is_held(unruly / "held") or process.poll() is not None, "the second cell has not begun")
    finally:
        process.kill()
    assert process.wait() == -9, (unruly / "said.txt").read_text()
    wait_until(lambda: not is_held(unruly / "held"), "a cell outlives the benchmark that was killed")
    assert [path.parent.parent.name for path in music.rglob(CELL)] == ["quick"]
    assert half.is_dir()
    assert not (music / "last").exists()

    before = times(music / "quick")
    (unruly / "go").touch()
    run(*arguments)
    assert times(music / "quick") == before
    assert sorted(path.parent.parent.name for path in music.rglob(CELL)) == ["last", "patient", "quick"]
