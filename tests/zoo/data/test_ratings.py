"""The matrix of one domain: ids, rows for embedding_bag, refusals."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

import zoo.data.ratings
from zoo.data.arrays import Ids, contains
from zoo.data.ratings import Ratings, Step, as_ids, index_of, map_ids

TABLE = pl.DataFrame(
    {
        "user_id": ["b", "a", "b", "c", "c", "a"],
        "item_id": ["y", "x", "x", "z", "x", "z"],
        "rating": [3.0, 5.0, 0.0, 2.5, 1.0, 4.0],
        "timestamp": [1, 2, 3, 4, 5, 6],
    }
)
DENSE = np.array([[5, 0, 4], [0, 3, 0], [1, 0, 2.5]], dtype=np.float32)


@pytest.fixture
def ratings() -> Ratings:
    return Ratings.from_table(TABLE, applied=(Step("rating >= 0"),))


def test_a_table_becomes_a_sorted_matrix(ratings: Ratings) -> None:
    assert ratings.user_ids.tolist() == ["a", "b", "c"]
    assert ratings.item_ids.tolist() == ["x", "y", "z"]
    assert (ratings.matrix.toarray() == DENSE).all()
    assert ratings.matrix.dtype == np.float32
    assert (ratings.num_users, ratings.num_items, ratings.num_ratings) == (3, 3, 6)
    assert ratings.applied == (Step("rating >= 0"),)


def test_a_rating_of_zero_is_a_rating(ratings: Ratings) -> None:
    users, items = ratings.pairs()
    assert [*zip(users.tolist(), items.tolist(), strict=True)] == [(0, 0), (0, 2), (1, 0), (1, 1), (2, 0), (2, 2)]


def test_given_ids_fix_the_index() -> None:
    ratings = Ratings.from_table(TABLE, user_ids=["c", "q", "b", "a"], item_ids=["z", "y", "x"])
    assert ratings.matrix.toarray()[0].tolist() == [2.5, 0, 1]
    assert ratings.matrix.toarray()[1].tolist() == [0, 0, 0]


def test_rows_outside_the_given_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="2 of 6 rows: the user_id is not among the 2 ids; first: 'c'"):
        Ratings.from_table(TABLE, user_ids=["a", "b"])


def test_numbers_and_strings_are_one_person() -> None:
    table = pl.DataFrame({"user_id": [12, 7], "item_id": ["1", "2"], "rating": [1.0, 1.0]})
    assert Ratings.from_table(table, user_ids=np.array([7, 12])).user_ids.tolist() == ["7", "12"]
    assert as_ids([12, "7"]).tolist() == ["12", "7"]


def test_transpose_swaps_users_and_items(ratings: Ratings) -> None:
    swapped = ratings.transpose()
    assert (swapped.matrix.toarray() == DENSE.T).all()
    assert swapped.user_ids.tolist() == ["x", "y", "z"]
    assert swapped.transpose().digest() == ratings.digest()
    assert swapped.applied == ratings.applied


def test_digest_sees_ids_order_and_values_but_not_rows_order(ratings: Ratings) -> None:
    digest = ratings.digest()
    assert Ratings.from_table(TABLE.reverse()).digest() == digest
    assert Ratings.from_table(TABLE.with_columns(rating=pl.col("rating") + 1)).digest() != digest
    assert Ratings.from_table(TABLE, user_ids=["b", "a", "c"]).digest() != digest
    assert Ratings.from_table(TABLE, item_ids=["x", "y", "zz", "z"]).digest() != digest


def test_digest_without_values_sees_ids_and_pairs_alone(ratings: Ratings) -> None:
    assert Ratings.from_table(TABLE.with_columns(rating=-pl.col("rating"))).digest(False) == ratings.digest(False)
    for other in (
        TABLE.head(5),
        TABLE.with_columns(user_id=pl.col("user_id") + "x"),
        TABLE.with_columns(item_id="user_id"),
    ):
        assert Ratings.from_table(other.unique(["user_id", "item_id"])).digest(False) != ratings.digest(False)
    ones = csr_array(np.ones((2, 1)))
    one, other = (Ratings(ones, np.array(users), np.array(["i"])).digest() for users in (["ab", "c"], ["a", "bc"]))
    assert one != other, "where an id ends counts"


def test_digest_is_the_same_everywhere(ratings: Ratings) -> None:
    assert ratings.digest() == "c92b5cffa60057293f19cbb5c18fdf9fc31bae87d7c60233ba9bd54b6ea30569"


def test_binary_means_every_rating_is_one(ratings: Ratings) -> None:
    assert not ratings.binary
    assert Ratings.from_table(TABLE.with_columns(rating=pl.lit(1.0))).binary
    assert not Ratings.from_table(TABLE.with_columns(rating=pl.lit(-1.0))).binary


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=30))
@settings(max_examples=50, deadline=None)
def test_pairs_are_those_of_the_dense_matrix(cells: set[tuple[int, int]]) -> None:
    dense = np.zeros((6, 8), dtype=np.float32)
    for user, item in cells:
        dense[user, item] = 1
    ratings = Ratings(csr_array(dense), as_ids(range(6)), as_ids(range(8)))
    assert [*zip(*(part.tolist() for part in ratings.pairs()), strict=True)] == sorted(cells)
    assert ratings.pair_keys.tolist() == sorted(user * 8 + item for user, item in cells)
    users, items = np.mgrid[:6, :8]
    assert (contains(ratings.pair_keys, users * 8 + items) == (dense > 0)).all()


@given(st.permutations(range(12)))
@settings(max_examples=30, deadline=None)
def test_a_table_in_any_order_is_the_same_matrix(order: list[int]) -> None:
    users, items, values = ["b", "a", "c", "d"] * 3, ["x"] * 4 + ["z"] * 4 + ["y"] * 4, np.arange(12.0)
    table = pl.DataFrame({"user_id": users, "item_id": items, "rating": values})
    ratings = Ratings.from_table(table[order])
    assert (ratings.matrix.toarray() == [[1, 9, 5], [0, 8, 4], [2, 10, 6], [3, 11, 7]]).all()
    assert ratings.matrix.indices.tolist() == [0, 1, 2] * 4


def test_ratings_are_frozen(ratings: Ratings) -> None:
    with pytest.raises(FrozenInstanceError):
        ratings.applied = ()  # type: ignore[misc]


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="1 ratings are NaN or infinite"):
        Ratings.from_table(TABLE.with_columns(rating=pl.Series([1.0, 1.0, value, 1.0, 1.0, 1.0])))


def test_a_missing_rating_is_refused() -> None:
    with pytest.raises(ValueError, match="2 ratings are NaN or infinite"):
        Ratings.from_table(TABLE.with_columns(rating=pl.Series([1.0, None, None, 1.0, 1.0, 1.0])))


def test_repeated_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1 \(user, item\) pairs are stored twice"):
        Ratings.from_table(pl.concat([TABLE, TABLE[2:3]]))


def test_a_missing_column_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no columns \['rating'\]"):
        Ratings.from_table(TABLE.drop("rating"))


@pytest.mark.parametrize(
    ("users", "items", "message"),
    [
        (["a", "b"], ["x", "y", "z"], "3 x 3. It must fit 2 user and 3 item ids"),
        (["a", "b", "a"], ["x", "y", "z"], "1 user ids are repeated; first: 'a'"),
        (["a", "b", "c"], ["x", "x", "x"], "1 item ids are repeated"),
        (["a", "b", ""], ["x", "y", "z"], "An id is empty"),
    ],
)
def test_unfit_ids_are_refused(users: list[str], items: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ratings(csr_array(DENSE), np.array(users), np.array(items))


@pytest.mark.parametrize("column", [-1, 3])
def test_a_rating_in_no_column_is_refused(column: int) -> None:
    """Publishers would write it into another user's row, after that row was clipped or flipped."""
    matrix = csr_array(([1.0, 1.0], [0, column], [0, 1, 2, 2]), shape=(3, 3))
    with pytest.raises(ValueError, match="indices must be"):
        Ratings(matrix, as_ids("abc"), as_ids("xyz"))


@pytest.mark.parametrize("starts", [[0, 2, 0], [0, 1, -1], [0, 2**30, 2], [1, 1, 2], [0, 2**31 - 1, -(2**31)]])
def test_rows_that_do_not_follow_one_another_are_refused(starts: list[int]) -> None:
    """Scipy would sort memory beyond the arrays."""
    matrix = csr_array(([1.0, 1.0], [0, 1], [0, 1, 2]), shape=(2, 3))
    matrix.indptr = np.array(starts, dtype=np.int32)
    with pytest.raises(ValueError, match="Row pointers must rise from 0 to"):
        Ratings(matrix, as_ids("ab"), as_ids("xyz"))


def test_unfit_types_are_refused() -> None:
    with pytest.raises(TypeError, match=r"is a coo_array\. It must be a csr_array"):
        Ratings(coo_array(DENSE), as_ids("abc"), as_ids("xyz"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"12\.0 and 12 would differ"):
        as_ids([1.0, 2.0])
    with pytest.raises(TypeError, match="Drop such rows"):
        as_ids(["a", None])


def test_ids_are_found_in_order_of_asking() -> None:
    assert index_of(np.array(["b", "a"]), np.array(["a", "q", "b", "a"])).tolist() == [1, -1, 0, 1]
    assert index_of(np.array([], dtype=str), ["a"]).tolist() == [-1]


KINDS = (pl.String(), pl.Categorical(), pl.Enum(["a", "b", "q", ""]))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_id_that_is_lacking_or_empty_is_nowhere_whatever_its_type(kind: pl.DataType) -> None:
    wanted = pl.Series(["a", None, "q", "", "b", "a"], dtype=kind)
    assert index_of(np.array(["b", "a"]), wanted).tolist() == [1, -1, -1, -1, 0, 1]
    assert index_of(np.array(["b", "a"]), wanted.head(0)).tolist() == []
    assert index_of(np.array(["b", "a"]), pl.Series([None, None], dtype=kind)).tolist() == [-1, -1]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_made_of_each_id_is_made_of_no_empty_one(kind: pl.DataType) -> None:
    def lengths(ids: Ids) -> npt.NDArray[np.int64]:
        return np.char.str_len(ids)

    assert map_ids(pl.Series(["a", "b", "a"], dtype=kind), lengths).tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="Drop such rows"):
        map_ids(pl.Series(["a", None], dtype=kind), lengths)
    with pytest.raises(ValueError, match="An id is empty"):
        map_ids(pl.Series(["a", ""], dtype=kind), lengths)


@pytest.mark.parametrize("values", [[1.0], [True], [b"1"], [[1]]])
def test_what_is_no_id_has_nothing_made_of_it(values: list[object]) -> None:
    with pytest.raises(TypeError, match=r"They must be strings or integers"):
        map_ids(pl.Series(values), lambda ids: ids)
    assert map_ids(pl.Series([12, 7], dtype=pl.UInt8), lambda ids: ids).tolist() == ["12", "7"]


@pytest.mark.parametrize("kind", [list, pl.Series, lambda ids: pl.Series(ids, dtype=pl.Categorical())])
def test_one_long_id_does_not_make_all_of_them_wide(
    monkeypatch: pytest.MonkeyPatch, kind: Callable[[list[str]], list[str] | pl.Series]
) -> None:
    monkeypatch.setattr(zoo.data.ratings, "ROOM", 1000)
    few = ["a"] * 9 + ["b" * 25]
    assert as_ids(kind(few)).dtype == "<U25"  # 1000 bytes
    with pytest.raises(ValueError, match=r"The longest of 10 ids has 26 characters \(mean 3\.5\). Their array needs"):
        as_ids(kind([*few[:9], "b" * 26]))
    assert len(as_ids(kind(["b" * 100] * 100))) == 100, "of one length they are worth it"
