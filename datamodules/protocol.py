"""Settings of the protocol: who counts, what is held out, how it is ranked."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, get_args

from zoo.data.metrics import Ties
from zoo.data.ratings import Reach, Step

SplitName = Literal["random1", "random2", "latest1", "latest2", "ratio", "global_time", "given", "cold_start", "none"]


@dataclass(frozen=True)
class Filters:
    """Who and what counts, applied in this order; chosen on private data unless fixed in advance, and recorded.

    Args:
        threshold: Ratings of at least this are positive, the others are dropped; null: every row is positive; `mean`: the
            mean of all ratings of the domain, held-out ones included, worked out from them.
        signs: Ratings below the threshold are kept, as -1 (one-bit matrix completion), instead of dropped.
        min_user_ratings: Fewest positive ratings of a user.
        min_item_ratings: Fewest positive ratings of an item, among the users that are left.
        iterated: Repeat both minimums until nothing changes, instead of one pass.
    """

    threshold: float | Literal["mean"] | None = None
    min_user_ratings: int = 1
    min_item_ratings: int = 1
    iterated: bool = False
    signs: bool = False

    def __post_init__(self) -> None:
        """Refuse signs without a threshold."""
        if self.signs and self.threshold is None:
            raise ValueError("signs is true and threshold null: say from which rating on a sign is +1, or `mean`.")

    @property
    def steps(self) -> tuple[Step, ...]:
        """What the filters do, as a release's record says it, and what a guarantee rests on through them."""
        least_user, least_item = self.min_user_ratings, self.min_item_ratings
        passes = "iterated" if self.iterated else "one pass"
        counted = f"users with at least {least_user} and items with at least {least_item} of them ({passes})"
        if max(least_user, least_item) == 1:
            return self._counted, Step(counted)
        reach: Reach = "all" if least_item > 1 else "row"
        return self._counted, Step(counted, "counts_decide", reach)

    @property
    def _counted(self) -> Step:
        """Which ratings count, and as what."""
        if self.threshold is None:
            return Step("every rating counts as 1")
        what = "+1, the others as -1" if self.signs else "1"
        if self.threshold == "mean":
            words = f"ratings >= the mean of all ratings, worked out from them and taken as public, count as {what}"
            return Step(words, "threshold_from_ratings", "values")
        return Step(f"ratings >= {self.threshold:g} count as {what}")


NOTHING_HELD_OUT = Step("nothing of this domain is held out")
EARLIER = "ratings from the time of a user's held-out items of the target on are left out, each by its own time"
#: Cells that one rating may move where a source holds items out: one that is held out brings another one back.
MOVED = {"random1": 2, "random2": 2, "latest1": 2, "latest2": 2, "ratio": 3}


@dataclass(frozen=True)
class Evaluation:
    """What is held out and how it is ranked.

    Args:
        split: `random1` (one random item per user is the test, no validation), `random2` (two random items), `latest1`
            (latest item is the test, no validation), `latest2` (latest two), `ratio` (shares of each user's items), `global_time`
            (what everybody did from two moments on), `given` (files that ship with the data), `cold_start` (the whole target
            history of some users), `none` (nothing: all is learned from, and nothing is measured).
        cold_share: For `cold_start`: share of the users, half for validation, half for the test.
        shares: For `ratio`: shares of train, validation and test; for `global_time` without `moments` those of all rows by time.
        moments: For `global_time`: when validation begins and when the test does, as dates of ISO 8601 or in the unit of the times;
            the same twice: no validation. They are public.
        temporal: For `ratio`: hold out the latest items instead of random ones.
        num_candidates: Sampled negatives per user; 0: full ranking only. Lists that ship with the data (`given`) take their
            place, for validation and test alike.
        shared_candidates: One list of negatives for validation and test, as in PriCDR, instead of one each.
        weighted_candidates: Draw negatives by popularity instead of uniformly.
        full_ranking: Rank among all items as well; `test`: at the test alone, where a method is slow to score all.
        ks: Cut-offs of the metrics; 10 is always among them, as it chooses the checkpoint.
        ties: `expected` (mean over random tie-breaking) or `pessimistic`.
        hold_out_of_sources: Whether a source takes the items that the split holds out of it out of its release too; for studies
            of both directions. One of its ratings may then move several cells, and the record says so.
        earlier_sources: Whether a source leaves out what a user rated there at the time of the earliest item held out of the
            target, or later: what nobody could have known when recommending it. For splits by time, with all domains at one place.
    """

    split: SplitName = "latest2"
    cold_share: float = 0.4
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    moments: tuple[int | str, int | str] | None = None
    temporal: bool = False
    num_candidates: int = 99
    shared_candidates: bool = False
    weighted_candidates: bool = False
    full_ranking: bool | Literal["test"] = True
    ks: tuple[int, ...] = (5, 10)
    ties: Ties = "expected"
    hold_out_of_sources: bool = False
    earlier_sources: bool = False

    @property
    def has_validation(self) -> bool:
        """Whether the split holds out anything to choose a checkpoint by."""
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
        """`moments` in the unit of the times; dates are seconds since 1970."""
        if self.moments is None:
            return None
        first, second = (_moment(given) for given in self.moments)
        if first > second:
            raise ValueError(
                f"moments are when validation begins and then the test; got {list(self.moments)}, turned round."
            )
        return first, second

    @property
    def step(self) -> Step:
        """What is held out of a domain that is evaluated, and what a guarantee rests on through it."""
        if self.split == "none":
            return NOTHING_HELD_OUT
        words = f"held-out items of this domain removed (split {self.split})"
        if self.split == "global_time":
            if self.moments is not None:  # a row is held out by its own time alone
                return Step(f"{words}, from {self.moments[0]} on")
            return Step(words, "times_from_rows", "all")
        if self.split == "given":  # a list beside the ratings, which none of them moves, or half of one
            return Step(words, "validation_given", "row")
        if self.split == "cold_start":
            return Step(words, "cold_start_drawn", "all")
        return Step(words, f"held_out_by_split:{self.split}:{MOVED[self.split]}", "row")

    @property
    def source_step(self) -> Step:
        """The same for a domain that is a source, of which a cold start hides nobody."""
        held_out = self.hold_out_of_sources and self.split != "cold_start"
        step = self.step if held_out else NOTHING_HELD_OUT
        if not self.earlier_sources:
            return step
        return replace(step, words=f"{step.words}; {EARLIER}")

    def __post_init__(self) -> None:
        """Check what would otherwise fail after the data are read."""
        if self.split not in get_args(SplitName):
            raise ValueError(f"split must be one of {', '.join(get_args(SplitName))}; got {self.split!r}.")
        if self.moments is not None and self.split != "global_time":
            raise ValueError(f"moments are of the split global_time, and split is {self.split!r}. Leave them out.")
        _ = self.begins
        if self.earlier_sources and not self.by_time:
            raise ValueError(
                f"earlier_sources takes a split by time (latest1, latest2, global_time, or ratio with temporal: true), and split "
                f"is {self.split!r}. Leave it out, or hold out the latest items."
            )
        if 10 not in self.ks or min(self.ks) < 1:
            raise ValueError(
                f"ks must be cut-offs of at least 1 with 10 among them (it chooses the checkpoint); got {self.ks}."
            )
        if self.num_candidates < 0 or not (self.num_candidates or self.full_ranking is True):
            raise ValueError(
                f"num_candidates must be at least 1, or 0 with full_ranking true; got {self.num_candidates} with full_ranking "
                f"{self.full_ranking}, which leaves nothing to rank, or nothing on validation."
            )


def _moment(given: int | str) -> int:
    if isinstance(given, int) or (given.lstrip("-").isdigit() and len(given) != len("20140701")):
        return int(given)
    if (seconds := seconds_of(given)) is None:
        raise ValueError(
            f"moments holds {given!r}; a moment is a date such as 2014-07-01, or a number in the unit of the times."
        )
    return seconds


def seconds_of(text: str) -> int | None:
    """Return seconds since 1970 of an ISO 8601 date or time, of UTC unless it names a zone; None for any other text."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() // 1)
