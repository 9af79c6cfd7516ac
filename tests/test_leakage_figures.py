"""The page of leakage: its tables have what was measured and its figure every line, with controls."""

import importlib
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parent.parent
HEAD = "source,network,known,release,epsilon,attack,control,figure,mean,sd,seeds\n"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, and files as `privacy attack` writes them: leakage 0.9, 0.6 and 0.7, AUC less by 0.1, precision by 0.2."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("leakage_figures")
    monkeypatch.setattr(module, "MEASURED", tmp_path)
    lines = []
    for number, figure in enumerate(("leakage", "auc", "precision")):
        for release, epsilon, value in (("plain", "", 0.9), ("noisy", "4.0", 0.6), ("noisy", "16.0", 0.7)):
            for attack, more in (("ridge", 0.0), ("perceptron", 0.01)):
                for control, seen in (("", value + more), ("shuffled", 0.5 + more)):
                    lines.append(
                        f"a,N,0.5,{release},{epsilon},{attack},{control},{figure},{seen - number / 10},0.002,5"
                    )
        if number:
            lines.append(f"a,N,0.5,nothing,,popularity,,{figure},0.4{number},0.001,5")
    lines += [f"a,N,0.5,update,,rows named,,{name},0.{value},,1" for name, value in (("precision", 2), ("recall", 3))]
    for name in ("fedgnn", "bpr", "pseudo"):
        (tmp_path / f"leakage_{name}.csv").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    return module


def test_tables_show_each_attack_and_the_better_of_its_controls(figures: ModuleType) -> None:
    parts = figures.parts()
    assert parts.keys() == {"vectors of FedGNN", "vectors of BPR", "updates"}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in parts["vectors of BPR"].splitlines()[2:]]
    assert [row[0] for row in rows] == ["vectors as they are", "epsilon 4", "epsilon 16", "popularity"]
    assert rows[1][1:4] == ["0.600 ±0.002", "0.610 ±0.002", "0.510 ±0.002"]
    assert rows[2][4:] == [
        "0.600 ±0.002",
        "0.610 ±0.002",
        "0.410 ±0.002",
        *["0.500 ±0.002", "0.510 ±0.002", "0.310 ±0.002"],
    ]
    assert (rows[3][6], rows[3][9]) == ("0.410 ±0.001", "0.420 ±0.001")
    assert "| 30 pseudo items beside them | rows named | 0.200 | 0.300 |" in parts["updates"]


def test_the_figure_has_a_line_for_each_attack_and_its_levels(figures: ModuleType) -> None:
    assert figures.draw().read_bytes().startswith(b"\x89PNG")
    rows = [row for row in figures.read(figures.MEASURED / "leakage_bpr.csv") if row["figure"] == "auc"]
    figure, axis = plt.subplots()
    figures.panel(axis, rows)
    assert [[round(value, 6) for value in point] for point in figures.points(rows, "perceptron", "")] == [
        [4.0, 0.51, 0.002],
        [16.0, 0.61, 0.002],
    ]
    lines = {
        str(line.get_label()): list(line.get_ydata())
        for line in axis.lines
        if not str(line.get_label()).startswith("_")
    }
    assert lines["popularity alone"] == [0.41, 0.41]
    assert lines["ridge, no noise"] == pytest.approx([0.8, 0.8])
    assert [[round(y, 3) for y in bars[0].get_ydata()] for bars in axis.containers] == [
        [0.5, 0.6],
        [0.51, 0.61],
        [0.4, 0.4],
    ]
    assert list(axis.get_xticks()) == [4, 16]
    plt.close(figure)
