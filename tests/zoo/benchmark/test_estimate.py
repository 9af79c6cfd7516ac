"""How long cells may take, from what is known of others."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.benchmark.cell import CELL, Cell, cells_of
from zoo.benchmark.estimate import Estimate, duration
from zoo.benchmark.grid import Benchmark

Made = Callable[..., Benchmark]

SYSTEMS = {
    "Slow": {"config": "pricdr.yaml", "releases": [{"publisher": name} for name in ("Plaintext", "JLT")]},
    "Quick": {"config": "popularity.yaml"},
}


@pytest.fixture
def cells(made: Made) -> dict[str, Cell]:
    """Cells by the end of their names."""
    benchmark = made(tasks={"a": {"title": "A"}, "b": {"title": "B"}}, seeds=[0, 1], systems=SYSTEMS)
    return {cell.name: cell for cell in cells_of(benchmark, Path("runs"))}


def finish(cell: Cell, seconds: float) -> None:
    cell.begin()
    (cell.folder / CELL).write_text(json.dumps({"settings": cell.settings(), "seconds": seconds}), encoding="utf-8")


def test_nothing_is_known_at_first(cells: dict[str, Cell]) -> None:
    estimate = Estimate(cells.values(), "tiny")
    assert estimate.of(cells["a/quick/seed-0"]) is None
    assert estimate.total(list(cells.values()), 2) is None
    assert estimate.total([], 2) == 0


def test_the_nearest_that_is_known_is_taken(cells: dict[str, Cell]) -> None:
    finish(cells["a/slow/plaintext/seed-0"], 100)
    finish(cells["a/quick/seed-0"], 2)
    estimate = Estimate(cells.values(), "tiny")
    assert estimate.of(cells["a/slow/plaintext/seed-1"]) == 100, "the same row"
    assert estimate.of(cells["a/slow/noise-jlt/seed-1"]) == 100, "the same system"
    assert estimate.of(cells["b/quick/seed-0"]) == 51, "the mean of all"
    estimate.add(cells["a/slow/plaintext/seed-1"], 200)
    assert estimate.of(cells["a/slow/plaintext/seed-1"]) == 150
    estimate.add(cells["a/slow/noise-jlt/seed-0"], 30)
    assert estimate.of(cells["a/slow/noise-jlt/seed-1"]) == 30


def test_shipped_figures_stand_in_where_nothing_is_finished(cells: dict[str, Cell], place: Path) -> None:
    folder = place / "docs" / "results" / "tiny"
    folder.mkdir(parents=True)
    lines = ["task,system,release,cell_seconds", "a,Slow,Plaintext,40.5", "a,Quick,,3"]
    (folder / "results.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    estimate = Estimate(cells.values(), "tiny")
    assert estimate.of(cells["a/slow/plaintext/seed-0"]) == 40.5
    assert estimate.of(cells["a/quick/seed-1"]) == 3
    estimate.add(cells["a/quick/seed-0"], 7)
    assert estimate.of(cells["a/quick/seed-1"]) == 7, "this machine's own"
    assert Estimate(cells.values(), "other").of(cells["a/quick/seed-1"]) is None


def test_cells_share_the_processes(cells: dict[str, Cell]) -> None:
    estimate = Estimate(cells.values(), "tiny")
    two = [cells["a/quick/seed-0"], cells["a/quick/seed-1"]]
    estimate.add(two[0], 10)
    assert [estimate.total(two, processes) for processes in (1, 2, 8)] == [20, 10, 10]


def test_seconds_in_words() -> None:
    seconds = (None, 0, 89, 90, 5399, 12600)
    assert [duration(given) for given in seconds] == ["unknown", "0 s", "89 s", "2 min", "90 min", "3.5 h"]
