"""The figures of negative transfer: which lines they show, and what is shaded."""

import csv
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parent.parent
#: Series, kind, row, domains, against, fewer, mean, mean of what it is held against.
ROWS = [
    ("Books", "soft", "EMCDR, vectors", 4, "LightGCN", "", 0.3, 0.2),
    ("Books", "soft", "EMCDR, vectors", 16, "LightGCN", "", 0.1, 0.2),
    ("Books", "hard", "EMCDR, vectors", 16, "4 domains", 4, 0.1, 0.3),
    ("Books", "hard", "PriCDR, JLT", 16, "8 domains", 8, 0.25, 0.15),
    ("Books", "soft", "FedGCDR-M, vectors", 16, "LightGCN", "", 0.1, 0.2),
    ("Ciao", "soft", "EMCDR, vectors", 4, "EASE", "", 0.45, 0.5),
    ("Ciao", "soft", "EMCDR, vectors", 8, "EASE", "", 0.4, 0.5),
]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, and a report that it draws."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("negative_transfer_figures")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    (tmp_path / "many").mkdir()
    keys = (
        "series",
        "kind",
        "row",
        "domains",
        "against",
        "fewer",
        "mean",
        "against_mean",
        "sd",
        "against_sd",
        "figure",
    )
    with (tmp_path / "many" / "negative_transfer.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(keys)
        for k in (5, 10):
            for name, shift in (("hit_rate", 0.0), ("ndcg", 0.05)):
                for *words, mean, other in ROWS:
                    writer.writerow([*words, mean + shift, other + shift, 0.01, "", f"sampled/{name}@{k}"])
                    writer.writerow([*words, 0.9, 0.9, "", "", f"full/{name}@{k}"])
    return module


def test_a_panel_has_every_row_that_is_there_at_several_numbers_of_domains(
    figures: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, Any, str]] = []
    shown = figures.curve

    def remember(axis: object, line: list[tuple[float, ...]], label: str, colour: str) -> None:
        drawn.append((label, line, colour))
        shown(axis, line, label, colour)

    monkeypatch.setattr(figures, "curve", remember)
    paths = figures.draw("many")
    assert [path.name for path in paths] == ["negative_transfer_5.png", "negative_transfer_10.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert len(drawn) == 2 * 2 * 3, "of two cut-offs and two metrics, two rows of Books and one of Ciao"
    assert drawn[:2] == [
        ("EMCDR, vectors", [(4.0, 0.3, 0.01), (16.0, 0.1, 0.01)], "C0"),
        ("PriCDR, JLT", [(8.0, 0.15, 0.0), (16.0, 0.25, 0.01)], "C1"),
    ]
    line = [(4.0, 0.45, 0.01), (8.0, 0.4, 0.01)]
    assert drawn[4] == ("EMCDR, vectors", line, "C0"), "a row has one colour in all series"


def test_what_lies_below_the_target_alone_is_shaded(figures: ModuleType) -> None:
    rows = figures.swept(figures.read(figures.RESULTS / "many" / "negative_transfer.csv"))
    own = [row for row in rows if row["series"] == "Books" and row["figure"] == "sampled/hit_rate@5"]
    figure, axis = plt.subplots()
    figures.panel(axis, own, {"EMCDR, vectors": "C0", "PriCDR, JLT": "C1"})
    [dotted] = [line for line in axis.lines if line.get_label() == "LightGCN"]
    assert (dotted.get_linestyle(), dotted.get_color(), set(dotted.get_ydata())) == (":", "0.2", {0.2})
    [shaded] = axis.patches
    box = shaded.get_extents().transformed(axis.transData.inverted())
    assert box.y1 == pytest.approx(0.2)
    assert box.y0 == pytest.approx(axis.get_ylim()[0])
    assert axis.get_ylim()[0] < 0.1 < 0.3 < axis.get_ylim()[1]
    assert list(axis.get_xticks()) == [4, 16]
    plt.close(figure)


def test_targets_alone_are_told_apart_by_the_rows_held_against_them(figures: ModuleType) -> None:
    rows = figures.swept(figures.read(figures.RESULTS / "many" / "negative_transfer.csv"))
    own = [row for row in rows if row["figure"] == "sampled/ndcg@10" and row["kind"] == "soft"]
    assert len(own) == 4
    own.append(own[0] | {"row": "PriCDR, JLT"})
    own.append(own[0] | {"row": "PriCDR, JLT", "against": "PriCDR, Nothing", "against_mean": "0.35"})
    figure, axis = plt.subplots()
    figures.panel(axis, own, {"EMCDR, vectors": "C0", "PriCDR, JLT": "C1"})
    dotted = {line.get_label(): line.get_color() for line in axis.lines if line.get_linestyle() == ":"}
    assert dotted == {"LightGCN": "C0", "EASE": "C0", "PriCDR, Nothing": "C1"}
    assert all(low <= line.get_ydata()[0] <= high for low, high in [axis.get_ylim()] for line in axis.lines)
    plt.close(figure)
