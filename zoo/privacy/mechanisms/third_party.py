"""ThirdPartyMechanism: a mechanism of another package, or none, whose figures are taken as stated."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from zoo.privacy.accounting.accountant import flattened
from zoo.privacy.accounting.events import (
    MAX_COUNT,
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
from zoo.privacy.rows.denoising import EntryModel, GaussianEntries, SparseEntries

_NORMS: dict[type[PrivacyEvent], str] = {
    GaussianEvent: "L2",
    GaussianProjectionEvent: "L2",
    PoissonSampledGaussianEvent: "L2",
    LaplaceEvent: "L1",
    RandomisedResponseEvent: "L1",
}
_SMALLEST, _LARGEST = 1e-30, 1e30  # numbers that a denoiser accepts
_RESULTS = {"guarantee", "unit", "relation", "epsilon", "delta", "mu", "compositions", "noise source", "accountant"}
_LOSS = {
    "epsilon", "epsilons", "eps", "delta", "deltas", "mu", "guarantee", "guarantees", "guaranteed", "proved",
    "proven",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ThirdPartyMechanism(Mechanism):
    """A mechanism that this reader does not know, or that protects no user, as a record states it.

    Nothing can be derived, so every figure is a field. A guarantee assumes that the claim of its maker is true.
    """

    relations = frozenset(Relation)
    built_in: ClassVar[bool] = False  # whether the class that made it is in this package

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
        """Refuse figures that contradict each other; the record checks the ranges."""
        for name in ("assumptions", "not_protected", "conditions"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "inputs", dict(self.inputs))
        users = self.inputs.get("num_users")
        object.__setattr__(self, "num_users", users if type(users) is int else 0)
        if self.num_users > MAX_COUNT:
            raise MechanismError(f"{self.name}: num_users is {repr(users)[:80]}. Allowed: <= 2**53.")
        for name in ("delta", "epsilon", "mu", "requested_epsilon", "sensitivity", "clip", "noise_std"):
            if type(value := getattr(self, name)) is int:
                object.__setattr__(self, name, float(value))
        if (self.sensitivity is None) != (self.sensitivity_norm is None):
            raise MechanismError("sensitivity or sensitivity_norm is missing. State both or neither.")

    @property
    def event(self) -> PrivacyEvent:
        """A non-private event; only the ledger knows more."""
        return NonPrivateEvent()

    @property
    def statement(self) -> Statement:
        """The stated codes."""
        return Statement(self.assumptions, self.not_protected, self.conditions)

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """The stated inputs."""
        return dict(self.inputs)

    @property
    def parameters(self) -> dict[str, Plain | None]:
        """The public inputs; the record itself holds all other fields."""
        return dict(self.inputs)

    @property
    def entry_model(self) -> EntryModel | None:
        """Model by names of public inputs that denoising knows; a ValueError if one is no valid number."""
        if "flip_probability" in self.inputs:
            return SparseEntries.flipped(self._number("flip_probability", 0.5), self._number("keep", 1.0))
        if "sigma" not in self.inputs or self.clip is not None:
            return None
        sigma = self._number("sigma")
        if "threshold" in self.inputs:
            return SparseEntries.above(self._number("threshold"), sigma)
        return GaussianEntries(sigma)

    def _number(self, name: str, largest: float = _LARGEST) -> float:
        value = self.inputs.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _SMALLEST <= value <= largest:
            raise ValueError(
                f"{name} is {repr(value)[:80]} in the record of {self.name}. Allowed: [{_SMALLEST:g}, {largest:g}]. "
                "Omit the denoiser."
            )
        return float(value)

    def check_kind(self, tensors: Arrays) -> None:
        """Accept all tensors, because nothing is known about them."""

    def check_ledger(self, ledger: Iterable[PrivacyEvent]) -> None:
        """Refuse figures that contradict the ledger."""
        counted = [(event, int(count)) for entry in ledger for event, count in flattened(entry, 1.0)]
        uses = sum(count for event, count in counted if type(event).__name__ != "NoOpEvent")
        if self.compositions != uses:
            raise MechanismError(f"{self.name}: compositions is {self.compositions}. The ledger has {uses} events.")
        event = counted[0][0]
        if self.sensitivity_norm != (norm := _NORMS.get(type(event), self.sensitivity_norm)):
            raise MechanismError(f"{self.name}: sensitivity_norm is {self.sensitivity_norm}. The noise needs {norm}.")
        flips = [count for flip, count in counted if isinstance(flip, RandomisedResponseEvent)]
        items = self.inputs.get("num_items")
        users = self.relation is not None and self.relation.unit is Unit.USER
        if flips and users and (type(items) is not int or min(flips) < items):
            raise MechanismError(
                f"{self.name}: flips protect ratings. For users the ledger needs each num_items ({items!r}) times."
            )
        flip = event.flip_probability if isinstance(event, RandomisedResponseEvent) else None
        sigma = event.noise_multiplier * (self.sensitivity or 0.0) if isinstance(event, GaussianEvent) else None
        for name, stated, due in (
            ("flip_probability", self.inputs.get("flip_probability", flip), flip),
            ("sigma", self.inputs.get("sigma", sigma), sigma),
            ("noise_scale", self.noise_std if "sigma" in self.inputs else sigma, sigma),
        ):
            if not nearly_equal(stated, due):
                raise MechanismError(f"{self.name}: {name} is {repr(stated)[:80]}. The ledger gives {due}.")


def nearly_equal(one: Any, other: Any, tolerance: float = 1e-9) -> bool:  # noqa: ANN401  plain JSON
    """Return whether two plain values are equal, numbers up to rounding. A bool is no number."""
    numbers = [isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other)]
    if all(numbers):
        return bool(abs(one - other) <= tolerance * max(abs(one), abs(other)))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(nearly_equal(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(nearly_equal(*pair, tolerance) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def unmarked(text: str) -> str:
    """Return a text with compatible characters (NFKD) and without accents and invisible marks.

    Examples:
        >>> unmarked("\N{FULLWIDTH LATIN SMALL LETTER E}\N{COMBINING ACUTE ACCENT}ps")
        'eps'
    """
    return "".join(c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c) not in ("Mn", "Me", "Cf"))


def repeats_result(name: str) -> bool:
    """Whether the name of a public input repeats a result of the record, such as ``relation``, or is refused otherwise."""
    try:
        check_input_names("", [name])
    except MechanismError:
        return True
    return False


def check_input_names(mechanism: str, names: Iterable[str]) -> None:
    """Refuse names of public inputs that repeat a result of the record, reveal the seed of the noise, or have other letters.

    Letters other than those of English, such as Greek or Cyrillic ones, can look like these.
    """
    for name in names:
        # Words of letters alone: "rowEps", "eps_1" and "épsilon2" count as "eps" and "epsilon".
        letters = unmarked(name)
        words = re.findall(r"[^\W\d_]+", re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])", " ", letters).casefold())
        plain = " ".join(words)
        if not plain.isascii():
            raise MechanismError(f"{mechanism}: the public input {name!r} has letters beside a to z. Rename it.")
        if plain in _RESULTS or _LOSS & {*words} or "privacyloss" in "".join(words):
            raise MechanismError(f"{mechanism}: the public input {name!r} repeats a result of the record. Rename it.")
        if {"noise", "seed"} <= {*words}:
            raise MechanismError(f"{mechanism}: the public input {name!r} reveals the noise. Do not publish the seed.")
