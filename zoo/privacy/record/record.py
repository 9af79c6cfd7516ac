"""The privacy record: what a release says it protected, for whom, how strongly, and what it did not."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from functools import cache
from typing import Any

from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import EventError, PrivacyEvent, event_to_dict
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import Mechanism, MechanismError, Plain
from zoo.privacy.mechanisms.claimed import ClaimedMechanism, close
from zoo.privacy.randomness.noise import SEEDED, NoiseSource
from zoo.privacy.record import words
from zoo.privacy.record.derived import NO_NOISE as NO_NOISE
from zoo.privacy.record.derived import TRIED as TRIED
from zoo.privacy.record.derived import Derived
from zoo.privacy.record.fields import FLOATING_POINT as FLOATING_POINT
from zoo.privacy.record.fields import Guarantee as Guarantee
from zoo.privacy.record.fields import InconsistentRecordError as InconsistentRecordError
from zoo.privacy.record.fields import RecordError as RecordError
from zoo.privacy.record.fields import UnderstatedPrivacyError as UnderstatedPrivacyError
from zoo.privacy.record.fields import write_field
from zoo.privacy.record.legacy import check_earlier, fields_of_earlier
from zoo.privacy.record.schema import DERIVED, RECORD_SCHEMA, check_derived, read_fields
from zoo.privacy.record.steps import Done

_ROUNDING = 1e-9  # relative; what a calibration to a given epsilon may miss it by, far below what anybody reads
_TOLERANCE = 1e-6  # relative; above what convolutions differ by between machines
_NEXT = "Do not use the release; ask the source party for a correct one."


@dataclass(frozen=True, kw_only=True)
class PrivacyRecord(Derived):
    """What one release protected, for whom, how strongly, and what it did not protect.

    Everything that follows from the fields is a property: epsilon, sensitivity, noise, conditions. A record without a guarantee
    states no epsilon, delta or mu. `RecordError` if fields contradict each other or a value is out of range.
    """

    # Making records.

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        noise: NoiseSource,
        steps: Iterable[Done] = (),
        notes: Mapping[str, Plain] | None = None,
        noise_source: str | None = None,
    ) -> PrivacyRecord:
        """Return the record of a release with noise, without a guarantee if the noise came from a seed."""
        source = noise.label if noise_source is None else noise_source
        reasons = () if noise.private else (SEEDED,)
        return cls(mechanism=mechanism, noise_source=source, steps=tuple(steps), notes=notes or {}, reasons=reasons)

    @classmethod
    def proved_unless_seeded(
        cls,
        mechanism: str,
        noise: NoiseSource,
        relation: Relation,
        *,
        epsilon: float,
        delta: float,
        noise_source: str | None = None,
        noise_scale: float | None = None,
        public_inputs: Mapping[str, Plain] | None = None,
        **stated: Any,  # noqa: ANN401  checked by the record
    ) -> PrivacyRecord:
        """Return the record of a mechanism of another package, from figures that its maker states.

        ``stated`` are further fields of `ClaimedMechanism`. The claims are lost if the noise came from a seed.
        """
        made = ClaimedMechanism(
            name=mechanism, relation=relation, epsilon=epsilon, delta=delta, noise_std=noise_scale,
            inputs=public_inputs or {}, **stated,
        )  # fmt: skip
        return cls.of(made, noise, noise_source=noise_source)

    def without_guarantee(self, reason: str) -> PrivacyRecord:
        """Return the same record with its claims withdrawn, for seeded noise and controls; a second reason joins the first."""
        return replace(self, reasons=(*self.reasons, reason))

    def claimed_by(self, maker: type) -> PrivacyRecord:
        """Return the record on the condition that the claim of a class is true, where that is none of this package.

        For whatever asks a class of any package for its record: publishers, the networks that they train, methods that protect
        their own training. A subclass of one of ours is another party's. A record that claims nothing stays as it is.
        """
        code = f"{words.CLAIMED_BY}{maker.__module__}.{maker.__qualname__}"
        if maker.__module__.startswith("zoo.") or not self.claims or code in self.provisos:
            return self
        return replace(self, provisos=(*self.provisos, code))

    def check_against(self, ledger: Iterable[PrivacyEvent]) -> None:
        """Compare the events that the record follows from with those of a ledger.

        A record without a guarantee is not compared.

        Raises:
            UnderstatedPrivacyError: If the ledger gives a larger epsilon or mu.
            InconsistentRecordError: If they differ otherwise.
            UnsupportedEventError: If the accountant does not know an event.
        """
        ledger = tuple(ledger)
        if not self.claims or self.epsilon is None or self.delta is None:
            return
        mechanism, same = self.mechanism, _same(ledger, self.ledger)
        if same and not isinstance(mechanism, ClaimedMechanism):
            return
        accountant = Accountant(self.relation, ledger)
        epsilon = accountant.epsilon(self.delta)
        if epsilon == 0:
            raise UnderstatedPrivacyError(
                f"{mechanism.name}: the record claims a guarantee, and its ledger knows of no release that has one. {_NEXT}"
            )
        if epsilon > self.epsilon * (1 + _TOLERANCE):
            raise UnderstatedPrivacyError(
                f"{mechanism.name}: the record states epsilon {self.epsilon:.6g} at delta {self.delta:.3g}, its ledger "
                f"gives {epsilon:.6g}. {_NEXT}"
            )
        if not isinstance(mechanism, ClaimedMechanism):
            raise InconsistentRecordError(
                f"{mechanism.name}: the ledger holds other events than the mechanism of the record has. {_NEXT}"
            )
        if self.mu is not None and not math.isclose(self.mu, accountant.mu, rel_tol=_TOLERANCE):
            kind = UnderstatedPrivacyError if accountant.mu > self.mu else InconsistentRecordError
            raise kind(
                f"{mechanism.name}: the record states mu {self.mu:.6g}, its ledger gives {accountant.mu:.6g}. {_NEXT}"
            )
        if self.selection is None:
            try:
                mechanism.check_ledger(ledger)
            except MechanismError as error:
                raise InconsistentRecordError(f"{error} {_NEXT}") from error

    # Files.

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON: its fields and, for people, what follows from them.

        A record that was read is written as it was read, so that its digest is the same on every machine.
        """
        written: dict[str, Any] | None = vars(self).get("_read")
        return self._plain() if written is None else dict(written)

    def _plain(self) -> dict[str, Any]:
        chosen = self.selection
        selection = chosen and {
            "num_candidates": chosen.num_candidates,
            "events": [event_to_dict(event) for event in chosen.events],
            "delta": chosen.delta,
            "has_mu": chosen.has_mu,
            "conditions": list(chosen.conditions),
            "seeds": list(chosen.seeds),
        }
        known = not isinstance(self.mechanism, ClaimedMechanism)
        derived = {name: write_field(getattr(self, name)) for name in DERIVED}
        return {
            "schema": RECORD_SCHEMA,
            "floating_point": FLOATING_POINT,
            "mechanism": self.mechanism.name,
            "known": known,
            "parameters": self.mechanism.parameters,
            "noise_source": self.noise_source,
            "steps": [step._asdict() for step in self.steps],
            "notes": dict(self.notes),
            "reasons": list(self.reasons),
            "provisos": list(self.provisos),
            "selection": selection,
            **derived,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], ledger: Sequence[PrivacyEvent] | None = None) -> PrivacyRecord:
        """Return the record that `to_dict` wrote, in this version or an earlier one.

        The values may come from another party: the mechanism is built from its parameters, everything is derived again, and
        a file that states anything else is refused. ``ledger`` is that of the release: a record of schema 1 or 2 is compared with
        it, for some parameters of its mechanism stand there alone; without a ledger it is taken as it states itself.

        Raises:
            RecordError: If the file cannot be read, or states anything else than what follows from its parameters.
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
        try:
            if schema < 3:
                made, written = fields_of_earlier(values, ledger)
                record = cls(**made)
                check_earlier(record, written)
            else:
                record, written = cls(**read_fields(values)), dict(values)
                check_derived(record._plain(), written)
        except RecordError:
            raise
        except (MechanismError, EventError, ValueError, TypeError) as error:
            raise RecordError(f"The record of {str(values.get('mechanism'))[:80]!r} cannot be: {error}") from error
        vars(record)["_read"] = written
        return record

    # For people.

    @property
    def reason(self) -> str | None:
        """Why there is no guarantee; None with one."""
        return "; ".join(words.sentence(code, self.mechanism) for code in self.reasons) or None

    def sentences(self, field_name: str) -> list[str]:
        """Return the sentences of `conditions`, `assumptions` or `not_protected`; those of steps are among the assumptions."""
        said = [words.sentence(code, self.mechanism) for code in getattr(self, field_name)]
        return said + (
            [f"done to the data before: {step.words}" for step in self.steps] if field_name == "assumptions" else []
        )

    def summary(self) -> str:
        """One line for a table: ``rating, eps 8.00, delta 1e-05, proved`` or ``none (seeded noise)``; conditions are named."""
        if not self.claims or self.epsilon is None or self.delta is None or self.unit is None:
            return self.standing
        claim = f"{self.unit.value}, eps {rounded_up(self.epsilon)}, delta {shown_delta(self.delta)}"
        return f"{claim}, {self.standing}"

    @property
    def standing(self) -> str:
        """How far an epsilon may be relied on: ``proved``, ``conditional (if ...; if ...)`` or ``none (...)``."""
        return words.standing(self.guarantee, self.sentences("conditions"), self.reason)

    @property
    def asked_of(self) -> str:
        """What the epsilon that was asked for is one of, in words."""
        shared = self.public_inputs.get("num_releases")
        return "in the paper's formula" if shared is None else f"of all {shared} releases together"

    def __str__(self) -> str:
        """The record for people to read; an epsilon stands in it only with a guarantee, and never without its conditions."""
        lines = [("mechanism", self.mechanism.name), ("guarantee", self.guarantee.value)]
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
        for name, said in (
            ("condition", "conditions"),
            ("assumption", "assumptions"),
            ("not protected", "not_protected"),
        ):
            lines += [(name, text) for text in self.sentences(said)]
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


def _same(one: Iterable[PrivacyEvent], other: Iterable[PrivacyEvent]) -> bool:
    return close([event_to_dict(event) for event in one], [event_to_dict(event) for event in other])


def unprotected_record(
    mechanism: str,
    reason: str,
    steps: Iterable[Done] = (),
    *,
    noise_source: str = NO_NOISE,
    public_inputs: Mapping[str, Plain] | None = None,
    not_protected: tuple[str, ...] = ("everything",),
) -> PrivacyRecord:
    """Return the record of a release that protects nobody, for this reason; ``steps`` are what was done to the data."""
    made = ClaimedMechanism(name=mechanism, inputs=public_inputs or {}, not_protected=not_protected)
    return PrivacyRecord(mechanism=made, noise_source=noise_source, steps=tuple(steps), reasons=(reason,))


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
