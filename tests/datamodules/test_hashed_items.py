"""Columns in the place of items: what one rating moves, what shares a column, and where a number of columns is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

from datamodules import Evaluation, Filters
from datamodules.public_lists import catalogue_ids, hash_items
from tests.datamodules.handmade import ROWS, Held, Rows, pairs_of, table_of
from zoo import FlippedRows
from zoo.data.ratings import Ratings
from zoo.data.sampling import hash_ids, mix, uniform_integers
from zoo.privacy.record.record import Guarantee
from zoo.runs.cli import ZooCLI

SIGNS = Filters(threshold=3, signs=True)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("agreed") / "users.csv"
    path.write_text("user_id\n" + "\n".join("abcdef") + "\n")
    return str(path)


def of_file(rows: Rows, number: int, people: str, ratings: list[float] | None = None, **more: Any) -> Ratings:  # noqa: ANN401
    table = table_of(rows, ratings=ratings)
    return Held({"a": table}, users=people, catalogues={"a": number}, **more).source("a")


@pytest.mark.thorough
@forall(
    rows=ROWS.filter(lambda rows: len(set(rows)) > 1), at=st.integers(0, 29), number=st.sampled_from([1, 2, 3, 100])
)
@settings(max_examples=60, deadline=None)
def test_one_rating_moves_one_cell_of_the_same_columns(rows: Rows, at: int, number: int, people: str) -> None:
    rows = list(dict.fromkeys(rows))
    gone = at % len(rows)
    one, other = of_file(rows, number, people), of_file(rows[:gone] + rows[gone + 1 :], number, people)
    assert one.item_ids.tolist() == other.item_ids.tolist() == catalogue_ids(number)
    assert one.user_ids.tolist() == other.user_ids.tolist() == list("abcdef")
    assert np.abs(one.matrix - other.matrix).sum() <= 1
    assert one.binary
    assert not any(step.condition for step in one.applied)


@pytest.mark.thorough
@forall(
    rated=st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("uvwxyz"), st.sampled_from([1.0, 5.0])), min_size=4
    ),
    at=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_of_signs_one_cell_too(rated: list[tuple[str, str, float]], at: int, people: str) -> None:
    whole = {(user, item): rating for user, item, rating in rated} | {("c", "u"): 1.0, ("d", "u"): 5.0}
    gone = [*whole][at % (len(whole) - 2)]
    files = whole, {pair: rating for pair, rating in whole.items() if pair != gone}
    one, other = (of_file([*file], 3, people, [*file.values()], filters=SIGNS) for file in files)
    assert (one.matrix != other.matrix).sum() <= 1


@pytest.mark.thorough
@forall(ROWS, ROWS, st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_an_items_column_depends_on_its_id_alone(rows: Rows, others: Rows, number: int) -> None:
    def column_of(some: Rows) -> dict[str, str]:
        return {item: pairs_of(hash_items(table_of([("a", item)]), number))[0][1] for _, item in some}

    alone = column_of([*rows, *others])
    assert set(pairs_of(hash_items(table_of([*rows, *others]), number))) == {
        (user, alone[item]) for user, item in [*rows, *others]
    }
    assert set(alone.values()) <= set(catalogue_ids(number))


def test_the_columns_are_the_documented_hash() -> None:
    """Both parties, and whoever checks, come to the same column."""
    names = np.array(["B000CQBZPG", "i1", "müsli"])
    at = uniform_integers(mix("columns of a source", hash_ids(names)), 4096).tolist()
    found = pairs_of(hash_items(table_of([("a", name) for name in names.tolist()]), 4096))
    assert [item for _, item in found] == [f"column-{n:04d}" for n in at]
    assert at == [1177, 3408, 928]


def test_items_that_share_a_column_count_once_and_the_last_counts(people: str) -> None:
    rows = [("a", "u"), ("a", "v"), ("b", "v")]
    assert of_file(rows, 1, people).matrix.toarray().tolist() == [[1], [1], [0], [0], [0], [0]]
    signs = of_file([*rows, ("c", "u")], 1, people, [5.0, 1.0, 5.0, 1.0], filters=SIGNS)
    assert signs.matrix.toarray().tolist() == [[-1], [1], [-1], [0], [0], [0]]


def test_items_spread_over_the_columns() -> None:
    # 20,000 items on 100 columns, 200 on the average with a standard deviation of 14: one of 100 columns is off by 80 or more with
    # a probability below 1e-5.
    table = hash_items(table_of([(str(n), f"item {n}") for n in range(20_000)]), 100)
    counts = table["item_id"].value_counts()["count"].cast(int).to_numpy()
    assert len(counts) == 100
    assert abs(counts - 200).max() < 80


def test_a_release_of_columns_rests_on_nothing_else(people: str) -> None:
    source = of_file([("a", "u"), ("b", "v")], 64, people)
    release = FlippedRows(epsilon=2.0).publish(source, "a")
    assert (release.num_users, release.width) == (6, 64)
    assert release.record.guarantee is Guarantee.PROVED
    assert "items are hashed to 64 columns (number and hash are public)" in str(release.record)


@pytest.mark.parametrize("number", [0, -4, 2**32 + 1, True])
def test_a_number_that_is_none_of_columns_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match=rf"catalogues.a is {number}\. Allowed: from 1 to 2\^32"):
        Held({}, catalogues={"a": number})


def test_a_target_ranks_items() -> None:
    with pytest.raises(ValueError, match=r"catalogues.b is 64, and 'b' is the target.*CSV file"):
        Held({}, catalogues={"b": 64})


@pytest.mark.parametrize("hides", ["hold_out_of_sources", "earlier_sources"])
def test_items_are_not_held_out_of_columns(hides: str) -> None:
    """One row stands for all of a column: a late rating would take an early one with it."""
    with pytest.raises(ValueError, match=f"catalogues.a is 64; evaluation.{hides} is true"):
        Held({}, catalogues={"a": 64}, evaluation=Evaluation("latest2", **{hides: True}))


@pytest.mark.usefixtures("zoo_data")
def test_the_command_line_tells_a_number_from_a_file(cli: Callable[..., ZooCLI], tmp_path: Path) -> None:
    (tmp_path / "agreed.csv").write_text("user_id\n" + "\n".join(f"u{i}" for i in range(20)) + "\n")
    config = Path(__file__).parents[2] / "configs" / "user_knn" / "douban.yaml"
    lists = ("--data.users", tmp_path / "agreed.csv", "--data.catalogues.book", "16")
    done = cli("fit", "--config", config, *lists)
    assert done.datamodule.catalogues == {"book": 16}
    assert done.datamodule.releases["book"].width == 16
    assert done.datamodule.releases["book"].record.guarantee is Guarantee.PROVED
