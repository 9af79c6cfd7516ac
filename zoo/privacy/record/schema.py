"""Record files of schema 3: the fields of a record, and the comparison with what follows from them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from zoo.privacy.accounting.accountant import ACCOUNTANT
from zoo.privacy.accounting.events import event_from_dict
from zoo.privacy.mechanisms import mechanism_named
from zoo.privacy.mechanisms.base import Mechanism, kinds
from zoo.privacy.mechanisms.claimed import ClaimedMechanism, close
from zoo.privacy.record.derived import Selection
from zoo.privacy.record.fields import InconsistentRecordError, RecordError, read_field
from zoo.privacy.record.steps import REACHES, Done, conditions_of
from zoo.privacy.record.words import CLAIMED_BY

RECORD_SCHEMA = 3
"""The newest schema. 1: without conditions. 2: every figure and sentence stated. 3: parameters, and what follows from them."""

DERIVED = {
    "guarantee": "Guarantee",
    "unit": "Unit | None",
    "relation": "Relation | None",
    "epsilon": "float | None",
    "delta": "float | None",
    "mu": "float | None",
    "requested_epsilon": "float | None",
    "sensitivity": "float | None",
    "sensitivity_norm": "str | None",
    "clip": "float | None",
    "noise_scale": "float | None",
    "compositions": "int",
    "accountant": "str",
    "conditions": "tuple[str, ...]",
    "assumptions": "tuple[str, ...]",
    "not_protected": "tuple[str, ...]",
}
"""What follows from the fields of a record, and the type of each."""

_STATED = {
    "schema": "int",
    "floating_point": "str",
    "mechanism": "str",
    "known": "bool",
    "parameters": "Mapping[str, Plain]",
    "noise_source": "str",
    "steps": "list",
    "notes": "Mapping[str, Plain]",
    "reasons": "tuple[str, ...]",
    "provisos": "tuple[str, ...]",
    "selection": "Mapping[str, Plain] | None",
}
_SELECTION = {"num_candidates", "events", "delta", "has_mu", "conditions", "seeds"}
_ACCOUNTANT = ACCOUNTANT.partition("/")[0] + r"/\d{1,4}"
_CONVOLVED = 1e-6  # relative; above what convolutions differ by between machines


def read_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record from plain JSON of another party; `RecordError` if one is not of its type."""
    expected = {*_STATED, *DERIVED}
    if values.keys() != expected:
        missing, unknown = sorted(expected - values.keys()), sorted(map(str, values.keys() - expected))
        raise RecordError(f"The record lacks the fields {missing} and has the unknown fields {unknown}.")
    read = {name: read_field(name, kind, values[name]) for name, kind in {**_STATED, **DERIVED}.items()}
    steps, selection = tuple(map(_step, read["steps"])), _selection(read["selection"])
    kept = {name: read[name] for name in ("noise_source", "notes", "reasons", "provisos")}
    made = _mechanism(read, steps, selection)
    return {**kept, "mechanism": made, "steps": steps, "selection": selection}


def check_derived(derived: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
    """Refuse a file that states anything else than what follows from its parameters.

    An epsilon of another accountant may be larger: a bound stays true, and accountants get tighter.
    """
    older = stated["accountant"] != ACCOUNTANT and bool(re.fullmatch(_ACCOUNTANT, stated["accountant"]))
    unknown = stated["known"] and not derived["known"]  # of a package that is not installed here
    passed_over = {"parameters", "known"} if unknown else set()
    for name in derived.keys() - passed_over - ({"accountant"} if older else set()):
        tolerance = _CONVOLVED if name in ("epsilon", "mu") else 1e-9
        larger = older and name == "epsilon" and (stated[name] or 0.0) > (derived[name] or 0.0)
        if not larger and not close(stated[name], derived[name], tolerance):
            raise InconsistentRecordError(
                f"{stated['mechanism']}: {name} is stated as {str(stated[name])[:160]}. From the parameters of the record follows "
                f"{str(derived[name])[:160]}. Do not use the release; ask the source party for a correct one."
            )


def _mechanism(read: Mapping[str, Any], steps: Sequence[Done], selection: Selection | None) -> Mechanism:
    kind = mechanism_named(read["mechanism"])
    if read["known"] and kind is not None:
        return built(kind, read["parameters"])
    if kind is not None and not read["reasons"]:
        raise RecordError(f"The record claims the guarantee of {read['mechanism']} without its parameters.")
    added = {*read["provisos"], *conditions_of(steps, str(read["unit"]) if read["unit"] else "user")}
    added |= {*selection.conditions} if selection else set()
    own = f"{CLAIMED_BY}{read['mechanism']!r}"
    return ClaimedMechanism(
        name=read["mechanism"],
        inputs={name: value for name, value in read["parameters"].items() if value is not None},
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


def built(kind: type[Mechanism], parameters: Mapping[str, Any]) -> Mechanism:
    """Return a mechanism from parameters that may come from another party; `RecordError` if one is not of its type."""
    entries = kinds(kind)
    if parameters.keys() != entries.keys():
        raise RecordError(f"{kind.name} has the parameters {sorted(entries)}, the record states {sorted(parameters)}.")
    return kind(**{name: read_field(name, entries[name], parameters[name]) for name in entries})


def _step(value: object) -> Done:
    if not isinstance(value, Mapping) or value.keys() != {*Done._fields} or value["reach"] not in REACHES:
        raise RecordError(f"A step must hold {list(Done._fields)}, got {str(value)[:80]}.")
    return Done(**{name: read_field(f"steps, {name}", "str", value[name]) for name in Done._fields})


def _selection(value: Mapping[str, Any] | None) -> Selection | None:
    if value is None:
        return None
    if value.keys() != _SELECTION or not isinstance(value["events"], list) or not value["events"]:
        raise RecordError(f"selection must hold exactly {sorted(_SELECTION)}, and at least one event.")
    return Selection(
        num_candidates=read_field("num_candidates", "int", value["num_candidates"]),
        events=tuple(event_from_dict(event) for event in value["events"]),
        delta=read_field("delta", "float", value["delta"]),
        has_mu=read_field("has_mu", "bool", value["has_mu"]),
        conditions=read_field("conditions", "tuple[str, ...]", value["conditions"]),
        seeds=read_field("seeds", "tuple[str, ...]", value["seeds"]),
    )
