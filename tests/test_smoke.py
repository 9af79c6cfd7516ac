"""The shipped benchmarks on synthetic data, whole, and their reports: the two commands as a user gives them."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from zoo.benchmark.command import main as benchmark
from zoo.benchmark.report.command import main as report

ROOT = Path(__file__).parent.parent
SMOKE = ROOT / "configs" / "benchmarks" / "smoke.yaml"


def as_shipped(folder: Path) -> tuple[Path, int, int]:
    """The file, the number of runs of its first task, and that of its rows."""
    return SMOKE, 19, 21


def shrunk(folder: Path) -> tuple[Path, int, int]:
    """Every kind of row and trial of it, with one seed, on a tenth of the users and for one epoch.

    Of the second task the first release alone: what else differs there from the first task is checked with every shipped
    benchmark.
    """
    given: dict[str, Any] = yaml.safe_load(SMOKE.read_text(encoding="utf-8"))
    for task in given["tasks"].values():
        task["settings"] = task.get("settings", {}) | {"data.num_users": 40}
    for system in given["systems"].values():
        system["settings"] |= {"trainer.max_epochs": 1}
        if "releases" not in system:
            system["tasks"] = ["music"]
        for released in system.get("releases", [])[1:]:
            released["tasks"] = ["music"]
    given["seeds"] = [0]
    (folder / "smoke.yaml").write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")
    return folder / "smoke.yaml", 11, 13


@pytest.mark.usefixtures("cell_server")
@pytest.mark.slow
@pytest.mark.parametrize("form", [shrunk, as_shipped])
def test_the_smoke_benchmark_runs_and_is_reported(
    form: Callable[[Path], tuple[Path, int, int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    (config, count, lines), runs, out = form(tmp_path), tmp_path / "runs", tmp_path / "out"
    benchmark(["--config", str(config), "--runs", str(runs), "--processes", "2"])
    report([str(runs), "--out", str(out)])
    with (out / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == lines
    proved = {row["release"]: float(row["epsilon"]) for row in rows if row["guarantee"] == "proved"}
    assert proved == pytest.approx({"JLT eps 1": 1.0, "JLT eps 16": 16.0, "JLT": 16.0})
    assert {row["trials"] for row in rows if "searched" in row["system"]} == {"2"}
    assert (out / "report.html").stat().st_size > 50_000
    page = (out / "README.md").read_text(encoding="utf-8")
    assert f"{count} of {count} runs are finished" in page
    assert "runs are consistent in every ranking" in page


@pytest.mark.slow
@pytest.mark.usefixtures("cell_server")
def test_the_quickstart_tells_a_private_release_from_noise_and_from_the_target_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Noise is new each time: two runs gained 0.07 to 0.13 NDCG@10, with a spread of 0.03 between releases; 0.02 is asked for."""
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    runs, out = tmp_path / "runs", tmp_path / "out"
    benchmark(["--config", "configs/benchmarks/quickstart.yaml", "--runs", str(runs), "--processes", "2"])
    report([str(runs), "--out", str(out)])
    with (out / "gains.csv").open(encoding="utf-8") as file:
        gains = [row for row in csv.DictReader(file) if row["figure"] == "full/ndcg@10"]
    against = {(row["row"], row["against"]): float(row["difference"]) for row in gains}
    for epsilon in (4, 8):
        for control in ("its own noise control", "the same model without a release"):
            assert against[f"PriCDR, JLT eps {epsilon}", control] > 0.02
    with (out / "results.csv").open(encoding="utf-8") as file:
        rows = {row["release"]: row for row in csv.DictReader(file)}
    assert {rows[f"JLT eps {epsilon}"]["guarantee"] for epsilon in (2, 4, 8)} == {"proved"}
    assert rows["Plaintext"]["full/ndcg@10"] == max(row["full/ndcg@10"] for row in rows.values())
