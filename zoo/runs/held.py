"""What is known of ratings and releases that do not lie here: how many, and whose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from zoo.data.pairs import Ids
from zoo.data.rows import SparseRows
from zoo.methods.base import Recommender


class NotHeldError(LookupError):
    """A method has to read what does not lie here; no `ValueError`, which would tell of the values."""

    def __init__(self, said: str, what: str = "") -> None:
        super().__init__(said)
        self.what = what or said


class Absent(Tensor):
    """A tensor that does not lie here; whatever reads it is refused."""

    what = "the ratings that it was trained on"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:  # noqa: ANN401
        raise NotHeldError(cls.what)


class AbsentLinks(Absent):
    """Which users have which row of a release."""

    what = "the releases that it was trained on"


def absent(kind: type[Absent] = Absent) -> Tensor:
    """A tensor that does not lie here."""
    return torch.empty(0).as_subclass(kind)


@dataclass(frozen=True, eq=False)
class Counts:
    """A rating matrix of which only the counts of rows and columns lie here; in the place of `zoo.data.ratings.Ratings`."""

    user_ids: Ids
    item_ids: Ids
    by_user: Tensor  # ratings of each user, (num_users,)
    by_item: Tensor  # ratings of each item, (num_items,)

    @property
    def num_users(self) -> int:
        """How many rows there are."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """How many columns there are."""
        return len(self.item_ids)

    def compressed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Row pointers, and columns and values that do not lie here."""
        return torch.cat([torch.zeros(1).long(), self.by_user.cumsum(0)]), absent(), absent()

    def transpose(self) -> Counts:
        """Gives the item x user matrix."""
        return Counts(self.item_ids, self.user_ids, self.by_item, self.by_user)

    def with_users(self, ids: Sequence[str]) -> Counts:
        """With more users, who have rated nothing."""
        named = np.concatenate([self.user_ids, np.array(ids, dtype=np.str_)])
        return replace(self, user_ids=named, by_user=torch.cat([self.by_user, torch.zeros(len(ids)).long()]))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotHeldError(Absent.what)


class AbsentRows(SparseRows):
    """Rows of a release that does not lie here, of which only the numbers are known."""

    def __init__(self, num_rows: int, width: int) -> None:
        super().__init__(absent(AbsentLinks), absent(AbsentLinks), absent(AbsentLinks), width)
        self.rows_there = num_rows

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.rows_there


@dataclass(frozen=True)
class AbsentRelease:
    """A release that does not lie here, in the place of `zoo.release.release.Release`."""

    kind: str
    num_users: int
    width: int
    num_layers: int
    user_ids: Ids

    def device_rows(self) -> AbsentRows:
        """Rows that refuse to be read."""
        return AbsentRows(self.num_users, self.width)


@contextmanager
def not_held(method: Recommender) -> Iterator[None]:
    """Of a method that has to read what does not lie here, say what it is."""
    try:
        yield
    except NotHeldError as error:
        raise NotHeldError(
            f"{type(method).__name__} scores by {error.what}, which are not in this bundle. Load it with what it "
            "needs, zoo.load(PATH, data=..., releases={NAME: PATH}), or export the run --with-user-ids --with-ratings.",
            error.what,
        ) from error
