"""One domain's ratings: a user x item matrix compressed by row, with the ids its rows and columns stand for."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from scipy.sparse import csr_array, csr_matrix
from torch import Tensor

from zoo.nn.rows import Bags, gather_bags


def as_ids(ids: npt.ArrayLike | pl.Series | Iterable[str]) -> npt.NDArray[np.str_]:
    """Gives ids as a numpy string array (num_ids,); 12 and "12" are one id.

    Raises:
        TypeError: an id is neither a string nor an integer.
        ValueError: an id is empty, or the ids have more than one axis.
    """
    values = ids.to_list() if isinstance(ids, pl.Series) else ids
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values))  # type: ignore[arg-type]
    if array.size == 0:
        return np.zeros(0, dtype=np.str_)
    if array.ndim != 1:
        raise ValueError(f"Ids are one axis, not an array of shape {array.shape}.")
    if array.dtype.kind == "O" and not all(isinstance(name, str | int) for name in array):
        raise TypeError("Ids are strings or integers: drop the rows without an id.")
    if array.dtype.kind not in "OUiu":
        raise TypeError(f"Ids are strings or integers, not {array.dtype}: 12.0 and 12 would be two people.")
    array = array.astype(np.str_)
    if (array == "").any():
        raise ValueError("An id is empty: drop the rows without an id.")
    return array


def index_of(known: npt.ArrayLike | pl.Series, wanted: npt.ArrayLike | pl.Series) -> npt.NDArray[np.int64]:
    """Gives where each wanted id lies among the known ones.

    Args:
        known: distinct ids (num_known,).
        wanted: ids (num_wanted,), in any order, repeats allowed.

    Returns:
        Positions (num_wanted,); -1 where an id is not known.
    """
    left = pl.DataFrame({"id": _series(wanted)})
    right = pl.DataFrame({"id": _series(known)}).with_row_index("at")
    found = left.join(right, on="id", how="left", maintain_order="left")["at"]
    return found.cast(pl.Int64).fill_null(-1).to_numpy()


def _series(ids: npt.ArrayLike | pl.Series) -> pl.Series:
    """Gives ids as a polars column of strings."""
    if isinstance(ids, pl.Series):
        return ids.cast(pl.String)
    return pl.Series(np.asarray(ids).astype(np.str_).tolist(), dtype=pl.String)


def _refuse_repeats(ids: npt.NDArray[np.str_], what: str) -> None:
    """Raises when an id names two rows or two columns."""
    names, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        first = names[counts > 1][0]
        raise ValueError(
            f"{int((counts > 1).sum())} {what} ids are repeated, the first is {str(first)!r}: each id names one "
            f"{'row' if what == 'user' else 'column'}."
        )


@dataclass(frozen=True, eq=False)
class Ratings:
    """A user x item matrix of ratings; what is not stored was not rated (a stored 0 is a rating of 0).

    Attributes:
        matrix: ratings (num_users, num_items), float32, compressed by row, columns sorted within a row, no repeats.
        user_ids: what the rows stand for (num_users,), strings.
        item_ids: what the columns stand for (num_items,), strings.
        applied: thresholds, filters and splits so far, in order.
    """

    matrix: csr_array
    user_ids: npt.NDArray[np.str_]
    item_ids: npt.NDArray[np.str_]
    applied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Brings the parts to one form and checks them.

        Raises:
            TypeError: the matrix is not compressed by row, or an id is no string.
            ValueError: sizes that do not fit, repeated ids or pairs, or a rating that is not finite.
        """
        if not isinstance(self.matrix, csr_array | csr_matrix):
            raise TypeError(f"Ratings take a scipy csr_array, not {type(self.matrix).__name__}: call .tocsr() on it.")
        users, items = as_ids(self.user_ids), as_ids(self.item_ids)
        if self.matrix.shape != (len(users), len(items)):
            raise ValueError(
                f"A matrix of {self.matrix.shape[0]} x {self.matrix.shape[1]} does not fit {len(users)} user ids and "
                f"{len(items)} item ids: give one id per row and per column."
            )
        _refuse_repeats(users, "user")
        _refuse_repeats(items, "item")
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite and is refused below, in words
            parts = (self.matrix.data.astype(np.float32), self.matrix.indices.copy(), self.matrix.indptr.copy())
        matrix = csr_array(parts, shape=self.matrix.shape)
        matrix.sort_indices()
        rows = np.repeat(np.arange(len(users)), np.diff(matrix.indptr))
        repeats = int(((np.diff(matrix.indices) == 0) & (np.diff(rows) == 0)).sum())
        if repeats:
            raise ValueError(f"{repeats} (user, item) pairs are stored twice: merge them before making Ratings.")
        broken = int((~np.isfinite(matrix.data)).sum())
        if broken:
            raise ValueError(
                f"{broken} ratings are NaN or infinite; a rating is a finite number: drop or mend these rows."
            )
        for name, value in (
            ("matrix", matrix),
            ("user_ids", users),
            ("item_ids", items),
            ("applied", tuple(self.applied)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def from_table(
        cls,
        table: pl.DataFrame,
        user_ids: npt.ArrayLike | None = None,
        item_ids: npt.ArrayLike | None = None,
        applied: tuple[str, ...] = (),
    ) -> "Ratings":
        """Gives the matrix of a table with the columns user_id, item_id and rating.

        Args:
            table: one row per (user, item).
            user_ids: the rows of the matrix, in order; None: the table's users, sorted.
            item_ids: the columns of the matrix, in order; None: the table's items, sorted.
            applied: what was done to the table so far.

        Raises:
            ValueError: a missing column, a row outside the given ids, or anything `Ratings` itself refuses.
        """
        missing = [name for name in ("user_id", "item_id", "rating") if name not in table.columns]
        if missing:
            raise ValueError(f"The table lacks the columns {missing}; it has {table.columns}.")
        index: list[npt.NDArray[np.int64]] = []
        known: list[npt.NDArray[np.str_]] = []
        for column, given in (("user_id", user_ids), ("item_id", item_ids)):
            ids = as_ids(table[column].cast(pl.String).unique().sort() if given is None else given)
            at = index_of(ids, table[column])
            if (at < 0).any():
                first = table[column].cast(pl.String).to_list()[int(np.argmax(at < 0))]
                raise ValueError(
                    f"{int((at < 0).sum())} of {len(at)} rows have a {column} outside the {len(ids)} given ones, the "
                    f"first is {first!r}: filter the table to the given ids first."
                )
            known.append(ids)
            index.append(at)
        users, items = index
        order = np.lexsort((items, users))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=len(known[0])))])
        values = table["rating"].cast(pl.Float64).fill_null(np.nan).to_numpy()[order]
        matrix = csr_array((values, items[order], indptr), shape=(len(known[0]), len(known[1])))
        return cls(matrix, known[0], known[1], applied)

    @property
    def num_users(self) -> int:
        """How many rows there are."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """How many columns there are."""
        return len(self.item_ids)

    @property
    def num_ratings(self) -> int:
        """How many ratings are stored."""
        return int(self.matrix.nnz)

    @property
    def density(self) -> float:
        """Share of the cells that hold a rating; 0 for an empty matrix."""
        return self.num_ratings / max(self.num_users * self.num_items, 1)

    @property
    def binary(self) -> bool:
        """Whether every stored rating is 1."""
        return bool((self.matrix.data == 1).all())

    @cached_property
    def pair_keys(self) -> npt.NDArray[np.int64]:
        """One number per stored pair, user * num_items + item, rising (num_ratings,)."""
        users, items = self.pairs()
        return users * self.num_items + items

    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Gives row and column of every rating, by row and then column: (num_ratings,) each."""
        users = np.repeat(np.arange(self.num_users, dtype=np.int64), np.diff(self.matrix.indptr))
        return users, self.matrix.indices.astype(np.int64)

    def is_positive(self, users: npt.ArrayLike, items: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Says which (user, item) pairs hold a rating, for index arrays that broadcast; items below 0 (padding) do not.

        Raises:
            IndexError: a user or item beyond the matrix.
        """
        rows, columns = np.broadcast_arrays(np.asarray(users, dtype=np.int64), np.asarray(items, dtype=np.int64))
        if rows.size and (rows.min() < 0 or rows.max() >= self.num_users or columns.max() >= self.num_items):
            raise IndexError(f"A pair lies outside the {self.num_users} users and {self.num_items} items.")
        if not self.num_ratings:
            return np.zeros(rows.shape, dtype=bool)
        wanted = rows * self.num_items + columns
        found = np.minimum(np.searchsorted(self.pair_keys, wanted), self.num_ratings - 1)
        result: npt.NDArray[np.bool_] = (self.pair_keys[found] == wanted) & (columns >= 0)
        return result

    def rows(self, users: Tensor) -> Bags:
        """Gives the ratings of some users as `torch.nn.functional.embedding_bag` wants them.

        Args:
            users: rows of the matrix (batch,), in any order, repeats allowed.

        Returns:
            Items (n,), the offset of each user's first item (batch,), and the ratings (n,) as float32 weights.

        Raises:
            IndexError: a user beyond the matrix.
        """
        if len(users) and not 0 <= int(users.min()) <= int(users.max()) < self.num_users:
            raise IndexError(
                f"Users {int(users.min())} to {int(users.max())} were asked for; these ratings have rows 0 to "
                f"{self.num_users - 1}."
            )
        return gather_bags(*self.compressed(), users.long())

    def compressed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gives row pointers (num_users + 1,), columns (num_ratings,) and values (num_ratings,) as tensors."""
        matrix = self.matrix
        return (
            torch.from_numpy(matrix.indptr.astype(np.int64)),
            torch.from_numpy(matrix.indices.astype(np.int64)),
            torch.from_numpy(matrix.data),
        )

    def transpose(self) -> "Ratings":
        """Gives the item x user matrix: `rows` then takes items and gives users."""
        return Ratings(csr_array(self.matrix.T.tocsr()), self.item_ids, self.user_ids, self.applied)

    def to_table(self) -> pl.DataFrame:
        """Gives user_id, item_id, rating and an empty timestamp, by row and then column."""
        users, items = self.pairs()
        return pl.DataFrame(
            {
                "user_id": pl.Series(self.user_ids[users].tolist(), dtype=pl.String),
                "item_id": pl.Series(self.item_ids[items].tolist(), dtype=pl.String),
                "rating": pl.Series(self.matrix.data.astype(np.float64)),
                "timestamp": pl.Series([None] * self.num_ratings, dtype=pl.Int64),
            }
        )

    def digest(self, values: bool = True) -> str:
        """Gives the SHA-256 of ids and matrix, in hexadecimal; `applied` is no part of it.

        Args:
            values: false: of ids and rated pairs alone, where what they were rated is secret. A digest is no protection:
                who knows all ratings but one tries both.
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
