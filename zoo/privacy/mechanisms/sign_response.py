"""Randomised response for one-bit matrix completion: each sign flipped at random, or every cell of the matrix made to report.

The value of one rating is protected, and who rated what, Omega, is public (`plan_input`); or that a rating exists is
protected too (`plan_ternary`). A person with k ratings has k times the epsilon, as there is no delta. Whatever is done with
the reports is post-processing: any solver, any stopping rule, any likelihood.

With a logistic link a sign enters the likelihood through its bit ``(1 + sign)/2`` alone, and linearly. So noise on the
objective or its gradients (`zoo.privacy.mechanisms.one_bit`) is a noisy view of bits too, and every such view of equal epsilon can
be made from a flipped bit (Kairouz, Oh & Viswanath, ICML 2015): randomised response dominates it. Arguments out of range, and
signs that are none, raise a ValueError.
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
    Mechanism,
    MechanismError,
    Plain,
    Statement,
    check_positive,
)
from zoo.privacy.mechanisms.one_bit import check_signs
from zoo.privacy.one_bit.link_functions import Flipped, Link
from zoo.privacy.randomness.bernoulli import Integers, bernoulli, sampled_cells
from zoo.privacy.randomness.noise import NoiseSource

Sign = TypeVar("Sign", np.float64, np.int8, np.int64)


@dataclass(frozen=True, kw_only=True)
class SignResponse(Mechanism):
    """Randomised response of signs; see `plan_input` and `plan_uneven_input`."""

    name = "one-bit matrix completion, input"
    relations = ONE_VALUE

    relation: Relation = Relation.CHANGE_ONE_RATING_VALUE
    p1: float  # probability that a +1 is reported as -1
    p2: float  # probability that a -1 is reported as +1

    def __post_init__(self) -> None:
        """Refuse what is no probability."""
        super().__post_init__()
        for name, value in (("p1", self.p1), ("p2", self.p2)):
            if not 0 < value < 0.5:
                raise MechanismError(f"{name} is {value!r}. It must lie in (0, 1/2).")

    def link(self, link: Link) -> Flipped:
        """The link of the reported signs, given that of the true ones."""
        return Flipped(link, self.p1, self.p2)

    @property
    def event(self) -> RandomisedResponseEvent | PureEvent:
        """A flip."""
        return RandomisedResponseEvent(self.p1) if self.p1 == self.p2 else PureEvent(flips_epsilon(self.p1, self.p2))

    @property
    def sensitivity(self) -> float:
        """1: one bit."""
        return 1.0

    @property
    def sensitivity_norm(self) -> str:
        """Of bits."""
        return "L1"

    @property
    def noise_std(self) -> float:
        """Of the report that is flipped more often."""
        worst = max(self.p1, self.p2)
        return math.sqrt(worst * (1 - worst))

    @property
    def statement(self) -> Statement:
        """Who rated what is public."""
        return Statement((), ("rated_pairs", "ranked_ratings", "several_signs"))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Who rated what."""
        return {"rated pairs": "all of them"}


@dataclass(frozen=True, kw_only=True)
class TernaryResponse(Mechanism):
    """Randomised response of every cell, rated or not; see `plan_ternary`."""

    name = "one-bit matrix completion, input of all cells"
    relations = ONE_RATING

    relation: Relation = Relation.CHANGE_ONE_RATING
    keep: float  # probability that a cell is reported as it is, else as either of the two other symbols

    def __post_init__(self) -> None:
        """Refuse what is no probability, or hides less than nothing."""
        super().__post_init__()
        check_positive(self, "keep")
        if not 1 / 3 < self.keep < 1:
            raise MechanismError(f"keep is {self.keep!r}. It must lie in (1/3, 1).")

    @property
    def event(self) -> PureEvent:
        """The log-ratio of the true symbol to another."""
        return PureEvent(math.log(2 * self.keep) - math.log1p(-self.keep))

    @property
    def sensitivity(self) -> float:
        """1: one cell."""
        return 1.0

    @property
    def sensitivity_norm(self) -> str:
        """Of cells."""
        return "L1"

    @property
    def noise_std(self) -> float:
        """Of a report."""
        return math.sqrt(self.keep * (1 - self.keep))

    @property
    def statement(self) -> Statement:
        """Who rated what is protected by the completed matrix alone."""
        return Statement((), ("users_and_items", "pairs_elsewhere", "ranked_ratings", "several_signs"))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """None."""
        return {}

    def expected_reports(self, ratings: int, cells: int) -> tuple[float, float, float]:
        """How many ratings are reported on average: as they are, with the wrong sign, and where there is none.

        Their true number is private where presence is, so plan with one that is not from the data.
        """
        lies = 1 - self.keep
        return ratings * self.keep, ratings * lies / 2, (cells - ratings) * lies


def plan_input(epsilon: float) -> SignResponse:
    """How often each sign must be flipped: with probability ``1/(1 + e^epsilon)``. Opens no data.

    Protects the value of one rating; neighbours differ in one sign, so one bit moves by 1 (L1). No delta, and tight. Each
    user can make their own flips. (Section 4.1 with ``p1 = p2``, which holds as published.)
    """
    p = flip_probability(epsilon)
    return SignResponse(p1=p, p2=p)


def plan_uneven_input(p1: float, p2: float) -> SignResponse:
    """What flips cost whose probability depends on the sign. Opens no data.

    As `plan_input`, for Section 4.1 with ``p1 != p2``. Epsilon is the largest log-ratio of four, both reports either way
    round (`flips_epsilon`). The condition of the paper's Theorem 1 is two of them: it gives ln 2 for ``p1 = 0, p2 = 1/2``,
    where the report -1 tells the sign. Both probabilities lie in (0, 1/2).
    """
    epsilon = flips_epsilon(p1, p2)
    for name, value in (("p1", p1), ("p2", p2)):
        if not 0 < value < 0.5:
            raise ValueError(
                f"{name} must lie in (0, 1/2), got {value!r}, at which epsilon is {epsilon:.3g}. At 0 a report can give a "
                "sign away; from 1/2 on, it says the wrong one."
            )
    return SignResponse(p1=p1, p2=p2)


def flipped_signs(signs: npt.NDArray[Sign], p1: float, p2: float, noise: NoiseSource) -> npt.NDArray[Sign]:
    """Signs, each flipped at random with exactly the given probability; no floating point in it.

    Protects the value of one rating: neighbours differ in one sign, L1 sensitivity of its bit 1. Costs
    ``flips_epsilon(p1, p2)``, with no delta. Afterwards anything may be done with the reports. Signs are +1 or -1, shape
    ``(n,)``; the reports have their type. p1 and p2, in [0, 1], are as in `SignResponse`. There are as many draws for
    either sign.
    """
    check_signs(signs)
    flips = bernoulli(p1, len(signs), noise)
    if p1 != p2:
        flips = np.where(signs > 0, flips, bernoulli(p2, len(signs), noise))
    return np.where(flips, -signs, signs)


def plan_ternary(epsilon: float) -> TernaryResponse:
    """Randomised response of all cells, so that it is private who rated what. Opens no data.

    Protects one rating, that it exists included: neighbours differ in one cell, which holds +1, -1 or nothing and may
    become any other. No delta. The sets of users and items are public. Not in the paper, whose Omega is public. Of a matrix
    with one cell in twenty rated, most reports are made up below an epsilon of about 4.
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
    """The ratings that all cells report, drawn with exactly the law of one draw per cell, most of which are not made.

    Protects one rating, presence included, L1 sensitivity of its cell 1 (`plan_ternary`); afterwards anything may be
    done. Random numbers do not depend on the data, but for how many ratings there are.

    Rows, columns and signs of the ratings, ``(n,)`` each and no cell twice, lie inside the public shape. Those that are
    reported come back sorted by cell; how many of them are true is private.
    """
    check_signs(signs)
    if len(rows) and not (min(rows.min(), columns.min()) >= 0 and rows.max() < shape[0] and columns.max() < shape[1]):
        raise ValueError(f"Ratings must lie inside the public grid of {shape[0]} rows and {shape[1]} columns.")
    rated = rows.astype(np.int64) * shape[1] + columns.astype(np.int64)
    order = np.argsort(rated, kind="stable")
    rated, own = rated[order], signs[order]
    if (rated[1:] == rated[:-1]).any():
        raise ValueError("Every cell may have one sign, and some have several. Keep one rating of each pair.")

    # Unrated cells: +1 with probability `other` among all, then -1 among the rest, where that is other/(1 - other).
    # What falls on ratings is dropped below, because these draw for themselves.
    other = (1 - Fraction(plan.keep)) / 2
    positive = sampled_cells(shape[0] * shape[1], other, noise)
    negative = sampled_cells(shape[0] * shape[1], other / (1 - other), noise)
    negative = np.setdiff1d(negative, positive, assume_unique=True)
    # Ratings: the truth with probability `keep`, else a coin between the other sign and nothing.
    told, turned = (bernoulli(share, len(rated), noise) for share in (plan.keep, Fraction(1, 2)))
    own = np.where(told, own, -own)
    shown = told | turned

    false_up, false_down = (np.setdiff1d(cells, rated, assume_unique=True) for cells in (positive, negative))
    made_up = np.repeat(np.array([1, -1], dtype=signs.dtype), [len(false_up), len(false_down)])
    cells = np.concatenate([rated[shown], false_up, false_down])
    values = np.concatenate([own[shown], made_up])
    order = np.argsort(cells, kind="stable")
    return cells[order] // shape[1], cells[order] % shape[1], values[order]
