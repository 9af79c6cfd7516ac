"""Splits of everybody's rows by time, and the one that holds nothing out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from datamodules import Amazon, Evaluation
from datamodules.splits import Split, global_time, hold_out
from tests.datamodules.handmade import ROWS, TEN, Held, Rows, pairs_of, table_of
from zoo.privacy.record.words import sentence

DAY = 86_400


def latest_of(rows: Rows, times: list[int]) -> dict[tuple[str, str], int]:
    """Each pair once, at its latest row: a slow reference."""
    found: dict[tuple[str, str], int] = {}
    for pair, time in zip(rows, times, strict=True):
        found[pair] = max(time, found.get(pair, time))
    return found


@forall(rows=ROWS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_pair_lies_where_its_latest_time_does(rows: Rows, data: st.DataObject) -> None:
    times = data.draw(st.lists(st.integers(0, 9), min_size=len(rows), max_size=len(rows)))
    first, second = sorted(data.draw(st.tuples(st.integers(0, 10), st.integers(0, 10))))
    latest = latest_of(rows, times)
    wanted = [
        {pair for pair, time in latest.items() if time < first},
        {pair for pair, time in latest.items() if first <= time < second},
        {pair for pair, time in latest.items() if time >= second},
    ]
    split = global_time(table_of(rows, times), begins=(first, second))
    assert [set(pairs_of(part)) for part in split] == [*wanted, set()]
    assert sum(part.height for part in split) == len(latest)


@pytest.mark.parametrize(
    ("times", "shares", "sizes"),
    [
        (range(10), (0.8, 0.1, 0.1), [8, 1, 1]),
        (range(10), (0.7, 0.0, 0.3), [7, 0, 3]),
        ([0, 1, 2, 3, 4, 5, 5, 5, 8, 9], (0.6, 0.2, 0.2), [5, 3, 2]),  # rows of one time go together
    ],
)
def test_shares_are_of_all_rows(times: Any, shares: tuple[float, float, float], sizes: list[int]) -> None:  # noqa: ANN401
    table = table_of([(f"u{n % 3}", f"i{n}") for n in range(10)], list(times))
    order = np.random.default_rng(0).permutation(10)
    for rows in (table, table[order.tolist()]):
        split = global_time(rows, shares)
        assert [part.height for part in split[:3]] == sizes
        assert max(split.train["timestamp"]) < min(split.test["timestamp"])


def test_what_has_no_time_has_no_place() -> None:
    with pytest.raises(ValueError, match=r"'global_time', and 1 of 2 rows have no timestamp"):
        global_time(table_of([("a", "x"), ("a", "y")], [1, None]))
    with pytest.raises(ValueError, match="three numbers in"):
        global_time(TEN, (0.5, 0.1, 0.1))


def test_a_target_without_train_or_test_is_refused() -> None:
    for moments in ((0, 0), (9, 9)):
        data = Held(
            {"b": table_of([("a", "x"), ("a", "y")], [1, 2])},
            sources=(),
            evaluation=Evaluation("global_time", moments=moments),
        )
        with pytest.raises(ValueError, match=r"split 'global_time' leaves \d training ratings and \d test cases"):
            data.read_target()
    assert [part.height for part in global_time(TEN.clear())] == [0] * 4, "of a source an error would tell"


def test_moments_are_dates_or_numbers_in_their_order() -> None:
    assert Evaluation("global_time", moments=("1970-01-02", "1970-01-03T00:00:00Z")).begins == (DAY, 2 * DAY)
    assert Evaluation("global_time", moments=(3, "7")).begins == (3, 7)
    assert Evaluation("global_time", moments=("19700102", 20140701)).begins == (DAY, 20140701)
    assert not Evaluation("global_time", moments=(3, 3)).has_validation
    assert Evaluation("global_time").has_validation
    assert not Evaluation("global_time", shares=(0.9, 0.0, 0.1)).has_validation
    for moments, message in (((4, 3), "Validation must begin before"), (("soon", 3), "moments has 'soon'")):
        with pytest.raises(ValueError, match=message):
            Evaluation("global_time", moments=moments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="moments are set, and split is 'latest2'"):
        Evaluation(moments=(3, 4))


def test_moments_let_a_rating_of_a_source_move_itself_alone() -> None:
    """What is held out of a source by moments rests on each row's own time, and by shares on everybody's."""
    rows: Rows = [("a", "u"), ("a", "v"), ("b", "u"), ("b", "w"), ("b", "v")]
    for gone in range(len(rows)):
        kept = [at for at in range(len(rows)) if at != gone]
        evaluation = Evaluation("global_time", moments=(3, 3), hold_out_of_sources=True)
        whole = hold_out(table_of(rows, [0, 1, 2, 3, 4]), evaluation, 0, "a").train
        less = hold_out(table_of([rows[at] for at in kept], kept), evaluation, 0, "a").train
        assert set(pairs_of(whole)) - set(pairs_of(less)) <= {rows[gone]}
        assert set(pairs_of(less)) <= set(pairs_of(whole))
    assert evaluation.source_step.condition == ""
    by_shares = Evaluation("global_time", hold_out_of_sources=True).source_step
    assert "no single rating decides when held-out items begin" in sentence(by_shares.condition)
    assert by_shares.reach == "all"


def test_rows_of_a_user_in_order_are_no_times() -> None:
    with pytest.raises(ValueError, match=r"split is global_time, and rows of 'toys' in 'amazon-many' have no times"):
        Amazon("toys", (), "amazon-many", evaluation=Evaluation("global_time"))


def test_nothing_is_held_out_and_no_record_says_so() -> None:
    split: Split = hold_out(TEN, Evaluation("none"), 0, "b")
    assert [part.height for part in split] == [8, 0, 0, 0]
    assert not Evaluation("none").has_validation
    assert Evaluation("none").step == Evaluation("none").source_step == Evaluation("latest2").source_step
    data = Held({"b": TEN}, sources=(), evaluation=Evaluation("none"))
    data.read_target()
    assert data.train.num_ratings == 8
    assert data.val_dataloader() == data.test_dataloader() == []
    (batch,) = data.predict_dataloader()
    assert len(batch.seen_items) == 8, "what is learned from is not recommended"
