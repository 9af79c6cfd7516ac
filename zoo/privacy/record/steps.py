"""Steps: what was done to ratings before a release, and which of them make its guarantee conditional."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

#: Through which steps a unit of privacy is felt beyond what a publisher bounds.
_FELT: dict[str, frozenset[str]] = {
    "rating": frozenset({"row", "all", "values"}),
    "user": frozenset({"all", "values"}),  # a publisher bounds a user's row, whatever happens inside it
    "rating-value": frozenset({"values"}),  # who rated what is public
}
REACHES = ("row", "all", "values")
"""How far a rating is felt through a step: in its user's row, in others' rows or in who is listed; or by its value."""


class Step(Protocol):
    """A step as a datamodule states it, such as `zoo.data.ratings.Step`."""

    @property
    def words(self) -> str:
        """What was done."""

    @property
    def condition(self) -> str:
        """Code of what must be true for one rating of the file to be one entry here at most; empty: it is so."""

    @property
    def reach(self) -> str:
        """Where else the rating is felt if the condition is not true."""


class Done(NamedTuple):
    """A step in a record."""

    words: str
    condition: str = ""
    reach: str = "all"


def done(steps: Iterable[Step]) -> tuple[Done, ...]:
    """Return steps as a record keeps them."""
    return tuple(Done(step.words, step.condition, step.reach) for step in steps)


def conditions_of(steps: Iterable[Step], unit: str) -> tuple[str, ...]:
    """Return what a guarantee about a party's own file assumes after such steps, for a unit such as ``rating`` or ``user``."""
    return tuple(step.condition for step in steps if step.condition and step.reach in _FELT[unit])
