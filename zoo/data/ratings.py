"""Ratings of one domain: a user x item matrix compressed by row, with the ids of its rows and columns."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

from zoo.data.arrays import Ids, Integers

Value = TypeVar("Value", bound=np.generic)

#: Bytes that are allowed for every array of ids.
ROOM = 2**30
_NO_IDS = "ids are of type {}. They must be strings or integers, since 12.0 and 12 would differ. Convert them."


def as_ids(ids: npt.ArrayLike | pl.Series | Iterable[str]) -> Ids:
    """Return ids, strings or integers, as a numpy string array (num_ids,); 12 and "12" are equal, empty ids are refused."""
    if isinstance(ids, pl.Series) and ids.dtype != pl.Object:
        ids = ids.cast(pl.String) if ids.dtype in (pl.Categorical, pl.Enum) else ids
        lengths = ids.drop_nulls().str.len_chars().to_numpy() if ids.dtype == pl.String else np.zeros(0)
        _refuse_wide(len(ids), lengths)
        values: Any = ids.to_list()
    elif isinstance(ids, np.ndarray):  # its memory is in use already
        values = ids
    else:
        values = list(ids)  # type: ignore[arg-type]
        _refuse_wide(len(values), np.array([len(name) for name in values if isinstance(name, str)]))
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, dtype=np.str_)
    if array.ndim != 1:
        raise ValueError(f"ids have the shape {array.shape}. They must have one axis.")
    if array.dtype.kind == "O" and not all(isinstance(name, str | int) for name in array):
        raise TypeError("An id is missing. Ids are strings or integers. Drop such rows.")
    if array.dtype.kind not in "OUiu":
        raise TypeError(_NO_IDS.format(array.dtype))
    array = array.astype(np.str_)
    if (array == "").any():
        raise ValueError("An id is empty. Drop the rows without an id.")
    return array


def _refuse_wide(count: int, lengths: npt.NDArray[np.generic]) -> None:
    """Refuse ids whose array, 4 bytes a character and as wide as the longest, exceeds `ROOM` and 16 times their characters."""
    longest, characters = int(lengths.max(initial=0)), int(lengths.sum())
    if (size := 4 * longest * count) > max(ROOM, 16 * characters):
        long = f"{longest:,} characters (mean {characters / len(lengths):.1f})"
        raise ValueError(f"The longest of {count:,} ids has {long}. Their array needs {size / 2**20:.0f} MiB.")


def map_ids(column: pl.Series, values: Callable[[Ids], npt.NDArray[Value]]) -> npt.NDArray[Value]:
    """Apply a function to the distinct ids of a column; return its result for every row (num_rows,)."""
    if not (column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Null) or column.dtype.is_integer()):
        raise TypeError(_NO_IDS.format(column.dtype))
    column = column.cast(pl.String).cast(pl.Categorical()) if column.dtype != pl.Categorical else column
    distinct = column.unique()
    return _spread(column, distinct, values(as_ids(distinct)))


def _spread(column: pl.Series, distinct: pl.Series, found: npt.NDArray[Value]) -> npt.NDArray[Value]:
    """Return the value of each row's category (num_rows,); -1 for a row without category."""
    codes = distinct.to_physical().to_numpy()
    by_code = np.full(int(codes.max(initial=0)) + 2, -1).astype(found.dtype)
    by_code[codes] = found
    each: npt.NDArray[Value] = by_code[column.to_physical().fill_null(len(by_code) - 1).to_numpy()]
    return each


def index_of(known: Ids | pl.Series, wanted: Ids | pl.Series | Sequence[str]) -> Integers:
    """Return the position of each wanted id (num_wanted,) among distinct known ones (num_known,); -1 if it is missing."""
    if isinstance(wanted, pl.Series) and wanted.dtype == pl.Categorical:
        distinct = wanted.drop_nulls().unique()
        return _spread(wanted, distinct, index_of(known, distinct.cast(pl.String)))
    right, left = (pl.DataFrame({"id": pl.Series(ids).cast(pl.String)}) for ids in (known, wanted))
    # A hash join takes O(num_known + num_wanted).
    found = left.join(right.with_row_index("at"), on="id", how="left", maintain_order="left")
    return found["at"].cast(pl.Int64).fill_null(-1).to_numpy()


def _located(column: pl.Series, given: npt.ArrayLike | None) -> tuple[Integers, Ids]:
    """Return the index of each row's id among the given ids (default: the column's own, sorted), and these ids."""
    ids = as_ids(column.unique().cast(pl.String).sort() if given is None else given)
    at = index_of(ids, column)
    outside = column.filter(pl.Series(at < 0)).cast(pl.String)
    if len(outside):
        rows = f"{len(outside)} of {len(at)} rows: the {column.name} is not among the {len(ids)} ids"
        raise ValueError(f"{rows}; first: {outside[0]!r}.")
    return at, ids


Reach = Literal["row", "all", "values"]
"""Scope in which one rating may have an effect through a step: its user's row; other rows or lists; or all, by its value."""


@dataclass(frozen=True)
class Step:
    """A step of preprocessing of a party's ratings: a filter, a list, a split."""

    words: str  # description
    # Code of the condition under which one rating of the file changes at most one entry here; empty: none is needed.
    condition: str = ""
    reach: Reach = "all"  # scope of a rating's effect if the condition fails

    def __str__(self) -> str:
        return self.words


def check_pointers(starts: npt.NDArray[Any], entries: int) -> None:
    """Refuse row pointers that do not rise from 0 to the number of entries, with a `ValueError`: scipy sorts by them unchecked."""
    fits = starts.ndim == 1 and starts.dtype.kind == "i" and starts[:1].tolist() == [0] and starts[-1] == entries
    if not fits or bool((starts[1:] < starts[:-1]).any()):  # differences could overflow
        raise ValueError(f"Row pointers must rise from 0 to {entries}.")


@dataclass(frozen=True, eq=False)
class Ratings:
    """A user x item matrix of finite ratings. Stored entries are ratings (a stored 0 is a rating of 0), others are unrated.

    Examples:
        >>> import polars as pl
        >>> from zoo import Ratings
        >>> table = pl.DataFrame({"user_id": ["ann", "ann", "bob"], "item_id": ["emma", "dune", "dune"], "rating": [5, 3, 4]})
        >>> ratings = Ratings.from_table(table)
        >>> ratings.num_users, ratings.num_items, ratings.num_ratings
        (2, 2, 3)
        >>> ratings.item_ids.tolist(), ratings.matrix.toarray().tolist()
        (['dune', 'emma'], [[3.0, 5.0], [4.0, 0.0]])
    """

    matrix: csr_array  # (num_users, num_items), float32, compressed by row, columns sorted within a row, no repeats
    user_ids: Ids  # of the rows (num_users,), strings, distinct
    item_ids: Ids  # of the columns (num_items,), strings, distinct
    applied: tuple[Step, ...] = ()  # steps of preprocessing, in order
    # Time of each stored rating (num_ratings,), int64, in the order of the matrix; None: not read. It is never published.
    times: Integers | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.matrix, csr_array | csr_matrix):
            raise TypeError(f"matrix is a {type(self.matrix).__name__}. It must be a csr_array.")
        users, items = as_ids(self.user_ids), as_ids(self.item_ids)
        if self.matrix.shape != (len(users), len(items)):
            shape = " x ".join(map(str, self.matrix.shape))
            raise ValueError(f"matrix is {shape}. It must fit {len(users)} user and {len(items)} item ids.")
        for what, ids in (("user", users), ("item", items)):
            names, counts = np.unique(ids, return_counts=True)
            if len(repeated := names[counts > 1]):
                raise ValueError(f"{len(repeated)} {what} ids are repeated; first: {str(repeated[0])!r}. Merge them.")
        check_pointers(self.matrix.indptr, int(self.matrix.indptr[-1]))
        with np.errstate(over="ignore"):  # numbers too large for float32 become infinite and are refused below
            parts = (self.matrix.data.astype(np.float32), self.matrix.indices.copy(), self.matrix.indptr.copy())
        matrix = csr_array(parts, shape=self.matrix.shape)
        matrix.check_format(full_check=True)  # indices beyond a row would be other users' entries
        if (times := self.times) is not None:
            if len(times) != matrix.nnz:
                raise ValueError(f"times has {len(times)} entries, the matrix {matrix.nnz}. Pass one per rating.")
            order = csr_array((np.arange(matrix.nnz), matrix.indices.copy(), matrix.indptr), shape=matrix.shape)
            order.sort_indices()
            times = np.asarray(times, dtype=np.int64)[order.data]
        matrix.sort_indices()
        rows = np.repeat(np.arange(len(users)), np.diff(matrix.indptr))
        if repeats := int(((np.diff(matrix.indices) == 0) & (np.diff(rows) == 0)).sum()):
            raise ValueError(f"{repeats} (user, item) pairs are stored twice. Merge them.")
        if broken := int((~np.isfinite(matrix.data)).sum()):
            raise ValueError(f"{broken} ratings are NaN or infinite. Ratings must be finite. Drop these.")
        vars(self).update(matrix=matrix, user_ids=users, item_ids=items, applied=tuple(self.applied), times=times)

    @classmethod
    def from_table(
        cls,
        table: pl.DataFrame,
        user_ids: npt.ArrayLike | None = None,
        item_ids: npt.ArrayLike | None = None,
        applied: tuple[Step, ...] = (),
        with_times: bool = False,
    ) -> "Ratings":
        """Return the matrix of a table with the columns user_id, item_id and rating, one row per (user, item).

        Args:
            table: Ratings.
            user_ids: Ids of the matrix rows, in order; None: those of the table, sorted. Other ids in the table are refused.
            item_ids: Ids of the columns, likewise.
            applied: Steps of preprocessing so far.
            with_times: Whether to store the column timestamp as well, if every row has one.
        """
        if missing := [name for name in ("user_id", "item_id", "rating") if name not in table.columns]:
            raise ValueError(f"The table has no columns {missing}. Its columns are {table.columns}.")
        users, row_ids = _located(table["user_id"], user_ids)
        items, column_ids = _located(table["item_id"], item_ids)
        # Sorted by row alone, as `Ratings` sorts within rows. scipy's conversion from coordinates would add up repeated pairs.
        order = np.argsort(users, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=len(row_ids)))])
        values = table["rating"].cast(pl.Float64).fill_null(np.nan).to_numpy()[order]
        matrix = csr_array((values, items[order], starts), shape=(len(row_ids), len(column_ids)))
        timed = with_times and not table["timestamp"].null_count()
        times = table["timestamp"].cast(pl.Int64).to_numpy()[order] if timed else None
        return cls(matrix, row_ids, column_ids, applied, times)

    @property
    def num_users(self) -> int:
        """Number of rows."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """Number of columns."""
        return len(self.item_ids)

    @property
    def num_ratings(self) -> int:
        """Number of stored ratings."""
        return int(self.matrix.nnz)

    @property
    def binary(self) -> bool:
        """Whether every stored rating is 1."""
        return bool((self.matrix.data == 1).all())

    @cached_property
    def pair_keys(self) -> Integers:
        """Key of each stored pair, user * num_items + item, rising (num_ratings,), for `zoo.data.arrays.contains`."""
        users, items = self.pairs()
        return users * self.num_items + items

    def pairs(self) -> tuple[Integers, Integers]:
        """Return row and column of every rating, by row and then column: (num_ratings,) each."""
        users = np.repeat(np.arange(self.num_users, dtype=np.int64), np.diff(self.matrix.indptr))
        return users, self.matrix.indices.astype(np.int64)

    def compressed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return row pointers (num_users + 1,), columns (num_ratings,) and values (num_ratings,) as tensors."""
        parts = self.matrix.indptr.astype(np.int64), self.matrix.indices.astype(np.int64), self.matrix.data
        starts, columns, values = map(torch.from_numpy, parts)
        return starts, columns, values

    def transpose(self) -> "Ratings":
        """Return the item x user matrix, without times."""
        return Ratings(csr_array(self.matrix.T.tocsr()), self.item_ids, self.user_ids, self.applied)

    def with_users(self, ids: Sequence[str]) -> "Ratings":
        """Return the same ratings with more users without ratings, after all others."""
        starts = np.concatenate([self.matrix.indptr, np.full(len(ids), self.matrix.indptr[-1])])
        shape = (self.num_users + len(ids), self.num_items)
        named = np.concatenate([self.user_ids, np.array(ids, dtype=np.str_)])
        return Ratings(
            csr_array((self.matrix.data, self.matrix.indices, starts), shape),
            named,
            self.item_ids,
            self.applied,
            self.times,
        )

    def rated(self) -> "Ratings":
        """Return the same ratings without the users and items that have none."""
        users = np.diff(self.matrix.indptr) > 0
        items = np.bincount(self.matrix.indices, minlength=self.num_items) > 0
        matrix = csr_array(self.matrix[users][:, items])
        return Ratings(matrix, self.user_ids[users], self.item_ids[items], self.applied, self.times)

    def digest(self, values: bool = True) -> str:
        """Return the SHA-256 of ids and matrix, in hexadecimal; without `values` of ids and pairs alone.

        Steps and times do not count.

        A digest protects nothing: an adversary who knows all other ratings can try both values of the last.
        """
        state = hashlib.sha256(f"ratings {self.num_users} {self.num_items} {self.num_ratings}\n".encode())
        for ids in (self.user_ids, self.item_ids):
            for name in ids.tolist():
                text = name.encode()
                state.update(len(text).to_bytes(8, "little") + text)
        state.update(self.matrix.indptr.astype("<i8").tobytes())
        state.update(self.matrix.indices.astype("<i8").tobytes())
        if values:
            state.update(self.matrix.data.astype("<f4").tobytes())
        return state.hexdigest()
