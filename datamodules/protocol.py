"""Settings of the protocol: who counts, what is held out, how it is ranked."""

from dataclasses import dataclass
from typing import Literal, get_args

from zoo.metrics import Ties

SplitName = Literal["random1", "random2", "latest1", "latest2", "ratio", "given", "cold_start"]


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
    def in_words(self) -> tuple[str, str]:
        """What the filters did, as a release's record says it."""
        if self.threshold is None:
            counted = "every rating counts as 1"
        else:
            mean = "the mean of all ratings, worked out from them and taken as public,"
            least = mean if self.threshold == "mean" else f"{self.threshold:g}"
            counted = f"ratings >= {least} count as " + ("+1, the others as -1" if self.signs else "1")
        passes = "iterated" if self.iterated else "one pass"
        return counted, (
            f"users with at least {self.min_user_ratings} and items with at least {self.min_item_ratings} of them ({passes})"
        )


@dataclass(frozen=True)
class Evaluation:
    """What is held out and how it is ranked.

    Args:
        split: `random1` (one random item per user is the test, no validation), `random2` (two random items), `latest1`
            (latest item is the test, no validation), `latest2` (latest two), `ratio` (shares of each user's items), `given`
            (files that ship with the data), `cold_start` (the whole target history of some users).
        cold_share: For `cold_start`: share of the users, half for validation, half for the test.
        shares: For `ratio`: shares of train, validation and test.
        temporal: For `ratio`: hold out the latest items instead of random ones.
        num_candidates: Sampled negatives per user; 0: full ranking only. Lists that ship with the data (`given`) take their
            place, for validation and test alike.
        shared_candidates: One list of negatives for validation and test, as in PriCDR, instead of one each.
        weighted_candidates: Draw negatives by popularity instead of uniformly.
        full_ranking: Rank among all items as well.
        ks: Cut-offs of the metrics; 10 is always among them, as it chooses the checkpoint.
        ties: `expected` (mean over random tie-breaking) or `pessimistic`.
        hold_out_of_sources: Whether a source takes the items that the split holds out of it out of its release too; for studies
            of both directions. One of its ratings may then move several cells, and the record says so.
    """

    split: SplitName = "latest2"
    cold_share: float = 0.4
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    temporal: bool = False
    num_candidates: int = 99
    shared_candidates: bool = False
    weighted_candidates: bool = False
    full_ranking: bool = True
    ks: tuple[int, ...] = (5, 10)
    ties: Ties = "expected"
    hold_out_of_sources: bool = False

    @property
    def has_validation(self) -> bool:
        """Whether the split holds out anything to choose a checkpoint by."""
        return self.split not in ("random1", "latest1") and (self.split != "ratio" or self.shares[1] > 0)

    def __post_init__(self) -> None:
        """Check what would otherwise fail after the data are read."""
        if self.split not in get_args(SplitName):
            raise ValueError(f"split must be one of {', '.join(get_args(SplitName))}; got {self.split!r}.")
        if 10 not in self.ks or min(self.ks) < 1:
            raise ValueError(
                f"ks must be cut-offs of at least 1 with 10 among them (it chooses the checkpoint); got {self.ks}."
            )
        if self.num_candidates < 0 or not (self.num_candidates or self.full_ranking):
            raise ValueError(
                f"num_candidates must be at least 1, or 0 with full_ranking; got {self.num_candidates} with full_ranking "
                f"{self.full_ranking}, which leaves nothing to rank."
            )
