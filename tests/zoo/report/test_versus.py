"""Ours beside the papers', and the arithmetic that both are held against."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.zoo.report.fabricate import a_run, cell_folder, full_only, in_memory, line_of
from zoo.commands.benchmark.grid import Row
from zoo.report import tables
from zoo.report.papers import published
from zoo.report.results import MEASURES, Line, Results, read_results
from zoo.report.versus import Status, Versus, versus
from zoo.run_folder import METRIC_NAMES

TASK = "book-music"
DOUBAN = {"dataset": "douban", "source": "book", "target": "music"}


# Arithmetic.


def test_honest_runs_are_consistent(results: Results) -> None:
    cold = tables.arithmetic_table(results, "cold")
    assert cold.rows == []
    assert cold.notes == ["Of ours all 26 runs are consistent in every ranking."]
    warm = tables.arithmetic_table(results, TASK)
    wrong = [paper for paper in published(**DOUBAN) if paper.inconsistencies]
    assert len(warm.rows) == sum(len(paper.inconsistencies) for paper in wrong)
    assert {row[0] for row in warm.rows} == {f"{p.method} ({p.paper} table {p.table})" for p in wrong}
    assert warm.notes == [
        "Of ours all 45 runs are consistent in every ranking. Of the papers' 21 rows on this task 11 are not."
    ]


@pytest.mark.parametrize(("key", "factor"), [("full/ndcg@10", 0.9), ("sampled/mrr@5", 1.2), ("full/hit_rate@5", 1.5)])
def test_a_run_whose_figures_were_altered_is_named(own_runs: Path, key: str, factor: float) -> None:
    line = line_of(read_results(own_runs), "cold", "PriCDR, JLT eps 8")
    path = cell_folder(own_runs, line, 1) / "metrics.json"
    report = json.loads(path.read_text())
    report["metrics"][f"test/{key}"] *= factor
    path.write_text(json.dumps(report))
    table = tables.arithmetic_table(read_results(own_runs), "cold")
    assert {row[0] for row in table.rows} == {f"PriCDR, JLT eps 8, seed 1, {key.split('/')[0]}"}
    assert table.notes == ["Of ours not all 26 runs are consistent in every ranking."]
    name, k = key.split("/")[1].split("@")
    assert any(f"{METRIC_NAMES[name]}@{k}" in row[1] for row in table.rows)


# Beside the papers.


def ours(name: str, *figures: float, reason: str = "") -> Line:
    """A row called as in the papers, with NDCG@10 among candidates of each seed."""
    row = Row(TASK, f"our {name}", published_as=name, reason=reason)
    return Line(row, tuple(a_run(i, sampled_ndcg_10=value) for i, value in enumerate(figures)))


def beside(*lines: Line) -> dict[tuple[str, str], Versus]:
    return {(v.paper.paper, v.paper.method): v for v in versus(in_memory(list(lines), where=DOUBAN)).get(TASK, [])}


@pytest.mark.parametrize(
    ("figures", "status"),
    [
        ((0.2643,), "reproduced"),
        ((0.2643 * 1.0499,), "reproduced"),
        ((0.2643 * 0.9501,), "reproduced"),
        ((0.2643 * 1.0501,), "above"),
        ((0.2643 * 0.9499,), "below"),
        ((0.30, 0.32, 0.34), "above"),  # standard error .0115: off by .0557 of .0231 allowed
        ((0.28, 0.31, 0.34), "above"),  # .0173: off by .0457 of .0346
        ((0.26, 0.30, 0.34), "reproduced"),  # .0231: off by .0357 of .0462
        ((0.18, 0.22, 0.26), "reproduced"),  # .0231: off by .0443 of .0462
        ((0.18, 0.26, 0.18, 0.26), "reproduced"),  # .0231: off by .0443 of .0462
        ((0.18, 0.26, 0.18, 0.26, 0.22), "below"),  # .0179: off by .0443 of .0358
        ((0.21, 0.22, 0.23), "below"),  # .0058: off by .0443 of .0115
        ((0.2643, 0.2643), "reproduced"),
        ((0.9, 0.9), "above"),
        ((0.0, 0.0), "below"),
    ],
)
def test_a_consistent_row_of_a_paper_is_a_target(figures: tuple[float, ...], status: Status) -> None:
    [found] = beside(ours("PriCDR-J", *figures, reason="ours differs")).values()
    assert (found.paper.paper, found.paper.figures["ndcg@10"]) == ("pricdr", 0.2643)
    assert (found.status, found.reason) == (status, "ours differs")


def test_an_inconsistent_row_of_a_paper_is_none_whatever_ours_is() -> None:
    for value, beside_it in ((0.1367, "reproduced"), (0.05, "below"), (0.4, "above")):
        found = beside(ours("DMF", value, reason="another loss"))
        assert found.keys() == {("pricdr", "DMF"), ("ppgencdr", "DMF")}
        assert {v.status for v in found.values()} == {"paper inconsistent"}
        growth = "NDCG@10 - NDCG@5 is .0364; with HR@10 - HR@5 of .1768 it must lie in [.0511, .0630]"
        fall = "MRR@10 is .1014; with MRR@5 of .1029 it must not be lower"
        for paper, said in (("pricdr", growth), ("ppgencdr", fall)):
            expected = f"in the paper {said}; beside it ours is {beside_it}"
            assert found[paper, "DMF"].reason == f"{expected}; another loss"
            assert beside(ours("DMF", value))[paper, "DMF"].reason == expected


def test_every_row_of_the_papers_has_the_status_of_its_arithmetic() -> None:
    papers = published(**DOUBAN)
    found = beside(*(ours(method, 0.25) for method in sorted({paper.method for paper in papers})))
    assert len(found) == len(papers)
    for paper in papers:
        status = found[paper.paper, paper.method].status
        assert (status == "paper inconsistent") == bool(paper.inconsistencies)
        if not paper.inconsistencies:
            near = abs(paper.figures["ndcg@10"] - 0.25) <= 0.05 * paper.figures["ndcg@10"]
            assert status == ("reproduced" if near else "above" if paper.figures["ndcg@10"] < 0.25 else "below")


def test_rows_that_no_paper_has_are_left_out(results: Results) -> None:
    assert beside(ours("", 0.2), ours("SSCDR", 0.2)) == {}
    assert versus(in_memory([ours("DMF", 0.2)], where=None)) == {}
    assert versus(in_memory([ours("DMF", 0.2)], where=DOUBAN | {"target": "video"})) == {}
    found = versus(results)
    assert found.keys() == {TASK}
    assert [(v.line.name, v.paper.paper) for v in found[TASK]] == [
        *(("DMF", "pricdr"), ("DMF", "ppgencdr")),
        *((f"PriCDR, JLT eps {epsilon}", "pricdr") for epsilon in (1, 8, 64)),
    ]


def test_ours_stands_beside_the_paper_s(results: Results) -> None:
    found = versus(results)[TASK]
    table = tables.versus_table(found)
    for v, row in zip(found, table.rows, strict=True):
        cells = dict(zip(table.columns, row, strict=True))
        assert cells["paper's"] == f"{v.paper.method} ({v.paper.paper})"
        assert (cells["status"], cells["reason"]) == (v.status, v.reason or "-")
        for measure in MEASURES:
            expected = f"{v.line.mean('sampled', measure):.4f} ({v.paper.figures[measure]:.4f})"
            assert cells[tables.metric(measure)] == expected
    assert table.rows[-1][-1] == "-", "no reason was given for the last"


def test_a_figure_that_the_paper_lacks_is_a_dash() -> None:
    [paper] = [p for p in published(**DOUBAN) if p.method == "PriCDR-J"]
    lacking = dataclasses.replace(paper, figures={"ndcg@10": 0.2643})
    [row] = tables.versus_table([Versus(ours("PriCDR-J", 0.2), lacking, "below", "")]).rows
    assert row[2:8] == ["0.1000 (-)"] * 4 + ["0.2000 (0.2643)", "0.1000 (-)"]


def test_runs_without_candidates_do_not_stand_beside_the_papers(tmp_path: Path) -> None:
    assert versus(full_only(tmp_path)) == {}
