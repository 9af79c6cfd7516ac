"""Randomised response for one-bit matrix completion: each sign is flipped at random, or each entry of the matrix reports.

`plan_input` protects the value of one rating; the set Omega of rated pairs is public. `plan_ternary` also protects that a rating
exists. A person with k ratings has k times the epsilon, without delta. Any use of the reports is post-processing: any solver,
stopping rule or likelihood.

With a logistic link a sign enters the likelihood only through its bit ``(1 + sign)/2``, and linearly. So noise on the objective or
its gradients (`zoo.privacy.mechanisms.one_bit`) is also a noisy view of bits. Every such view of equal epsilon can be made from a
flipped bit (Kairouz, Oh & Viswanath, ICML 2015): randomised response dominates it. Invalid arguments and signs raise a ValueError.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from zoo.privacy.accounting.events import PureEvent, RandomisedResponseEvent
from zoo.privacy.accounting.pure import flip_probability, flips_epsilon, ternary_keep
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import (
    ONE_RATING,
    ONE_VALUE,
    MechanismError,
    Plain,
    ResponseMechanism,
    Statement,
    check_positive,
)
from zoo.privacy.mechanisms.one_bit import check_signs
from zoo.privacy.one_bit.link_functions import Flipped, Link
from zoo.privacy.randomness.bernoulli import Integers, bernoulli, sample_entries
from zoo.privacy.randomness.noise import NoiseSource

Sign = TypeVar("Sign", np.float64, np.int8, np.int64)


@dataclass(frozen=True, kw_only=True)
class SignResponse(ResponseMechanism):
    """Randomised response of signs; see `plan_input` and `plan_uneven_input`."""

    name = "one-bit matrix completion, input"
    relations = ONE_VALUE

    relation: Relation = Relation.CHANGE_ONE_RATING_VALUE
    p1: float  # probability that a +1 is reported as -1
    p2: float  # probability that a -1 is reported as +1

    def __post_init__(self) -> None:
        """Check both probabilities."""
        super().__post_init__()
        for name, value in (("p1", self.p1), ("p2", self.p2)):
            if not 0 < value < 0.5:
                raise MechanismError(f"{name} is {value!r}. Allowed: (0, 1/2).")

    def link(self, link: Link) -> Flipped:
        """Return the link of the reported signs, from that of the true signs."""
        return Flipped(link, self.p1, self.p2)

    @property
    def event(self) -> RandomisedResponseEvent | PureEvent:
        """One flipped bit."""
        return RandomisedResponseEvent(self.p1) if self.p1 == self.p2 else PureEvent(flips_epsilon(self.p1, self.p2))

    @property
    def noise_std(self) -> float:
        """Standard deviation of the report that is flipped more often."""
        worst = max(self.p1, self.p2)
        return math.sqrt(worst * (1 - worst))

    @property
    def statement(self) -> Statement:
        """Codes with a public set of rated pairs."""
        return Statement((), ("rated_pairs", "ranked_ratings", "training_failure_of_signs", "several_signs"))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """The set of rated pairs."""
        return {"rated pairs": "all of them"}


@dataclass(frozen=True, kw_only=True)
class TernaryResponse(ResponseMechanism):
    """Randomised response of every entry, rated or not; see `plan_ternary`."""

    name = "one-bit matrix completion, input of all cells"
    relations = ONE_RATING

    relation: Relation = Relation.CHANGE_ONE_RATING
    keep: float  # probability that an entry is reported truthfully; else either of the two other symbols is

    def __post_init__(self) -> None:
        """Check the probability."""
        super().__post_init__()
        check_positive(self, "keep")
        if not 1 / 3 < self.keep < 1:
            raise MechanismError(f"keep is {self.keep!r}. Allowed: (1/3, 1).")

    @property
    def event(self) -> PureEvent:
        """Log-ratio of the true symbol to another."""
        return PureEvent(math.log(2 * self.keep) - math.log1p(-self.keep))

    @property
    def noise_std(self) -> float:
        """Standard deviation of one report."""
        return math.sqrt(self.keep * (1 - self.keep))

    @property
    def statement(self) -> Statement:
        """Codes with the set of rated pairs protected by the completed matrix only."""
        elsewhere = ("users_and_items", "pairs_elsewhere", "ranked_ratings", "training_failure_of_signs")
        return Statement((), (*elsewhere, "several_signs"))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """No public inputs."""
        return {}

    def expected_reports(self, ratings: int, cells: int) -> tuple[float, float, float]:
        """Return the mean numbers of reports: ratings with the true sign, with the wrong sign, and false ratings.

        The true number of ratings is private, so plan with a number that is not from the data.
        """
        untrue = 1 - self.keep
        return ratings * self.keep, ratings * untrue / 2, (cells - ratings) * untrue


def plan_input(epsilon: float) -> SignResponse:
    """Return the flips for epsilon: each sign with probability ``1/(1 + e^epsilon)``. Opens no data.

    Protects the value of one rating; neighbours differ in one sign, so one bit moves by 1 (L1). No delta, and tight. Users
    can flip their own signs. (Section 4.1 with ``p1 = p2``, which holds as published.)
    """
    p = flip_probability(epsilon)
    return SignResponse(p1=p, p2=p)


def plan_uneven_input(p1: float, p2: float) -> SignResponse:
    """Return flips whose probability depends on the sign, with their cost. Opens no data.

    As `plan_input`, for Section 4.1 with ``p1 != p2``, both in (0, 1/2). Epsilon is the largest of four log-ratios, of both reports
    either way. Theorem 1 uses two: it gives ln 2 for ``p1 = 0, p2 = 1/2``, where the report -1 reveals the sign.
    """
    epsilon = flips_epsilon(p1, p2)
    for name, value in (("p1", p1), ("p2", p2)):
        if not 0 < value < 0.5:
            raise ValueError(f"{name} is {value!r} (epsilon {epsilon:.3g}). Allowed: (0, 1/2).")
    return SignResponse(p1=p1, p2=p2)


def flipped_signs(signs: npt.NDArray[Sign], p1: float, p2: float, noise: NoiseSource) -> npt.NDArray[Sign]:
    """Return signs, each flipped with exactly the given probability, without floating point.

    Protects the value of one rating: neighbours differ in one sign, L1 sensitivity of its bit 1. Costs ``flips_epsilon(p1, p2)``
    with no delta; any use of the reports is post-processing. Signs are +1 or -1, shape ``(n,)``; reports have their type. p1 and
    p2, in [0, 1], are as in `SignResponse`. The number of draws is the same for both signs.
    """
    check_signs(signs)
    flips = bernoulli(p1, len(signs), noise)
    if p1 != p2:
        flips = np.where(signs > 0, flips, bernoulli(p2, len(signs), noise))
    return np.where(flips, -signs, signs)


def plan_ternary(epsilon: float) -> TernaryResponse:
    """Return randomised response of all entries, which also protects the set of rated pairs. Opens no data.

    Protects one rating, including its existence: neighbours differ in one entry, which is +1, -1 or empty and may become any
    other. No delta. The lists of users and items are public. Not in the paper, whose Omega is public. If 5 % of the entries are
    rated, most reports are false below an epsilon of about 4.
    """
    return TernaryResponse(keep=ternary_keep(epsilon))


def ternary_signs(
    rows: Integers,
    columns: Integers,
    signs: npt.NDArray[Sign],
    shape: tuple[int, int],
    plan: TernaryResponse,
    noise: NoiseSource,
) -> tuple[Integers, Integers, npt.NDArray[Sign]]:
    """Return the ratings that all entries report, in distribution as by one draw per entry, most of which are skipped.

    Protects one rating, including its presence, with L1 sensitivity 1 (`plan_ternary`); any use is post-processing. Random
    numbers depend on the data only through the number of ratings.

    Rows, columns and signs of the ratings have shape ``(n,)``, are inside the public shape and name no entry twice. The reported
    ratings are sorted by entry; the number of true ones is private.
    """
    check_signs(signs)
    if len(rows) and not (min(rows.min(), columns.min()) >= 0 and rows.max() < shape[0] and columns.max() < shape[1]):
        raise ValueError(f"A rating is outside the public grid of {shape[0]} rows and {shape[1]} columns.")
    rated = rows.astype(np.int64) * shape[1] + columns.astype(np.int64)
    order = np.argsort(rated, kind="stable")
    rated, own = rated[order], signs[order]
    if (rated[1:] == rated[:-1]).any():
        raise ValueError("An entry has several signs. Keep one rating of each pair.")

    # Unrated entries: +1 with probability `other` among all, then -1 among the rest, with other/(1 - other) there.
    # Draws on rated entries are dropped below, because these have their own draws.
    other = (1 - Fraction(plan.keep)) / 2
    positive = sample_entries(shape[0] * shape[1], other, noise)
    negative = sample_entries(shape[0] * shape[1], other / (1 - other), noise)
    negative = np.setdiff1d(negative, positive, assume_unique=True)
    # Ratings: the truth with probability `keep`, else a coin between the other sign and nothing.
    truthful, turned = (bernoulli(share, len(rated), noise) for share in (plan.keep, Fraction(1, 2)))
    own = np.where(truthful, own, -own)
    shown = truthful | turned

    false_up, false_down = (np.setdiff1d(cells, rated, assume_unique=True) for cells in (positive, negative))
    made_up = np.repeat(np.array([1, -1], dtype=signs.dtype), [len(false_up), len(false_down)])
    cells = np.concatenate([rated[shown], false_up, false_down])
    values = np.concatenate([own[shown], made_up])
    order = np.argsort(cells, kind="stable")
    return cells[order] // shape[1], cells[order] % shape[1], values[order]
