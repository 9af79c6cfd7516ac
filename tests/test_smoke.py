"""The shipped smoke benchmark, whole, and its report: the two commands as a user gives them."""

import csv
from pathlib import Path

import pytest

from zoo.benchmark.command import main as benchmark
from zoo.report.command import main as report

ROOT = Path(__file__).parent.parent


def test_the_smoke_benchmark_runs_and_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    benchmark(["--config", "configs/benchmarks/smoke.yaml", "--runs", str(tmp_path / "runs"), "--processes", "2"])
    report([str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 21
    proved = {row["release"]: float(row["epsilon"]) for row in rows if row["guarantee"] == "proved"}
    assert proved == pytest.approx({"JLT eps 1": 1.0, "JLT eps 16": 16.0, "JLT": 16.0})
    assert {row["trials"] for row in rows if "searched" in row["system"]} == {"2"}
    assert (tmp_path / "out" / "report.html").stat().st_size > 50_000
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "19 of 19 runs are finished" in page
    assert "runs are consistent in every ranking" in page
