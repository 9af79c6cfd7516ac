"""Cells of a table: run once, run anew when their settings change."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(sys, "argv", ["transfer"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_finished_cell_is_not_run_again(scripts: Path) -> None:
    from cells import Cell, run_all, table

    tiny = ("--data.num_users", "24", "--data.num_items", "30", "--data.ratings_per_user", "6")
    arguments = ("--model", "Popularity", "--data", "Synthetic", *tiny, "--trainer.accelerator", "cpu")
    cells = [Cell("Popularity", arguments, seed, scripts / "runs") for seed in (0, 1)]
    assert run_all(cells) == []
    written = [(cell.folder / "metrics.json").stat().st_mtime_ns for cell in cells]
    assert run_all(cells) == []
    assert written == [(cell.folder / "metrics.json").stat().st_mtime_ns for cell in cells]
    assert not list(scripts.rglob("*.ckpt"))

    results = [cell.result() for cell in cells]
    assert [r["seed"] for r in results if r] == [0, 1]
    shown = table({"Popularity": [r for r in results if r]}, "full")
    assert shown.count("|") > 20
    assert "| 2 |" in shown, "two seeds"

    other = Cell("Popularity", (*arguments, "--data.link", "0.5"), 0, scripts / "runs")
    assert other.result() is None, "other settings are another run"


def test_a_cell_that_fails_does_not_stop_the_rest(scripts: Path) -> None:
    from cells import Cell, run_all

    bad = Cell(
        "bad", ("--model", "Popularity", "--data", "Files", "--data.name", "absent", "--data.target", "a"), 0, scripts
    )
    good = Cell("good", ("--model", "Popularity", "--data", "Synthetic", "--trainer.accelerator", "cpu"), 0, scripts)
    assert run_all([bad, good]) == [bad]
    assert good.result() is not None


def test_the_tasks_name_systems_that_parse(scripts: Path) -> None:
    from transfer import TASKS

    for tasks in TASKS.values():
        for task in tasks:
            assert (ROOT / task.config).is_file()
            cells = task.cells(scripts)
            assert len({cell.folder for cell in cells}) == len(cells)
            assert all(json.loads(a) for cell in cells for a in cell.arguments if a.startswith("{"))
