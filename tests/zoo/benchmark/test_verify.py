"""Repeated runs of a report: those that agree, those that do not, and what is refused."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.zoo.benchmark.processes import POPULARITY, zoo_benchmark
from zoo.benchmark.report.command import main as zoo_report
from zoo.benchmark.runs import BenchmarkRun

pytestmark = pytest.mark.usefixtures("cell_server")

ROOT = Path(__file__).parents[3]
CHOICES = {"trials": 3, "seeds": "first", "parameters": {"model.l2": {"choices": [1.0, 10.0, 100.0]}}}
SYSTEMS: dict[str, Any] = {
    "Popularity": POPULARITY | {"seeds": [0]},
    "EASE": POPULARITY | {"settings": {"model": "EASE"}, "search": CHOICES},
}


def verified(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and output of the command."""
    capsys.readouterr()
    code = 0
    try:
        zoo_benchmark("--verify", "report", "--processes", "1", *arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 2
    return code, capsys.readouterr().out


def change(place: Path, changed: Callable[[dict[str, str]], dict[str, str]]) -> None:
    with (place / "report/seeds.csv").open() as file:
        rows = [changed(row) for row in csv.DictReader(file)]
    with (place / "report/seeds.csv").open("w") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.thorough
def test_repeated_runs_are_compared_with_the_report(
    write: Callable[..., Path], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(seeds=[0, 1], systems=SYSTEMS)
    zoo_benchmark("--config", "bench.yaml", "--processes", "1")
    zoo_report(["runs/benchmarks/bench", "--out", "report"])
    origin = json.loads((place / "report/report.json").read_text())
    assert (origin["config"], origin["runs"], origin["tasks"]) == ("bench.yaml", 3, [])
    assert all(sum(origin[name].values()) == 3 for name in ("versions", "commit", "threads", "machine"))
    page = (place / "report/README.md").read_text()
    assert f"- Commit: {next(iter(origin['commit'])) or 'not recorded'}.\n" in page
    assert "- Threads: " in page
    code, said = verified(capsys, "--runs", "9", "--seed", "5")
    assert (code, said.count(" identical"), "3 runs of 3 drawn with --seed 5." in said) == (0, 12, True)
    chosen = json.loads((place / "runs/benchmarks/bench/music/ease/seed-0/search/search.json").read_text())["chosen"]
    with (place / "report/seeds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["chosen"] and json.loads(row["chosen"]) for row in rows] == ["", chosen, chosen]
    figure = "full/ndcg@10"
    change(place, lambda row: row | {figure: f"{float(row[figure]) + 0.004:.6f}"})
    assert verified(capsys, "--only", "*/popularity/seed-0")[0] == 1, "a closed form gives the same figure again"
    assert verified(capsys, "--only", "*/popularity/seed-0", "--tolerance", "0.0041")[0] == 0
    change(place, lambda row: row | {figure: f"{float(row[figure]) - 0.004:.6f}"})
    other = json.dumps({"model.l2": 100.0 if chosen == {"model.l2": 1.0} else 1.0})
    change(place, lambda row: row | {"chosen": row["chosen"] and other})
    assert verified(capsys, "--only", "*/ease/seed-1")[0] == 1, "the settings of the report are used"
    assert verified(capsys, "--only", "*/ease/seed-1", "--search")[0] == 0, "and chosen anew on demand"


@pytest.mark.parametrize(
    ("system", "chosen", "allowed"),
    [
        ("Popularity", '{"trainer.callbacks": ["received.Code"]}', "none"),
        ("EASE", '{"model.l2": 1.0, "trainer.callbacks": ["received.Code"]}', r"model\.l2"),
        ("EASE", '{"model.l2": 2.0}', r"model\.l2"),
        ("EASE", "{", r"model\.l2"),
    ],
)
def test_a_report_sets_only_what_its_search_can_choose(
    write: Callable[..., Path], place: Path, system: str, chosen: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(systems=SYSTEMS)
    (place / "report").mkdir()
    origin = {"config": "bench.yaml", "versions": {}, "machine": {}, "threads": {"1": 1}}
    (place / "report/report.json").write_text(json.dumps(origin))
    with (place / "report/seeds.csv").open("w") as file:
        csv.writer(file).writerows([["task", "system", "release", "seed", "chosen"], ["music", system, "", 0, chosen]])
    with pytest.raises(SystemExit, match=rf"seeds\.csv, music/{system.lower()}/seed-0: chosen is .*\({allowed}\)"):
        zoo_benchmark("--verify", "report")
    assert "Benchmark file: bench.yaml\n" in capsys.readouterr().out


def test_a_damaged_report_is_refused(place: Path) -> None:
    (place / "report").mkdir()
    threads: list[dict[str, int]] = [{"abc": 1}, {"0": 1}, {"1025": 1}, {}]
    damaged = [
        *((one, "0.5") for one in threads),
        *(({"1": 1}, row) for row in ("x", "0" * 2**18, "1.01", "inf", "nan", None)),
    ]
    for found, row in damaged:
        origin = {"config": "bench.yaml", "versions": {}, "machine": {}, "threads": found}
        (place / "report/report.json").write_text(json.dumps(origin))
        names = ["task", "system", "release", "seed", "epochs", "full/ndcg@10"]
        with (place / "report/seeds.csv").open("w") as file:
            csv.writer(file).writerows([names, *([["music", "EASE", "", 0, 1, row]] if row else [])])
        with pytest.raises(SystemExit, match=r"lacks a readable report\.json or seeds\.csv"):
            zoo_benchmark("--verify", "report")


def test_a_failed_run_is_no_reproduction(
    write: Callable[..., Path], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zoo_benchmark("--config", write(), "--processes", "1")
    zoo_report(["runs/benchmarks/bench", "--out", "report"])
    (place / "popularity.yaml").write_text("model: NoSuchMethod\n")
    code, said = verified(capsys)
    assert code == 1
    assert "failed: " in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give one of --config"),
        (["--config", "bench.yaml", "--verify", "."], "Give one of --config"),
        (["--verify", "."], r"lacks a readable report\.json or seeds\.csv"),
        (["--verify", ".", "--runs", "0"], "--runs is 0. With --verify it must be at least 1"),
    ],
)
def test_what_cannot_be_verified_is_a_message(place: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        zoo_benchmark(*arguments)


def test_a_chosen_setting_replaces_the_search(made: Callable[..., Any]) -> None:
    [row] = [row for row in made(seeds=[0, 1], systems=SYSTEMS).rows() if row.system == "EASE"]
    run = BenchmarkRun(made(seeds=[0, 1], systems=SYSTEMS), row, 1, Path("runs"))
    assert run.searcher.seed == 0
    assert BenchmarkRun(run.benchmark, row, 1, Path("runs"), {"model.l2": 2.0}).searcher.seed == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in (ROOT / "docs/results").glob("*/results.csv")), ids=str
)
def test_committed_reports_are_reproduced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails by chance if a figure of three drawn runs differs by more than three standard deviations."""
    if not (folder / "report.json").is_file():
        pytest.skip("The report was made before reports named their benchmark file.")
    monkeypatch.chdir(ROOT)
    try:
        zoo_benchmark("--verify", str(folder), "--runs", "3")
    except SystemExit as ended:
        said = capsys.readouterr().out
        if "No ratings of" in said or "not available" in said:
            pytest.skip("The data are not available.")
        pytest.fail(f"{ended.code}\n{said}")
