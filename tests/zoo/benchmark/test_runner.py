"""Whole benchmarks in processes of their own: what ends, what fails, what dies, and what is run again."""

import contextlib
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from zoo.benchmark import command
from zoo.benchmark.cell import CELL, cells_of, digest_of
from zoo.benchmark.grid import Benchmark, read_benchmark
from zoo.benchmark.runner import Outcome, run_cells

#: Methods of another package: one that kills its process, and one that holds a lock for as long as its process lives.
UNRULY = '''
import fcntl, os, signal, time
from pathlib import Path
from zoo.methods.popularity import Popularity

class Lethal(Popularity):
    """Dies as it is built."""
    def build(self, sizes):
        print("so far so good", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

class Patient(Popularity):
    """Waits until it may go on; a minute at most, so that nothing is left behind."""
    def build(self, sizes):
        super().build(sizes)
        global file
        file = Path("held").open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(1200):
            if Path("go").exists():
                return
            time.sleep(0.05)
'''
POPULARITY = {"config": "popularity.yaml"}
ABSENT = {"data": "Files", "data.name": "absent", "data.target": "a", "data.root": "nowhere"}
SYSTEMS = {
    "Popularity": POPULARITY,
    "Absent": POPULARITY | {"settings": ABSENT, "seeds": [0]},
    "Lethal": POPULARITY | {"settings": {"model": "unruly.Lethal"}, "seeds": [0]},
    "Last": POPULARITY | {"seeds": [0]},
}

Made = Callable[..., Benchmark]
Write = Callable[..., Path]


def run(*arguments: object) -> None:
    command.main([*map(str, arguments), *([] if "--processes" in arguments else ["--processes", "2"])])


def times(folder: Path) -> dict[str, int]:
    """When each file of the runs was last written."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def is_held(path: Path) -> bool:
    """Whether a process has the lock."""
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Where it never is, this fails after some minutes; no test depends on how long it takes."""
    for _ in range(3600):
        if true():
            return
        time.sleep(0.05)
    pytest.fail(f"Waited in vain: {what}.")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture
def unruly(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The unruly methods, in the place where they are run; none of them outlives the test."""
    (place / "unruly.py").write_text(UNRULY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setitem(sys.modules, "unruly", None)  # so that it is put back
    del sys.modules["unruly"]
    yield place
    (place / "go").touch()


# One benchmark, run once for the tests below.


@dataclass(frozen=True)
class Ran:
    """A benchmark whose cells ended in every way."""

    place: Path
    config: Path
    code: int | str | None
    said: str

    @property
    def runs(self) -> Path:
        return self.place / "runs" / "benchmarks" / "bench"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, furnish: Write) -> Ran:
    place = tmp_path_factory.mktemp("whole")
    (place / "unruly.py").write_text(UNRULY, encoding="utf-8")
    config = furnish(place, seeds=[0, 1], systems=SYSTEMS)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("PL_GLOBAL_SEED", "0"), ("COLUMNS", "300")):
            patch.setenv(name, value)
        patch.chdir(place)
        patch.syspath_prepend(str(place))
        patch.setitem(sys.modules, "unruly", None)  # so that it is put back
        del sys.modules["unruly"]
        with contextlib.redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit) as ended:
            run("--config", "bench.yaml")
    return Ran(place, config, ended.value.code, said.getvalue())


@pytest.fixture
def ran(whole: Ran, place: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The same in the place where it was run."""
    monkeypatch.chdir(whole.place)
    return whole


@pytest.fixture
def copy(ran: Ran, tmp_path: Path) -> Path:
    """Its runs, for a test to change."""
    shutil.copytree(ran.runs, tmp_path / "copy")
    return tmp_path / "copy"


def test_every_cell_that_can_end_ends_finished(ran: Ran) -> None:
    cells = cells_of(read_benchmark(ran.config), ran.runs)
    finished = {cell.name for cell in cells if cell.finished() is not None}
    assert finished == {f"music/{name}" for name in ("popularity/seed-0", "popularity/seed-1", "last/seed-0")}
    for name in finished:
        assert json.loads((ran.runs / name / "metrics.json").read_text())["metrics"]["test/full/ndcg@10"] >= 0
        assert (ran.runs / name / "test_cases.parquet").is_file()
    assert not list(ran.runs.rglob("*.ckpt"))
    assert not list(ran.runs.rglob("*.tmp"))
    assert "3 of 5 cells are finished" in ran.said


def test_cells_are_whole_runs_of_their_own_seeds(ran: Ran) -> None:
    seeds = [json.loads((ran.runs / f"music/popularity/seed-{n}" / "metrics.json").read_text())["seed"] for n in (0, 1)]
    assert seeds == [0, 1]


def test_what_was_run_is_kept_for_the_report(ran: Ran) -> None:
    kept = json.loads((ran.runs / command.BENCHMARK).read_text())
    benchmark = read_benchmark(ran.config)
    assert {key: kept[key] for key in benchmark.plain()} == benchmark.plain()
    cells = {cell.name: cell for cell in cells_of(benchmark, ran.runs)}
    assert kept["cells"].keys() == cells.keys()
    for name in ("music/popularity/seed-0", "music/popularity/seed-1"):
        settings = json.loads((ran.runs / name / CELL).read_text())["settings"]
        assert kept["cells"][name] == digest_of(settings), "the report can tell which runs are the benchmark's"
    assert len(set(kept["cells"].values())) == len(cells)


def test_failed_cells_end_the_command_with_code_1(ran: Ran) -> None:
    assert ran.code == 1
    assert "2 cells failed; give the same command to run them again" in ran.said


def test_a_cell_that_raises_is_reported_with_its_error(ran: Ran) -> None:
    [line] = [line for line in ran.said.splitlines() if line.startswith("[") and "Absent, seed 0" in line]
    assert "failed: FileNotFoundError: No ratings of 'a' in " in line
    log = (ran.runs / "music" / "absent" / "seed-0" / "log.txt").read_text()
    assert "Traceback" in log
    assert "FileNotFoundError: No ratings of 'a'" in log
    assert not (ran.runs / "music" / "absent" / "seed-0" / CELL).exists()
    assert "music/absent/seed-0/log.txt" in ran.said


def test_a_cell_that_is_killed_is_reported_with_the_signal(ran: Ran) -> None:
    [line] = [line for line in ran.said.splitlines() if line.startswith("[") and "Lethal, seed 0" in line]
    assert "failed: its process was killed by signal 9" in line
    assert "so far so good" in (ran.runs / "music" / "lethal" / "seed-0" / "log.txt").read_text()


def test_what_a_cell_prints_stays_in_its_log(ran: Ran) -> None:
    assert "so far so good" not in ran.said
    assert "test" in (ran.runs / "music" / "popularity" / "seed-0" / "log.txt").read_text()


def test_a_finished_cell_is_not_run_again(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    before = times(ran.runs / "music")
    run("--config", "bench.yaml", "--only", "music/popularity/*")
    assert times(ran.runs / "music") == before
    said = capsys.readouterr().out
    assert "2 of 2 cells are finished" in said
    assert "Report: python -m zoo report runs/benchmarks/bench --out report/" in said


def test_a_failed_cell_is_run_again_and_nothing_else(copy: Path) -> None:
    before = times(copy / "music")
    with pytest.raises(SystemExit) as ended:
        run("--config", "bench.yaml", "--runs", copy, "--only", "music/[!l]*")
    assert ended.value.code == 1
    changed = {name for name, written in times(copy / "music").items() if before.get(name) != written}
    assert changed
    assert {name.split("/")[0] for name in changed} == {"absent"}


def test_a_half_written_folder_is_run_again_and_nothing_else(copy: Path) -> None:
    half = copy / "music" / "popularity" / "seed-1"
    (half / CELL).unlink()
    (half / "junk").touch()
    before = times(copy / "music")
    run("--config", "bench.yaml", "--runs", copy, "--only", "music/popularity/*")
    run("--config", "bench.yaml", "--runs", copy, "--only", "music/last/*")
    after = times(copy / "music")
    assert (half / CELL).is_file()
    assert not (half / "junk").exists()
    other = {name for name in before if not name.startswith("popularity/seed-1/")}
    assert {name: after[name] for name in other} == {name: before[name] for name in other}


def test_a_cell_of_other_settings_is_run_again_and_nothing_else(ran: Ran, copy: Path, furnish: Write) -> None:
    changed = {"Popularity": POPULARITY, "Last": POPULARITY | {"settings": {"data.link": 0.1}}}
    other = furnish(ran.place, seeds=[0], systems=changed).rename(ran.place / "other.yaml")
    furnish(ran.place, seeds=[0, 1], systems=SYSTEMS)
    before = times(copy / "music")
    run("--config", other, "--runs", copy)
    rewritten = {name for name, written in times(copy / "music").items() if before.get(name) != written}
    assert {name.rsplit("/", 1)[0] for name in rewritten} == {"last/seed-0"}


def test_a_dry_run_lists_cells_and_times_and_runs_nothing(
    ran: Ran, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = times(copy)
    run("--config", "bench.yaml", "--runs", copy, "--dry-run")
    assert times(copy) == before
    said = capsys.readouterr().out
    assert "Tiny: 5 cells, 3 finished" in said
    rows = [[text.strip() for text in line.split("│")] for line in said.splitlines() if line.count("│") > 5]
    assert [row[2] for row in rows] == ["Popularity", "Absent", "Lethal", "Last"]
    assert [row[4] for row in rows] == ["0", "1", "1", "0"], "cells to run"
    assert all(row[5].endswith(" s") for row in rows), "seconds of a cell"
    assert "unknown" not in said
    assert "2 cells to run, 2 at a time: about" in said


def test_a_dry_run_knows_nothing_before_the_first_cell(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(place.rglob("*"))
    run("--config", "bench.yaml", "--dry-run")
    said = capsys.readouterr().out
    assert "Tiny: 1 cells, 0 finished" in said
    assert "1 cells to run, 2 at a time: about unknown" in said
    assert sorted(place.rglob("*")) == before


# What is asked of the command.


def test_only_matching_cells_are_run(write: Write, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(seeds=[0, 1], systems={"One": POPULARITY, "Other": POPULARITY})
    run("--config", config, "--runs", "out", "--only", "*/one/seed-1")
    assert [path.parent.name for path in (place / "out").rglob(CELL)] == ["seed-1"]
    assert "1 of 1 cells are finished" in capsys.readouterr().out
    assert len(json.loads((place / "out" / command.BENCHMARK).read_text())["cells"]) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "film/*"], r"No cell matches 'film/\*'. Their names are such as music/popularity/seed-0"),
        (["--processes", "0"], "--processes must be at least 1, got 0"),
        (["--config", "absent.yaml"], "BenchmarkError: No benchmark at absent.yaml"),
    ],
)
def test_what_cannot_be_done_is_a_message(place: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        run("--config", "bench.yaml", *arguments)
    assert not (place / "runs").exists()


def test_two_cells_in_one_folder_are_a_message(write: Write, place: Path) -> None:
    config = write(systems={"PriCDR (1)": POPULARITY, "pricdr 1": POPULARITY})
    with pytest.raises(SystemExit, match="Several cells share a folder"):
        run("--config", config)
    assert not (place / "runs").exists()


def test_a_file_in_another_encoding_is_a_message(place: Path) -> None:
    (place / "bench.yaml").write_bytes("title: Bücher".encode("latin-1"))
    with pytest.raises(SystemExit, match=r"bench.yaml"):
        run("--config", "bench.yaml")


@pytest.mark.parametrize(
    ("settings", "message", "said"),
    [
        ({"model.smoothing": 1}, r"music: Wrong cannot be run as the benchmark has it", "smoothing"),
        ({"data.evaluation.ks": [5]}, r"music: Wrong", ""),
        ({"publisher": "Jlt"}, r"music: Wrong cannot be run as the benchmark has it", "Jlt"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_runs(
    write: Write, place: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], message: str, said: str
) -> None:
    config = write(systems={"Right": POPULARITY, "Wrong": POPULARITY | {"settings": settings}})
    with pytest.raises(SystemExit, match=message):
        run("--config", config)
    assert said in capsys.readouterr().err
    assert not (place / "runs").exists()


def test_a_second_command_in_the_folder_is_refused(place: Path) -> None:
    (place / "out").mkdir()
    with (place / "out" / command.LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(SystemExit, match=r"Another benchmark is running in out. Wait for it, or choose other"):
            run("--config", "bench.yaml", "--runs", "out")
        assert [path.name for path in (place / "out").iterdir()] == [command.LOCK], "nothing was run or written"
    run("--config", "bench.yaml", "--runs", "out")
    assert list((place / "out").rglob(CELL))


def test_an_interrupted_command_says_how_to_go_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_cells", interrupt)
    with pytest.raises(SystemExit, match=r"Stopped. Finished cells are kept; give the same command to go on"):
        run("--config", "bench.yaml")


# What goes wrong around a cell.


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
    events: list[tuple[str, int]] = []
    outcomes = run_cells(
        cells,
        processes=1,
        threads=1,
        ended=lambda outcome: events.append(("ended", outcome.cell.seed)),
        started=lambda cell: events.append(("started", cell.seed)),
    )
    assert events == [(what, seed) for seed in (2, 0) for what in ("started", "ended")]
    assert [outcome.cell for outcome in outcomes] == cells
    assert all(outcome.error == "" and outcome.seconds > 0 for outcome in outcomes)


@pytest.mark.processes
def test_a_killed_benchmark_goes_on_where_it_was(unruly: Path, write: Write) -> None:
    patient = POPULARITY | {"settings": {"model": "unruly.Patient"}}
    write(systems={"Quick": POPULARITY, "Patient": patient, "Last": POPULARITY})
    arguments = ["--config", "bench.yaml", "--runs", "out", "--processes", "1"]
    music, half = unruly / "out" / "music", unruly / "out" / "music" / "patient" / "seed-0"
    with (unruly / "said.txt").open("w") as said:
        killed = subprocess.Popen(
            [sys.executable, "-m", "zoo", "benchmark", *arguments],
            stdout=said,
            stderr=said,
            env=os.environ | {"PYTHONPATH": str(unruly)},
        )
        try:
            wait_until(lambda: is_held(unruly / "held") or killed.poll() is not None, "the second cell has not begun")
        finally:
            killed.kill()
        assert killed.wait() == -9, (unruly / "said.txt").read_text()
    wait_until(lambda: not is_held(unruly / "held"), "a cell outlives the benchmark that was killed")
    assert [path.parent.parent.name for path in music.rglob(CELL)] == ["quick"]
    assert half.is_dir()
    assert not (music / "last").exists()

    before = times(music / "quick")
    (unruly / "go").touch()
    run(*arguments)
    assert times(music / "quick") == before
    assert sorted(path.parent.parent.name for path in music.rglob(CELL)) == ["last", "patient", "quick"]
