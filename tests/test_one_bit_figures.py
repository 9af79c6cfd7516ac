"""The figures of one-bit matrix completion: what is averaged, which rows the tables show, and that they can be drawn."""

import csv
import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
KEYS = (
    "data",
    "observed",
    "link",
    "mechanism",
    "published",
    "epsilon",
    "draw",
    "figure",
    "value",
    "guarantee",
    "seconds",
)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("one_bit_figures")
    monkeypatch.setattr(module, "FOLDER", tmp_path / "out")
    monkeypatch.setattr(module, "MEANS", tmp_path / "out" / "means.csv")
    monkeypatch.setattr(module, "TRIALS", tmp_path / "out" / "trials.csv")
    return module


def measured(folder: Path, rows: Sequence[tuple[object, ...]]) -> Path:
    folder.mkdir()
    with (folder / "results-all-0.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(KEYS)
        writer.writerows(rows)
    trials = [
        "data,link,mechanism,setting,sign_accuracy",
        "rc,probit,InP,tau=10.0,0.6",
        "rc,probit,InP,tau=20.0,0.65",
        "rc,probit,Clear,tau=20.0,0.7",
    ]
    (folder / "trials.csv").write_text("\n".join(trials) + "\n", encoding="utf-8")
    return folder


def cell(
    mechanism: str,
    epsilon: float,
    draw: int,
    value: float,
    data: str = "synthetic",
    observed: float = 0.15,
    link: str = "probit",
) -> tuple[object, ...]:
    return data, observed, link, mechanism, False, epsilon, draw, "average_relative_error", value, "proved", 0.5


def test_means_and_spreads_are_over_draws(figures: ModuleType, tmp_path: Path) -> None:
    rows = [cell("InP", 1.0, 0, 1.0), cell("InP", 1.0, 1, 3.0), cell("InP", 2.0, 0, 5.0), cell("Clear", 0.0, 0, 0.5)]
    figures.summarise(measured(tmp_path / "in", rows))
    means = figures.Means(figures.read(figures.MEANS))
    assert means.cell("synthetic", "0.15", "probit", "InP", 1) == "2.000 ±1.414"
    assert means.cell("synthetic", "0.15", "probit", "InP", 2) == "5.000"
    assert means.cell("synthetic", "0.15", "logistic", "InP", 1) == "-"
    assert means.curve("synthetic", "0.15", "probit", "InP") == (
        [1.0, 2.0],
        [2.0, 5.0],
        [pytest.approx(2**0.5, abs=1e-4), 0.0],
    )


def test_tables_show_controls_first_and_what_was_measured(figures: ModuleType, tmp_path: Path) -> None:
    rows = [cell("OutP, published", 1.0, 0, 9.0), cell("InP", 1.0, 0, 1.0), cell("Clear", 0.0, 0, 0.5)]
    figures.summarise(measured(tmp_path / "in", rows))
    lines = figures.by_epsilon(figures.Means(figures.read(figures.MEANS)), "synthetic", "0.15", "probit").splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["Clear", "InP", "OutP, published"]
    assert lines[3].split("|")[2:5] == [" proved ", " 1.000 ", " - "]


def test_the_chosen_setting_is_the_best_trial(figures: ModuleType, tmp_path: Path) -> None:
    figures.summarise(measured(tmp_path / "in", [cell("InP", 1.0, 0, 1.0)]))
    assert "| rc | probit | InP | tau=20.0 | 0.65 |" in figures.settings()
    assert "tau=10.0" not in figures.settings()


def test_every_row_of_the_figures_has_an_audit(figures: ModuleType) -> None:
    assert figures.AUDITED.keys() == figures.STYLES.keys()
    audited = figures.audits()
    for mechanism in figures.STYLES:
        assert f"| {mechanism} |" in audited, mechanism
    assert "| OutP, published | published OutP, d = 10 | no | violation |" in audited


def test_figures_are_drawn(figures: ModuleType, tmp_path: Path) -> None:
    rows = [
        cell("InP", e, d, 1.0 + d, data, o)
        for data, o in (("synthetic", 0.15), ("synthetic", 0.2), ("rc", 0.0))
        for e in (1.0, 2.0)
        for d in (0, 1)
    ]
    figures.summarise(measured(tmp_path / "in", rows))
    drawn = figures.draw()
    assert [path.name for path in drawn] == [f"figure_{n}.png" for n in range(1, 6)]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
