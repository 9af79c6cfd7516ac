"""Steps: what was done to the ratings before a release, and which steps add a condition to its guarantee."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

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


def recorded_steps(steps: Iterable[Step]) -> tuple[RecordedStep, ...]:
    """Return steps as a record stores them."""
    return tuple(RecordedStep(step.words, step.condition, step.reach) for step in steps)


def conditions_of(steps: Iterable[Step], unit: str) -> tuple[str, ...]:
    """Return the conditions of a guarantee for the party's own file after these steps, for a unit such as ``"rating"``."""
    return tuple(step.condition for step in steps if step.condition and step.reach in _UNBOUNDED[unit])
