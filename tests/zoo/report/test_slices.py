"""Slices part the cases: each is in one of them, and their means make up the whole."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.zoo.report.fabricate import SEEDS, cases_of, facts_of, line_of
from zoo.commands.benchmark.grid import Row
from zoo.report.results import Line, Results
from zoo.report.slices import EDGES, item_slices, overlap_slices, sliced

BOTH = {"items": item_slices(), "overlap": overlap_slices()}
FIGURE = "full/ndcg@10"


def every_line(results: Results) -> list[Line]:
    return [line for lines in results.lines.values() for line in lines]


@settings(max_examples=60, deadline=None)
@given(items=st.lists(st.integers(0, 200), max_size=30), linked=st.booleans())
def test_every_case_is_in_exactly_one_slice_of_each_kind(items: list[int], linked: bool) -> None:
    cases = pl.DataFrame(
        {"train_items": items, "linked": [linked] * len(items)}, {"train_items": pl.Int64, "linked": pl.Boolean}
    )
    for slices in BOTH.values():
        inside = cases.select(pl.sum_horizontal(where.cast(pl.Int64) for where in slices.values()).alias("in"))
        assert inside["in"].to_list() == [1] * len(items)


@pytest.mark.parametrize(
    ("items", "name"),
    [
        *((0, "no training item"), (1, "1 to 5"), (5, "1 to 5"), (6, "6 to 10"), (10, "6 to 10")),
        *((11, "11 to 20"), (20, "11 to 20"), (21, "21 to 50"), (50, "21 to 50")),
        *((51, "more than 50"), (10**6, "more than 50")),
    ],
)
def test_a_slice_is_named_by_what_is_in_it(items: int, name: str) -> None:
    cases = pl.DataFrame({"train_items": [items]})
    found = [key for key, where in item_slices().items() if cases.select(where)["train_items"][0]]
    assert found == [name]


def test_every_edge_begins_a_slice() -> None:
    assert len(item_slices()) == len(EDGES) + 1


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


def test_a_slice_without_a_case_has_no_mean(results: Results) -> None:
    line = line_of(results, "cold", "PriCDR, Nothing")
    cold, *rest = sliced(line, item_slices(), FIGURE)
    assert cold == (pytest.approx(line.mean("full", "ndcg@10"), abs=1e-6), 60)
    assert rest == [(None, 0)] * 5
    assert sliced(line, {"nobody": pl.lit(False)}, FIGURE) == [(None, 0)]
