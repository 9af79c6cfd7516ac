"""Leaderboards: rows with their epsilon, the best bold, controls collapsed; and pairwise tests."""

import re
from dataclasses import replace
from itertools import combinations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.zoo.benchmark.report.fabricate import in_memory, line_of, proved, unproved
from tests.zoo.benchmark.report.test_tables import TASK, named, with_records
from zoo.benchmark.report import tables
from zoo.benchmark.report.leaderboard import BEST, leaderboards, pair_table
from zoo.benchmark.report.results import LIST_MEASURES, MEASURES, OF_CASES, RANKINGS, Line, Results
from zoo.benchmark.report.significance import holm
from zoo.privacy.accounting.relation import Relation

LISTS = [f"List metrics, cut-off {k}" for k in (10, 5)]


@pytest.mark.parametrize("task", [TASK, "cold"])
@pytest.mark.parametrize("ranking", RANKINGS)
def test_public_and_private_rows_stand_in_one_table_and_controls_in_another(
    results: Results, task: str, ranking: str
) -> None:
    made = leaderboards(results, task, ranking)
    titles = ["", "Cut-off 5", *(LISTS if ranking == "full" else [])]
    main, controls = made[0], made[-2]
    assert [table.title for table in made] == [*titles, controls.title, f"{controls.title}, cut-off 5"]
    assert [table.collapsed for table in made] == [title == "Cut-off 5" for title in titles] + [True, True]
    assert controls.title == f"Controls ({len(controls.rows)} rows)"
    assert main.columns == ["row", "epsilon", "HR@10", "NDCG@10", "MRR@10", "seeds"]
    for table, is_control in ((main, False), (controls, True)):
        names = [row[0].removesuffix(" †") for row in table.rows]
        assert sorted(names) == sorted(
            line.name for line in results.lines[task] if (line.row.control != "") == is_control
        )
        means = [line_of(results, task, name).mean(ranking, "ndcg@10") for name in names]
        assert means == sorted(means, reverse=True), "the best first"
    assert "**" not in str(controls.rows), "nothing is best among controls"


guarantee = st.tuples(st.sampled_from([0.5, 4.0]), st.sampled_from([1e-5, 1e-6]), st.sampled_from(list(Relation)))


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(records=st.lists(st.none() | guarantee, min_size=1, max_size=6))
def test_every_row_says_whom_its_release_protects_and_how_far(
    results: Results, records: list[tuple[float, float, Relation] | None]
) -> None:
    base = line_of(results, TASK, "Searched, JLT")
    plain = [unproved() if r is None else proved(*r) for r in records]
    lines = [with_records(base, f"S{i}", [r]) for i, r in enumerate(plain)]
    table = leaderboards(in_memory(lines), TASK, "sampled")[0]
    assert len(table.rows) == len(lines)
    guarantees = named(tables.guarantee_table(lines))
    for name, cells in named(table).items():
        r = records[int(name.removeprefix("S").removesuffix(", R"))]
        if r is None:
            assert cells["epsilon"] == "none"
        else:
            epsilon, delta, relation = r
            text, unit = cells["epsilon"].split(" per ")
            assert (float(text), unit) == (epsilon, str(relation.unit))
            said = f"one {relation.unit} ({str(relation).replace('_', ' ')}), delta {delta:g}, epsilon {text}: proved"
            assert guarantees[name]["guarantee"] == said


def test_without_a_release_nothing_is_guaranteed(results: Results) -> None:
    cells = named(leaderboards(results, TASK, "full")[0])
    assert (cells["DMF"]["epsilon"], cells["PriCDR, Plaintext"]["epsilon"]) == ("no release", "none")


def test_a_ranking_that_was_not_asked_for_has_no_table(full_only: Results) -> None:
    results = full_only
    assert len(leaderboards(results, TASK, "full")) == 6
    assert leaderboards(results, TASK, "sampled") == []
    assert pair_table(results, TASK, "sampled") is None


def test_controls_alone_are_not_folded_away(results: Results) -> None:
    noise = [line for line in results.lines[TASK] if line.row.control]
    table = leaderboards(in_memory(noise), TASK, "sampled")[0]
    assert not table.collapsed


@pytest.mark.parametrize("ranking", RANKINGS)
def test_cells_are_mean_and_spread_over_seeds(results: Results, ranking: str) -> None:
    made = leaderboards(results, TASK, ranking)
    main, smaller, controls, others = (named(table) for table in (*made[:2], *made[-2:]))
    for name, cells in (main | controls).items():
        line = line_of(results, TASK, name)
        assert cells["seeds"] == str(len(line.runs))
        cells |= (smaller | others)[name]
        for measure in MEASURES:
            mean, _, spread = cells[tables.metric_title(measure)].replace("**", "").partition(" ±")
            assert mean == f"{line.mean(ranking, measure):.4f}"
            assert spread == ("" if len(line.runs) == 1 else f"{line.sd(ranking, measure):.4f}")


@pytest.mark.parametrize("task", [TASK, "cold"])
def test_the_best_mean_of_a_column_is_bold_and_no_other(results: Results, task: str) -> None:
    for ranking in RANKINGS:
        for table in leaderboards(results, task, ranking)[:-2]:
            lines = {name: line_of(results, task, name) for name in named(table)}
            for measure in [m for m in (*MEASURES, *LIST_MEASURES) if tables.metric_title(m) in table.columns]:
                means = {name: line.mean(ranking, measure) for name, line in lines.items()}
                cells = {name: row[tables.metric_title(measure)] for name, row in named(table).items()}
                bold = {name for name, cell in cells.items() if "**" in cell}
                best = {name for name, mean in means.items() if mean == max(means.values())}
                assert bold == (set() if "gap" in measure else best)
                assert all(re.fullmatch(r"\*\*\d\.\d{4}\*\*( ±\d\.\d{4})?", cells[name]) for name in bold)


def test_equal_means_are_bold_together(results: Results) -> None:
    ease = line_of(results, "cold", "EASE")
    twin = Line(replace(ease.row, system="Twin"), ease.runs)
    table = leaderboards(in_memory([ease, twin], "cold"), "cold", "full")[0]
    assert all(cell.startswith("**") for row in table.rows for cell in row[2:-1])


WEAK = "§ no meaningful guarantee: attack success may exceed 99 %."


def test_rows_ranked_by_item_counts_are_marked(results: Results) -> None:
    for ranking in RANKINGS:
        first, *_, controls, _ = leaderboards(results, "cold", ranking)
        assert [row[0] for row in first.rows if "†" in row[0]] == ["EASE †"]
        assert first.notes[0] == "† The method cannot score some users; they are ranked by item counts."
        assert WEAK in first.notes
        assert "Fewer than 3 seeds: EASE (1), Popularity (1)." in first.notes
        assert first.notes[-1].startswith("A run that publishes draws new noise")
        assert "†" not in str(controls.rows)
    assert leaderboards(in_memory([line_of(results, TASK, "DMF")]), TASK, "full")[0].notes == []


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(1e-4, 1e5), other=st.floats(1e-4, 1e5))
def test_an_epsilon_is_never_shown_lower(results: Results, epsilon: float, other: float) -> None:
    line = with_records(line_of(results, TASK, "DMF"), "S", [proved(epsilon), proved(other)])
    table = leaderboards(in_memory([line]), TASK, "full")[0]
    [said] = tables.guarantee_table([line]).rows
    match = re.search(r"epsilon ([\d.]+): proved", said[1])
    assert match is not None
    for shown in (float(named(table)["S, R"]["epsilon"].split(" per ")[0]), float(match[1])):
        assert max(epsilon, other) * (1 - 1e-8) <= shown <= max(epsilon, other) * 1.01


def test_what_runs_of_before_did_not_measure_is_left_out_and_of_one_row_a_dash(results: Results) -> None:
    lists = leaderboards(results, TASK, "full")[2:4]
    assert [table.title for table in lists] == LISTS
    measured = [tables.metric_title(m) for m in LIST_MEASURES if m.split("@")[0] in OF_CASES]
    assert lists[1].columns[1:] + lists[0].columns[1:] == measured
    line = line_of(results, TASK, "DMF")
    metrics = {"test/full/coverage@10": 0.5, "test/full/novelty@10": 3.25, "test/full/gauc": 0.75}
    newer = tuple(replace(run, report=run.report | {"metrics": run.report["metrics"] | metrics}) for run in line.runs)
    old = line_of(results, TASK, "EASE")
    lists = leaderboards(in_memory([Line(line.row, newer), old]), TASK, "full")[2:]
    assert [table.title for table in lists] == [*LISTS, "Contents of lists, cut-off 10"]
    assert lists[0].columns[-1] == "GAUC"
    cells = named(lists[2])
    assert (cells["DMF"]["coverage@10"], cells["DMF"]["novelty@10"]) == ("0.5000 ±0.0000", "3.2500 ±0.0000")
    assert (cells["EASE"]["coverage@10"], cells["EASE"]["novelty@10"]) == ("-", "-")
    assert lists[2].columns == ["row", "coverage@10", "novelty@10"]


def test_any_two_of_the_best_rows_are_tested_over_users(results: Results) -> None:
    lines = [line for line in results.ranked(TASK, "full") if not line.row.control][:BEST]
    table = pair_table(results, TASK, "full")
    assert table is not None
    assert [row[0] for row in table.rows] == [f"{i}. {line.name}" for i, line in enumerate(lines, 1)]
    assert table.columns == ["row", *(f"minus {i}." for i in range(2, len(lines) + 1))]
    expected = {}
    for (i, ours), (j, theirs) in combinations(enumerate(lines), 2):
        means = [_by_user(line) for line in (ours, theirs)]
        both = means[0].join(means[1], on="user_id").sort("user_id")
        test = stats.ttest_rel(both["value"], both["value_right"])
        expected[i, j] = float((both["value"] - both["value_right"]).mean()), float(test.pvalue)  # type: ignore[arg-type]
    corrected = dict(zip(expected, holm([p for _, p in expected.values()]), strict=True))
    for (i, j), (difference, _) in expected.items():
        match = re.fullmatch(r"(\*\*)?([+-]\d\.\d{4})(\*\*)? \((<?)([\d.]+)\)", table.rows[i][j])
        assert match is not None, table.rows[i][j]
        assert float(match[2]) == pytest.approx(difference, abs=5.1e-5)
        assert float(match[5]) == pytest.approx(max(corrected[i, j], 0.001), abs=5.1e-4)
        assert bool(match[1]) == (corrected[i, j] < 0.05)
    assert all(table.rows[i][j] == "" for i in range(len(lines)) for j in range(1, i + 1))


def _by_user(line: Line) -> pl.DataFrame:
    return line.cases.group_by("user_id").agg(value=pl.col("full/ndcg@10").cast(pl.Float64).mean())


def test_one_row_has_no_pair(results: Results) -> None:
    assert pair_table(in_memory([line_of(results, TASK, "DMF")]), TASK, "full") is None
