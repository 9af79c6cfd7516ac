"""The figures of the PPGenCDR reports: which rows they show, and that they can be drawn."""

import csv
import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("ppgencdr_figures")
    monkeypatch.setattr(module, "SWEEPS", tmp_path)
    monkeypatch.setattr(module, "GAP", tmp_path / "critic_gap.csv")
    return module


def write(path: Path, rows: Sequence[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def measured(system: str, release: str, value: float, spread: object = 0.01) -> dict[str, object]:
    return {"system": system, "release": release, "sampled/hit_rate@10": value, "sampled/hit_rate@10 sd": spread}


def test_points_are_read_from_the_names_of_rows(figures: ModuleType) -> None:
    rows = [
        measured("PPGenCDR", "tau 5", 0.5),
        measured("PPGenCDR", "tau 0.1", 0.4, ""),
        measured("PPGenCDR", "private_d eps 16", 0.6),
        measured("lambda_A 20", "private_d eps 5", 0.3),
    ]
    assert figures.points(rows, "PPGenCDR", r"tau ([\d.]+)") == [(0.1, 0.4, 0.0), (5.0, 0.5, 0.01)]
    assert figures.points(rows, r"lambda_A ([\d.]+)", ".*") == [(20.0, 0.3, 0.01)]
    assert figures.points(rows, "PPGenCDR", r"private_d eps ([\d.]+)") == [(16.0, 0.6, 0.01)]


def test_every_figure_is_drawn_from_the_committed_rows(figures: ModuleType, tmp_path: Path) -> None:
    names = [f"{m} eps {e}" for m in ("private_d", "first_layer_only", "gs_wgan") for e in ("1", "5")]
    rows = [measured("PPGenCDR", name, 0.5) for name in [*names, "tau 1", "density 25 %"]]
    rows += [measured(f"lambda_{which} {at}", "private_d eps 5", 0.5) for which in "AR" for at in ("0.5", "10")]
    rows += [measured("PriCDR", name, 0.4) for name in ("JLT eps 8", "density 25 %")]
    write(tmp_path / "results.csv", rows)
    for folder in figures.STABILISED:
        for seed in (0, 1):
            log: list[dict[str, object]] = [{"epoch": e, "train/critic_gap": 0.1 * e} for e in (0, 1)]
            write(
                tmp_path / "runs" / "book" / folder / f"seed-{seed}" / "metrics.csv",
                [*log, {"epoch": 2, "train/critic_gap": ""}],
            )
    figures.write_gap(tmp_path / "runs")
    kept = figures.read(figures.GAP)
    assert len(kept) == 8, "two trainings, two seeds, two epochs; a row of another log is no point"
    assert {(row["task"], row["training"]) for row in kept} == {("book", name) for name in figures.STABILISED.values()}
    for draw in (figures.draw_gap, figures.draw_epsilon, figures.draw_sweeps):
        assert draw().read_bytes().startswith(b"\x89PNG")


def test_runs_without_a_gap_are_refused(figures: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No logged gap below"):
        figures.write_gap(tmp_path)
