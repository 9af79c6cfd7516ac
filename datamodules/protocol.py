"""Settings of the evaluation protocol: filters, held-out items and their ranking; and the steps of other packages' classes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Literal, get_args

from zoo.data.batch_types import Average
from zoo.data.metrics import Ties
from zoo.data.ratings import Ratings, Reach, Step

#: Units of times that are numbers: the smallest size of a value in this unit, and units in a second. Sizes of 1973 to 5138.
TIME_BANDS = {"s": (10**8, 1), "ms": (10**11, 10**3), "us": (10**14, 10**6), "ns": (10**17, 10**9)}
#: Rules for held-out items without a training rating.
UnknownItems = Literal["exclude", "include"]
SplitName = Literal[
    "random1", "random2", "latest1", "latest2", "ratio", "folds", "global_time", "given", "cold_start", "none"
]


@dataclass(frozen=True)
class Filters:
    """Filters of ratings, users and items, applied in this order. They are recorded, since they may reveal private data.

    Args:
        threshold: Ratings of at least this are positive, the others are dropped. Null: every row is positive. `mean`: the mean of
            all ratings of the domain, held-out ones included.
        signs: Ratings below the threshold become -1 (one-bit matrix completion) instead of being dropped.
        min_user_ratings: Minimum number of positive ratings of a user.
        min_item_ratings: Minimum number of positive ratings of an item, among the remaining users.
        iterated: Repeat both minimums until nothing changes, instead of one pass.

    Examples:
        >>> from datamodules import Filters
        >>> print(*Filters(threshold=3, min_user_ratings=5).steps, sep="; ")
        ratings >= 3 count as 1; users with at least 5 and items with at least 1 of them (one pass)
    """

    threshold: float | Literal["mean"] | None = None
    min_user_ratings: int = 1
    min_item_ratings: int = 1
    iterated: bool = False
    signs: bool = False

    def __post_init__(self) -> None:
        if self.signs and self.threshold is None:
            raise ValueError("signs is true, threshold null. Set threshold to the lowest +1, or mean.")

    @property
    def steps(self) -> tuple[Step, ...]:
        """Steps of preprocessing for a release's record, with what a guarantee assumes about them."""
        least_user, least_item = self.min_user_ratings, self.min_item_ratings
        passes = "iterated" if self.iterated else "one pass"
        counted = f"users with at least {least_user} and items with at least {least_item} of them ({passes})"
        if max(least_user, least_item) == 1:
            return self._counted, Step(counted)
        reach: Reach = "all" if least_item > 1 else "row"
        return self._counted, Step(counted, "counts_decide", reach)

    @property
    def _counted(self) -> Step:
        if self.threshold is None:
            return Step("every rating counts as 1")
        what = "+1, the others as -1" if self.signs else "1"
        if self.threshold == "mean":
            words = f"ratings >= the mean of all ratings (derived from them, assumed public) count as {what}"
            return Step(words, "threshold_from_ratings", "values")
        return Step(f"ratings >= {self.threshold:g} count as {what}")


NOTHING_HELD_OUT = Step("no items of this domain are held out")
EARLIER = "ratings from the time of a user's held-out items of the target on are dropped, each by its own time"
#: Entries that one rating may change if a source holds items out: one that is held out brings another one back. This holds with
#: ties in time too: their hash is of one row, so a rating never reorders the others, and it moves rows of its own user alone.
MOVED = {"random1": 2, "random2": 2, "latest1": 2, "latest2": 2, "ratio": 3, "folds": 2}


@dataclass(frozen=True)
class Evaluation:
    """Settings of held-out items and of their ranking.

    Args:
        split: `random1` (one random item per user for the test, no validation), `random2` (two random items), `latest1` (the
            latest item for the test, no validation), `latest2` (the latest two), `ratio` (shares of each user's items), `folds`
            (one of k random parts of all ratings, and one further item per user for validation),
            `global_time` (all rows from two moments on), `given` (files that ship with the data), `cold_start` (the whole target
            history of some users), `none` (no test: all rows are trained on).
        cold_share: For `cold_start`: share of the users, half for validation, half for the test.
        folds: For `folds`: their number k, at least 2. The seed s of the split is for fold ``s mod k`` of the partition ``s // k``.
            So the k seeds from 0 on hold out each rating once, and the next k seeds repeat that with another partition.
        shares: For `ratio`: shares of train, validation and test; for `global_time` without `moments` those of each domain.
        moments: For `global_time`: start of validation and start of the test, as ISO 8601 dates or numbers (s to ns).
            Equal values: no validation. They are public.
        temporal: For `ratio`: hold out the latest items instead of random ones.
        num_candidates: Sampled negatives per user; 0: full ranking only. Lists that ship with the data (`given`) replace them,
            for validation and test.
        shared_candidates: One list of negatives for validation and test, as in PriCDR, instead of one each.
        weighted_candidates: Draw negatives by popularity instead of uniformly: the number of training ratings or, with
            `unknown_items` `include`, of all ratings.
        unknown_items: Rule for items without a training rating. `exclude`: no case has such an item, drawn negatives are items with
            a training rating, and full ranking is among these. `include`: cases stay, negatives are drawn from all items of the
            domain, and full ranking is among all. With signs all cases stay, -1 counts as a
            hit, too, and full ranking is among all. Shipped lists stay as they are.
        full_ranking: Rank among all items as well; `test`: only in the test, for methods that score all items slowly.
        ks: Cut-offs of the metrics; 10 must be among them, since it selects the checkpoint.
        ties: `expected` (mean over random tie-breaking) or `pessimistic`.
        average: What a mean metric counts once: `cases` (each held-out item), or `users` (all held-out items of a user together).
        hold_out_of_sources: Whether a source removes its held-out items from its release too, to evaluate both directions. One
            of its ratings may then change several entries, which the record states.
        earlier_sources: Whether a source drops what a user rated there at the time of the earliest item held out of the target, or
            later: it would not be known at recommendation time. For splits by time, with all domains available locally.

    Examples:
        >>> from datamodules import Evaluation, Synthetic
        >>> data = Synthetic(num_users=30, num_items=40, evaluation=Evaluation("ratio", num_candidates=20))
        >>> data.read_target()
        >>> data.test.candidates.shape, data.train.num_ratings
        (torch.Size([30, 20]), 390)
    """

    split: SplitName = "latest2"
    cold_share: float = 0.4
    folds: int = 5
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    moments: tuple[int | str, int | str] | None = None
    temporal: bool = False
    num_candidates: int = 99
    shared_candidates: bool = False
    weighted_candidates: bool = False
    unknown_items: UnknownItems = "exclude"
    full_ranking: bool | Literal["test"] = True
    ks: tuple[int, ...] = (5, 10)
    ties: Ties = "expected"
    average: Average = "cases"
    hold_out_of_sources: bool = False
    earlier_sources: bool = False

    @property
    def has_validation(self) -> bool:
        """Whether the split has a validation set."""
        if self.split == "global_time" and self.begins is not None:
            return self.begins[0] < self.begins[1]
        return self.split not in ("random1", "latest1", "none") and (
            self.split not in ("ratio", "global_time") or self.shares[1] > 0
        )

    @property
    def by_time(self) -> bool:
        """Whether the split holds out the latest items."""
        return self.split in ("latest1", "latest2", "global_time") or (self.split == "ratio" and self.temporal)

    @property
    def begins(self) -> tuple[int, int] | None:
        """`moments` in seconds since 1970, as the times are; the unit of large numbers follows from their size."""
        if self.moments is None:
            return None
        first, second = map(_moment, self.moments)
        if first > second:
            raise ValueError(f"moments are {list(self.moments)}. Validation must begin before the test.")
        return first, second

    @property
    def step(self) -> Step:
        """Step of holding out of an evaluated domain, with what a guarantee assumes about it."""
        if self.split == "none":
            return NOTHING_HELD_OUT
        words = f"held-out items of this domain removed (split {self.split})"
        if self.split == "global_time":
            if self.moments is not None:  # only its own time decides whether a row is held out
                return Step(f"{words}, from {self.moments[0]} on")
            return Step(words, "times_from_rows", "all")
        if self.split == "given":  # a separate list, which no rating changes, or half of one
            return Step(words, "validation_given", "row")
        if self.split == "cold_start":
            return Step(words, "cold_start_drawn", "all")
        return Step(words, f"held_out_by_split:{self.split}:{MOVED[self.split]}", "row")

    @property
    def source_step(self) -> Step:
        """The same for a source, of which a cold start hides no user."""
        held_out = self.hold_out_of_sources and self.split != "cold_start"
        step = self.step if held_out else NOTHING_HELD_OUT
        if not self.earlier_sources:
            return step
        return replace(step, words=f"{step.words}; {EARLIER}")

    def __post_init__(self) -> None:
        if self.split not in get_args(SplitName):
            raise ValueError(f"split is {self.split!r}. Allowed: {', '.join(get_args(SplitName))}.")
        if self.folds < 2:
            raise ValueError(f"folds is {self.folds}. Allowed: integers >= 2.")
        if self.unknown_items not in get_args(UnknownItems):
            raise ValueError(f"unknown_items is {self.unknown_items!r}. Allowed: {', '.join(get_args(UnknownItems))}.")
        if self.moments is not None and self.split != "global_time":
            raise ValueError(f"moments are set, and split is {self.split!r}. Remove them, or use 'global_time'.")
        _ = self.begins
        if self.earlier_sources and not self.by_time:
            needed = "latest1, latest2, global_time, or ratio with temporal true"
            raise ValueError(f"earlier_sources is true, and split is {self.split!r}. It needs {needed}.")
        if self.average not in get_args(Average):
            raise ValueError(f"average is {self.average!r}. Allowed: {', '.join(get_args(Average))}.")
        if 10 not in self.ks or min(self.ks) < 1:
            raise ValueError(f"ks is {self.ks}. Allowed: numbers >= 1, including 10.")
        if self.num_candidates < 0 or not (self.num_candidates or self.full_ranking is True):
            found = f"num_candidates is {self.num_candidates} with full_ranking {self.full_ranking}"
            raise ValueError(f"{found}. Allowed: >= 1, or 0 with full_ranking true.")


def _moment(moment: int | str) -> int:
    if isinstance(moment, int) or (moment.lstrip("-").isdigit() and len(moment) != len("20140701")):
        factors = [factor for low, factor in TIME_BANDS.values() if abs(int(moment)) >= low]
        return int(moment) // (factors or [1])[-1]
    if (seconds := seconds_of(moment)) is None:
        raise ValueError(f"moments has {moment!r}. Allowed: a date (2014-07-01), or a number since 1970.")
    return seconds


def seconds_of(text: str) -> int | None:
    """Return seconds since 1970 of an ISO 8601 date or time, in UTC unless it names a zone; None for any other text."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() // 1)


def plugin_steps(*parts: object) -> tuple[Step, ...]:
    """Return a step for each part of a class of another package, whose filters and lists are unknown."""
    paths = [f"{type(part).__module__}.{type(part).__qualname__}" for part in parts]
    return tuple(
        Step(f"read by {path}", f"read_by:{path}", "values") for path in paths if not path.startswith("datamodules.")
    )


def marked(data: Any, made: Any) -> Any:  # noqa: ANN401  a datamodule; ratings, or steps
    """Return ratings or steps with the step of the datamodule's class, if it is of another package."""
    if isinstance(made, Ratings):
        steps = marked(data, made.applied)
        return made if steps == made.applied else replace(made, applied=steps)
    return (*(step for step in data.read_by_plugin if step not in made), *made)


def marking(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a datamodule whose results are `marked`."""
    wrapped = wraps(method)(lambda self, *given, **named: marked(self, method(self, *given, **named)))
    vars(wrapped)["marking"] = wrapped  # an inherited one is left to the order of base classes
    return wrapped
