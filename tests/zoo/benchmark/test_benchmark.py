"""A whole benchmark whose runs end in every way: what it leaves, what it says, and what is run again."""

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.zoo.benchmark.processes import ABSENT, POPULARITY, times, unruly_methods, zoo_benchmark
from zoo.benchmark import command
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runs import RUN_FILE, digest_of, runs_of

pytestmark = pytest.mark.usefixtures("cell_server")

SYSTEMS = {
    "Popularity": POPULARITY,
    "Absent": ABSENT,
    "Lethal": POPULARITY | {"settings": {"model": "unruly.Lethal"}, "seeds": [0]},
    "Blocked": POPULARITY | {"seeds": [0]},
    "Last": POPULARITY | {"seeds": [0]},
}

Write = Callable[..., Path]


@dataclass(frozen=True)
class Ran:
    """A benchmark whose runs ended in every way."""

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
    config = furnish(place, seeds=[0, 1], systems=SYSTEMS)
    with pytest.MonkeyPatch.context() as patch, unruly_methods(place, patch):
        for name, value in (("PL_GLOBAL_SEED", "0"), ("COLUMNS", "300")):
            patch.setenv(name, value)
        patch.chdir(place)
        (place / "runs/benchmarks/bench/music").mkdir(parents=True)
        (place / "runs/benchmarks/bench/music/blocked").write_text("a file where a folder should be")
        with contextlib.redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit) as ended:
            zoo_benchmark("--config", "bench.yaml")
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


@pytest.mark.thorough
def test_every_run_that_can_end_ends_finished(ran: Ran) -> None:
    runs = runs_of(read_benchmark(ran.config), ran.runs)
    finished = {run.name for run in runs if run.finished() is not None}
    assert finished == {f"music/{name}" for name in ("popularity/seed-0", "popularity/seed-1", "last/seed-0")}
    for name in finished:
        assert json.loads((ran.runs / name / "metrics.json").read_text())["metrics"]["test/full/ndcg@10"] >= 0
        assert (ran.runs / name / "test_cases.parquet").is_file()
    seeds = [json.loads((ran.runs / f"music/popularity/seed-{n}" / "metrics.json").read_text())["seed"] for n in (0, 1)]
    assert seeds == [0, 1]
    assert not list(ran.runs.rglob("*.ckpt"))
    assert not list(ran.runs.rglob("*.tmp"))
    assert "3 of 6 runs are finished" in ran.said


def test_what_was_run_is_kept_for_the_report(ran: Ran) -> None:
    kept = json.loads((ran.runs / command.BENCHMARK).read_text())
    benchmark = read_benchmark(ran.config)
    assert {key: kept[key] for key in benchmark.plain()} == benchmark.plain()
    runs = {run.name: run for run in runs_of(benchmark, ran.runs)}
    assert kept["cells"].keys() == runs.keys()
    for name in ("music/popularity/seed-0", "music/popularity/seed-1"):
        settings = json.loads((ran.runs / name / RUN_FILE).read_text())["settings"]
        assert kept["cells"][name] == digest_of(settings), "the report can tell which runs are the benchmark's"
    assert len(set(kept["cells"].values())) == len(runs)


def test_failed_runs_end_the_command_with_code_1(ran: Ran) -> None:
    assert ran.code == 1
    assert "3 runs failed. Use the same command to repeat them." in ran.said


def test_a_run_that_raises_is_reported_with_its_error(ran: Ran) -> None:
    [line] = [line for line in ran.said.splitlines() if line.startswith("[") and "Absent, seed 0" in line]
    assert "failed: ValueError: No row of 144 has at least 999 rows" in line
    log = (ran.runs / "music" / "absent" / "seed-0" / "log.txt").read_text()
    assert "Traceback" in log
    assert "ValueError: No row of 144" in log
    assert not (ran.runs / "music" / "absent" / "seed-0" / RUN_FILE).exists()
    assert "music/absent/seed-0/log.txt" in ran.said


def test_a_run_that_is_killed_or_has_no_folder_is_reported(ran: Ran) -> None:
    [line] = [line for line in ran.said.splitlines() if line.startswith("[") and "Lethal, seed 0" in line]
    assert "failed: its process was killed by signal 9" in line
    assert "so far so good" in (ran.runs / "music" / "lethal" / "seed-0" / "log.txt").read_text()
    [line] = [line for line in ran.said.splitlines() if line.startswith("[") and "Blocked, seed 0" in line]
    assert "failed: its folder cannot be read (" in line
    assert "so far so good" not in ran.said
    assert "test" in (ran.runs / "music" / "popularity" / "seed-0" / "log.txt").read_text()


def test_a_finished_run_is_not_run_again(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    before = times(ran.runs / "music")
    zoo_benchmark("--config", "bench.yaml", "--only", "music/popularity/*")
    assert times(ran.runs / "music") == before
    said = capsys.readouterr().out
    assert "2 of 2 runs are finished" in said
    assert "Report: python -m zoo report runs/benchmarks/bench --out report/" in said


def test_what_failed_is_half_written_or_of_other_settings_is_run_again_and_nothing_else(
    ran: Ran, copy: Path, furnish: Write
) -> None:
    changed = {**SYSTEMS, "Last": POPULARITY | {"seeds": [0], "settings": {"data.link": 0.1}}}
    other = furnish(ran.place, seeds=[0, 1], systems=changed).rename(ran.place / "other.yaml")
    furnish(ran.place, seeds=[0, 1], systems=SYSTEMS)
    half = copy / "music" / "popularity" / "seed-1"
    (half / RUN_FILE).unlink()
    (half / "junk").touch()
    before = times(copy / "music")
    with pytest.raises(SystemExit) as ended:
        zoo_benchmark("--config", other, "--runs", copy, "--only", "music/[alp]*[!l]/seed-*")
    assert ended.value.code == 1
    after = times(copy / "music")
    rewritten = {name.rsplit("/", 1)[0] for name in after if before.get(name) != after[name]}
    assert rewritten == {"absent/seed-0", "last/seed-0", "popularity/seed-1"}
    assert (half / RUN_FILE).is_file()
    assert not (half / "junk").exists()


def test_a_dry_run_lists_runs_and_times_and_runs_nothing(
    ran: Ran, copy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = times(copy)
    with unruly_methods(ran.place, monkeypatch):
        zoo_benchmark("--config", "bench.yaml", "--runs", copy, "--dry-run")
    assert times(copy) == before
    said = capsys.readouterr().out
    assert "Tiny: 6 runs, 3 finished" in said
    rows = [[text.strip() for text in line.split("│")] for line in said.splitlines() if line.count("│") > 5]
    assert [row[2] for row in rows] == ["Popularity", "Absent", "Lethal", "Blocked", "Last"]
    assert [row[4] for row in rows] == ["0", "1", "1", "1", "0"], "pending runs"
    assert all(row[5].endswith(" s") for row in rows), "seconds of a cell"
    assert "unknown" not in said
    assert "3 runs pending, 2 at a time: about" in said
