"""Steps: what was done to the ratings before a release, and which steps add a condition to its guarantee."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

from zoo.privacy.record.fields import ASK_SOURCE, InconsistentRecordError

#: Reaches of steps that exceed the bound of a publisher, by privacy unit.
_UNBOUNDED: dict[str, frozenset[str]] = {
    "rating": frozenset({"row", "all", "values"}),
    "user": frozenset({"all", "values"}),  # a publisher bounds all changes inside a user's row
    "rating-value": frozenset({"values"}),  # the rated pairs are public
}
REACHES = ("row", "all", "values")
"""Effect of a rating through a step: on its user's row, on other rows or lists of users and items, or by its value."""


class Step(Protocol):
    """A step of a datamodule, such as `zoo.data.ratings.Step`."""

    @property
    def words(self) -> str:
        """Description of the step."""

    @property
    def condition(self) -> str:
        """Code of what must be true so that one rating of the file is at most one entry here; "" if it always is."""

    @property
    def reach(self) -> str:
        """Where else a rating has an effect if the condition is false: one of `REACHES`."""


class RecordedStep(NamedTuple):
    """A step as a record stores it."""

    words: str
    condition: str = ""
    reach: str = "all"


#: Words of steps that have a condition, anywhere in a folded text (blanks of a pattern do not count), with the condition (its
#: parts by group) and reach.
_KNOWN = (
    (r"ratings the mean of all ratings", "threshold_from_ratings", "values"),
    (r"users with at least \d+ and items with at least (?!1o)\d+ of them", "counts_decide", "all"),
    (r"users with at least (?!1a)\d+ and items with at least 1 of them", "counts_decide", "row"),
    (r"users are those in common", "users_in_common", "all"),
    (r"users are those of both parties lists", "users_by_intersection", "all"),
    (r"prior list was derived from ratings", "users_in_common", "all"),
    (r"users are derived from the ratings", "users_from_ratings", "all"),
    (r"items are derived from the ratings", "items_from_ratings", "all"),
    (r"held out items of this domain removed split global time(?! from\d)", "times_from_rows", "all"),
    (r"held out items of this domain removed split given", "validation_given", "row"),
    (r"held out items of this domain removed split cold start", "cold_start_drawn", "all"),
    (r"held out items of this domain removed split (ratio)", r"held_out_by_split:\1:3", "row"),
    (r"held out items of this domain removed split ((?:random|latest)[12]|folds)", r"held_out_by_split:\1:2", "row"),
)


def refuse_missing_conditions(words: Iterable[str], conditions: Collection[str], unit: str) -> None:
    """Refuse a claim that lists a step of the zoo without the condition that follows from the step.

    Raises:
        InconsistentRecordError: The condition of a step is not among ``conditions``, or a step has letters that look like others.
    """
    stated = {*map(_folded, conditions)}
    for text in words:
        if not (text.isascii() and text.isprintable()):
            raise InconsistentRecordError(f"A step is {ascii(text)[:80]}. Allowed: printable ASCII. Rename the step.")
        if missing := [due for due in _due(text, unit, stated) if _folded(due) not in stated]:
            raise InconsistentRecordError(
                f"The record lists the step {text[:80]!r} without its condition {missing[0]}. {ASK_SOURCE}"
            )


def _due(text: str, unit: str, stated: Collection[str]) -> Iterator[str]:
    """Yield the conditions that follow from the words of a step, or of several."""
    for pattern, condition, reach in _KNOWN:
        if reach in _UNBOUNDED[unit] and (found := re.search(pattern, _folded(text), re.VERBOSE)):
            yield found.expand(condition)
    whole, *parts = (_folded(part).removeprefix("donetothedatabefore") for part in (text, *text.split(";")))
    for part in (*parts, *([] if parts[0] in stated else [whole])):
        if part.startswith("readby") and "values" in _UNBOUNDED[unit]:
            yield f"read_by:{part.removeprefix('readby')}"


def _folded(text: str) -> str:
    """Return the small letters and digits of a text, so that its writing does not matter."""
    return "".join(re.findall(r"[a-z0-9]", text.casefold()))


def recorded_steps(steps: Iterable[Step]) -> tuple[RecordedStep, ...]:
    """Return steps as a record stores them."""
    return tuple(RecordedStep(step.words, step.condition, step.reach) for step in steps)


def conditions_of(steps: Iterable[Step], unit: str) -> tuple[str, ...]:
    """Return the conditions of a guarantee for the party's own file after these steps, for a unit such as ``"rating"``."""
    return tuple(step.condition for step in steps if step.condition and step.reach in _UNBOUNDED[unit])
