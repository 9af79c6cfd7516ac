"""Record files of schema 3: the fields of a record, and the comparison with the figures derived from them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.privacy.accounting.accountant import ACCOUNTANT
from zoo.privacy.accounting.events import read_ledger
from zoo.privacy.mechanisms import mechanism_named
from zoo.privacy.mechanisms.base import Mechanism, field_types
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism, nearly_equal, repeats_result
from zoo.privacy.record.derived import Selection
from zoo.privacy.record.fields import ASK_SOURCE, InconsistentRecordError, RecordError, read_field
from zoo.privacy.record.steps import REACHES, RecordedStep, conditions_of
from zoo.privacy.record.words import CLAIMED_BY

RECORD_SCHEMA = 3
"""Newest schema. 1: without conditions. 2: all figures and sentences stated. 3: parameters, and figures derived from them."""

DERIVED = {
    "guarantee": "Guarantee", "unit": "Unit | None", "relation": "Relation | None", "epsilon": "float | None",
    "delta": "float | None", "delta_rule": "str | None", "mu": "float | None", "requested_epsilon": "float | None",
    "sensitivity": "float | None", "sensitivity_norm": "str | None", "clip": "float | None",
    "noise_scale": "float | None", "compositions": "int", "accountant": "str", "conditions": "tuple[str, ...]",
    "assumptions": "tuple[str, ...]", "not_protected": "tuple[str, ...]",
}  # fmt: skip
"""Derived fields of a record, and the type of each."""
LATER = {"delta_rule"}
"""Derived fields that the first files of this schema lack."""
LATER_CODES = {"ratings_elsewhere", "critic_weights", "resumed_once", "training_failure_of_signs"}
"""Codes of `not_protected` and `assumptions` that earlier files of this schema lack; a reader derives them for those files too."""

_STATED = {
    "schema": "int", "floating_point": "str", "mechanism": "str", "known": "bool",
    "parameters": "Mapping[str, Plain]", "noise_source": "str", "steps": "list", "notes": "Mapping[str, Plain]",
    "reasons": "tuple[str, ...]", "provisos": "tuple[str, ...]", "selection": "Mapping[str, Plain] | None",
}  # fmt: skip
_SELECTION = {"num_candidates", "events", "delta", "has_mu", "conditions", "seeds"}
_ACCOUNTANT = ACCOUNTANT.partition("/")[0] + r"/\d{1,4}"
_CONVOLVED = 1e-6  # relative; more than the difference of convolutions between machines


def read_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record from the untrusted JSON of another party; `RecordError` if one has another type."""
    values = {**dict.fromkeys(LATER), **values}
    expected = {*_STATED, *DERIVED}
    if values.keys() != expected:
        missing, unknown = sorted(expected - values.keys()), sorted(map(str, values.keys() - expected))
        raise RecordError(f"The record lacks the fields {missing} and has unknown fields {unknown}.")
    read = {name: read_field(name, kind, values[name]) for name, kind in {**_STATED, **DERIVED}.items()}
    steps, selection = tuple(map(_step, read["steps"])), _selection(read["selection"])
    fields = {name: read[name] for name in ("noise_source", "notes", "reasons", "provisos")}
    return {**fields, "mechanism": _mechanism(read, steps, selection), "steps": steps, "selection": selection}


def check_derived(derived: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
    """Refuse a file whose figures differ from those derived from its parameters.

    An epsilon of another accountant may be larger, because it is still a valid bound.
    """
    older = stated["accountant"] != ACCOUNTANT and bool(re.fullmatch(_ACCOUNTANT, stated["accountant"]))
    unknown = stated["known"] and not derived["known"]  # of a package that is not installed here
    passed_over = {"parameters", "known"} if unknown else set()
    passed_over |= LATER - stated.keys()
    for name in derived.keys() - passed_over - ({"accountant"} if older else set()):
        tolerance = _CONVOLVED if name in ("epsilon", "mu") else 1e-9
        due = derived[name]
        if name in ("not_protected", "assumptions"):
            due = [code for code in due if code in stated[name] or code not in LATER_CODES]
        larger = older and name == "epsilon" and (stated[name] or 0.0) > (derived[name] or 0.0)
        if not larger and not nearly_equal(stated[name], due, tolerance):
            raise InconsistentRecordError(
                f"{stated['mechanism'][:80]!r}: {name} is {repr(stated[name])[:160]}. Its parameters give "
                f"{repr(due)[:160]}. {ASK_SOURCE}"
            )


def _mechanism(read: Mapping[str, Any], steps: Sequence[RecordedStep], selection: Selection | None) -> Mechanism:
    kind = mechanism_named(read["mechanism"])
    if read["known"] and kind is not None:
        return mechanism_from(kind, read["parameters"])
    if kind is not None and not read["reasons"]:
        raise RecordError(f"The record claims the guarantee of {read['mechanism']} without parameters.")
    added = {*read["provisos"], *conditions_of(steps, str(read["unit"]) if read["unit"] else "user")}
    added |= {*selection.conditions} if selection else set()
    own = f"{CLAIMED_BY}{read['mechanism']!r}"
    return ThirdPartyMechanism(
        name=read["mechanism"],
        inputs={
            name: value
            for name, value in read["parameters"].items()
            if value is not None and not (read["known"] and repeats_result(name))  # fields of the absent class
        },
        noise_std=read["noise_scale"],
        conditions=tuple(code for code in read["conditions"] if code not in added and code != own),
        compositions=1 if selection else read["compositions"],
        **{
            name: read[name]
            for name in (
                "relation", "epsilon", "delta", "mu", "requested_epsilon", "sensitivity", "sensitivity_norm", "clip",
                "assumptions", "not_protected",
            )
        },
    )  # fmt: skip


def mechanism_from(kind: type[Mechanism], parameters: Mapping[str, Any]) -> Mechanism:
    """Return a mechanism from untrusted parameters; `RecordError` if one has another type."""
    types = field_types(kind)
    if parameters.keys() != types.keys():
        raise RecordError(f"The parameters of {kind.name} are {sorted(parameters)}. Allowed: {sorted(types)}.")
    return kind(**{name: read_field(name, types[name], parameters[name]) for name in types})


def _step(value: object) -> RecordedStep:
    names = RecordedStep._fields
    if not isinstance(value, Mapping) or value.keys() != {*names} or value["reach"] not in REACHES:
        raise RecordError(f"A step is {repr(value)[:80]}. Needed: {list(names)}, reach in {list(REACHES)}.")
    return RecordedStep(**{name: read_field(f"steps, {name}", "str", value[name]) for name in names})


def _selection(value: Mapping[str, Any] | None) -> Selection | None:
    if value is None:
        return None
    if value.keys() != _SELECTION or not isinstance(value["events"], list) or not value["events"]:
        raise RecordError(f"selection must hold exactly {sorted(_SELECTION)}, with at least one event.")
    return Selection(
        num_candidates=read_field("num_candidates", "int", value["num_candidates"]),
        events=read_ledger(value["events"]),
        delta=read_field("delta", "float", value["delta"]),
        has_mu=read_field("has_mu", "bool", value["has_mu"]),
        conditions=read_field("conditions", "tuple[str, ...]", value["conditions"]),
        seeds=read_field("seeds", "tuple[str, ...]", value["seeds"]),
    )
