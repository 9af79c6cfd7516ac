"""The figure of PriCDR's sweeps: which rows it shows where."""

import csv
import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("pricdr_figures")
    monkeypatch.setattr(module, "SWEEPS", tmp_path)
    return module


def test_every_panel_shows_its_rows_and_the_one_at_8(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{m} {what}" for m in ("JLT", "SJLT") for what in ("eps 8", "eps 0.5", "n' 100", "ratings 12.5 %")]
    names += ["SJLT density 0.1", "Plaintext", "Plaintext ratings 25 %", "Nothing", "Noise (JLT eps 8)"]
    rows = [("PriCDR", name, 0.5 if "eps 8" in name else 0.4) for name in names] + [("Popularity", "", 0.3)]
    with (tmp_path / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("system", "release", "sampled/hit_rate@10", "sampled/hit_rate@10 sd"))
        writer.writerows((*row, "") for row in rows)
    drawn: list[tuple[str, list[tuple[float, ...]]]] = []
    monkeypatch.setattr(figures, "curve", lambda axis, line, label, colour: drawn.append((label, sorted(line))))
    assert figures.draw_sweeps().read_bytes().startswith(b"\x89PNG")
    by_epsilon = [(0.5, 0.4, 0.0), (8.0, 0.5, 0.0)]
    by_width = [(100.0, 0.4, 0.0), (400.0, 0.5, 0.0)]
    by_ratings = [(12.5, 0.4, 0.0), (100.0, 0.5, 0.0)]
    assert drawn == [
        *(("JLT", by_epsilon), ("SJLT", by_epsilon), ("JLT", by_width), ("SJLT", by_width)),
        ("SJLT", [(0.1, 0.4, 0.0), (0.5, 0.5, 0.0)]),
        *(("JLT", by_ratings), ("SJLT", by_ratings), ("Plaintext", [(25.0, 0.4, 0.0), (100.0, 0.4, 0.0)])),
    ]


def test_a_whole_figure_can_be_drawn(figures: ModuleType, tmp_path: Path) -> None:
    text = "system,release,sampled/hit_rate@10,sampled/hit_rate@10 sd\nPopularity,,0.3,\n"
    rows = [f"PriCDR,{name},0.4,0.01\n" for name in ("Plaintext", "Nothing", "JLT eps 8", "JLT eps 64", "JLT n' 100")]
    (tmp_path / "results.csv").write_text(text + "".join(rows), encoding="utf-8")
    assert figures.draw_sweeps().stat().st_size > 10_000
