"""ClaimedMechanism: a mechanism of another package, or none at all, whose figures are what its maker states."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from zoo.privacy.accounting.accountant import flattened
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    RandomisedResponseEvent,
)
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import Arrays, Mechanism, MechanismError, Plain, Statement
from zoo.privacy.rows.denoising import Cells, GaussianCells, KeptCells

_NORMS: dict[type[PrivacyEvent], str] = {
    GaussianEvent: "L2",
    GaussianProjectionEvent: "L2",
    PoissonSampledGaussianEvent: "L2",
    LaplaceEvent: "L1",
    RandomisedResponseEvent: "L1",
}
_SMALLEST = 1e-30  # number that a denoiser takes for one; the largest is its inverse
_RESULTS = {"guarantee", "unit", "relation", "epsilon", "delta", "mu", "compositions", "noise source", "accountant"}
_LOSS = {"epsilon", "eps", "delta", "mu", "guarantee", "proved", "ε", "δ", "μ"}


@dataclass(frozen=True, kw_only=True)
class ClaimedMechanism(Mechanism):
    """What a record states of a mechanism that this reader does not know, or that protects nobody.

    Nothing can be derived, so every figure is a field. A guarantee is one on the condition that its maker's claim is true.
    """

    relations = frozenset(Relation)
    ours: ClassVar[bool] = False  # whether the class that made it is one of this package

    name: str = ""  # type: ignore[misc]
    relation: Relation | None = None  # type: ignore[assignment]
    delta: float | None = None  # type: ignore[assignment]
    epsilon: float | None = None  # type: ignore[assignment]
    mu: float | None = None
    requested_epsilon: float | None = None
    sensitivity: float | None = None  # type: ignore[assignment]
    sensitivity_norm: str | None = None  # type: ignore[assignment]
    clip: float | None = None
    noise_std: float | None = None  # type: ignore[assignment]
    compositions: int = 1
    inputs: Mapping[str, Plain] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse figures that contradict each other; the record checks their ranges."""
        for name in ("assumptions", "not_protected", "conditions"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "inputs", dict(self.inputs))
        users = self.inputs.get("num_users")
        object.__setattr__(self, "num_users", users if type(users) is int else 0)
        for name in ("delta", "epsilon", "mu", "requested_epsilon", "sensitivity", "clip", "noise_std"):
            if type(value := getattr(self, name)) is int:
                object.__setattr__(self, name, float(value))
        if (self.sensitivity is None) != (self.sensitivity_norm is None):
            raise MechanismError("sensitivity and sensitivity_norm go together: state both or neither.")

    @property
    def event(self) -> PrivacyEvent:
        """Nothing is known of it but what the ledger says."""
        return NonPrivateEvent()

    @property
    def statement(self) -> Statement:
        """As stated."""
        return Statement(self.assumptions, self.not_protected, self.conditions)

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """As stated."""
        return dict(self.inputs)

    @property
    def parameters(self) -> dict[str, Plain | None]:
        """The public inputs; all else stands in the record itself."""
        return dict(self.inputs)

    @property
    def cells(self) -> Cells | None:
        """By the names of public inputs that denoising knows; ValueError if one is no number that can be."""
        if "flip_probability" in self.inputs:
            return KeptCells.flipped(self._number("flip_probability", 0.5), self._number("keep", 1.0))
        if "sigma" not in self.inputs or self.clip is not None:
            return None
        sigma = self._number("sigma")
        return KeptCells.above(self._number("threshold"), sigma) if "threshold" in self.inputs else GaussianCells(sigma)

    def _number(self, name: str, largest: float = 1 / _SMALLEST) -> float:
        value = self.inputs.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _SMALLEST <= value <= largest:
            raise ValueError(
                f"A denoiser needs {name} from the record of {self.name}, a number from {_SMALLEST:g} to {largest:g}; it says "
                f"{repr(value)[:80]}. Leave the denoiser out, or ask the source party for a record that says how rows were drawn."
            )
        return float(value)

    def check_kind(self, tensors: Arrays) -> None:
        """Take all tensors: nothing is known of them here."""

    def check_ledger(self, ledger: Iterable[PrivacyEvent]) -> None:
        """Refuse figures that contradict what any ledger says of any record."""
        counted = [(event, int(count)) for entry in ledger for event, count in flattened(entry, 1.0)]
        uses = sum(count for event, count in counted if type(event).__name__ != "NoOpEvent")
        if self.compositions != uses:
            raise MechanismError(
                f"{self.name}: the record states {self.compositions} compositions, its ledger has {uses} events."
            )
        event = counted[0][0]
        if self.sensitivity_norm != (norm := _NORMS.get(type(event), self.sensitivity_norm)):
            raise MechanismError(
                f"{self.name}: the sensitivity is stated in the norm {self.sensitivity_norm}, the noise is over that in {norm}."
            )
        flips = [count for flip, count in counted if isinstance(flip, RandomisedResponseEvent)]
        items = self.inputs.get("num_items")
        users = self.relation is not None and self.relation.unit is Unit.USER
        if flips and users and (type(items) is not int or min(flips) < items):
            raise MechanismError(
                f"{self.name}: flips of one bit protect one rating. For whole users each must be in the ledger once for every "
                f"item (num_items {items!r})."
            )
        flip = event.flip_probability if isinstance(event, RandomisedResponseEvent) else None
        sigma = event.noise_multiplier * (self.sensitivity or 0.0) if isinstance(event, GaussianEvent) else None
        for name, stated, due in (
            ("flip_probability", self.inputs.get("flip_probability", flip), flip),
            ("sigma", self.inputs.get("sigma", sigma), sigma),
            ("noise_scale", self.noise_std if "sigma" in self.inputs else sigma, sigma),
        ):
            if not close(stated, due):
                raise MechanismError(f"{self.name}: {name} is stated as {str(stated)[:80]}, its ledger gives {due}.")


def close(one: Any, other: Any, tolerance: float = 1e-9) -> bool:  # noqa: ANN401  plain JSON
    """Whether two plain values are equal; numbers up to rounding. A bool is no number."""
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)]
    if all(numbers):
        return bool(abs(one - other) <= tolerance * max(abs(one), abs(other)))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(close(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(close(*pair, tolerance) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def check_names(mechanism: str, names: Iterable[str]) -> None:
    """Refuse names of public inputs that repeat a result of the record, or tell the seed of the noise."""
    for name in names:
        plain = " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", name).casefold().replace("_", " ")))
        if plain in _RESULTS or _LOSS & {*plain.split()} or "privacy loss" in plain:
            raise MechanismError(f"{mechanism}: the public input {name!r} must not repeat what the record states.")
        if {"noise", "seed"} <= {*plain.split()}:
            raise MechanismError(
                f"{mechanism}: the public input {name!r} tells the seed of the noise. Whoever knows it can subtract the noise."
            )
