"""Data quality: unusual properties of data that are used all the same, and warnings about them, each logged once."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np
import polars as pl
from pytorch_lightning.utilities import rank_zero_only

from datamodules.protocol import Evaluation, Filters
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.ratings import Ratings, as_ids, index_of

logger = logging.getLogger(__name__)

_collectors: list[list[str]] = []
_noted: list[list["Facts"]] = []


#: Ids that mean a missing value in some program.
MISSING_IDS = ("nan", "none", "null", "<na>", "n/a", "undefined", "")
#: A scale of ratings has at most these many values, and ends here; larger numbers are counts, such as plays.
_SCALE = (21, 10)


@dataclass
class Facts:
    """Facts about a table that was read: unit, first and last time, and counts of suspicious values by name."""

    source: str
    unit: str = ""  # s, ms, us, ns, date, unknown; empty: no times
    first: str = ""  # ISO 8601 dates; empty: no times
    last: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    def set_span(self, seconds: pl.Series) -> None:
        """Set the dates of the first and the last time."""
        first, last = seconds.min(), seconds.max()
        if isinstance(first, int) and isinstance(last, int):
            self.first, self.last = _date(first), _date(last)

    @property
    def implausible(self) -> str:
        """What is odd about the dates: before 1990 or after next year; empty: nothing."""
        if not self.first:
            return ""
        latest = datetime.now(UTC).year + 1
        odd = [f"before 1990 (first {self.first})"] if self.first < "1990" else []
        if self.last[:4] > str(latest) or not self.last[:4].isdigit():
            odd.append(f"after {latest} (last {self.last})")
        return f"times are {' and '.join(odd)}; set time_unit" if odd else ""


def _date(seconds: int) -> str:
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).date().isoformat()
    except OverflowError:
        return f"beyond the calendar ({seconds} s)"


def missing_ids(ids: pl.Series, distinct: pl.Series) -> tuple[int, str] | None:
    """Return the number of rows whose id means a missing value, such as `nan`, and the first three of these; None: there are none.

    Examples:
        >>> import polars as pl
        >>> ids = pl.Series(["ann", "None", "nan", "nan"], dtype=pl.Categorical)
        >>> missing_ids(ids, ids.unique().cast(pl.String))
        (3, "'None', 'nan'")
    """
    short = distinct.filter(distinct.str.len_bytes() <= max(map(len, MISSING_IDS)))
    odd = short.filter(short.str.to_lowercase().is_in(MISSING_IDS))
    if odd.is_empty():
        return None
    return int(ids.cast(pl.String).is_in(odd.implode()).sum()), ", ".join(sorted(map(repr, odd.to_list()))[:3])


def rating_counts(table: pl.DataFrame, filters: Filters) -> dict[str, int]:
    """Return the number of ratings that are negative, 0 among higher ones, or count as positive although low, by a clause."""
    if filters.signs or table.is_empty():
        return {}
    ratings, found = table["rating"], dict[str, int]()
    counts = "" if filters.threshold is not None else ", and count as positive (set filters.threshold)"
    dropped = (
        f"; those below filters.threshold {filters.threshold} are dropped" if filters.threshold is not None else ""
    )
    lowest, highest = ratings.min(), ratings.max()
    if negative := int((ratings < 0).sum()):
        found[f"of {table.height} ratings are negative (lowest {lowest!r}){counts}{dropped}"] = negative
    if (zeros := int((ratings == 0).sum())) and zeros < len(ratings):
        found[f"of {table.height} ratings are 0{counts}"] = zeros
    if filters.threshold is None and isinstance(highest, float) and 3 <= highest <= _SCALE[1]:
        lows = int(((ratings > 0) & (ratings <= 1)).sum())
        if lows and ratings.n_unique() <= _SCALE[0]:
            found[f"of {table.height} ratings are 1 or less on a scale to {highest:g}{counts}"] = lows
    return found


def suspicious_counts(table: pl.DataFrame, facts: Sequence[Facts], filters: Filters) -> dict[str, int]:
    """Return the suspicious values of a domain: those noted while it was read, and those of its ratings."""
    return {clause: n for fact in facts for clause, n in fact.counts.items()} | rating_counts(table, filters)


def times_of(facts: Facts | None) -> dict[str, str]:
    """Return unit, first and last time of a domain; empty without times."""
    return {"unit": facts.unit, "first": facts.first, "last": facts.last} if facts is not None and facts.first else {}


def same_numbers(target: str, source: str, alike: int) -> str:
    """Return a sentence on item ids of two domains that look alike."""
    return f"{alike:,} item ids of {target} and {source} are the same integers. They may number their items separately."


def suspicious_line(domain: str, counts: Mapping[str, int]) -> str:
    """Return one line on the suspicious values of a domain.

    Examples:
        >>> suspicious_line("books", {"rows have no title": 3})
        'books: 3 rows have no title.'
    """
    return f"{domain}: {'; '.join(f'{count:,} {clause}' for clause, count in counts.items())}."


def numbered_alike(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the number of item ids of two domains that are the same integers; 0 unless all ids of both are integers.

    Examples:
        >>> numbered_alike(["1", "2"], ["2", "3"]), numbered_alike(["1", "b"], ["1"])
        (1, 0)
    """
    if not all(name.isdigit() for ids in (first, second) for name in ids):
        return 0
    return len({*first} & {*second})


def users_not_listed(train: Ratings, listed: Iterable[str]) -> list[str]:
    """Return a sentence on the target's users who are not on the agreed list, or nothing."""
    on = int((index_of(as_ids(listed), train.user_ids) >= 0).sum())
    if on == train.num_users:
        return []
    return [
        f"{train.num_users - on} of {train.num_users} users are not on the agreed list. They stay, without a released row."
    ]


def users_with_every_item(train: Ratings) -> list[str]:
    """Return a sentence on users whose training ratings have every item, or nothing."""
    if not (full := int((np.diff(train.matrix.indptr) == train.num_items).sum())):
        return []
    found = f"{full} of {train.num_users} users have all {train.num_items} items in training"
    return [f"{found}. They are left out of negative sampling."]


def unreliable_reasons(train: Ratings, test: HeldOutCases, evaluation: Evaluation, signs: bool) -> list[str]:
    """Return reasons why the metrics of a test are unreliable: its users, items or number of candidates; a clause each."""
    if not (number := len(test.users)):
        return []
    reasons = []
    if train.num_users == 1:
        reasons.append("only one user")
    if number == 1:
        reasons.append("only one test case")
    elif signs and len(set(test.ratings.tolist())) == 1:
        reasons.append(f"all {number} test signs are {int(test.ratings[0]):+d}, so a constant is always right")
    elif len(set(test.items.tolist())) == 1:
        item = str(train.item_ids[int(test.items[0])])
        reasons.append(f"all {number} test cases have the item {item!r}, so a constant ranking is always right")
    most, short = max(evaluation.ks), {}
    if evaluation.full_ranking:
        short["all"] = int((test.num_others() < most).sum())
    if evaluation.num_candidates:
        listed = test.candidates.shape[1]  # -1 after the last, so one column tells
        short["sampled"] = int((test.candidates[:, most - 1] < 0).sum()) if most <= listed else number
    reasons += [
        f"{few} of {number} test cases have fewer than {most} other items ({kind} ranking), so their HR@{most} is always 1"
        for kind, few in short.items()
        if few
    ]
    return reasons


def warn_once(text: str) -> None:
    """Log a warning about data once per process, and only in the first of several processes."""
    for texts in _collectors:
        texts.append(text)
    _log_once(text)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of a block, logged before or not."""
    texts: list[str] = []
    _collectors.append(texts)
    try:
        yield texts
    finally:
        _collectors[:] = [other for other in _collectors if other is not texts]


def note(facts: Facts) -> None:
    """Add facts about a table to every collection in progress."""
    for collected in _noted:
        collected.append(facts)


@contextmanager
def collected_facts() -> Iterator[list[Facts]]:
    """Collect the facts about the tables that a block reads."""
    collected: list[Facts] = []
    _noted.append(collected)
    try:
        yield collected
    finally:
        _noted[:] = [other for other in _noted if other is not collected]


@cache
def _log_once(text: str) -> None:
    if not rank_zero_only.rank:  # type: ignore[attr-defined]  # Lightning sets it
        logger.warning("%s", text)
