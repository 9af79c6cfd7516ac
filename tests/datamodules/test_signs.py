"""Ratings as signs: the threshold, its words, what is refused, and how signs reach training and test."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules import Evaluation, Files, Filters
from datamodules.filters import binarise
from tests.datamodules.handmade import TEN, table_of
from zoo.data.ratings import Step
from zoo.privacy.record.words import sentence

ROWS = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


def test_ratings_below_the_threshold_are_kept_as_minus_one() -> None:
    signed = binarise(table_of(ROWS, ratings=[1.0, 3.0, 3.5, 5.0]), 3.5, signs=True)
    assert signed["rating"].to_list() == [-1.0, -1.0, 1.0, 1.0]


def test_the_mean_is_that_of_the_table_and_reaches_itself() -> None:
    assert binarise(table_of(ROWS, ratings=[1.0, 3.0, 3.0, 5.0]), "mean", signs=True)["rating"].to_list() == [
        -1.0,
        1.0,
        1.0,
        1.0,
    ]
    kept = binarise(table_of(ROWS, ratings=[1.0, 3.0, 4.0, 5.0]), "mean")
    assert kept["rating"].to_list() == [1.0, 1.0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-5, 5), min_size=4, max_size=4), st.integers(-5, 5))
def test_signs_are_those_of_the_comparison(ratings: list[int], threshold: int) -> None:
    table = table_of(ROWS, ratings=[float(rating) for rating in ratings])
    expected = [1.0 if rating >= threshold else -1.0 for rating in ratings]
    if len(set(expected)) == 2:
        assert binarise(table, threshold, signs=True)["rating"].to_list() == expected
    else:
        with pytest.raises(ValueError, match=r"all 4 ratings are on one side"):
            binarise(table, threshold, signs=True)


def test_equal_signs_are_refused_with_what_was_found() -> None:
    table = table_of(ROWS, ratings=[1.0, 3.0, 3.0, 5.0])
    for threshold in (0.5, 6):
        with pytest.raises(ValueError, match=rf"threshold is {threshold:g}, and .* on one side of it \(1.0 to 5.0\)"):
            binarise(table, threshold, signs=True)
    with pytest.raises(ValueError, match=r"threshold is 1, and all 10 ratings are on one side"):
        binarise(TEN, "mean", signs=True)


@pytest.mark.parametrize("signs", [False, True])
def test_ratings_that_are_no_numbers_have_no_mean(signs: bool) -> None:
    broken = table_of(ROWS, ratings=[1.0, float("nan"), 3.0, float("inf")])
    with pytest.raises(ValueError, match=r"2 of 4 ratings are not finite"):
        binarise(broken, "mean", signs)
    with pytest.raises(ValueError, match=r"0 of 0 ratings are not finite"):
        binarise(broken.clear(), "mean", signs)


def test_a_threshold_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"threshold is nan"):
        binarise(table_of(ROWS), float("nan"), signs=True)


def test_signs_without_a_threshold_are_refused() -> None:
    with pytest.raises(ValueError, match=r"signs is true, threshold null"):
        Filters(signs=True)


def test_filters_say_what_they_did_and_what_a_guarantee_rests_on() -> None:
    assert Filters().steps == (
        Step("every rating counts as 1"),
        Step("users with at least 1 and items with at least 1 of them (one pass)"),
    )
    assert Filters(threshold=3.5, signs=True).steps[0] == Step("ratings >= 3.5 count as +1, the others as -1")
    mean = "ratings >= the mean of all ratings (derived from them, assumed public) count as"
    public = "threshold_from_ratings"
    assert Filters(threshold="mean", signs=True).steps[0] == Step(f"{mean} +1, the others as -1", public, "values")
    assert Filters(threshold="mean").steps[0] == Step(f"{mean} 1", public, "values")
    assert sentence(public) == "the threshold is public; here it is the mean of all ratings"
    for counted, reach in ((Filters(min_user_ratings=2), "row"), (Filters(min_item_ratings=2), "all")):
        said = sentence(counted.steps[1].condition)
        assert said.startswith("no single rating decides which users and items reach a minimum count")
        assert counted.steps[1].reach == reach


@pytest.mark.parametrize("split", ["random2", "latest2", "ratio", "cold_start"])
def test_signs_reach_training_and_every_held_out_case(split: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ratings = {(f"u{u}", f"i{i}"): int(rng.integers(1, 6)) for u in range(12) for i in rng.permutation(15)[:8]}
    lines = [f"{user},{item},{rating},{at}" for at, ((user, item), rating) in enumerate(ratings.items())]
    (tmp_path / "films.csv").write_text("\n".join(["user_id,item_id,rating,timestamp", *lines]) + "\n")
    evaluation = Evaluation(split=split)  # type: ignore[arg-type]
    data = Files("signs", "films", root=tmp_path, filters=Filters(threshold=3, signs=True), evaluation=evaluation)
    data.read_target()
    assert data.summary["signs"] is True
    names = data.train.user_ids, data.train.item_ids
    users, items = data.train.pairs()
    found = [(users, items, data.train.matrix.data)]
    found += [
        (cases.users.numpy(), cases.items.numpy(), cases.ratings.numpy()) for cases in (data.validation, data.test)
    ]
    for rows, columns, signs in found:
        assert len(signs)
        for user, item, sign in zip(names[0][rows], names[1][columns], signs, strict=True):
            assert sign == (1.0 if ratings[str(user), str(item)] >= 3 else -1.0)
