"""Cells in processes of their own: their order, and what is left when a run or the benchmark ends before its time."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.zoo.benchmark.processes import POPULARITY, is_held, times, unruly_methods, wait_until, zoo_benchmark
from zoo.benchmark import runner
from zoo.benchmark.grid import Benchmark
from zoo.benchmark.runner import Outcome, _error, _work, locked, run_all
from zoo.benchmark.runs import BEGUN, LOG, RUN_FILE, BenchmarkRun, runs_of
from zoo.runtime.run_folder import write_json

pytestmark = pytest.mark.usefixtures("cell_server")

Made = Callable[..., Benchmark]
Write = Callable[..., Path]


@pytest.fixture
def unruly(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place with the unruly methods."""
    with unruly_methods(place, monkeypatch):
        yield place


def test_running_runs_end_with_an_interrupted_benchmark(unruly: Path, made: Made) -> None:
    benchmark = made(systems={"Quick": POPULARITY, "Patient": POPULARITY | {"settings": {"model": "unruly.Patient"}}})

    def interrupt(outcome: Outcome) -> None:
        wait_until(lambda: is_held(unruly / "held"), "no run waits")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(runs_of(benchmark, Path("out")), processes=2, threads=1, ended=interrupt)
    wait_until(lambda: not is_held(unruly / "held"), "the process of a run still lives")
    assert [path.parent.parent.name for path in (unruly / "out").rglob(RUN_FILE)] == ["quick"]


def test_runs_are_run_in_their_order_and_so_many_at_a_time(place: Path, made: Made) -> None:
    runs = runs_of(made(seeds=[2, 0]), Path("out"))
    begun: list[list[int]] = []
    outcomes = run_all(
        runs,
        processes=1,
        threads=1,
        ended=lambda outcome: begun.append([run.seed for run in runs if run.folder.exists()]),
    )
    assert begun == [[2], [2, 0]], "the second begins when the first has ended"
    assert [outcome.run for outcome in outcomes] == runs
    assert all(outcome.error == "" and outcome.seconds > 0 for outcome in outcomes)


def test_a_run_waits_for_the_search_of_another(made: Made) -> None:
    search = {"trials": 1, "seeds": "first", "parameters": {"model.l2": {"choices": [1.0]}}}
    ease = {"config": "popularity.yaml", "settings": {"model": "EASE"}}
    systems = {"EASE": {**ease, "search": search}, "Searching itself": {**ease, "search": search | {"seeds": "each"}}}
    first, own, second, other = runs_of(made(seeds=[0, 1], systems=systems), Path("out"))
    everything = {run.name for run in (first, own, second, other)}
    assert [run.waits_for(everything) for run in (first, own, second, other)] == [False, False, True, False]
    assert not second.waits_for(everything - {first.name})


@pytest.mark.processes
def test_a_run_another_process_runs_is_left_to_it(made: Made, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as the job of a cluster; a run that the other process has finished meanwhile is finished."""
    free, held = runs_of(made(seeds=[0, 1]), Path("out"))

    def work(run: BenchmarkRun) -> None:
        monkeypatch.setattr(runner, "LOCK_TIMEOUT", 0.0)
        _work(run, 1, False)

    with locked(held.folder, "busy"):
        held.prepare_folder().write_text("the log of another", encoding="utf-8")
        process = multiprocessing.get_context("fork").Process(target=work, args=(held,))
        process.start()
        assert _error(process, held) == "another process is running it"  # type: ignore[arg-type]
        assert (held.folder / LOG).read_text() == "the log of another"
    free.prepare_folder()
    write_json(free.folder / RUN_FILE, {"settings": free.settings(), "seconds": 3.5})
    (outcome,) = run_all([free], processes=1, threads=1, ended=lambda outcome: None)
    assert outcome.error == ""
    assert {path.name for path in free.folder.iterdir()} == {BEGUN, RUN_FILE}, "nothing was run"


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
        wait_until(lambda: is_held(unruly / "held") or process.poll() is not None, "the second run has not begun")
    finally:
        process.kill()
    assert process.wait() == -9, (unruly / "said.txt").read_text()
    wait_until(lambda: not is_held(unruly / "held"), "a run outlives the benchmark that was killed")
    assert [path.parent.parent.name for path in music.rglob(RUN_FILE)] == ["quick"]
    assert half.is_dir()
    assert not (music / "last").exists()

    before = times(music / "quick")
    (unruly / "go").touch()
    zoo_benchmark(*arguments)
    assert times(music / "quick") == before
    assert sorted(path.parent.parent.name for path in music.rglob(RUN_FILE)) == ["last", "patient", "quick"]
