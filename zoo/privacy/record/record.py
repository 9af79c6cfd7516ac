"""The privacy record: what a release says it protected, for whom, how strongly, and what it did not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import ROUND_CEILING, Decimal
from functools import cache
from typing import Any

from zoo.privacy.accounting.accountant import ACCOUNTANT, Accountant
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.randomness.noise import KEYED, OS_ENTROPY, SEEDED, NoiseSource
from zoo.privacy.record.claims import check_claims, check_names
from zoo.privacy.record.fields import Guarantee as Guarantee
from zoo.privacy.record.fields import Plain as Plain
from zoo.privacy.record.fields import RecordError as RecordError
from zoo.privacy.record.fields import check_number, read_field, write_field
from zoo.privacy.record.requirements import MECHANISMS
from zoo.privacy.record.shared_projection import mean_seeds
from zoo.privacy.record.texts import KNOWN_BEFORE, NOT_AUDITED, SHARED_BY, claimed_by

RECORD_SCHEMA = 2
"""The newest schema. 1: without conditions."""

UNSTATED = (
    "nothing that was done to the data before depends on what is protected (the record is older than the statement of such "
    "conditions)"
)
"""The condition of a record of schema 1."""

FLOATING_POINT = (
    "The guarantee is proved for exact real arithmetic; the implementation uses float64 noise with rounding and is not "
    "proved against floating-point or timing attacks."
)
"""The sentence that every record carries."""

NO_NOISE = "none"
"""The noise source of a release without noise."""

_ROUNDING = 1e-9  # relative; what a calibration to a given epsilon may miss it by, far below what anybody reads
_TOLERANCE = 1e-6  # relative; above what convolutions differ by between machines
_SECRET = (OS_ENTROPY, KEYED)  # what a guarantee may rest on; of a generator, if its output cannot be told from noise
_NOISE_SOURCES = (*_SECRET, SEEDED, NO_NOISE)
_NORMS = ("L1", "L2")
_NUMBERS = ("epsilon", "delta", "mu", "requested_epsilon", "sensitivity", "clip", "noise_scale")
_CLAIMS = ("epsilon", "delta", "mu", "requested_epsilon")  # what a record without a guarantee must not state


class UnderstatedPrivacyError(ValueError):
    """A record that states less privacy loss than its ledger gives."""


@dataclass(frozen=True, kw_only=True)
class PrivacyRecord:
    """What one release protected, for whom, how strongly, and what it did not protect.

    A record without a guarantee states no epsilon, delta or mu anywhere: the events in the release's ledger are the
    only trace of what would hold if, say, the noise were secret. `RecordError` if fields contradict each other or a value is
    out of range.
    """

    mechanism: str  # what made the release
    guarantee: Guarantee  # whether the epsilon is proved, or proved under conditions; without, there is none
    noise_source: str  # "os entropy", "philox keyed by os entropy", "seeded noise" or "none"
    unit: Unit | None = None  # who is protected; goes with the relation
    relation: Relation | None = None  # which two data sets are kept alike
    epsilon: float | None = None  # proved privacy loss at delta
    delta: float | None = None  # probability beyond which nothing is promised
    mu: float | None = None  # of the Gaussian release that equals this one, where there is one
    sensitivity: float | None = None  # how far one change moves the query, before noise and before any projection
    sensitivity_norm: str | None = None  # in which it is measured: "L1" or "L2"
    clip: float | None = None  # bound that the data were clipped to, if they were
    noise_scale: float | None = None  # deviation (or scale) of the noise on each number, in the release's units
    compositions: int = 1  # how many times the data were used
    accountant: str = ACCOUNTANT  # what computed epsilon, with its version
    public_inputs: Mapping[str, Plain] = field(default_factory=dict)  # settings and public knowledge, public seeds too
    # What must be true for the epsilon to be that of the file that the source holds; there are some if it is conditional.
    conditions: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()  # what the release takes for given, and how the data were bounded
    not_protected: tuple[str, ...] = ()  # what the guarantee does not cover
    # Asked for, where it is not what is proved: in the calibration of the paper, or of several releases together.
    requested_epsilon: float | None = None
    reason: str | None = None  # why there is no guarantee; only without one

    def __post_init__(self) -> None:
        object.__setattr__(self, "public_inputs", dict(self.public_inputs))
        object.__setattr__(self, "conditions", tuple(self.conditions))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))
        object.__setattr__(self, "not_protected", tuple(self.not_protected))
        for name in _NUMBERS:  # of a Python call, 8 and 8.0 make one record, and one digest
            if type(value := getattr(self, name)) is int:
                object.__setattr__(self, name, float(value))
        self._check_values()
        self._check_texts()
        for one, other in (("sensitivity", "sensitivity_norm"), ("unit", "relation")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise RecordError(f"{one} and {other} go together: state both or neither.")
        if self.unit is not None and self.relation is not None and self.relation.unit is not self.unit:
            raise RecordError(
                f"Relation {self.relation.value!r} protects unit {self.relation.unit.value!r}, not {self.unit.value!r}."
            )
        if bool(self.conditions) != (self.guarantee is Guarantee.CONDITIONAL):
            raise RecordError(
                f"conditions go with guarantee 'conditional', which has at least one; got {self.guarantee.value!r} with "
                f"{len(self.conditions)} of them."
            )
        if self.claims:
            self._check_claims()
        else:
            self._check_unprotected()

    @property
    def claims(self) -> bool:
        """Whether an epsilon is stated, with conditions or without."""
        return self.guarantee is not Guarantee.NONE

    def _check_values(self) -> None:
        for name in _NUMBERS:
            check_number(name, getattr(self, name), 1.0 if name == "delta" else math.inf)
        if isinstance(self.compositions, bool) or not isinstance(self.compositions, int) or self.compositions < 0:
            raise RecordError(f"compositions must be an integer of at least 0, got {self.compositions!r}.")
        if self.noise_source not in _NOISE_SOURCES:
            raise RecordError(f"noise_source must be one of {_NOISE_SOURCES}, got {self.noise_source!r}.")
        if self.sensitivity_norm not in (None, *_NORMS):
            raise RecordError(f"sensitivity_norm must be one of {_NORMS} or None, got {self.sensitivity_norm!r}.")

    def _check_texts(self) -> None:
        inputs = self.public_inputs
        texts = [self.mechanism, self.accountant, *self.conditions, *self.assumptions]
        texts += [*self.not_protected, *inputs]
        texts += [value for value in inputs.values() if isinstance(value, str)]
        texts += [] if self.reason is None else [self.reason]
        for text in texts:
            if not isinstance(text, str) or not text or not text.isprintable():
                raise RecordError(f"Texts of a record must be non-empty and printable, got {str(text)[:80]!r}.")
        for name, value in inputs.items():
            if not isinstance(value, Plain) or (isinstance(value, float) and not math.isfinite(value)):
                raise RecordError(f"public_inputs[{name!r}] must be a text, a finite number or a bool.")

    def _check_claims(self) -> None:
        missing = [name for name in ("unit", "relation", "epsilon", "delta") if getattr(self, name) is None]
        if missing:
            raise RecordError(f"A guarantee must state {', '.join(missing)}; without, use guarantee 'none'.")
        if self.sensitivity is None or not self.sensitivity or not self.noise_scale or self.compositions < 1:
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
        if self.reason is not None:
            raise RecordError("reason says why there is no guarantee; leave it out where one is proved.")

    def _check_unprotected(self) -> None:
        stated = [name for name in _CLAIMS if getattr(self, name) is not None]
        if stated:
            raise RecordError(
                f"A record without a guarantee must not state {', '.join(stated)}; use without_guarantee."
            )
        if self.reason is None:
            raise RecordError("A record without a guarantee must give its reason, e.g. 'seeded noise'.")

    @classmethod
    def proved_unless_seeded(
        cls,
        mechanism: str,
        noise: NoiseSource,
        relation: Relation,
        *,
        epsilon: float,
        delta: float,
        mu: float | None = None,
        requested_epsilon: float | None = None,
        conditions: Iterable[str] = (),
        **facts: Any,  # noqa: ANN401  checked by the fields themselves
    ) -> PrivacyRecord:
        """The record of a release with noise: proved, under conditions if there are any, or without its claims.

        These it loses if the noise came from a seed. The relation says who is protected. ``facts`` are other fields, which hold
        whatever the noise; its source among them where it is drawn through a generator.
        """
        stated: dict[str, Any] = {"guarantee": Guarantee.NONE, "reason": SEEDED}
        if noise.private:
            conditions = tuple(conditions)
            guarantee = Guarantee.CONDITIONAL if conditions else Guarantee.PROVED
            claims = zip(_CLAIMS, (epsilon, delta, mu, requested_epsilon), strict=True)
            stated = {"guarantee": guarantee, "conditions": conditions, **dict(claims)}
        facts = {"noise_source": noise.label, **facts}
        return cls(mechanism=mechanism, unit=relation.unit, relation=relation, **stated, **facts)

    def without_guarantee(self, reason: str) -> PrivacyRecord:
        """The same record with its claims withdrawn, for seeded noise and controls; a second reason joins the first."""
        withdrawn: dict[str, Any] = dict.fromkeys(_CLAIMS)
        reason = reason if self.reason is None else f"{self.reason}; {reason}"
        return replace(self, guarantee=Guarantee.NONE, conditions=(), reason=reason, **withdrawn)

    def check_against(self, ledger: Iterable[PrivacyEvent]) -> None:
        """Compare what is stated with what the ledger gives, computed anew under the stated relation and delta.

        `UnderstatedPrivacyError` if epsilon or mu is stated lower than that, `RecordError` if anything else is not what the
        ledger says or the mechanism has to say (`zoo.privacy.record.claims`), `UnsupportedEventError` if the accountant does
        not know an event. A record without a guarantee states nothing, among its public inputs neither, and is not compared.
        """
        ledger = tuple(ledger)
        if not self.claims or self.epsilon is None or self.delta is None:
            check_names(self)
            return
        accountant = Accountant(self.relation, ledger)
        epsilon = accountant.epsilon(self.delta)
        if epsilon == 0:
            raise UnderstatedPrivacyError(
                f"{self.mechanism}: the record claims a guarantee, and its ledger knows of no release that has one. Do not "
                "use the release; ask the source party for one with its whole ledger."
            )
        if epsilon > self.epsilon * (1 + _TOLERANCE):
            raise UnderstatedPrivacyError(
                f"{self.mechanism}: the record states epsilon {self.epsilon:.6g} at delta {self.delta:.3g}, its ledger "
                f"gives {epsilon:.6g}. Do not use the release; ask the source party for a correct one."
            )
        if self.mu is not None and accountant.mu > self.mu * (1 + _TOLERANCE):
            raise UnderstatedPrivacyError(
                f"{self.mechanism}: the record states mu {self.mu:.6g}, its ledger gives {accountant.mu:.6g}. "
                "Do not use the release; ask the source party for a correct one."
            )
        check_claims(self, ledger)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain JSON values, with its schema and the sentence on floating point."""
        written = {entry.name: write_field(getattr(self, entry.name)) for entry in fields(self)}
        return {"schema": RECORD_SCHEMA, "floating_point": FLOATING_POINT, **written}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PrivacyRecord:
        """The record that `to_dict` wrote. The values may come from another party: everything is checked.

        What a mechanism claims that is none of ours becomes conditional on the claim, unless a condition says so already.
        """
        if not isinstance(values, Mapping):
            raise RecordError(f"A record must be a mapping, got {type(values).__name__}.")
        schema = values.get("schema")
        if type(schema) is not int or schema < 1:
            raise RecordError(f"A record must name its schema, got {schema!r}.")
        if schema > RECORD_SCHEMA:
            raise RecordError(
                f"The record has schema {schema}, this version reads up to {RECORD_SCHEMA}. "
                "Upgrade cdr-zoo at this party."
            )
        if schema == 1:
            values = _from_schema_1(values)
        expected = {"schema", "floating_point", *(entry.name for entry in fields(cls))}
        if values.keys() != expected:
            missing, unknown = sorted(expected - values.keys()), sorted(map(str, values.keys() - expected))
            raise RecordError(f"The record lacks the fields {missing} and has the unknown fields {unknown}.")
        if values["floating_point"] != FLOATING_POINT:
            raise RecordError("The record lacks the sentence on floating-point arithmetic that every record carries.")
        record = cls(
            **{entry.name: read_field(entry.name, str(entry.type), values[entry.name]) for entry in fields(cls)}
        )
        # The seed was a setting then, 0 unless another was given.
        if schema == 1 and record.claims and mean_seeds(record):
            return record.without_guarantee(KNOWN_BEFORE)
        return _vouched_for(record)

    def summary(self) -> str:
        """One line for a table: ``rating, eps 8.00, delta 1e-05, proved`` or ``none (seeded noise)``; conditions are named."""
        if not self.claims or self.epsilon is None or self.delta is None or self.unit is None:
            return self.standing
        claim = f"{self.unit.value}, eps {rounded_up(self.epsilon)}, delta {shown_delta(self.delta)}"
        return f"{claim}, {self.standing}"

    @property
    def standing(self) -> str:
        """How far an epsilon may be relied on: ``proved``, ``conditional (if ...; if ...)`` or ``none (...)``."""
        match self.guarantee:
            case Guarantee.NONE:
                return f"none ({self.reason})"
            case Guarantee.CONDITIONAL:
                return f"conditional (if {'; and if '.join(self.conditions)})"
            case Guarantee.PROVED:
                # Publishers say it of others as a condition, and so does a record that is read; one in memory says it here.
                return self.word if self.word == "proved" else f"claimed by {self.mechanism!r}, {NOT_AUDITED}"

    @property
    def word(self) -> str:
        """The same in one word: ``proved``, ``conditional``, ``none``, or ``claimed`` of a mechanism that is none of ours."""
        if self.guarantee is Guarantee.PROVED and self.mechanism not in MECHANISMS:
            return "claimed"
        return self.guarantee.value

    @property
    def asked_of(self) -> str:
        """What the epsilon that was asked for is one of, in words."""
        shared = self.public_inputs.get(SHARED_BY)
        return "in the paper's formula" if shared is None else f"of all {shared} releases together"

    def __str__(self) -> str:
        """The record for people to read; an epsilon stands in it only with a guarantee, and never without its conditions."""
        lines = [("mechanism", self.mechanism), ("guarantee", self.word)]
        if self.reason is not None:
            lines.append(("reason", self.reason))
        if self.unit is not None and self.relation is not None:
            lines.append(("unit", f"{self.unit.value} ({self.relation.value})"))
        lines += self._shown_claims()
        if self.sensitivity is not None:
            lines.append(("sensitivity", f"{self.sensitivity:g} ({self.sensitivity_norm})"))
        lines += [(n, f"{v:.6g}") for n, v in (("clip", self.clip), ("noise_scale", self.noise_scale)) if v is not None]
        lines += [("noise_source", self.noise_source), ("compositions", str(self.compositions))]
        lines += [("accountant", self.accountant)]
        lines += [("public input", f"{name} = {value}") for name, value in self.public_inputs.items()]
        lines += [("condition", text) for text in self.conditions]
        lines += [("assumption", text) for text in self.assumptions]
        lines += [("not protected", text) for text in self.not_protected]
        lines += [("arithmetic", FLOATING_POINT)]
        return "\n".join(f"{name:<14} {text}" for name, text in lines)

    def _shown_claims(self) -> list[tuple[str, str]]:
        if not self.claims or self.epsilon is None or self.delta is None:
            return []
        if_so = ", if the conditions below are true" if self.conditions else ""
        claims = [("epsilon", f"{rounded_up(self.epsilon)} at delta {shown_delta(self.delta)}{if_so}")]
        if self.requested_epsilon is not None:
            asked = f"epsilon {self.requested_epsilon:g} {self.asked_of}; what this release spends is above"
            claims.append(("asked for", asked))
        if self.mu is not None:
            claims.append(("mu", rounded_up(self.mu)))
        return claims


def _vouched_for(record: PrivacyRecord) -> PrivacyRecord:
    """A record that was read, on the condition that its claim is true where its mechanism is none of ours, whatever it says."""
    if not record.claims or record.mechanism in MECHANISMS or any(NOT_AUDITED in text for text in record.conditions):
        return record
    said = claimed_by(repr(record.mechanism))
    return replace(record, guarantee=Guarantee.CONDITIONAL, conditions=(*record.conditions, said))


def _from_schema_1(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an old record, whose proof was silent on what was done to the data before."""
    conditional = values.get("guarantee") == Guarantee.PROVED
    guarantee = Guarantee.CONDITIONAL.value if conditional else values.get("guarantee")
    return {**values, "guarantee": guarantee, "conditions": [UNSTATED] if conditional else []}


def unprotected_record(
    mechanism: str,
    reason: str,
    assumptions: Iterable[str] = (),
    *,
    noise_source: str = NO_NOISE,
    public_inputs: Mapping[str, Plain] | None = None,
) -> PrivacyRecord:
    """The record of a release that protects nobody, for this reason; ``assumptions`` say what was done to the data."""
    return PrivacyRecord(
        mechanism=mechanism,
        guarantee=Guarantee.NONE,
        noise_source=noise_source,
        public_inputs={} if public_inputs is None else public_inputs,
        assumptions=tuple(assumptions),
        not_protected=("everything in the release",),
        reason=reason,
    )


@cache
def warn_once(text: str, stacklevel: int = 2) -> None:
    """Warn of something the first time it is said; shows the line of the caller (1), of its caller (2), and so on."""
    warnings.warn(text, stacklevel=stacklevel + 1)


def rounded_up(value: float) -> str:
    """A number with three significant digits, rounded up, so that a printed epsilon is never below the true one."""
    if value == 0:
        return "0.00"
    exact = Decimal(value) * (1 - Decimal(_ROUNDING))
    up = exact.quantize(Decimal(1).scaleb(exact.adjusted() - 2), rounding=ROUND_CEILING)
    return f"{up.quantize(Decimal(1).scaleb(up.adjusted() - 2)):f}"  # .9996 has become 1.000, which is 1.00


def shown_delta(delta: float) -> str:
    """Delta as a record shows it: rounded up like an epsilon, ``1e-05``."""
    return f"{float(rounded_up(delta)):.3g}"
