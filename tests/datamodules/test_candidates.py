"""Candidate lists: distinct, never the user's own, the same whoever else is there."""

import logging

import numpy as np
import polars as pl
import pytest
import torch

import datamodules.candidates
from datamodules import Frames
from datamodules.candidates import Cases, candidates
from datamodules.protocol import Evaluation, UnknownItems
from datamodules.splits import PAIR, Split, cold_start, leave_out_random
from datamodules.tables import SCHEMA
from tests.datamodules.handmade import Held, table_of
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.metrics import full_counts, listed_items, ranking_values, sampled_counts
from zoo.data.ratings import Ratings


def made(num_users: int = 30, num_items: int = 40, per_user: int = 8) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{item:02d}", 1.0, None)
        for user in range(num_users)
        for item in rng.choice(num_items, per_user, replace=False)
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def matrix(table: pl.DataFrame, split: Split) -> Ratings:
    ids = (table[name].unique().sort() for name in PAIR)
    return Ratings.from_table(split.train, *ids)


TABLE = made()
SPLIT = leave_out_random(TABLE, 2, 1)
TRAIN = matrix(TABLE, SPLIT)


def cases_of(
    train: Ratings,
    split: Split,
    seed: int,
    count: int = 99,
    shared: bool = False,
    weighted: bool = False,
    negatives: pl.DataFrame | None = None,
) -> Cases:
    evaluation = Evaluation(num_candidates=count, shared_candidates=shared, weighted_candidates=weighted)
    return candidates(train, split, evaluation, seed, negatives)


def lists(held: HeldOutCases, train: Ratings) -> dict[str, list[str]]:
    return {
        str(train.user_ids[user]): [str(train.item_ids[item]) for item in row if item >= 0]
        for user, row in zip(held.users, held.candidates, strict=True)
    }


@pytest.mark.parametrize("weighted", [False, True])
def test_negatives_are_distinct_known_to_train_and_never_the_users_own(weighted: bool) -> None:
    for split in (SPLIT, cold_start(TABLE, 0.4, 1)):
        train = matrix(TABLE, split)
        own: dict[str, set[str]] = {}
        for user, item in TABLE.select(PAIR).iter_rows():
            own.setdefault(user, set()).add(item)
        seen = set(split.train["item_id"])
        for held in cases_of(train, split, 0, count=20, weighted=weighted):
            assert held.candidates.shape == (len(held.users), 20)
            for user, items in lists(held, train).items():
                assert len(set(items)) == 20
                assert not set(items) & own[user]
                assert set(items) <= seen


def test_phases_differ_unless_shared() -> None:
    apart, shared = cases_of(TRAIN, SPLIT, 0, count=20), cases_of(TRAIN, SPLIT, 0, count=20, shared=True)
    assert lists(apart.validation, TRAIN) != lists(apart.test, TRAIN)
    assert lists(shared.validation, TRAIN) == lists(shared.test, TRAIN)


def test_the_seed_chooses_the_lists() -> None:
    one, again, two = (cases_of(TRAIN, SPLIT, seed, count=20).test.candidates for seed in (1, 1, 2))
    assert (one == again).all()
    assert not (one == two).all(axis=1).any()


def test_a_users_list_does_not_depend_on_who_else_is_evaluated() -> None:
    whole = lists(cases_of(TRAIN, SPLIT, 0, count=20).test, TRAIN)
    some = SPLIT._replace(test=SPLIT.test.reverse().head(7), hidden=SPLIT.test.reverse().tail(-7))
    for user, items in lists(cases_of(TRAIN, some, 0, count=20).test, TRAIN).items():
        assert items == whole[user]


def test_too_few_negatives_are_all_used_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        test = cases_of(TRAIN, SPLIT, 0, count=99).test
    seen = set(SPLIT.train["item_id"])
    for user, items in lists(test, TRAIN).items():
        assert set(items) == seen - set(TABLE.filter(pl.col("user_id") == user)["item_id"])
    assert "test: 30 of 30 users have fewer than 99 negatives. All are used" in caplog.text
    for count, stated in ((99, [len(seen) - 8] * 2), (5, [5, 5]), (0, [])):
        none = {"rating_column": None, "timestamp_column": None}
        data = Frames(TABLE.select(PAIR), **none, evaluation=Evaluation("random2", num_candidates=count), seed=1)
        data.setup("test")
        assert data.summary["negatives"] == stated


def test_weighted_lists_prefer_popular_items() -> None:
    popular = pl.DataFrame([(f"p{n}", "i00", 1.0, None) for n in range(300)], schema=SCHEMA, orient="row")
    table = pl.concat([TABLE, popular])
    split = leave_out_random(table, 2, 1)
    train = matrix(table, split)
    hits = [
        sum(
            "i00" in items
            for items in lists(cases_of(train, split, 0, count=3, weighted=weighted).test, train).values()
        )
        for weighted in (False, True)
    ]
    # 24 users may draw the item in three draws: each with a chance of about 1/17 if uniform, above 0.9 if weighted
    # (it has 300 of some 480 ratings). Either bound is missed with probability below 1e-4; fixed seed.
    assert hits[0] < 10
    assert hits[1] > 12


def test_an_empty_phase_has_no_cases() -> None:
    held = cases_of(TRAIN, SPLIT._replace(validation=SPLIT.train.clear()), 0, count=5).validation
    assert (held.users.shape, held.candidates.shape) == ((0,), (0, 5))


def test_rows_that_train_does_not_know_are_refused() -> None:
    train = Ratings.from_table(SPLIT.train.filter(pl.col("user_id") != "u3"), item_ids=TRAIN.item_ids)
    with pytest.raises(ValueError, match="1 of 30 validation rows have unknown users or items"):
        cases_of(train, SPLIT, 0)


def test_where_no_list_is_ranked_one_negative_is_drawn() -> None:
    assert cases_of(TRAIN, SPLIT, 0, count=0).test.candidates.shape == (30, 1)


# Lists that ship with the data


def shipped(count: int = 4) -> pl.DataFrame:
    drawn = lists(cases_of(TRAIN, SPLIT, 9, count=count).test, TRAIN)
    return pl.DataFrame([(u, i) for u, items in drawn.items() for i in items], schema=PAIR, orient="row")


def test_given_lists_serve_both_phases_in_their_order() -> None:
    negatives = shipped()
    expected = {
        str(user[0]): rows["item_id"].to_list() for user, rows in negatives.group_by("user_id", maintain_order=True)
    }
    for held in cases_of(TRAIN, SPLIT, 0, negatives=negatives):
        assert lists(held, TRAIN) == expected


def test_given_lists_serve_whoever_is_in_one_phase_alone() -> None:
    some = SPLIT._replace(test=SPLIT.test.head(9), validation=SPLIT.validation.tail(9))
    assert set(some.test["user_id"]).isdisjoint(some.validation["user_id"])
    for held, part in zip(cases_of(TRAIN, some, 0, negatives=shipped()), (some.validation, some.test), strict=True):
        assert held.candidates.shape == (9, 4)
        assert (held.candidates >= 0).all()
        assert TRAIN.user_ids[held.users].tolist() == part["user_id"].to_list()


def test_given_lists_of_unequal_length_are_padded() -> None:
    test = cases_of(TRAIN, SPLIT, 0, negatives=shipped()[1:]).test
    assert test.candidates.shape == (30, 4)
    assert (test.candidates < 0).sum() == 1


def test_given_lists_of_people_who_are_not_evaluated_do_no_harm() -> None:
    strangers = pl.DataFrame({"user_id": ["nobody"], "item_id": ["nothing"]})
    test = cases_of(TRAIN, SPLIT, 0, negatives=pl.concat([shipped(), strangers])).test
    assert (test.candidates >= 0).all()


def test_given_items_that_are_filtered_out_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    gone = shipped().unique("user_id").with_columns(item_id=pl.lit("gone"))
    again = cases_of(TRAIN, SPLIT, 0, negatives=pl.concat([shipped(), gone])).test
    assert np.array_equal(again.candidates, cases_of(TRAIN, SPLIT, 0, negatives=shipped()).test.candidates)
    assert "30 of 150 shipped negatives are items that filters removed" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows: pl.concat([rows, SPLIT.train.select(pl.col(PAIR).cast(pl.String)).head(2)]),
            "2 are the user's own items",
        ),
        (
            lambda rows: pl.concat([rows, SPLIT.test.select(pl.col(PAIR).cast(pl.String)).head(1)]),
            "1 are the user's own items",
        ),
        (lambda rows: pl.concat([rows, rows.head(3)]), "3 are repeated"),
        (lambda rows: rows.filter(pl.col("user_id") != "u1"), "1 of 30 users with a held-out item have none"),
    ],
    ids=["train", "test", "repeated", "lacking"],
)
def test_given_lists_that_do_not_fit_are_refused(change: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cases_of(TRAIN, SPLIT, 0, negatives=change(shipped()))  # type: ignore[operator]


def test_given_lists_cannot_be_weighted() -> None:
    with pytest.raises(ValueError, match="weighted_candidates is true"):
        cases_of(TRAIN, SPLIT, 0, negatives=shipped(), weighted=True)


def test_users_are_drawn_for_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = cases_of(TRAIN, SPLIT, 3).test.candidates
    monkeypatch.setattr(datamodules.candidates, "_USERS_AT_ONCE", 7)
    assert np.array_equal(whole, cases_of(TRAIN, SPLIT, 3).test.candidates)


# Items without a training rating


def bought(*, known: int = 150) -> Held:
    """200 users with five items each; the last item of the first 200 - known users is theirs alone."""
    rows = [(f"u{n}", f"i{(n + k * 13) % 150}") for n in range(200) for k in range(4)]
    rows += [(f"u{n}", f"i{(n + 75) % 150}" if n >= 200 - known else f"new{n}") for n in range(200)]
    return Held({"b": table_of(rows)}, sources=())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rule", ["exclude", "include"])
def test_positives_and_negatives_come_from_the_same_items(rule: UnknownItems, weighted: bool) -> None:
    data = bought()
    data.evaluation = Evaluation("latest1", unknown_items=rule, weighted_candidates=weighted)
    data.read_target()
    counts = {"validation": 0, "of_validation": 0, "test": 50, "of_test": 200, "rule": rule}
    assert data.summary["unknown_items"] == counts
    unknown = torch.tensor([name.startswith("new") for name in data.train.item_ids])
    assert data.train.num_items == 200
    assert torch.equal(data.test.left_out, unknown.nonzero()[:, 0]) == (rule == "exclude")
    assert len(data.test.users) == (150 if rule == "exclude" else 200)
    assert bool(unknown[data.test.candidates.long()].any()) == (rule == "include")
    assert len(data.test.seen.items) == 1000, "users have seen what is left out"
    assert set(data.test.num_others().tolist()) == ({145} if rule == "exclude" else {195})
    if rule == "exclude":  # "unknown first, else a coin" is exactly at chance
        batch = data.test.batch(torch.arange(150))
        scores = unknown.float().expand(150, -1)
        for counted, others in (
            (full_counts(scores, batch), 145),
            (sampled_counts(scores.gather(1, listed_items(batch)), batch), 99),
        ):
            assert float(ranking_values(*counted, [10])[0, 0].mean()) == pytest.approx(10 / (others + 1))


def test_a_test_without_a_known_item_is_refused() -> None:
    data = bought(known=0)
    data.evaluation = Evaluation("latest1")
    with pytest.raises(ValueError, match=r"None of 200 test items has a training rating.*unknown_items to include"):
        data.read_target()


def test_unequal_shares_of_unknown_items_in_shipped_lists_are_remarked() -> None:
    class Shipping(Held):
        def read_negatives(self, domain: str) -> pl.DataFrame:
            """One known and three of 50 unknown items for each."""
            own = [(f"u{n}", f"i{(n + 1) % 150}") for n in range(200)]
            return pl.DataFrame(
                own + [(f"u{n}", f"new{(n + 1) % 50}") for n in range(50, 80)], schema=PAIR, orient="row"
            )

    rows = bought().tables["b"]
    data = Shipping({"b": rows}, {"b": (rows[:1], rows[800:])}, sources=(), evaluation=Evaluation("given"))
    data.read_target()
    assert len(data.test.users) == 150
    assert any(
        "25.0% of the test items and 16.7% of the shipped candidates have no training rating" in remark
        for remark in data.summary["remarks"]
    )
