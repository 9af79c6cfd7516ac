"""The figure of a bridge and the number of people whom both know: which rows it shows where."""

import csv
import importlib
from pathlib import Path
from types import ModuleType

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

ROOT = Path(__file__).parent.parent


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("bridge_figures")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def test_lifts_are_parts_of_that_of_all_users_without_noise(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [("home", "Popularity", "", 0.3), ("home", "Ridge", "Plaintext", 0.6), ("known", "Popularity", "", 0.4)]
    rows += [
        ("home", "Bridge", f"{words} eps {epsilon:g}", 0.3 + 0.2 * share * min(epsilon, 1))
        for words, share in figures.SHARES.items()
        for epsilon in (*figures.EPSILONS, figures.CLEAR)
    ]
    (tmp_path / "bridge_reach").mkdir()
    with (tmp_path / "bridge_reach" / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("task", "system", "release", "sampled/hit_rate@10", "sampled/hit_rate@10 sd"))
        writer.writerows((*row, "") for row in rows)
    drawn: dict[str, list[tuple[float, float, float]]] = {}
    shown = figures.curve

    def remember(axis: object, line: list[tuple[float, float, float]], label: str, colour: str) -> None:
        drawn[f"{label} of {len(drawn)}"] = line
        shown(axis, line, label, colour)

    monkeypatch.setattr(figures, "curve", remember)
    assert figures.draw().read_bytes().startswith(b"\x89PNG")
    assert drawn["epsilon 0.5 of 1"] == [
        (share, pytest.approx(0.3 + 0.1 * share), 0.0) for share in (0.125, 0.25, 0.5, 1)
    ]
    kept = drawn["epsilon 0.5 of 6"]
    assert [part for _, part, _ in kept] == pytest.approx(
        [0.5] * 4
    )  # of those who are placed: others have popularity's
    # mu of (0.5, 1e-5) by the hockey-stick divergence of N(0, 1) and N(mu, 1), solved with scipy
    mu = brentq(
        lambda m: norm.cdf(m / 2 - 0.5 / m) - 2.718281828459045**0.5 * norm.cdf(-m / 2 - 0.5 / m) - 1e-5, 0.01, 5
    )
    assert [at for at, _, _ in kept] == pytest.approx([mu / 8, mu / 4, mu / 2, mu], rel=1e-6)
