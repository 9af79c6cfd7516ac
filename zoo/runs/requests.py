"""Requests for recommendations, with ids as strings, and answers with counts of unknown ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl

from datamodules.frames import values_of
from zoo.data.ratings import as_ids

#: Items by user.
Lists = Mapping[str, Iterable[str]]
#: What happens to users without ratings, history and release.
Unknown = Literal["error", "skip", "popular"]


@dataclass(frozen=True)
class Request:
    """Options of recommendations; see `Predictor.recommend`."""

    k: int = 10
    seen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    histories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    candidates: Mapping[str, Sequence[str]] | None = None
    include_seen: bool = False
    unknown: Unknown = "error"

    @classmethod
    def of(
        cls,
        k: int,
        seen: Lists | None = None,
        histories: Lists | None = None,
        candidates: Lists | None = None,
        include_seen: bool = False,
        unknown: Unknown = "error",
    ) -> Request:
        """Return a request of given values, with ids as strings; refuse wrong ones."""
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k is {k!r}. It must be an integer of at least 1.")
        if unknown not in get_args(Unknown):
            raise ValueError(f"unknown is {unknown!r}. Allowed: {', '.join(get_args(Unknown))}.")
        known, added, ranked = _by_user(seen), _by_user(histories), None if candidates is None else _by_user(candidates)
        return cls(k, known, added, ranked, include_seen, unknown)


def _by_user(given: Lists | None) -> dict[str, Sequence[str]]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"Items by user are a {type(given).__name__}. Pass a dict.")
    return {str(user): listed_ids(items) for user, items in (given or {}).items()}


class Answer(NamedTuple):
    """Recommendations for some users."""

    table: pl.DataFrame  # columns of `zoo.data.best_items.SCHEMA`
    unknown_users: Sequence[str] = ()
    fallbacks: Sequence[str] = ()  # users who get the items with most training ratings
    num_unknown_items: int = 0  # in lists of the request


def counted(answers: Sequence[Answer]) -> str:
    """Return a sentence on unknown ids in answers; "" without any.

    Examples:
        >>> counted([Answer(pl.DataFrame(), unknown_users=["ann"])])
        'Unknown users: 1.'
    """
    users = sum(len(answer.unknown_users) for answer in answers)
    fallbacks = sum(len(answer.fallbacks) for answer in answers)
    items = sum(answer.num_unknown_items for answer in answers)
    said = [f"Unknown users: {users:,}"] if users else []
    said += [f"ignored unknown items: {items:,}"] if items else []
    said += [f"users with popular items: {fallbacks:,}"] if fallbacks else []
    return f"{'; '.join(said)}." if said else ""


def listed_ids(ids: Iterable[str | int]) -> list[str]:
    """Return ids as strings; refuse a string, which would be read letter by letter."""
    if isinstance(ids, str):
        raise TypeError(f"Ids are the string {ids!r}. Pass a list: [{ids!r}].")
    given = (str(one) if isinstance(one, int | np.integer) else one for one in values_of(ids))
    found: list[str] = as_ids(list(given)).tolist()
    return found
