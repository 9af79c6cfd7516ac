"""The tables: conditions, gains, slices and cost."""

import dataclasses
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.zoo.benchmark.report.fabricate import (
    SEEDS,
    Record,
    a_line,
    a_run,
    cases_of,
    facts_of,
    line_of,
    proved,
    unproved,
)
from zoo.benchmark.grid import Row
from zoo.benchmark.report import tables
from zoo.benchmark.report.leaderboard import leaderboards
from zoo.benchmark.report.paired_differences import NO_RELEASE, NOISE_BASELINE, Gain
from zoo.benchmark.report.results import RANKINGS, Line, Results
from zoo.benchmark.report.significance import Comparison
from zoo.benchmark.report.tables import Table, item_slices, overlap_slices, sliced
from zoo.privacy.record.fields import Guarantee
from zoo.privacy.record.words import standing

TASK, EASE = "book-music", "EASE"


def named(table: Table) -> dict[str, dict[str, str]]:
    """Rows by name, cells by column."""
    assert all(len(row) == len(table.columns) for row in table.rows)
    return {row[0].removesuffix(" †"): dict(zip(table.columns, row, strict=True)) for row in table.rows}


def number(cell: str) -> float:
    return float(cell.split(" ")[0].strip("*"))


def with_records(line: Line, name: str, records: list[Record]) -> Line:
    """The runs of a row under another name and with other releases."""
    pairs = zip(line.runs, records, strict=False)
    made = tuple(dataclasses.replace(run, privacy={"book": record}) for run, record in pairs)
    return Line(dataclasses.replace(line.row, system=name, release="R"), made)


CONDITIONAL = {"guarantee": "conditional", "conditions": ["no rating decides who is there", "the mean is public"]}


def test_a_condition_stands_below_every_table_with_its_epsilon(results: Results) -> None:
    line = next(line for line in results.lines[TASK] if line.epsilon is not None)
    under = with_records(line, "S", [proved() | CONDITIONAL] * 3)
    more = with_records(line, "T", [proved() | CONDITIONAL, *[proved() | CONDITIONAL | {"conditions": ["else"]}] * 2])
    assert (line.guarantee_status, under.guarantee_status) == ("proved", "conditional")
    assert more.conditions == (*under.conditions, "else")
    conditions, others = (standing(Guarantee.CONDITIONAL, row.conditions, None) for row in (under, more))
    for lines, notes in (
        ([line, under], [f"‡ {conditions}."]),
        ([line, under, more], [f"‡ S, R: {conditions}.", f"‡ T, R: {others}."]),
    ):
        shown = dataclasses.replace(results, lines={TASK: lines})
        figures, said = leaderboards(shown, TASK, "sampled")[0], tables.guarantee_table(lines)
        assert [note for note in figures.notes if note.startswith("‡")] == said.notes == notes
        epsilons = {row[0]: row[1] for row in figures.rows}
        assert [epsilons[other.name].endswith(" ‡") for other in lines] == [other is not line for other in lines]
        assert named(said)["S, R"]["guarantee"].endswith(": conditional ‡")
        assert named(said)[line.name]["guarantee"].endswith(": proved")


def test_what_releases_guarantee_is_said_of_every_row(results: Results) -> None:
    table = tables.guarantee_table(results.lines[TASK])
    said = {name: cells["guarantee"] for name, cells in named(table).items()}
    assert list(said) == [line.name for line in results.lines[TASK]]
    assert said["EASE"] == "no release"
    assert said["PriCDR, Plaintext"] == "none (the ratings are handed over as they are)"
    assert said["PriCDR, Noise (JLT eps 8)"] == "none (control: the ratings were redrawn at random)"
    assert said["PriCDR, JLT eps 8"] == "one rating (change one rating), delta 1e-05, epsilon 8.00: proved §"
    assert said["Whole users, smaller delta"] == "one user (replace one user), delta 1e-06, epsilon 5.00: proved §"
    for line in results.lines[TASK]:
        assert ("epsilon" in said[line.name]) == (line.guarantee is not None)


@pytest.mark.parametrize("ranking", RANKINGS)
@pytest.mark.parametrize("task", [TASK, "cold"])
def test_the_table_of_gains_has_every_difference_once(
    results: Results, found: list[Gain], ranking: str, task: str
) -> None:
    own = [g for g in found if (g.task, g.ranking, g.measure) == (task, ranking, "ndcg@10")]
    made = tables.gain_tables(results.lines[task], own, ranking, "ndcg@10")
    gain_of = {(g.line.name, g.against): g for g in own}
    assert len(gain_of) == len(own)
    for table, against in zip(made, (NOISE_BASELINE, EASE, NO_RELEASE), strict=True):
        assert table.title == f"NDCG@10 gain over {against}, {RANKINGS[ranking]}"
        order = [line.name for line in results.lines[task] if (line.name, against) in gain_of]
        assert [row[0] for row in table.rows] == order
        assert not [name for name in order if "Noise" in name]
        for name, difference, users, seeds in table.rows:
            gain = gain_of[name, against]
            low, high = gain.users.low, gain.users.high
            assert difference == f"{gain.users.difference:+.4f} [{low:+.4f}, {high:+.4f}]".replace("-0.0000", "+0.0000")
            assert shown_p(users) == pytest.approx(max(gain.users_holm, 0.001), abs=5.1e-4)
            assert ("**" in users) == (gain.users_holm < 0.05)
            assert (seeds == "-") == (gain.seeds_holm is None)
            if gain.seeds_holm is not None:
                assert shown_p(seeds) == pytest.approx(max(gain.seeds_holm, 0.001), abs=5.1e-4)
                assert ("**" in seeds) == (gain.seeds_holm < 0.05)


def shown_p(cell: str) -> float:
    return float(cell.strip("*").removeprefix("<"))


def test_rows_of_other_figures_are_left_out(results: Results, found: list[Gain]) -> None:
    assert tables.gain_tables(results.lines[TASK], [], "full", "ndcg@10") == []
    hits = [g for g in found if (g.task, g.measure) == (TASK, "hit_rate@10")]
    assert tables.gain_tables(results.lines[TASK], hits, "full", "ndcg@10") == []
    first = tables.gain_tables(results.lines[TASK], hits, "full", "hit_rate@10")[0]
    assert first.title == f"HR@10 gain over {NOISE_BASELINE}, all items"


def gain_of(name: str, epsilon: float | None, difference: float, against: str = NOISE_BASELINE) -> Gain:
    records = [proved(epsilon)] if epsilon else [unproved()]
    users = Comparison(difference, difference - 0.01, difference + 0.01, 0.02, 60, 30)
    return Gain("music", a_line(*records, name=name), against, "full", "ndcg@10", users, None, 0.04)


def test_at_each_epsilon_the_row_that_gains_most_over_noise_is_told() -> None:
    found = [
        *(gain_of("A", 8.0, 0.02), gain_of("B", 8.0, 0.03), gain_of("C", 8.0, 0.09, against=EASE)),
        *(gain_of("A", 16.0, -0.01), gain_of("A", None, 0.05), gain_of("B", None, 0.04)),
    ]
    table = tables.leader_table(found, "full", "ndcg@10")
    assert table is not None
    assert table.title == "Largest NDCG@10 gain over noise baseline, all items"
    kind = "one rating (change one rating), delta 1e-05"
    assert table.rows == [
        ["B, JLT", kind, "8.00 §", "+0.0300 [+0.0200, +0.0400]", "**.040**", "-", "2"],
        ["A, JLT", kind, "16.0 §", "-0.0100 [-0.0200, +0.0000]", "**.040**", "-", "1"],
        ["A, JLT", "none", "-", "+0.0500 [+0.0400, +0.0600]", "**.040**", "-", "2"],
    ]
    assert table.notes[-1].startswith("§ no meaningful guarantee")
    assert tables.leader_table(found[2:5], "full", "ndcg@10") is None, "nobody competes"
    assert tables.leader_table(found, "sampled", "ndcg@10") is None


def test_what_a_search_chose_is_told_for_every_run_that_searched(results: Results) -> None:
    line = line_of(results, TASK, "DMF")
    tried = [{"settings": {}, "val/ndcg@10": value} for value in (0.125, 0.25)]
    search = {"chosen": {"model.lr": 0.0012345, "model.dims": [8, 4]}, "trials": tried}
    first = dataclasses.replace(line.runs[0], search=search)
    table = tables.search_table([Line(line.row, (first, *line.runs[1:])), line])
    assert table is not None
    assert table.rows == [["DMF", "model.lr 0.00123, model.dims [8, 4]", "0", "2", "0.2500"]]
    assert tables.search_table([line]) is None


@pytest.mark.parametrize(
    ("chosen", "values", "expected"),
    [
        (500, {"choices": [3000, 500, 10000], "log": False}, True),
        (3000, {"choices": [3000, 500, 10000], "log": False}, False),
        (True, {"choices": [False, True], "log": False}, False),
        (0.0124, {"low": 0.01, "high": 1.0, "log": True, "choices": []}, True),  # 5 % of two decades are at 0.0126
        (0.0130, {"low": 0.01, "high": 1.0, "log": True, "choices": []}, False),
        (0.0130, {"low": 0.01, "high": 1.0, "log": False, "choices": []}, True),
        (0.96, {"low": 0.01, "high": 1.0, "log": False, "choices": []}, True),
    ],
)
def test_a_choice_at_an_edge_is_named(results: Results, chosen: object, values: dict[str, Any], expected: bool) -> None:
    line = line_of(results, TASK, "DMF")
    tried = [{"settings": {}, "val/ndcg@10": value} for value in (0.125, 0.25)]
    search = {"chosen": {"model.x": chosen}, "trials": tried, "parameters": {"model.x": values}}
    runs = tuple(dataclasses.replace(run, search=search) for run in line.runs)
    table = tables.edge_table([Line(line.row, runs)])
    assert (table is not None) == expected
    if table is not None:
        [[name, setting, *_, seeds]] = table.rows
        assert (name, setting, seeds) == ("DMF", "model.x", "0, 1, 2")
    level = search | {"trials": tried[:1] * 2}
    assert tables.edge_table([Line(line.row, (dataclasses.replace(line.runs[0], search=level),))]) is None


def test_slices_of_training_items_part_the_cases(results: Results) -> None:
    table, quarters = tables.slice_tables(results.lines[TASK])
    assert table.title == "Training items of the user: NDCG@10, 1 + 99 candidates"
    assert quarters.title == "Training items, quarters of the users: NDCG@10, 1 + 99 candidates"
    assert [len(one.columns) for one in (table, quarters)] == [7, 5]
    assert [row[0] for row in table.rows] == [line.name for line in results.lines[TASK]]
    for row in (*table.rows, *quarters.rows):
        assert sum(int(cell.split("(")[1].rstrip(")")) for cell in row[1:]) == 60


def test_overlap_is_told_only_where_both_kinds_of_users_exist(results: Results) -> None:
    [table] = tables.slice_tables(results.lines["cold"])  # and nobody there has a training item
    assert table.title == "Overlap: NDCG@10, 1 + 99 candidates"
    assert table.columns == ["row", "in the release", "not in the release"]
    linked = [line.name for line in results.lines["cold"] if line.row.release not in ("", "Nothing")]
    assert [row[0] for row in table.rows] == linked
    for row in table.rows:
        assert sum(int(cell.split("(")[1].rstrip(")")) for cell in row[1:]) in (60, 61), "per seed, rounded"


def test_slices_are_of_all_items_where_there_are_no_candidates(full_only: Results) -> None:
    [table] = tables.slice_tables(full_only.lines["cold"])
    assert table.title == "Overlap: NDCG@10, all items"


def test_a_slice_without_a_case_is_a_dash(results: Results) -> None:
    warm, cold = line_of(results, TASK, "DMF"), line_of(results, "cold", "EASE")
    table, _ = tables.slice_tables([warm, cold])
    rows = named(table)
    assert [rows["EASE"][column] for column in table.columns[2:]] == ["- (0)"] * 5
    assert rows["EASE"]["no training item"].endswith("(60)")


def test_cost_is_a_mean_over_seeds(results: Results) -> None:
    table = tables.cost_table(results.lines[TASK])
    assert table.columns[1:5] == ["training, s", "total, s", "epochs", "parameters"]
    assert table.columns[5:] == ["peak MiB", "bytes released", "trials"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows) == [line.name for line in results.lines[TASK]]
    assert rows["EASE"] == ["2.0", "10.0", "3", "1,234", "400", "0", "-"]
    assert rows["DMF"] == ["3.0", "10.0", "4", "1,234", "401", "0", "-"]
    assert rows["PriCDR, Plaintext"] == ["3.0", "10.0", "4", "1,234", "401", "1,000", "-"]
    assert rows["Searched, JLT"] == ["2.0", "110.0", "3", "1,234", "400", "1,000", "7"]


def test_bytes_of_all_sources_are_released() -> None:
    more: dict[str, Any] = {"train_seconds": 0.25, "epochs": 1, "parameters": 10**6, "peak_memory": 2048}
    run = a_run(records={"book": proved(), "movie": proved()})
    run.report.update(more, release_bytes={"book": 1500, "movie": 2500})
    [row] = tables.cost_table([Line(Row("music", "S", "R"), (run,))]).rows
    assert row == ["S, R", "0.2", "1.0", "1", "1,000,000", "2,048", "4,000", "-"]


BOTH = {"items": item_slices(), "overlap": overlap_slices()}
FIGURE = "full/ndcg@10"


def every_line(results: Results) -> list[Line]:
    return [line for lines in results.lines.values() for line in lines]


@settings(max_examples=60, deadline=None)
@given(items=st.lists(st.integers(0, 200), max_size=30), linked=st.booleans())
def test_every_case_is_in_exactly_one_slice_of_each_kind(items: list[int], linked: bool) -> None:
    cases = pl.DataFrame({"train_items": items}, {"train_items": pl.Int64}).with_columns(linked=pl.lit(linked))
    for slices in BOTH.values():
        inside = cases.select(pl.sum_horizontal(where.cast(pl.Int64) for where in slices.values()).alias("in"))
        assert inside["in"].to_list() == [1] * len(items)


def test_a_slice_is_named_by_what_is_in_it() -> None:
    ends = (0, 1, 5, 6, 10, 11, 20, 21, 50, 51, 10**6)
    cases = pl.DataFrame({"train_items": ends})
    found = {name: cases.filter(where)["train_items"].to_list() for name, where in item_slices().items()}
    assert found == {
        "no training item": [0],
        "1 to 5": [1, 5],
        "6 to 10": [6, 10],
        "11 to 20": [11, 20],
        "21 to 50": [21, 50],
        "more than 50": [51, 10**6],
    }


def test_cases_of_the_release_are_told_apart() -> None:
    cases = pl.DataFrame({"linked": [True, False, True]})
    assert [len(cases.filter(where)) for where in overlap_slices().values()] == [2, 1]
    assert [*overlap_slices()] == ["in the release", "not in the release"]


@pytest.mark.parametrize("kind", BOTH)
def test_counts_add_up_and_means_make_up_the_whole(results: Results, kind: str) -> None:
    for line in every_line(results):
        found = sliced(line, BOTH[kind], FIGURE)
        counts = [count for _, count in found]
        assert sum(counts) == pytest.approx(len(line.cases) / len(line.runs))
        whole = sum(mean * count for mean, count in found if mean is not None) / sum(counts)
        assert whole == pytest.approx(line.mean("full", "ndcg@10"), abs=1e-6)
        assert all((mean is None) == (count == 0) for mean, count in found)


def test_a_slice_is_a_mean_over_the_cases_of_every_seed(results: Results) -> None:
    line = line_of(results, "book-music", "DMF")
    facts = [facts_of(Row("book-music", "DMF"), seed) for seed in SEEDS]
    cases = [cases_of(made) for made in facts if made is not None]
    for name, (mean, count) in zip(item_slices(), sliced(line, item_slices(), FIGURE), strict=True):
        values = [
            value
            for frame in cases
            for items, value in zip(frame["train_items"].to_list(), frame[FIGURE].to_list(), strict=True)
            if frame_slice(items) == name
        ]
        assert len(cases) * count == len(values)
        assert mean == (pytest.approx(sum(values) / len(values)) if values else None)


def frame_slice(items: int) -> str:
    """Which slice a number of training items is in, written out."""
    names = {0: "no training item", 5: "1 to 5", 10: "6 to 10", 20: "11 to 20", 50: "21 to 50"}
    return next((name for edge, name in names.items() if items <= edge), "more than 50")
