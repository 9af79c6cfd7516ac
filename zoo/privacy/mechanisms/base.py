"""Mechanism: one typed value that holds how a release is noised, what it costs, and what it assumes."""

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
from zoo.privacy.accounting.events import MAX_COUNT, GaussianEvent, PrivacyEvent
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.rows.denoising import EntryModel
from zoo.runtime.renamed import OldName, take_new_names

Plain = str | int | float | bool
"""Types of public inputs."""
Arrays = Mapping[str, npt.NDArray[Any]]
"""Tensors of a release by name."""

ONE_RATING = frozenset({Relation.CHANGE_ONE_RATING})
ONE_VALUE = frozenset({Relation.CHANGE_ONE_RATING_VALUE})
ONE_USER = frozenset({Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER})


class MechanismError(ValueError):
    """Invalid parameters of a mechanism, or tensors that the mechanism cannot have made."""


class Finding(NamedTuple):
    """One statistic of a goodness-of-fit test."""

    what: str  # what is unlikely
    probability: float  # upper bound of its probability, if the tensors are as claimed


class Statement(NamedTuple):
    """Codes of what a guarantee assumes and does not cover; their sentences are in `zoo.privacy.record.words`."""

    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """What one release does to the data, as a few independent parameters; everything else is derived from them.

    The fields of a subclass are written to the record of each release. A reader builds the mechanism
    from them and derives all figures and codes again, so a record cannot state two values of one fact.

    Raises:
        MechanismError: The class does not allow the parameters.

    Examples:
        >>> from zoo.privacy.mechanisms import NoisyRows
        >>> rows = NoisyRows.calibrate(epsilon=8.0, delta=1e-5, num_users=100, num_items=40)
        >>> rows.epsilon, round(rows.noise_std, 3), rows.statement.not_protected
        (8.0, 0.6, ('sets', 'evaluation_items', 'several_ratings_sqrt'))
    """

    name: ClassVar[str]  # in records
    relations: ClassVar[frozenset[Relation]]  # allowed neighbouring relations
    tensors: ClassVar[frozenset[str]] = frozenset()  # a release has at least one of these; empty: it publishes nothing
    output_name: ClassVar[str] = "no release"  # the same in words
    checks_noise: ClassVar[bool] = False  # whether `check` tests the noise
    sentences: ClassVar[Mapping[str, str]] = {}  # of codes that `zoo.privacy.record.words` does not have
    independent_ratings: ClassVar[bool] = False  # whether k ratings of a user cost sqrt(k) times mu, or k flips
    made = OldName("output_name")
    cells = OldName("entry_model")

    relation: Relation  # neighbouring relation of the guarantee
    delta: float = 0.0  # probability with which the bound epsilon may fail
    num_users: int = 1  # public
    num_items: int = 1  # public

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401  of other base classes
        super().__init_subclass__(**options)
        take_new_names(cls, Mechanism)

    def __post_init__(self) -> None:
        """Check the parameters, which may come from another party."""
        if self.relation not in self.relations:
            raise MechanismError(
                f"{self.name}: relation is {self.relation.value!r}. Allowed: {sorted(r.value for r in self.relations)}."
            )
        if not 0 <= min(self.num_users, self.num_items) <= max(self.num_users, self.num_items) <= MAX_COUNT:
            sizes = f"{self.num_users}, {self.num_items}"[:80]
            raise MechanismError(f"{self.name}: users, items are {sizes}. Allowed: 0 to 2**53.")
        if not 0 <= self.delta < 1:
            raise MechanismError(f"{self.name}: delta is {self.delta!r}. Allowed: [0, 1).")
        for name, kind in field_types(type(self)).items():
            value = getattr(self, name)
            if kind.startswith("float") and type(value) is int:
                object.__setattr__(self, name, float(value))
            if isinstance(value, float) and not math.isfinite(value):
                raise MechanismError(f"{self.name}: {name} is {value!r}. It must be finite.")

    @property
    def of_another_package(self) -> bool:
        """Whether the class is of another package, so that nothing of it was audited here."""
        return not type(self).__module__.startswith("zoo.")

    # Privacy loss.

    @property
    @abstractmethod
    def event(self) -> PrivacyEvent:
        """Privacy event of the ledger."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Norm of what one change adds to the bounded data, before noise and projection."""

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
        """Public number that one user's data are clipped to, or None."""
        return getattr(self, "clip", None)

    @cached_property
    def epsilon(self) -> float:
        """Proved privacy loss at delta, rounded up to nine digits (above the error of calibration and of machines)."""
        return round_up_epsilon(Accountant(self.relation, [self.event]).epsilon(self.delta))

    @cached_property
    def mu(self) -> float | None:
        """Parameter of the equivalent Gaussian release, or None."""
        try:
            return Accountant(self.relation, [self.event]).mu
        except UnsupportedEventError:
            return None

    @property
    def weakness(self) -> str | None:
        """Why these parameters give no guarantee, or None."""
        return None

    @property
    def requested_epsilon(self) -> float | None:
        """Requested epsilon where it differs from the proved one, or None."""
        return None

    @property
    def compositions(self) -> int:
        """Number of uses of the data."""
        return sum(int(count) for _, count in flattened(self.event, 1.0))

    # Statements.

    @property
    @abstractmethod
    def statement(self) -> Statement:
        """Codes of assumptions, of what is not protected, and of conditions."""

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Public settings, and what a denoiser needs."""
        return {"num_users": self.num_users, "num_items": self.num_items}

    @property
    def parameters(self) -> dict[str, Plain | None]:
        """Fields as plain JSON."""
        values = ((entry.name, getattr(self, entry.name)) for entry in fields(self))
        return {name: value.value if isinstance(value, StrEnum) else value for name, value in values}

    @property
    def entry_model(self) -> EntryModel | None:
        """How 0/1 entries were drawn, for a denoiser; None if the release has no such entries."""
        return None

    # Goodness of fit.

    def check(self, tensors: Arrays) -> list[Finding]:
        """Return statistics of every tensor that carries noise; raise a `MechanismError` if one is impossible."""
        return []

    def check_kind(self, tensors: Arrays) -> None:
        """Refuse tensors that this mechanism does not make."""
        if not self.tensors & tensors.keys():
            raise MechanismError(
                f"The release holds {sorted(tensors)}. Its mechanism {self.name} makes {self.output_name}."
            )


@dataclass(frozen=True, kw_only=True)
class GaussianMechanism(Mechanism):
    """A mechanism that adds Gaussian noise in proportion to the sensitivity of rows (L2)."""

    noise_multiplier: float  # standard deviation of the noise over the sensitivity

    @property
    def event(self) -> PrivacyEvent:
        """One Gaussian release."""
        return GaussianEvent(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """1 for a rating; ``clip`` for zeroing out a user, and twice that for replacement."""
        return row_sensitivity(self.relation, self.bound)

    @property
    def noise_std(self) -> float:
        """``noise_multiplier * sensitivity``."""
        return self.noise_multiplier * self.sensitivity


@dataclass(frozen=True, kw_only=True)
class ResponseMechanism(Mechanism):
    """Randomised response of single entries: one change moves one entry by 1 (L1)."""

    @property
    def sensitivity(self) -> float:
        """1, for one entry."""
        return 1.0

    @property
    def sensitivity_norm(self) -> str:
        """Always "L1"."""
        return "L1"


def round_up_epsilon(epsilon: float) -> float:
    """Return an epsilon rounded up to nine significant digits.

    Examples:
        >>> round_up_epsilon(7.999999999041271)
        8.0
    """
    if not 0 < epsilon < math.inf:
        return epsilon
    exact = Decimal(epsilon)
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 8), rounding=ROUND_CEILING))


def field_types(kind: type[Mechanism]) -> dict[str, str]:
    """Return the fields of a mechanism and the type of each, as the class declares it."""
    types = {entry.name: entry.type for entry in fields(kind)}
    return {
        name: declared if isinstance(declared, str) else getattr(declared, "__name__", str(declared))
        for name, declared in types.items()
    }


def row_sensitivity(relation: Relation, clip: float | None, of_rating: float = 1.0) -> float:
    """Return the distance that one change moves rows (L2): ``of_rating``, or the clip of a user, doubled for replacement."""
    if relation.unit is not Unit.USER:
        return of_rating
    if clip is None or not 0 < clip < math.inf:
        raise MechanismError(f"clip is {clip!r}. Allowed: > 0 for users.")
    return clip * (2 if relation is Relation.REPLACE_ONE_USER else 1)


def check_positive(mechanism: Mechanism, *names: str, most: float = math.inf) -> None:
    """Refuse fields that are not positive numbers of at most ``most``; None is allowed."""
    for name in names:
        value = getattr(mechanism, name)
        if value is not None and not (isinstance(value, int | float) and 0 < value <= most and value < math.inf):
            limit = "" if most == math.inf else f", <= {most:g}"
            raise MechanismError(f"{mechanism.name}: {name} is {value!r}. Allowed: > 0{limit}.")
