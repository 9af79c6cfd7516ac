"""The published figures, which of them cannot be, and ours beside them."""

import csv
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.zoo.benchmark.report.fabricate import DOUBAN, a_run, cell_folder, in_memory, line_of
from zoo.benchmark.grid import Row
from zoo.benchmark.report import papers, tables
from zoo.benchmark.report.papers import (
    PaperComparison,
    Published,
    Status,
    all_published,
    compare_with_papers,
    published,
)
from zoo.benchmark.report.results import Line, Results, read_results
from zoo.runtime.run_folder import METRIC_NAMES


def of(paper: str, *tables: int) -> list[Published]:
    return [row for row in all_published() if row.paper == paper and row.table in tables]


def test_every_cell_of_the_file_is_in_one_row() -> None:
    with Path(papers.__file__).with_name("papers.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert sum(len(row.figures) for row in all_published()) == len(lines) == 640
    counts = {("pricdr", 1): 60, ("ppgencdr", 1): 14, ("fedgcdr", 1): 21, ("fedgcdr", 2): 21, ("fedgcdr", 5): 14}
    assert Counter((row.paper, row.table) for row in all_published()) == counts
    assert len(all_published()) == 130


def test_a_direction_has_the_rows_of_every_paper() -> None:
    rows = published("douban", "book", "music")
    assert {row.paper for row in rows} == {"pricdr", "ppgencdr"}
    [best] = [row for row in rows if row.method == "PriCDR-S"]
    figures = {"hit_rate@5": 0.3701, "ndcg@5": 0.2582, "mrr@5": 0.2212}
    figures |= {"hit_rate@10": 0.5097, "ndcg@10": 0.3032, "mrr@10": 0.2397}
    assert best == Published("pricdr", 1, "douban", "book", "music", "PriCDR-S", figures)
    assert published("douban", "music", "book") == []


def test_every_paper_is_cited_with_its_year() -> None:
    assert papers.__doc__ is not None
    for paper in {row.paper for row in all_published()}:
        [cited] = re.findall(rf"``{paper}``: [^;]*Cross-Domain Recommendation\*[^;]*;", papers.__doc__)
        assert re.search(r"202[234]", cited)


def test_pricdr_s_own_rows_hold_and_most_of_its_baselines_do_not() -> None:
    own = [row for row in of("pricdr", 1) if row.method.startswith("PriCDR")]
    baselines = [row for row in of("pricdr", 1) if not row.method.startswith("PriCDR")]
    assert (len(own), len(baselines)) == (18, 42)
    assert [row for row in own if row.inconsistencies] == []
    assert sum(bool(row.inconsistencies) for row in baselines) == 32


def test_a_third_of_fedgcdr_s_rows_cannot_be() -> None:
    rows = of("fedgcdr", 1, 2)
    wrong = Counter(row.method for row in rows if row.inconsistencies)
    assert len(rows) == 42
    assert wrong == {"EMCDR": 6, "FedGCDR-DP": 5, "FedGCDR": 3}


def test_the_rows_that_stand_out_are_explained() -> None:
    [dp] = [row for row in published("amazon-4", "3 domains", "books") if row.method == "FedGCDR-DP"]
    assert dp.inconsistencies == ["NDCG@10 - NDCG@5 is .0316; with HR@10 - HR@5 of .1814 it must be in [.0524, .0646]"]
    for method in ("BPR", "NeuMF", "DMF", "CoNet"):
        [row] = [r for r in published("amazon", "movie", "book") if (r.paper, r.method) == ("pricdr", method)]
        assert any(sentence.startswith("MRR@5") and "with NDCG@5" in sentence for sentence in row.inconsistencies)
        assert any(sentence.endswith("must not be lower") for sentence in row.inconsistencies) == (method == "DMF")


TASK = "book-music"


def test_honest_runs_are_consistent(results: Results) -> None:
    cold = tables.arithmetic_table(results, "cold")
    assert cold.rows == []
    assert cold.notes == ["Our 26 runs: all consistent."]
    warm = tables.arithmetic_table(results, TASK)
    wrong = [paper for paper in published(**DOUBAN) if paper.inconsistencies]
    assert len(warm.rows) == sum(len(paper.inconsistencies) for paper in wrong)
    assert {row[0] for row in warm.rows} == {f"{p.method} ({p.paper} table {p.table})" for p in wrong}
    assert warm.notes == ["Our 45 runs: all consistent. Published rows of this task: 11 of 21 inconsistent."]


def test_a_run_whose_figures_were_altered_is_named(own_runs: Path) -> None:
    line, key, factor = line_of(read_results(own_runs), "cold", "PriCDR, JLT eps 8"), "sampled/mrr@5", 1.2
    path = cell_folder(own_runs, line, 1) / "metrics.json"
    report = json.loads(path.read_text())
    report["metrics"][f"test/{key}"] *= factor
    path.write_text(json.dumps(report))
    table = tables.arithmetic_table(read_results(own_runs), "cold")
    assert {row[0] for row in table.rows} == {f"PriCDR, JLT eps 8, seed 1, {key.split('/')[0]}"}
    assert table.notes == ["Our 26 runs: not all consistent."]
    name, k = key.split("/")[1].split("@")
    assert any(f"{METRIC_NAMES[name]}@{k}" in row[1] for row in table.rows)


def ours(name: str, hit_rate: float, ndcg: float, reason: str = "") -> Line:
    """A row called as in the papers, with two figures among candidates."""
    row = Row(TASK, f"our {name}", published_as=name, reason=reason)
    return Line(row, (a_run(0, sampled_hit_rate_10=hit_rate, sampled_ndcg_10=ndcg),))


def beside(*lines: Line, **differs: str) -> dict[tuple[str, str], PaperComparison]:
    results = in_memory(list(lines), where=DOUBAN | differs)
    return {(v.paper.paper, v.paper.method): v for v in compare_with_papers(results, TASK)}


@pytest.mark.parametrize(
    ("hit_rate", "ndcg", "status"),
    [
        (1.0499, 0.9501, "reproduced"),
        (1.0501, 0.9501, "exceeded"),
        (1.0, 1.0501, "exceeded"),
        (1.2, 0.9499, "below"),  # one figure is enough
        (0.9499, 1.0, "below"),
    ],
)
def test_a_row_replicates_by_two_figures_and_a_fixed_tolerance(hit_rate: float, ndcg: float, status: Status) -> None:
    line = ours("PriCDR-J, PriCDR", 0.4675 * hit_rate, 0.2643 * ndcg, reason="ours differs")
    found = beside(line)
    assert found.keys() == {("pricdr", "PriCDR-J"), ("ppgencdr", "PriCDR")}, "a row may have several names"
    row = found["pricdr", "PriCDR-J"]
    assert (row.status, row.reason) == (status, "ours differs")
    other = beside(line, differs="another split")["pricdr", "PriCDR-J"]
    assert (other.status, other.reason) == ("not comparable", "another split; ours differs")


def test_a_spread_over_seeds_widens_nothing() -> None:
    row = Row(TASK, "ours", published_as="PriCDR-J")
    runs = tuple(a_run(i, sampled_hit_rate_10=0.4675, sampled_ndcg_10=x) for i, x in enumerate((0.1, 0.4)))
    assert beside(Line(row, runs))["pricdr", "PriCDR-J"].status == "below"


def test_contradictions_of_a_paper_are_in_the_reason() -> None:
    growth = "in the paper NDCG@10 - NDCG@5 is .0364; with HR@10 - HR@5 of .1768 it must be in [.0511, .0630]"
    fall = "in the paper MRR@10 is .1014; with MRR@5 of .1029 it must not be lower"
    found = beside(ours("DMF", 0.5, 0.3, reason="another loss"))
    assert {paper: each.reason for (paper, _), each in found.items()} == {
        "pricdr": f"{growth}; another loss",
        "ppgencdr": f"{fall}; another loss",
    }


def test_rows_that_no_paper_has_are_left_out(results: Results) -> None:
    assert beside(ours("", 0.4, 0.2), ours("SSCDR", 0.4, 0.2)) == {}
    assert compare_with_papers(in_memory([ours("DMF", 0.4, 0.2)], where=None), TASK) == []
    assert compare_with_papers(in_memory([ours("DMF", 0.4, 0.2)], where=DOUBAN | {"target": "video"}), TASK) == []
    assert [task for task in results.lines if compare_with_papers(results, task)] == [TASK]
    assert [(v.ours.name, v.paper.paper) for v in compare_with_papers(results, TASK)] == [
        *(("DMF", "pricdr"), ("DMF", "ppgencdr")),
        *((f"PriCDR, JLT eps {epsilon}", "pricdr") for epsilon in (1, 8, 64)),
    ]


def test_ours_stands_beside_the_paper_s_and_both_baselines(results: Results) -> None:
    found = compare_with_papers(results, TASK)
    table = tables.papers_table(found)
    for v, row in zip(found, table.rows, strict=True):
        assert row[:2] == [v.ours.name, f"{v.paper.method} ({v.paper.paper})"]
        for place, measure in ((2, "hit_rate@10"), (6, "ndcg@10")):
            figures = (v.ours.figures, v.paper.figures, *(each.figures if each else {} for each in (v.noise, v.alone)))
            assert row[place : place + 4] == [f"{each[measure]:.4f}" if each else "-" for each in figures]
        assert row[10:] == [v.status, v.reason or "-"]
    assert table.rows[-1][-1] == "-", "no reason was given for the last"
    jlt = found[-1]
    assert jlt.noise is not None
    assert jlt.alone is not None
    assert (jlt.noise.name, jlt.alone.name) == ("PriCDR, Noise (JLT eps 64)", "PriCDR, Nothing")
    alone = [line for line in results.lines[TASK] if line.row.release == "" and line.row.system != "DMF"]
    best = max(alone, key=lambda line: line.mean("sampled", "ndcg@10"))
    dmf = found[0]
    assert dmf.noise is None
    assert dmf.alone is not None
    assert dmf.alone.name in (best.name, "PriCDR, Nothing")


def test_runs_without_candidates_do_not_stand_beside_the_papers(full_only: Results) -> None:
    assert compare_with_papers(full_only, TASK) == []
