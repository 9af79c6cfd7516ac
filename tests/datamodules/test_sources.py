"""What one rating of a source's file moves of what its publisher is given: one cell, unless more was asked for."""

import dataclasses
import math
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from datamodules import CrossDomainDataModule, Evaluation, Files, Filters
from datamodules.protocol import NOTHING_HELD_OUT, SplitName
from tests.datamodules.handmade import ROWS, Held, Rows, table_of
from zoo import JLT, SJLT, FlippedRows, NoisyRows, Thinned
from zoo.data.ratings import Ratings, Step
from zoo.privacy.accounting.events import RandomisedResponseEvent
from zoo.privacy.record.record import Guarantee
from zoo.privacy.record.steps import conditions_of
from zoo.privacy.record.words import sentence

pytestmark = pytest.mark.thorough

#: Cells that one rating may move where items are held out; of `given`, where validation rows come.
MOST: dict[SplitName, int] = {"random1": 2, "random2": 2, "latest1": 2, "latest2": 2, "ratio": 3, "given": 1}
VARIED: dict[str, Any] = {
    "shares": st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (0.6, 0.0, 0.4)]),
    "temporal": st.booleans(),
}


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings with everybody and everything on a list, some of it never rated."""
    folder = tmp_path_factory.mktemp("lists")
    for column, names in (("user_id", "abcdef"), ("item_id", "tuvwxyz")):
        (folder / f"{column}.csv").write_text("\n".join([column, *names]) + "\n")
    return {"users": str(folder / "user_id.csv"), "catalogues": {"a": folder / "item_id.csv"}}


def moved(one: Ratings, other: Ratings) -> int:
    """Cells that differ between two matrices of the same rows and columns."""
    assert one.user_ids.tolist() == other.user_ids.tolist()
    assert one.item_ids.tolist() == other.item_ids.tolist()
    return int(np.abs(one.matrix - other.matrix).sum())


def of_file(rows: Rows, evaluation: Evaluation, validation: bool = True, **lists: Any) -> Ratings:  # noqa: ANN401
    """What the publisher is given of a file with these rows, in their order; the first of each user ship as a test."""
    first = table_of([("a", "u"), ("b", "v"), ("c", "w"), ("d", "x"), ("e", "y")])
    shipped = table_of([("a", "z"), ("b", "z")]) if validation else None
    return Held({"a": table_of(rows)}, {"a": (shipped, first)}, evaluation=evaluation, **lists).source("a")


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[Rows, Rows]:
    """Rows, and those without one of them."""
    rows = list(dict.fromkeys(draw(ROWS.filter(lambda rows: len(set(rows)) > 1))))
    gone = draw(st.integers(0, len(rows) - 1))
    return rows, rows[:gone] + rows[gone + 1 :]


@forall(files=neighbours(), evaluation=st.builds(Evaluation, st.sampled_from(get_args(SplitName)), **VARIED))
@settings(max_examples=40, deadline=None)
def test_by_default_one_rating_moves_one_cell(
    files: tuple[Rows, Rows], evaluation: Evaluation, lists: dict[str, Any]
) -> None:
    one, other = (of_file(rows, evaluation, **lists) for rows in files)
    assert moved(one, other) <= 1
    assert not any(step.condition for step in one.applied)


@pytest.mark.parametrize("split", MOST)
@forall(files=neighbours(), varied=st.fixed_dictionaries(VARIED))
@settings(max_examples=12, deadline=None)
def test_where_items_are_held_out_it_moves_no_more_than_is_said(
    split: SplitName, files: tuple[Rows, Rows], varied: dict[str, Any], lists: dict[str, Any]
) -> None:
    evaluation = Evaluation(split, hold_out_of_sources=True, **varied)
    one, other = (of_file(rows, evaluation, **lists) for rows in files)
    assert moved(one, other) <= MOST[split]
    said = "validation rows come" if split == "given" else f"up to {MOST[split]} entries"
    assert said in sentence(one.applied[-1].condition)


@pytest.mark.parametrize(
    ("split", "length", "cells"),
    [("random1", 1, 2), ("random2", 2, 2), ("latest1", 1, 2), ("latest2", 2, 2), ("ratio", 19, 3)],
)
def test_what_is_said_is_reached(split: SplitName, length: int, cells: int, tmp_path: Path) -> None:
    """One rating more, and one or two others are held out."""
    names = [f"i{n:02d}" for n in range(length + 1)]
    (tmp_path / "users.csv").write_text("user_id\na\n")
    (tmp_path / "items.csv").write_text("\n".join(["item_id", *names]) + "\n")
    settings: dict[str, Any] = {"users": str(tmp_path / "users.csv"), "catalogues": {"a": tmp_path / "items.csv"}}
    evaluation = Evaluation(split, hold_out_of_sources=True)
    everything = of_file([("a", name) for name in names], evaluation, **settings)
    fewer = ([("a", name) for name in names if name != gone] for gone in names)
    assert max(moved(everything, of_file(rows, evaluation, **settings)) for rows in fewer) == cells


def test_validation_that_is_drawn_where_none_ships_is_felt_too(lists: dict[str, Any]) -> None:
    """Of held-out files without validation rows one of a user's two items is drawn, and with one alone none is."""
    evaluation = Evaluation("given", hold_out_of_sources=True)
    rows = [("a", "u"), ("a", "v"), ("a", "w")]  # u is the test
    everything = of_file(rows, evaluation, validation=False, **lists)
    found = [moved(everything, of_file([r for r in rows if r != gone], evaluation, False, **lists)) for gone in rows]
    assert max(found) == 2
    assert "drawn ones would let one rating move up to 2 entries" in sentence(everything.applied[-1].condition)
    source = Held({"a": table_of(rows)}, evaluation=evaluation, **lists).source("a")  # where nothing ships
    assert (source.num_ratings, source.applied[-1]) == (3, NOTHING_HELD_OUT)
    records = [FlippedRows(1.0).publish(each, "a").record for each in (source, everything)]
    assert [record.guarantee for record in records] == [Guarantee.PROVED, Guarantee.CONDITIONAL]


@pytest.mark.parametrize(("asked", "spent"), [(False, 1.0), (True, 2.0)])
def test_an_epsilon_of_one_is_one_of_a_rating_of_the_file(asked: bool, spent: float, lists: dict[str, Any]) -> None:
    """What the flips lose of one rating of the file: epsilon for each cell that it moves, and flips reach that exactly."""
    evaluation = Evaluation("latest2", hold_out_of_sources=asked)
    rows = [("a", "u"), ("a", "v"), ("a", "w"), ("b", "v")]
    one, other = of_file(rows, evaluation, **lists), of_file(rows[1:], evaluation, **lists)
    release = FlippedRows(epsilon=1.0).publish(one, "a")
    (event,) = release.ledger
    assert isinstance(event, RandomisedResponseEvent)
    flip = event.flip_probability
    assert moved(one, other) * math.log((1 - flip) / flip) == pytest.approx(spent, abs=1e-6)
    assert release.record.guarantee is (Guarantee.CONDITIONAL if asked else Guarantee.PROVED)
    assert ("up to 2 entries" in str(release.record)) == asked


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        (Filters(min_item_ratings=5), [(user, "u") for user in "abcde"] + [(u, "w") for u in "abcdef"]),
        (Filters(min_user_ratings=5), [("a", item) for item in "uvwxy"] + [("b", item) for item in "tuvwxy"]),
    ],
    ids=["item", "user"],
)
def test_a_minimum_takes_others_with_it_on_whatever_lists(filters: Filters, rows: Rows, lists: dict[str, Any]) -> None:
    one, other = (of_file(some, Evaluation(), filters=filters, **lists) for some in (rows, rows[1:]))
    assert moved(one, other) == 5
    record = FlippedRows(epsilon=1.0).publish(one, "a").record
    assert record.guarantee is Guarantee.CONDITIONAL
    assert "no single rating decides which users and items reach a minimum count" in str(record)


@forall(
    rows=ROWS,
    others=st.lists(st.sampled_from("tuvwxyz"), max_size=6),
    odd=st.integers(1, 9),
    filters=st.builds(
        Filters, min_user_ratings=st.integers(1, 3), min_item_ratings=st.integers(1, 2), iterated=st.booleans()
    ),
    evaluation=st.builds(Evaluation, st.sampled_from(get_args(SplitName)), hold_out_of_sources=st.booleans(), **VARIED),
)
@settings(max_examples=40, deadline=None)
def test_one_user_moves_one_row_unless_it_is_said(
    rows: Rows, others: list[str], odd: int, filters: Filters, evaluation: Evaluation, lists: dict[str, Any]
) -> None:
    """The first user's ratings are taken out, or put in the place of others."""
    who = rows[0][0]
    replaced = [row for row in rows if row[0] != who] + [(who, item) for item in others]
    shipped = {"a": (table_of([("a", "z"), ("b", "z")]), table_of([("a", "u"), ("b", "v")]))}
    sources = []
    for ratings in (rows, replaced):
        once = list(dict.fromkeys(ratings))
        table = table_of(once, times=[(odd * ord(user) + ord(item) // odd) % 4 for user, item in once])
        held = Held({"a": table}, shipped, evaluation=evaluation, filters=filters, **lists)
        sources.append(held.source("a"))
    one, other = sources
    if not conditions_of(one.applied, "user"):
        assert len(set((one.matrix - other.matrix).nonzero()[0])) <= 1
    by_shares = evaluation.split == "global_time" and evaluation.hold_out_of_sources
    assert bool(conditions_of(one.applied, "user")) == (filters.min_item_ratings > 1 or by_shares)


NOTHING: dict[str, tuple[Filters, list[str], list[str]]] = {
    "no row": (Filters(), ["a,t,5"], []),
    "no positive one": (Filters(threshold=4), ["a,t,5", "b,u,1"], ["a,t,3", "b,u,1"]),
    "nobody on the list": (Filters(), ["a,t,5", "nobody,u,5"], ["nobody,u,5"]),
    "nothing of the catalogue": (Filters(), ["a,t,5", "a,nothing,5"], ["a,nothing,5"]),
}


@pytest.mark.parametrize("case", NOTHING)
@pytest.mark.parametrize("columns", [None, 4], ids=["catalogue", "hashed"])
def test_without_its_last_rating_a_source_is_published_as_with_it(
    case: str, columns: int | None, lists: dict[str, Any], tmp_path: Path
) -> None:
    """An error would tell the last one from none, at a record without a condition."""
    filters, *files = NOTHING[case]
    lists = lists if columns is None else lists | {"catalogues": {"a": columns}}
    for rows in files:
        (tmp_path / "a.csv").write_text("\n".join(["user_id,item_id,rating", *rows, ""]))
        data = Files("own", "b", ["a"], root=tmp_path, timestamp_column=None, filters=filters, **lists)
        source = data.source("a")
        assert source.user_ids.tolist() == list("abcdef")
        for publisher in (
            FlippedRows(2.0),
            NoisyRows(2.0),
            NoisyRows(2.0, threshold=1.0, relation="zero_out_one_user", clip=2.0),
            JLT(2.0, num_components=3),
            JLT(2.0, num_components=3, calibration="gaussian", relation="replace_one_user", clip=2.0),
            SJLT(2.0, num_components=3),
            Thinned(FlippedRows(2.0), share=0.5),
        ):
            release = publisher.publish(source, "a")
            assert (release.num_users, release.record.guarantee) == (6, Guarantee.PROVED)
            release.save(tmp_path / str(len(list(tmp_path.iterdir()))))


@pytest.mark.parametrize(
    ("rows", "filters", "message"),
    [([], Filters(), "No row of 0"), (["a,t,3", "b,u,1"], Filters(threshold=4), "threshold is 4, above all 2 ratings")],
)
def test_there_is_nothing_to_learn_of_a_target_without_a_rating(
    rows: list[str], filters: Filters, message: str, lists: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["user_id,item_id,rating", *rows, ""]))
    with pytest.raises(ValueError, match=message):
        Files("own", "a", root=tmp_path, timestamp_column=None, filters=filters, **lists).read_target()


class Elsewhere(Held):
    """A class of somebody else's, which may do anything to a file that it reads."""

    read_by_plugin = CrossDomainDataModule.read_by_plugin


class Unmarked(Elsewhere):
    """One that returns ratings of its own, without steps."""

    def steps(self, name: str) -> tuple[Step, ...]:
        return super().steps(name)[:0]

    def source(self, name: str) -> Ratings:
        return dataclasses.replace(super().source(name), applied=())


class Plain(Unmarked):
    """One that overrides nothing."""


class OptedOut(Unmarked):
    """One that leaves out a user, and takes another argument."""

    def source(self, name: str, first: int = 1) -> Ratings:
        found = super().source(name)
        return Ratings(found.matrix[first:], found.user_ids[first:], found.item_ids)


class Both(Plain, OptedOut):
    """The override that comes later among the bases is called, too."""


@pytest.mark.parametrize("unit", ["rating", "rating-value", "user"])
def test_what_a_class_of_somebody_elses_reads_is_taken_on_its_word(unit: str, lists: dict[str, Any]) -> None:
    data = Elsewhere({"a": table_of([("a", "t"), ("b", "u")])}, **lists)
    words = f"{__name__}.Elsewhere reads the rows of the file unchanged and derives no user or item list from them"
    assert [sentence(code) for code in conditions_of(data.steps("a"), unit)] == [f"{words}, not audited here"]
    record = FlippedRows(1.0).publish(data.source("a"), "a").record
    assert (record.guarantee, record.conditions) == (Guarantee.CONDITIONAL, conditions_of(data.steps("a"), "rating"))
    assert not any("Elsewhere" in str(step) for step in Files("own", "b", ["a"], **lists).steps("a"))
    unmarked = Unmarked({"a": table_of([("a", "t"), ("b", "u")])}, **lists)
    both = Both({"a": table_of([("a", "t"), ("b", "u")])}, **lists)
    whole = len(unmarked.source("a").user_ids)
    assert [both.source("a").num_users, both.source("a", first=0).num_users] == [whole - 1, whole]
    unmarked.train = dataclasses.replace(unmarked.source("a"), applied=())
    for steps in (unmarked.steps("a"), unmarked.source("a").applied, unmarked.train.applied):
        assert [words.replace("Elsewhere", "Unmarked") in sentence(code) for code in conditions_of(steps, unit)] == [
            True
        ]
    for part in ({"filters": OwnFilters()}, {"evaluation": OwnEvaluation()}):
        found = conditions_of(Files("own", "b", ["a"], **lists, **part).steps("a"), unit)
        assert any(f"{__name__}.Own" in code for code in found), "whose steps are its own"


class OwnFilters(Filters):
    """Filters of another package."""


class OwnEvaluation(Evaluation):
    """A split of another package."""
