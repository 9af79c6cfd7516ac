"""Mechanism: one typed value that says how a release is noised, what it costs, and what it assumes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy.typing as npt

from zoo.privacy.accounting.accountant import Accountant, UnsupportedEventError, flattened
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.rows.denoising import Cells

Plain = str | int | float | bool
"""Types of public inputs."""
Arrays = Mapping[str, npt.NDArray[Any]]
"""Tensors of a release by name."""

ONE_RATING = frozenset({Relation.CHANGE_ONE_RATING})
ONE_VALUE = frozenset({Relation.CHANGE_ONE_RATING_VALUE})
ONE_USER = frozenset({Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER})


class MechanismError(ValueError):
    """Parameters that no mechanism can have, or tensors that a mechanism cannot have made."""


class Finding(NamedTuple):
    """One statistic of a goodness-of-fit test."""

    what: str  # what is unlikely, in words
    probability: float  # upper bound of its probability in tensors that are as claimed


class Statement(NamedTuple):
    """Codes of what a guarantee assumes and does not cover; `zoo.privacy.record.words` has the sentences."""

    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """What one release does to the data, by a few independent parameters; everything else is derived from them.

    A subclass is one file in this package. Its fields are written to the record of each release. A reader builds the mechanism from
    them and derives all other figures and codes again, so no record can state two values of one fact.
    """

    name: ClassVar[str]  # in records
    relations: ClassVar[frozenset[Relation]]  # neighbouring relations that may be claimed
    tensors: ClassVar[frozenset[str]] = (
        frozenset()
    )  # a release holds at least one of these; empty: it publishes nothing
    made: ClassVar[str] = "no release"  # the same in words
    checks_noise: ClassVar[bool] = False  # whether `check` tests the noise
    sentences: ClassVar[Mapping[str, str]] = {}  # of codes that `zoo.privacy.record.words` does not have
    independent_ratings: ClassVar[bool] = False  # whether k ratings of a user cost sqrt(k) times mu

    relation: Relation  # neighbouring relation of the guarantee
    delta: float = 0.0  # probability beyond which nothing is promised
    num_users: int = 1  # public
    num_items: int = 1  # public

    def __post_init__(self) -> None:
        """Refuse parameters that the class cannot have; they may come from another party."""
        if self.relation not in self.relations:
            raise MechanismError(
                f"{self.name}: relation is {self.relation.value!r}. Allowed are {sorted(r.value for r in self.relations)}."
            )
        if not 0 <= self.delta < 1:
            raise MechanismError(f"{self.name}: delta is {self.delta!r}. It must lie in [0, 1).")
        for name, kind in kinds(type(self)).items():
            value = getattr(self, name)
            if kind.startswith("float") and type(value) is int:
                object.__setattr__(self, name, float(value))
            if isinstance(value, float) and not math.isfinite(value):
                raise MechanismError(f"{self.name}: {name} is {value!r}. It must be finite.")

    # Privacy loss.

    @property
    @abstractmethod
    def event(self) -> PrivacyEvent:
        """What the ledger gets."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Norm of what one change adds to the data, bounded and before noise and any projection."""

    @property
    @abstractmethod
    def noise_std(self) -> float:
        """Standard deviation (or Laplace scale) of the noise on each published number."""

    @property
    def sensitivity_norm(self) -> str:
        """Norm of the sensitivity, "L1" or "L2"."""
        return "L2"

    @property
    def bound(self) -> float | None:
        """Public number that the data of one user are clipped to; None without a clip."""
        return getattr(self, "clip", None)

    @cached_property
    def epsilon(self) -> float:
        """Proved privacy loss at delta, rounded up to nine digits: below that are margins of calibration and of machines."""
        return nine_digits(Accountant(self.relation, [self.event]).epsilon(self.delta))

    @cached_property
    def mu(self) -> float | None:
        """Of the Gaussian release that equals this one; None where there is none."""
        try:
            return Accountant(self.relation, [self.event]).mu
        except UnsupportedEventError:
            return None

    @property
    def requested_epsilon(self) -> float | None:
        """Epsilon asked for, where it is not what this release alone is proved to cost."""
        return None

    @property
    def compositions(self) -> int:
        """How many times the data are used."""
        return sum(int(count) for _, count in flattened(self.event, 1.0))

    # What is said of it.

    @property
    @abstractmethod
    def statement(self) -> Statement:
        """Codes of assumptions, of what is not protected, and of conditions."""

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Public settings, and what a denoiser needs to know."""
        return {"num_users": self.num_users, "num_items": self.num_items}

    @property
    def parameters(self) -> dict[str, Plain | None]:
        """The fields, as plain JSON."""
        values = ((entry.name, getattr(self, entry.name)) for entry in fields(self))
        return {name: value.value if isinstance(value, StrEnum) else value for name, value in values}

    @property
    def cells(self) -> Cells | None:
        """How 0/1 entries were drawn, for a denoiser; None where a release has no such entries."""
        return None

    # Goodness of fit.

    def check(self, tensors: Arrays) -> list[Finding]:
        """Return statistics of every tensor that carries noise; `MechanismError` where one is impossible."""
        return []

    def check_kind(self, tensors: Arrays) -> None:
        """Refuse tensors that this mechanism does not make."""
        if not self.tensors & tensors.keys():
            raise MechanismError(
                f"The record is of {self.name}, which makes {self.made}. The release holds {sorted(tensors)}."
            )


def nine_digits(epsilon: float) -> float:
    """Return an epsilon rounded up to nine significant digits.

    >>> nine_digits(7.999999999041271)
    8.0
    """
    if not 0 < epsilon < math.inf:
        return epsilon
    exact = Decimal(epsilon)
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 8), rounding=ROUND_CEILING))


def kinds(kind: type[Mechanism]) -> dict[str, str]:
    """Return the fields of a mechanism and the type of each, as it is written in the class."""
    types = {entry.name: entry.type for entry in fields(kind)}
    return {
        name: given if isinstance(given, str) else getattr(given, "__name__", str(given))
        for name, given in types.items()
    }


def of_row(relation: Relation, clip: float | None, of_rating: float = 1.0) -> float:
    """Return how far one change moves rows (L2): a rating by ``of_rating``, a user by the clip, twice that if replaced."""
    if relation.unit is not Unit.USER:
        return of_rating
    if clip is None or not 0 < clip < math.inf:
        raise MechanismError(f"clip is {clip!r}. For whole users it must be a positive number.")
    return clip * (2 if relation is Relation.REPLACE_ONE_USER else 1)


def check_positive(mechanism: Mechanism, *names: str, most: float = math.inf) -> None:
    """Refuse fields that are not positive numbers, up to a largest one; None is allowed."""
    for name in names:
        value = getattr(mechanism, name)
        if value is not None and not (isinstance(value, int | float) and 0 < value <= most and value < math.inf):
            raise MechanismError(f"{mechanism.name}: {name} is {value!r}. It must be a positive number up to {most:g}.")
