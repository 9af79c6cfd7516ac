"""Every figure and code of a record, derived from its mechanism, steps and provisos."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from zoo.privacy.accounting.accountant import ACCOUNTANT, Accountant, flattened
from zoo.privacy.accounting.events import PrivacyEvent, event_to_dict
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import Mechanism, MechanismError, Plain, round_up_epsilon
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism, check_input_names, nearly_equal
from zoo.privacy.randomness.noise import KEYED, OS_ENTROPY, SEEDED
from zoo.privacy.record.delta import delta_rule
from zoo.privacy.record.fields import Guarantee, InconsistentRecordError, RecordError, check_number
from zoo.privacy.record.steps import RecordedStep, conditions_of, refuse_missing_conditions
from zoo.privacy.record.words import CLAIMED_BY, OUTSIDE_CLASS

NO_NOISE = "none"
"""Noise source of a release without noise."""
NUM_CANDIDATES = "num_candidates"
"""Public input: the number of releases among which this one was chosen."""

_SECRET = (OS_ENTROPY, KEYED)  # sources that a guarantee may use
_NOISE_SOURCES = (*_SECRET, SEEDED, NO_NOISE)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The choice of one release among several by their results; it costs what all candidates cost together."""

    num_candidates: int  # this release included
    events: tuple[PrivacyEvent, ...]  # of all candidates, those of this release first
    delta: float  # largest of all candidates
    has_mu: bool  # whether each candidate equals a Gaussian release
    conditions: tuple[str, ...] = ()  # of all candidates
    seeds: tuple[str, ...] = ()  # projections of the other candidates, over which their guarantees are means

    @property
    def compositions(self) -> int:
        """Number of uses of the data by all candidates."""
        return sum(int(count) for event in self.events for _, count in flattened(event, 1.0))


@dataclass(frozen=True, kw_only=True)
class Derived:
    """The fields of a `zoo.privacy.record.record.PrivacyRecord`, and the figures and codes derived from them.

    Raises:
        RecordError: Fields contradict each other, or a value is out of range.
    """

    mechanism: Mechanism  # what made the release
    noise_source: str  # "os entropy", "philox keyed by os entropy", "seeded noise" or "none"
    steps: tuple[RecordedStep, ...] = ()  # what was done to the ratings before, in order
    notes: Mapping[str, Plain] = field(default_factory=dict)  # further public inputs; nothing is derived from them
    reasons: tuple[str, ...] = ()  # codes or texts: why there is no guarantee
    provisos: tuple[str, ...] = ()  # codes or texts: further conditions
    selection: Selection | None = None  # None: not chosen among several

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", dict(self.notes))
        for name in ("steps", "reasons", "provisos"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_texts()
        for name in ("epsilon", "mu", "sensitivity", "clip", "noise_scale", "requested_epsilon"):
            # Otherwise they are derived, and an epsilon takes a search that may not be needed yet.
            if isinstance(self.mechanism, ThirdPartyMechanism):
                check_number(name, getattr(self, name), math.inf)
        check_number("delta", self.delta, 1.0)
        if self.noise_source not in _NOISE_SOURCES:
            raise RecordError(f"noise_source is {self.noise_source!r}. Allowed: {_NOISE_SOURCES}.")
        if type(self.compositions) is not int or self.compositions < 0:
            raise RecordError(f"compositions is {self.compositions!r}. Allowed: integers >= 0.")
        if self.sensitivity_norm not in (None, "L1", "L2"):
            raise RecordError(f"sensitivity_norm is {self.sensitivity_norm!r}. Allowed: 'L1', 'L2'.")
        if self.claims:
            self._check_claims()

    def _check_texts(self) -> None:
        statement, inputs = self.mechanism.statement, self.public_inputs
        if taken := sorted(self.notes.keys() & {*self.mechanism.public_inputs, NUM_CANDIDATES}):
            raise InconsistentRecordError(f"The note {taken[0]!r} is a parameter. Rename it.")
        texts: list[object] = [self.mechanism.name, *inputs, *self.reasons, *self.provisos, *sum(statement, ())]
        texts += [step.words for step in self.steps]
        texts += [value for value in inputs.values() if isinstance(value, str)]
        for text in texts:
            if not isinstance(text, str) or not text or not text.isprintable():
                raise RecordError(f"A text of the record is {str(text)[:80]!r}. Allowed: printable, non-empty.")
        for name, value in inputs.items():
            if not isinstance(value, Plain) or (isinstance(value, float) and not math.isfinite(value)):
                raise RecordError(f"public_inputs[{name!r}] is no text, finite number or bool.")
        try:
            stated = self.mechanism.public_inputs if isinstance(self.mechanism, ThirdPartyMechanism) else {}
            check_input_names(self.mechanism.name, [*self.notes, *stated])
        except MechanismError as error:
            raise InconsistentRecordError(str(error)) from error

    def _check_claims(self) -> None:
        third_party = isinstance(self.mechanism, ThirdPartyMechanism)
        names = ("relation", "delta", *(("epsilon",) if third_party else ()))
        if missing := [name for name in names if getattr(self, name) is None]:
            raise RecordError(f"A guarantee lacks {', '.join(missing)}. State all.")
        if not self.sensitivity or not self.noise_scale or self.compositions < 1:
            raise RecordError(
                f"sensitivity, noise_scale and compositions are {self.sensitivity}, {self.noise_scale} and {self.compositions}. "
                "A guarantee needs all > 0."
            )
        if self.unit is Unit.USER and self.clip is None:
            raise RecordError("clip is missing. A guarantee for users must state it.")
        if self.mechanism.weakness is not None:
            raise RecordError(f"{self.mechanism.name} has no guarantee here: {self.mechanism.weakness}.")
        if self.noise_source not in _SECRET:
            raise RecordError(
                f"noise_source is {self.noise_source!r}. A guarantee needs noise from {' or '.join(map(repr, _SECRET))}. Omit the "
                "seed."
            )
        if self.unit is not None and "unstated" not in self.conditions:
            refuse_missing_conditions((step.words for step in self.steps), self.conditions, self.unit)
        chosen = self.selection
        if chosen is not None and not 2 <= chosen.num_candidates <= len(chosen.events):
            raise InconsistentRecordError(
                f"num_candidates is {chosen.num_candidates}. Allowed: 2 to {len(chosen.events)}."
            )
        if chosen is not None and not third_party:
            first, own = (event_to_dict(event) for event in (chosen.events[0], self.mechanism.event))
            if not nearly_equal(first, own):
                raise InconsistentRecordError(f"{self.mechanism.name}: its events must come first in the selection.")

    # Claims.

    @property
    def claims(self) -> bool:
        """Whether the record states an epsilon, under conditions or not."""
        return not self.reasons

    @property
    def guarantee(self) -> Guarantee:
        """Whether the epsilon is proved, proved under conditions ("conditional"), or absent."""
        if self.reasons:
            return Guarantee.NONE
        return Guarantee.CONDITIONAL if self.conditions else Guarantee.PROVED

    @property
    def relation(self) -> Relation | None:
        """Neighbouring relation."""
        return self.mechanism.relation

    @property
    def unit(self) -> Unit | None:
        """Privacy unit."""
        relation: Relation | None = self.mechanism.relation
        return None if relation is None else relation.unit

    @cached_property
    def epsilon(self) -> float | None:
        """Proved privacy loss at `delta`, or None."""
        if not self.claims:
            return None
        if self.selection is None:
            return self.mechanism.epsilon
        return round_up_epsilon(Accountant(self.relation, self.selection.events).epsilon(self.selection.delta))

    @property
    def delta(self) -> float | None:
        """Probability with which the bound `epsilon` may fail, or None."""
        if not self.claims:
            return None
        return self.mechanism.delta if self.selection is None else self.selection.delta

    @property
    def delta_rule(self) -> str | None:
        """Code of the rule that gives `delta`; None without one. A file of before the rule had the delta of users for ratings."""
        earlier = "delta_rule" not in vars(self).get("_read", {"delta_rule"})
        sizes = self.mechanism.num_users, self.mechanism.num_items
        return delta_rule(self.delta, self.unit, *sizes, earlier=earlier)

    @property
    def mu(self) -> float | None:
        """Parameter of the equivalent Gaussian release, or None."""
        if not self.claims:
            return None
        if self.selection is None:
            return self.mechanism.mu
        return Accountant(self.relation, self.selection.events).mu if self.selection.has_mu else None

    @property
    def requested_epsilon(self) -> float | None:
        """Requested epsilon where it differs from the proved one: the paper's calibration, or several releases together."""
        return self.mechanism.requested_epsilon if self.claims and self.selection is None else None

    @property
    def sensitivity(self) -> float | None:
        """Distance that one change moves the query, before noise and projection."""
        return self.mechanism.sensitivity

    @property
    def sensitivity_norm(self) -> str | None:
        """Norm of the sensitivity, "L1" or "L2"."""
        return self.mechanism.sensitivity_norm

    @property
    def clip(self) -> float | None:
        """Bound that the data were clipped to, or None."""
        return self.mechanism.bound

    @property
    def noise_scale(self) -> float | None:
        """Standard deviation (or Laplace scale) of the noise on each published number."""
        return self.mechanism.noise_std

    @property
    def compositions(self) -> int:
        """Number of uses of the data."""
        return self.mechanism.compositions if self.selection is None else self.selection.compositions

    @property
    def accountant(self) -> str:
        """Name and version of the accountant."""
        return ACCOUNTANT

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Settings, public knowledge and public seeds."""
        inputs = {**self.mechanism.public_inputs, **self.notes}
        if self.selection is not None:
            inputs[NUM_CANDIDATES] = self.selection.num_candidates
            if self.selection.seeds:
                inputs["projection seeds of the others"] = " ".join(self.selection.seeds)
        return inputs

    @property
    def conditions(self) -> tuple[str, ...]:
        """Codes of what the epsilon assumes, for the file that the source party stores."""
        if self.reasons:
            return ()
        found = [*self.mechanism.statement.conditions]
        if self.unit is not None:
            found += conditions_of(self.steps, self.unit)
        found += self.provisos
        if self.selection is not None:
            found += self.selection.conditions
        kind = type(self.mechanism)
        if not any(map(OUTSIDE_CLASS.fullmatch, found)):
            if isinstance(self.mechanism, ThirdPartyMechanism):
                found += [] if self.mechanism.built_in else [f"{CLAIMED_BY}{self.mechanism.name!r}"]
            elif self.mechanism.of_another_package:
                found.append(f"{CLAIMED_BY}{kind.__module__}.{kind.__qualname__}")
        return tuple(dict.fromkeys(found))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Codes of what the release takes as true, and of the bounds on the data."""
        return self.mechanism.statement.assumptions

    @property
    def not_protected(self) -> tuple[str, ...]:
        """Codes of what the guarantee does not cover."""
        return self.mechanism.statement.not_protected

    @property
    def ledger(self) -> tuple[PrivacyEvent, ...]:
        """Events that the epsilon is computed from; those of a third-party mechanism are unknown."""
        return (self.mechanism.event,) if self.selection is None else self.selection.events
