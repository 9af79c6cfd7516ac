"""What follows from a record's mechanism, steps and provisos: every figure and every code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from zoo.privacy.accounting.accountant import ACCOUNTANT, Accountant, flattened
from zoo.privacy.accounting.events import PrivacyEvent, event_to_dict
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import Mechanism, MechanismError, Plain, nine_digits
from zoo.privacy.mechanisms.claimed import ClaimedMechanism, check_names, close
from zoo.privacy.randomness.noise import KEYED, OS_ENTROPY, SEEDED
from zoo.privacy.record.fields import Guarantee, InconsistentRecordError, RecordError, check_number
from zoo.privacy.record.steps import Done, conditions_of
from zoo.privacy.record.words import CLAIMED_BY

NO_NOISE = "none"
"""The noise source of a release without noise."""
TRIED = "num_candidates"
"""Public input that says among how many releases one was chosen."""

_SECRET = (OS_ENTROPY, KEYED)  # what a guarantee may rest on; of a generator, if its output cannot be told from noise
_NOISE_SOURCES = (*_SECRET, SEEDED, NO_NOISE)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """That a release was chosen among several by their results, which costs what all of them cost."""

    num_candidates: int  # this release among them
    events: tuple[PrivacyEvent, ...]  # of all of them, those of this release first
    delta: float  # the largest of theirs
    has_mu: bool  # whether each equals a Gaussian release
    conditions: tuple[str, ...] = ()  # of all of them
    seeds: tuple[str, ...] = ()  # of projections of the others, over which their guarantees are means

    @property
    def compositions(self) -> int:
        """Uses of the data by all of them."""
        return sum(int(count) for event in self.events for _, count in flattened(event, 1.0))


@dataclass(frozen=True, kw_only=True)
class Derived:
    """The fields of a `zoo.privacy.record.record.PrivacyRecord`, and what follows from them.

    `RecordError` if fields contradict each other or a value is out of range.
    """

    mechanism: Mechanism  # what made the release
    noise_source: str  # "os entropy", "philox keyed by os entropy", "seeded noise" or "none"
    steps: tuple[Done, ...] = ()  # what was done to the ratings before, in order
    notes: Mapping[str, Plain] = field(default_factory=dict)  # further public inputs, from which nothing follows
    reasons: tuple[str, ...] = ()  # codes or texts: why there is no guarantee
    provisos: tuple[str, ...] = ()  # codes or texts: further conditions
    selection: Selection | None = None  # that the release was chosen among several

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", dict(self.notes))
        for name in ("steps", "reasons", "provisos"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_texts()
        for name in ("epsilon", "mu", "sensitivity", "clip", "noise_scale", "requested_epsilon"):
            # Of ours they are derived, and an epsilon takes a search that nobody has asked for yet.
            if isinstance(self.mechanism, ClaimedMechanism):
                check_number(name, getattr(self, name), math.inf)
        check_number("delta", self.delta, 1.0)
        if self.noise_source not in _NOISE_SOURCES:
            raise RecordError(f"noise_source must be one of {_NOISE_SOURCES}, got {self.noise_source!r}.")
        if type(self.compositions) is not int or self.compositions < 0:
            raise RecordError(f"compositions must be an integer of at least 0, got {self.compositions!r}.")
        if self.sensitivity_norm not in (None, "L1", "L2"):
            raise RecordError(f"sensitivity_norm must be 'L1' or 'L2', got {self.sensitivity_norm!r}.")
        if self.claims:
            self._check_claims()

    def _check_texts(self) -> None:
        statement, inputs = self.mechanism.statement, self.public_inputs
        texts: list[object] = [self.mechanism.name, *inputs, *self.reasons, *self.provisos, *sum(statement, ())]
        texts += [step.words for step in self.steps]
        texts += [value for value in inputs.values() if isinstance(value, str)]
        for text in texts:
            if not isinstance(text, str) or not text or not text.isprintable():
                raise RecordError(f"Texts of a record must be non-empty and printable, got {str(text)[:80]!r}.")
        for name, value in inputs.items():
            if not isinstance(value, Plain) or (isinstance(value, float) and not math.isfinite(value)):
                raise RecordError(f"public_inputs[{name!r}] must be a text, a finite number or a bool.")
        try:
            stated = self.mechanism.public_inputs if isinstance(self.mechanism, ClaimedMechanism) else {}
            check_names(self.mechanism.name, [*self.notes, *stated])
        except MechanismError as error:
            raise InconsistentRecordError(str(error)) from error

    def _check_claims(self) -> None:
        claimed = isinstance(self.mechanism, ClaimedMechanism)
        names = ("relation", "delta", *(("epsilon",) if claimed else ()))
        if missing := [name for name in names if getattr(self, name) is None]:
            raise RecordError(f"A guarantee must state {', '.join(missing)}; without, use guarantee 'none'.")
        if not self.sensitivity or not self.noise_scale or self.compositions < 1:
            raise RecordError(
                "A guarantee must state a positive sensitivity and noise_scale, and at least one composition; got "
                f"{self.sensitivity}, {self.noise_scale} and {self.compositions}."
            )
        if self.unit is Unit.USER and self.clip is None:
            raise RecordError("A guarantee for whole users must state the clip that bounds one user.")
        if self.noise_source not in _SECRET:
            raise RecordError(
                f"A guarantee needs noise from {' or '.join(map(repr, _SECRET))}, got {self.noise_source!r}. "
                "Whoever knows the seed can subtract the noise: leave the seed out, or use without_guarantee."
            )
        if self.selection is not None and not claimed:
            first, own = (event_to_dict(event) for event in (self.selection.events[0], self.mechanism.event))
            if not close(first, own):
                raise InconsistentRecordError(
                    f"{self.mechanism.name}: the events must begin with those of the release."
                )

    # What is claimed.

    @property
    def claims(self) -> bool:
        """Whether an epsilon is stated, with conditions or without."""
        return not self.reasons

    @property
    def guarantee(self) -> Guarantee:
        """Whether the epsilon is proved, or proved under conditions; without, there is none."""
        if self.reasons:
            return Guarantee.NONE
        return Guarantee.CONDITIONAL if self.conditions else Guarantee.PROVED

    @property
    def relation(self) -> Relation | None:
        """Which two data sets are kept alike."""
        return self.mechanism.relation

    @property
    def unit(self) -> Unit | None:
        """Who is protected."""
        relation: Relation | None = self.mechanism.relation
        return None if relation is None else relation.unit

    @cached_property
    def epsilon(self) -> float | None:
        """Proved privacy loss at delta."""
        if not self.claims:
            return None
        if self.selection is None:
            return self.mechanism.epsilon
        return nine_digits(Accountant(self.relation, self.selection.events).epsilon(self.selection.delta))

    @property
    def delta(self) -> float | None:
        """Probability beyond which nothing is promised."""
        if not self.claims:
            return None
        return self.mechanism.delta if self.selection is None else self.selection.delta

    @property
    def mu(self) -> float | None:
        """Of the Gaussian release that equals this one, where there is one."""
        if not self.claims:
            return None
        if self.selection is None:
            return self.mechanism.mu
        return Accountant(self.relation, self.selection.events).mu if self.selection.has_mu else None

    @property
    def requested_epsilon(self) -> float | None:
        """Asked for, where it is not what is proved: in the calibration of the paper, or of several releases together."""
        return self.mechanism.requested_epsilon if self.claims and self.selection is None else None

    @property
    def sensitivity(self) -> float | None:
        """How far one change moves the query, before noise and before any projection."""
        return self.mechanism.sensitivity

    @property
    def sensitivity_norm(self) -> str | None:
        """In which it is measured: "L1" or "L2"."""
        return self.mechanism.sensitivity_norm

    @property
    def clip(self) -> float | None:
        """Bound that the data were clipped to, if they were."""
        return self.mechanism.bound

    @property
    def noise_scale(self) -> float | None:
        """Deviation (or scale) of the noise on each number, in the release's units."""
        return self.mechanism.noise_std

    @property
    def compositions(self) -> int:
        """How many times the data were used."""
        return self.mechanism.compositions if self.selection is None else self.selection.compositions

    @property
    def accountant(self) -> str:
        """What computed epsilon, with its version."""
        return ACCOUNTANT

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Settings and public knowledge, public seeds too."""
        inputs = {**self.mechanism.public_inputs, **self.notes}
        if self.selection is not None:
            inputs[TRIED] = self.selection.num_candidates
            if self.selection.seeds:
                inputs["projection seeds of the others"] = " ".join(self.selection.seeds)
        return inputs

    @property
    def conditions(self) -> tuple[str, ...]:
        """Codes of what must be true for the epsilon to be that of the file that the source holds."""
        if self.reasons:
            return ()
        found = [*self.mechanism.statement.conditions]
        if self.unit is not None:
            found += conditions_of(self.steps, self.unit)
        found += self.provisos
        if self.selection is not None:
            found += self.selection.conditions
        kind = type(self.mechanism)
        if not any(code.startswith(CLAIMED_BY) for code in found):
            if isinstance(self.mechanism, ClaimedMechanism):
                found += [] if self.mechanism.ours else [f"{CLAIMED_BY}{self.mechanism.name!r}"]
            elif not kind.__module__.startswith("zoo."):
                found.append(f"{CLAIMED_BY}{kind.__module__}.{kind.__qualname__}")
        return tuple(dict.fromkeys(found))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Codes of what the release takes for given, and how the data were bounded."""
        return self.mechanism.statement.assumptions

    @property
    def not_protected(self) -> tuple[str, ...]:
        """Codes of what the guarantee does not cover."""
        return self.mechanism.statement.not_protected

    @property
    def ledger(self) -> tuple[PrivacyEvent, ...]:
        """Events that the epsilon is computed from; of a claimed mechanism they are not known."""
        return (self.mechanism.event,) if self.selection is None else self.selection.events
