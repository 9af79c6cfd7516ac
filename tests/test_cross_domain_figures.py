"""The figures of a smaller overlap and a thinner source: which rows they show where."""

import csv
import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("cross_domain_figures")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


@pytest.mark.parametrize("report", ["overlap", "density"])
def test_every_method_is_drawn_with_its_whole_release(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: str
) -> None:
    word = figures.SWEPT[report][0]
    rows = [("cold", "Popularity", "", 0.1), ("warm", "Popularity", "", 0.1), ("cold", "Ridge", "Plaintext", 0.4)]
    rows += [(task, "UserKNN", release, 0.3) for task in ("cold", "warm") for release in ("Plaintext", f"{word} 25 %")]
    rows += [("cold", "Ridge", f"{word} 12.5 %", 0.2), ("cold", "Ridge", "Noise (Plaintext)", 0.1)]
    (tmp_path / report).mkdir()
    with (tmp_path / report / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("task", "system", "release", "sampled/hit_rate@10", "sampled/hit_rate@10 sd"))
        writer.writerows((*row, "") for row in rows)
    drawn: list[tuple[str, list[tuple[float, ...]], str]] = []
    shown = figures.curve

    def remember(axis: object, line: list[tuple[float, ...]], label: str, colour: str) -> None:
        drawn.append((label, sorted(line), colour))
        shown(axis, line, label, colour)

    monkeypatch.setattr(figures, "curve", remember)
    assert figures.draw(report).read_bytes().startswith(b"\x89PNG")
    knn = [(25.0, 0.3, 0.0), (100.0, 0.3, 0.0)]
    assert drawn == [
        ("Ridge", [(12.5, 0.2, 0.0), (100.0, 0.4, 0.0)], "C0"),
        ("UserKNN", knn, "C1"),
        ("UserKNN", knn, "C1"),
    ]
