"""Figures as CSV, and what a report says where a run reads the releases of two sources."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.zoo.benchmark.report.fabricate import BARE, JLT, Facts, facts_of, proved, reread
from zoo.benchmark.grid import Row
from zoo.benchmark.report.files import results_csv, write_report
from zoo.benchmark.report.results import Results
from zoo.privacy.accounting.relation import Relation

#: A row without noise control, with two seeds.
ONE_ROW: dict[str, Any] = BARE | {
    "seeds": [0, 1],
    "systems": {"PriCDR": {"config": "system.yaml", "releases": [{"publisher": JLT, "noise_control": False}]}},
}
#: Epsilon and delta of the releases of two sources, for each seed.
SPENT = {0: {"book": (1.25, 1e-5), "film": (2.5, 2e-5)}, 1: {"book": (2.0, 1e-5), "film": (0.5, 1e-5)}}


def two_sources(folder: Path, relation: Relation) -> tuple[dict[str, str], str]:
    """The line of results.csv and the page of such runs."""

    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed, cases=20)
        records = {name: proved(*spent, relation=relation) for name, spent in SPENT[seed].items()}
        return made and replace(made, records=records)

    write_report(reread(folder, ONE_ROW, facts), folder / "out")
    [line] = csv.DictReader((folder / "out" / "results.csv").read_text(encoding="utf-8").splitlines())
    return line, (folder / "out" / "README.md").read_text(encoding="utf-8")


def test_a_user_of_two_sources_pays_for_both_releases(tmp_path: Path) -> None:
    """Basic composition: 1.25 + 2.5 at 1e-5 + 2e-5 under the first seed, which spends more than 2.0 + 0.5 at 2e-5."""
    line, page = two_sources(tmp_path, Relation.REPLACE_ONE_USER)
    assert line["unit"] == "user"
    assert float(line["epsilon"]) == pytest.approx(3.75, rel=1e-12)
    assert float(line["delta"]) == pytest.approx(3e-5, rel=1e-12)
    assert "| PriCDR, JLT | one user (replace one user), delta 3e-05, epsilon 3.75: proved |" in page


def test_ratings_of_two_sources_pay_for_both_releases(tmp_path: Path) -> None:
    line, page = two_sources(tmp_path, Relation.CHANGE_ONE_RATING)
    assert line["unit"] == "rating"
    assert (float(line["epsilon"]), float(line["delta"])) == pytest.approx((3.75, 3e-5))
    assert "| PriCDR, JLT | one rating (change one rating), delta 3e-05, epsilon 3.75: proved |" in page


@pytest.mark.thorough
def test_a_figure_that_no_run_has_is_left_empty(full_only: Results) -> None:
    for row in csv.DictReader(results_csv(full_only).splitlines()):
        assert row["sampled/ndcg@10"] == row["sampled/ndcg@10 sd"] == row["sampled/recall@10"] == ""
        assert row["full/recall@10"] == row["full/hit_rate@10"], "one held-out item each"
        assert row["full/coverage@10"] == row["full/novelty@10"] == "", "of a version that did not measure it"
        assert float(row["full/ndcg@10"]) > 0
