"""The privacy record of a release: who it protects, how strongly, and what it does not protect."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from scipy.special import expit

from zoo.privacy.accounting.accountant import Accountant, attack_success_of
from zoo.privacy.accounting.events import EventError, PrivacyEvent, event_to_dict
from zoo.privacy.accounting.gaussian import gauss_delta, gauss_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import Mechanism, MechanismError, Plain
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism, nearly_equal
from zoo.privacy.randomness.noise import SEEDED, NoiseSource
from zoo.privacy.record import words
from zoo.privacy.record.derived import NO_NOISE as NO_NOISE
from zoo.privacy.record.derived import NUM_CANDIDATES as NUM_CANDIDATES
from zoo.privacy.record.derived import Derived
from zoo.privacy.record.fields import ASK_SOURCE, write_field
from zoo.privacy.record.fields import FLOATING_POINT as FLOATING_POINT
from zoo.privacy.record.fields import Guarantee as Guarantee
from zoo.privacy.record.fields import InconsistentRecordError as InconsistentRecordError
from zoo.privacy.record.fields import RecordError as RecordError
from zoo.privacy.record.fields import UnderstatedPrivacyError as UnderstatedPrivacyError
from zoo.privacy.record.legacy import check_earlier, fields_of_earlier, with_condition
from zoo.privacy.record.schema import DERIVED, RECORD_SCHEMA, check_derived, read_fields
from zoo.privacy.record.steps import RecordedStep
from zoo.privacy.record.view import PublicView as PublicView
from zoo.privacy.record.view import rounded_up as rounded_up
from zoo.privacy.record.view import share as share
from zoo.privacy.record.view import shown_delta as shown_delta

_TOLERANCE = 1e-6  # relative; more than the difference of convolutions between machines


@dataclass(frozen=True, kw_only=True)
class PrivacyRecord(Derived):
    """The privacy guarantee of one release: privacy unit, privacy loss, assumptions, and what is not protected.

    Epsilon, sensitivity, noise and conditions are properties, derived from the fields (`zoo.privacy.record.derived.Derived`). A
    record without a guarantee has no epsilon, delta or mu.

    Raises:
        RecordError: Fields contradict each other, or a value is out of range.

    Examples:
        >>> from zoo.privacy.mechanisms import NoisyRows
        >>> rows = NoisyRows.calibrate(epsilon=8.0, delta=1e-5, num_users=100, num_items=40)
        >>> record = PrivacyRecord.of(rows, NoiseSource.os())
        >>> record.summary()
        'rating (change one rating), eps 8.00, delta 1e-05, proved'
        >>> record.without_guarantee("a test").summary()
        'none (a test)'
        >>> PrivacyRecord.from_dict(record.to_dict()) == record
        True
    """

    # Constructors.

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        noise: NoiseSource,
        steps: Iterable[RecordedStep] = (),
        notes: Mapping[str, Plain] | None = None,
        noise_source: str | None = None,
    ) -> PrivacyRecord:
        """Return the record of a release with noise; it has no guarantee if the noise came from a seed."""
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
        """Return the record of another package's mechanism, from the figures that the package states.

        ``stated`` are further fields of `ThirdPartyMechanism`. There is no guarantee if the noise came from a seed.
        """
        made = ThirdPartyMechanism(
            name=mechanism, relation=relation, epsilon=epsilon, delta=delta, noise_std=noise_scale,
            inputs=public_inputs or {}, **stated,
        )  # fmt: skip
        return cls.of(made, noise, noise_source=noise_source)

    def without_guarantee(self, reason: str) -> PrivacyRecord:
        """Return the same record without its guarantee; a second reason is added to the first."""
        return replace(self, reasons=(*self.reasons, reason))

    def claimed_by(self, maker: type) -> PrivacyRecord:
        """Return the record with the condition that the claim of another package's class is true.

        A subclass of a class of this package also counts as another package's. A record without a guarantee is unchanged.
        """
        code = f"{words.CLAIMED_BY}{maker.__module__}.{maker.__qualname__}"
        return self if maker.__module__.startswith("zoo.") else self.assuming(code)

    def assuming(self, code: str) -> PrivacyRecord:
        """Return the record with a further condition; one without a guarantee is unchanged."""
        if not self.claims or code in self.conditions:
            return self
        made = replace(self, provisos=(*self.provisos, code))
        if self.is_earlier:  # written as before, since schema 3 needs what an old record does not state
            vars(made)["_read"] = with_condition(vars(self)["_read"], code)
        return made

    def check_against(self, ledger: Iterable[PrivacyEvent]) -> None:
        """Compare the record with a ledger; a record without a guarantee is not compared.

        Raises:
            UnderstatedPrivacyError: The ledger gives a larger epsilon or mu.
            InconsistentRecordError: Record and ledger differ otherwise.
            UnsupportedEventError: The accountant does not know an event.
        """
        ledger = tuple(ledger)
        if not self.claims or self.epsilon is None or self.delta is None:
            return
        mechanism, same = self.mechanism, _same(ledger, self.ledger)
        derived = not isinstance(mechanism, ThirdPartyMechanism)
        if same and derived and not mechanism.of_another_package:
            return
        accountant = Accountant(self.relation, ledger)
        epsilon = accountant.epsilon(self.delta)
        if epsilon == 0 and not (derived and same):  # much noise may give 0
            raise UnderstatedPrivacyError(
                f"{mechanism.name}: the record claims a guarantee. Its ledger has no private release. {ASK_SOURCE}"
            )
        if epsilon > self.epsilon * (1 + _TOLERANCE):
            raise UnderstatedPrivacyError(
                f"{mechanism.name}: epsilon is {self.epsilon:.6g} at delta {self.delta:.3g}. The ledger gives {epsilon:.6g}. "
                f"{ASK_SOURCE}"
            )
        if derived and not same:
            raise InconsistentRecordError(f"{mechanism.name}: the ledger has other events. {ASK_SOURCE}")
        if derived and self.epsilon > epsilon * (1 + _TOLERANCE):  # replaced in the class
            raise InconsistentRecordError(
                f"{mechanism.name}: epsilon is {self.epsilon:.6g}. Its event gives {epsilon:.6g}. {ASK_SOURCE}"
            )
        if self.mu is not None and not math.isclose(self.mu, accountant.mu, rel_tol=_TOLERANCE):
            kind = UnderstatedPrivacyError if accountant.mu > self.mu else InconsistentRecordError
            raise kind(f"{mechanism.name}: mu is {self.mu:.6g}. The ledger gives {accountant.mu:.6g}. {ASK_SOURCE}")
        if isinstance(mechanism, ThirdPartyMechanism) and self.selection is None:
            try:
                mechanism.check_ledger(ledger)
            except MechanismError as error:
                raise InconsistentRecordError(f"{error} {ASK_SOURCE}") from error

    def exceeds(self, ledger: Iterable[PrivacyEvent]) -> bool:
        """Return whether another package states a larger epsilon than its ledger gives, so that the ledger cannot be added up."""
        if not isinstance(self.mechanism, ThirdPartyMechanism) or self.mechanism.built_in:
            return False
        if not self.claims or self.epsilon is None or self.delta is None:
            return False
        return self.epsilon > Accountant(self.relation, ledger).epsilon(self.delta) * (1 + _TOLERANCE)

    # Files.

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON: its fields, and the figures derived from them.

        A record that was read is written unchanged, so its digest is the same on every machine.
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
        known = not isinstance(self.mechanism, ThirdPartyMechanism)
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
        """Return the record that `to_dict` of this or an earlier version wrote.

        The values are not trusted: the mechanism is built from its parameters, and a file with other figures is refused.

        Args:
            values: Plain JSON.
            ledger: Ledger of the release, to rebuild a record of schema 1 or 2; without one, its figures are taken as stated.

        Raises:
            RecordError: The record cannot be read, or differs from what its parameters give.
        """
        if not isinstance(values, Mapping):
            raise RecordError(f"The record is of type {type(values).__name__}, not a mapping.")
        schema = values.get("schema")
        if type(schema) is not int or schema < 1:
            raise RecordError(f"schema of the record is {schema!r}. Allowed: integers >= 1.")
        if schema > RECORD_SCHEMA:
            raise RecordError(f"schema of the record is {schema}. Allowed: <= {RECORD_SCHEMA}. Upgrade cdr-zoo.")
        try:
            if schema < 3:
                made, written = fields_of_earlier(values, ledger)
                record = cls(**made)
                check_earlier(record, written)
            else:
                record, written = cls(**read_fields(values)), dict(values)
                if "unstated" in record.conditions:
                    raise RecordError(f"A condition is 'unstated'. Allowed: in schema 1 and 2. {ASK_SOURCE}")
                check_derived(record._plain(), written)
        except RecordError:
            raise
        except (MechanismError, EventError, ValueError, TypeError, ArithmeticError) as error:
            raise RecordError(f"The record of {str(values.get('mechanism'))[:80]!r} is invalid: {error}") from error
        vars(record)["_read"] = written
        return record

    @property
    def is_earlier(self) -> bool:
        """Whether the record was read from a file of schema 1 or 2, which may lack conditions and sizes."""
        return bool(vars(self).get("_read", {}).get("schema", RECORD_SCHEMA) < 3)

    # For people.

    @property
    def reason(self) -> str | None:
        """Why there is no guarantee, or None."""
        return "; ".join(words.sentence(code, self.mechanism) for code in self.reasons) or None

    def sentences(self, field_name: str) -> list[str]:
        """Return the sentences of `conditions`, `assumptions` (with earlier steps) or `not_protected`."""
        codes: tuple[str, ...] = getattr(self, field_name)
        if self.selection is not None:  # other candidates may have other mechanisms
            codes = tuple(words.SEVERAL_CHOSEN if code.startswith("several_") else code for code in codes)
        texts = [words.sentence(code, self.mechanism) for code in codes]
        return texts + ([f"earlier step: {step.words}" for step in self.steps] if field_name == "assumptions" else [])

    @cached_property
    def attack_success(self) -> float | None:
        """Upper bound of the success of an attack that tells two neighbours apart, with even odds; None without a guarantee."""
        if not self.claims or self.epsilon is None or self.delta is None:
            return None
        if not isinstance(self.mechanism, ThirdPartyMechanism):
            return attack_success_of(self.ledger, self.relation)
        if self.mu and self.delta and gauss_epsilon(self.delta, self.mu) >= self.epsilon * (1 - _TOLERANCE):
            return (1 + gauss_delta(0.0, self.mu)) / 2
        return float(expit(self.epsilon) + self.delta * expit(-self.epsilon))

    @property
    def choice_success(self) -> float | None:
        """Upper bound of `attack_success` between any two values of the unit, which are two steps apart if a user is zeroed out.

        The distances of both values to the empty row add up: mu of a Gaussian release doubles, and so does total variation.
        """
        once = self.attack_success
        if once is None or self.relation is not Relation.ZERO_OUT_ONE_USER:
            return once
        twice = min(1.0, 2 * once - 0.5)
        if self.mu is None or isinstance(
            self.mechanism, ThirdPartyMechanism
        ):  # which may state more epsilon than mu gives
            return twice
        return min(twice, (1 + gauss_delta(0.0, 2 * self.mu)) / 2)

    @property
    def view(self) -> PublicView:
        """What every output states of the record."""
        claims = self.claims
        used = words.USED if claims and self.relation is Relation.ZERO_OUT_ONE_USER else ""
        own = words.OWN_VECTOR if "others_given" in self.conditions else ""
        return PublicView(
            guarantee=self.guarantee.value,
            reason=self.reason,
            relation=self.relation if claims else None,
            epsilon=self.epsilon,
            delta=self.delta,
            conditions=tuple(self.sentences("conditions")),
            attack_success=self.attack_success,
            attack_scope=", ".join(filter(None, (own, used))),
            not_protected=tuple(self.sentences("not_protected")),
        )

    def summary(self) -> str:
        """Return one line: ``rating (change one rating), eps 8.00, delta 1e-05, proved`` or ``none (seeded noise)``."""
        if not (texts := self.view.texts):
            return self.standing
        return f"{texts['unit']} ({texts['relation']}), eps {texts['epsilon']}, delta {texts['delta']}, {self.standing}"

    @property
    def standing(self) -> str:
        """Guarantee in words: ``proved``, ``conditional (assumes that ...)`` or ``none (...)``."""
        return words.standing(self.guarantee, self.sentences("conditions"), self.reason, meaningful=not self.view.label)

    @property
    def requested_scope(self) -> str:
        """Scope of the requested epsilon, in words."""
        shared = self.mechanism.public_inputs.get("num_releases")
        outside = isinstance(self.mechanism, ThirdPartyMechanism) and not self.mechanism.built_in
        alone = "in the settings of its package" if outside else "in the paper's formula"
        return alone if shared is None else f"of all {shared} releases together"

    def __str__(self) -> str:
        """Return the record as text; an epsilon comes only with a guarantee, and always with its conditions."""
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
        lines += [
            ("note" if name in self.notes else "public input", f"{name} = {value}")
            for name, value in self.public_inputs.items()
        ]
        for name, codes in (
            ("condition", "conditions"),
            ("assumption", "assumptions"),
            ("not protected", "not_protected"),
        ):
            lines += [(name, text) for text in self.sentences(codes)]
        lines += [("arithmetic", FLOATING_POINT)]
        return "\n".join(f"{name:<14} {text}" for name, text in lines)

    def _shown_claims(self) -> list[tuple[str, str]]:
        if not self.claims or self.epsilon is None or self.delta is None:
            return []
        assuming = ", assuming the conditions below" if self.conditions else ""
        claims = [("epsilon", f"{rounded_up(self.epsilon)} at delta {shown_delta(self.delta)}{assuming}")]
        if self.requested_epsilon is not None:
            claims.append(("requested", f"epsilon {self.requested_epsilon:g} {self.requested_scope}"))
        if self.mu is not None:
            claims.append(("mu", rounded_up(self.mu)))
        view = self.view
        claims.append(("attack success", f"at most {view.bound}{f' ({view.label})' if view.label else ''}"))
        return claims


def _same(one: Iterable[PrivacyEvent], other: Iterable[PrivacyEvent]) -> bool:
    return nearly_equal([event_to_dict(event) for event in one], [event_to_dict(event) for event in other])


def unprotected_record(
    mechanism: str,
    reason: str,
    steps: Iterable[RecordedStep] = (),
    *,
    noise_source: str = NO_NOISE,
    public_inputs: Mapping[str, Plain] | None = None,
    not_protected: tuple[str, ...] = ("everything",),
) -> PrivacyRecord:
    """Return the record of a release without a guarantee, with the reason and the steps done to the data."""
    made = ThirdPartyMechanism(name=mechanism, inputs=public_inputs or {}, not_protected=not_protected)
    return PrivacyRecord(mechanism=made, noise_source=noise_source, steps=tuple(steps), reasons=(reason,))


@cache
def warn_once(text: str, stacklevel: int = 2) -> None:
    """Warn once per text; ``stacklevel`` 1 shows the line of the caller, 2 that of its caller."""
    warnings.warn(text, stacklevel=stacklevel + 1)
