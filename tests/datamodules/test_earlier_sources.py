"""A source that ends, for each user, before what is held out of the target."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from datamodules import Evaluation, Files
from datamodules.protocol import EARLIER
from tests.datamodules.handmade import ROWS, Held, Rows, table_of
from zoo.data.ratings import Ratings

ASKED = Evaluation("latest2", earlier_sources=True)
TARGET = table_of([("a", i) for i in "xyz"] + [("b", "x"), ("b", "y"), ("c", "z")], times=[3, 9, 6, 5, 4, 1])


def source_of(rows: Rows, times: list[int | None], evaluation: Evaluation = ASKED, **settings: Any) -> Ratings:  # noqa: ANN401
    return Held({"a": table_of(rows, times), "b": TARGET}, evaluation=evaluation, **settings).source("a")


def pairs(source: Ratings) -> set[tuple[str, str]]:
    users, items = source.matrix.nonzero()
    return set(zip(source.user_ids[users].tolist(), source.item_ids[items].tolist(), strict=True))


def test_what_came_at_or_after_the_earliest_held_out_item_is_left_out() -> None:
    """Of `a` the items of times 6 and 9 are held out, of `b` that of 5, of `c`, who has one item, none; `d` is no target user."""
    rows = [("a", "u"), ("a", "v"), ("a", "w"), ("b", "u"), ("b", "v"), ("c", "u"), ("d", "u")]
    times: list[int | None] = [5, 6, 7, 4, 5, 99, 99]
    source = source_of(rows, times)
    assert pairs(source) == {("a", "u"), ("b", "u"), ("c", "u"), ("d", "u")}
    assert source.item_ids.tolist() == ["u", "v", "w"]  # who and what is there is as without
    assert pairs(source_of(rows, times, Evaluation("latest2"))) == set(rows)


@pytest.mark.thorough
@forall(rows=ROWS, odd=st.integers(1, 9), gone=st.integers(0, 29))
@settings(max_examples=20, deadline=None)
def test_one_rating_moves_its_own_cell_alone(rows: Rows, odd: int, gone: int, lists: dict[str, Any]) -> None:
    once = list(dict.fromkeys(rows))
    times: list[int | None] = [(odd * ord(user) + ord(item) // odd) % 11 for user, item in once]
    left = gone % len(once)
    whole = source_of(once, times, **lists)
    less = source_of(once[:left] + once[left + 1 :], times[:left] + times[left + 1 :], **lists)
    assert np.abs(whole.matrix - less.matrix).sum() <= 1
    assert EARLIER in whole.applied[-1].words
    assert not any(step.condition for step in whole.applied)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings with everybody and everything on a list."""
    folder = tmp_path_factory.mktemp("lists")
    for column, names in (("user_id", "abcdef"), ("item_id", "uvwxyz")):
        (folder / f"{column}.csv").write_text("\n".join([column, *names]) + "\n")
    return {"users": str(folder / "user_id.csv"), "catalogues": {"a": folder / "item_id.csv"}}


def test_with_both_only_what_is_in_train_and_earlier_is_left() -> None:
    both = Evaluation("latest2", earlier_sources=True, hold_out_of_sources=True)
    source = source_of([("a", i) for i in "uvwxy"], [1, 2, 3, 4, 8], both)
    assert pairs(source) == {("a", "u"), ("a", "v"), ("a", "w")}
    assert "held-out items of this domain removed" in source.applied[-1].words


def test_without_times_it_is_refused_but_not_without_ratings(lists: dict[str, Any]) -> None:
    assert source_of([], [], **lists).num_ratings == 0
    with pytest.raises(ValueError, match=r"earlier_sources is true, and 1 of 2 rows of 'a' have no timestamp"):
        source_of([("a", "u"), ("a", "v")], [1, None])
    with pytest.raises(ValueError, match=r"the target's held-out items lack timestamps"):
        Held({"a": table_of([("a", "u")], [1]), "b": table_of([("a", "x"), ("a", "y")])}, evaluation=ASKED).source("a")


def test_it_takes_a_split_by_time() -> None:
    splits: tuple[Any, ...] = ("random1", "random2", "given", "cold_start", "none", "ratio")
    for split in splits:
        with pytest.raises(ValueError, match=f"earlier_sources is true, and split is {split!r}"):
            Evaluation(split, earlier_sources=True)


def test_a_party_alone_cannot_ask_for_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user_id,item_id,rating,timestamp\na,u,5,1\n")
    alone = Files(name="made-up", root=tmp_path, target="b", sources=("a",), evaluation=ASKED)
    with pytest.raises(FileNotFoundError, match=r"earlier_sources needs all domains locally"):
        alone.source("a")
