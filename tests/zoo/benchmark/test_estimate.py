"""How long runs may take, from what is known of others."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.benchmark.estimate import Estimate, duration
from zoo.benchmark.grid import Benchmark
from zoo.benchmark.runs import RUN_FILE, BenchmarkRun, runs_of

Made = Callable[..., Benchmark]

SYSTEMS = {
    "Slow": {"config": "pricdr.yaml", "releases": [{"publisher": name} for name in ("Plaintext", "JLT")]},
    "Quick": {"config": "popularity.yaml"},
}


@pytest.fixture
def runs(made: Made) -> dict[str, BenchmarkRun]:
    """Cells by the end of their names."""
    benchmark = made(tasks={"a": {"title": "A"}, "b": {"title": "B"}}, seeds=[0, 1], systems=SYSTEMS)
    return {run.name: run for run in runs_of(benchmark, Path("runs"))}


def finish(run: BenchmarkRun, seconds: float) -> None:
    run.prepare_folder()
    (run.folder / RUN_FILE).write_text(json.dumps({"settings": run.settings(), "seconds": seconds}), encoding="utf-8")


def test_nothing_is_known_at_first(runs: dict[str, BenchmarkRun]) -> None:
    estimate = Estimate(runs.values(), "tiny")
    assert estimate.seconds_of(runs["a/quick/seed-0"]) is None
    assert estimate.total(list(runs.values()), 2) is None
    assert estimate.total([], 2) == 0


def test_the_nearest_that_is_known_is_taken(runs: dict[str, BenchmarkRun]) -> None:
    finish(runs["a/slow/plaintext/seed-0"], 100)
    finish(runs["a/quick/seed-0"], 2)
    estimate = Estimate(runs.values(), "tiny")
    assert estimate.seconds_of(runs["a/slow/plaintext/seed-1"]) == 100, "the same row"
    assert estimate.seconds_of(runs["a/slow/noise-jlt/seed-1"]) == 100, "the same system"
    assert estimate.seconds_of(runs["b/quick/seed-0"]) == 51, "the mean of all"
    estimate.add(runs["a/slow/plaintext/seed-1"], 200)
    assert estimate.seconds_of(runs["a/slow/plaintext/seed-1"]) == 150
    estimate.add(runs["a/slow/noise-jlt/seed-0"], 30)
    assert estimate.seconds_of(runs["a/slow/noise-jlt/seed-1"]) == 30


def test_shipped_figures_stand_in_where_nothing_is_finished(runs: dict[str, BenchmarkRun], place: Path) -> None:
    folder = place / "docs" / "results" / "tiny"
    folder.mkdir(parents=True)
    lines = ["task,system,release,cell_seconds", "a,Slow,Plaintext,40.5", "a,Quick,,3"]
    (folder / "results.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    estimate = Estimate(runs.values(), "tiny")
    assert estimate.seconds_of(runs["a/slow/plaintext/seed-0"]) == 40.5
    assert estimate.seconds_of(runs["a/quick/seed-1"]) == 3
    estimate.add(runs["a/quick/seed-0"], 7)
    assert estimate.seconds_of(runs["a/quick/seed-1"]) == 7, "this machine's own"
    assert Estimate(runs.values(), "other").seconds_of(runs["a/quick/seed-1"]) is None


def test_runs_share_the_processes(runs: dict[str, BenchmarkRun]) -> None:
    estimate = Estimate(runs.values(), "tiny")
    two = [runs["a/quick/seed-0"], runs["a/quick/seed-1"]]
    estimate.add(two[0], 10)
    assert [estimate.total(two, processes) for processes in (1, 2, 8)] == [20, 10, 10]


def test_seconds_in_words() -> None:
    seconds = (None, 0, 89, 90, 5399, 12600)
    assert [duration(given) for given in seconds] == ["unknown", "0 s", "89 s", "2 min", "90 min", "3.5 h"]


def test_other_benchmarks_stand_in_by_method_and_have_energy(made: Made, place: Path) -> None:
    benchmark = made(tasks={"a": {"title": "A"}}, seeds=[0, 1], systems=SYSTEMS)
    runs = {run.name: run for run in runs_of(benchmark, place / "all" / "new")}
    slow, quick = runs["a/slow/jlt/seed-0"], runs["a/quick/seed-0"]
    for name, method, seconds, kwh in (
        ("x", "PriCDR", 100, 0.5),
        ("y", "PriCDR", 300, None),
        ("z", "Popularity", 2, None),
    ):
        folder = place / "all" / "old" / "task" / name / "seed-0"
        folder.mkdir(parents=True)
        (folder / RUN_FILE).write_text(json.dumps({"seconds": seconds}), encoding="utf-8")
        facts = {"method": method} | ({} if kwh is None else {"energy_kwh": kwh})
        (folder / "metrics.json").write_text(json.dumps(facts), encoding="utf-8")
    assert Estimate(runs.values(), "new").seconds_of(slow) is None, "a folder without benchmark.json is no benchmark"
    (place / "all" / "old" / "benchmark.json").write_text("{}", encoding="utf-8")
    estimate = Estimate(runs.values(), "new")
    assert (estimate.seconds_of(slow), estimate.seconds_of(quick)) == (200, 2)
    assert estimate.kwh([slow, quick]) == pytest.approx(200 * 0.5 / 100 + 2 * 0.5 / 100)
    finish(slow, 50)
    assert Estimate(runs.values(), "new").seconds_of(runs["a/slow/jlt/seed-1"]) == 50, "the row's own comes first"
