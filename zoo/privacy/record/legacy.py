"""Records of schema 1 and 2, which state all figures and sentences: their mechanisms are rebuilt and compared with them."""

import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from zoo.privacy.accounting.accountant import flattened
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    NonPrivateEvent,
    NoOpEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    RandomisedResponseEvent,
)
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.mechanisms import BUILT_IN, mechanism_named
from zoo.privacy.mechanisms.base import Mechanism, MechanismError, Plain
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism, nearly_equal
from zoo.privacy.record.derived import Derived, Selection
from zoo.privacy.record.fields import (
    ASK_SOURCE,
    FLOATING_POINT,
    Guarantee,
    InconsistentRecordError,
    RecordError,
    read_field,
)
from zoo.privacy.record.schema import DERIVED, LATER
from zoo.privacy.record.steps import RecordedStep, refuse_missing_conditions
from zoo.privacy.record.words import CLAIMED_BY, NOT_AUDITED

_FIELDS = {
    "mechanism": "str",
    "noise_source": "str",
    "public_inputs": "Mapping[str, Plain]",
    "reason": "str | None",
    **{name: kind for name, kind in DERIVED.items() if name not in LATER},
}
_CLAIMS = ("epsilon", "delta", "mu", "requested_epsilon")  # absent from a record without a guarantee
_TRIED, _OTHER_SEEDS = "releases it was chosen among, by results", "projection seeds of the others"
_DONE = "done to the data before: "
_MOVED = re.compile(
    r"no rating decides what else is held out, although by the split (\w+) one rating may move up to (\d+) cells of its user"
)


@cache
def earlier_sentences() -> dict[str, tuple[str, ...]]:
    """Return the sentences of each code in records of schema 1 and 2, which stored them; other codes were not stated then."""
    found: dict[str, tuple[str, ...]] = {}
    with Path(__file__).with_name("legacy_sentences.csv").open(newline="", encoding="utf-8") as file:
        for code, text in list(csv.reader(file))[1:]:
            found[code] = (*found.get(code, ()), text)
    return found


@cache
def _codes() -> dict[str, str]:
    return {text: code for code, texts in earlier_sentences().items() for text in texts if "{" not in text}


@dataclass(frozen=True, kw_only=True)
class EarlierMechanism(ThirdPartyMechanism):
    """A mechanism of this package as an old record states it, without a ledger to rebuild it from."""

    built_in: ClassVar[bool] = True


def fields_of_earlier(
    values: Mapping[str, Any], ledger: Sequence[PrivacyEvent] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of a record of schema 1 or 2, and the record as schema 2 would have written it."""
    schema = values["schema"]
    if schema == 1:
        values = _from_schema_1(values)
    if values.keys() != {"schema", "floating_point", *_FIELDS}:
        raise RecordError(f"The fields are {sorted(values)}. Schema {schema} has exactly {sorted(_FIELDS)}.")
    if values["floating_point"] != FLOATING_POINT:
        raise RecordError("The record lacks the sentence on floating-point arithmetic.")
    old = {name: read_field(name, kind, values[name]) for name, kind in _FIELDS.items()}
    written = {**values, "schema": 2}
    _check_stated(old)
    inputs = {name: value for name, value in old["public_inputs"].items() if name not in (_TRIED, _OTHER_SEEDS)}
    other = inputs.pop("mechanism", old["mechanism"])
    if other != old["mechanism"] and old["guarantee"] is not Guarantee.NONE:
        raise InconsistentRecordError(
            f"{old['mechanism'][:80]!r}: public_inputs name another mechanism, {str(other)[:80]!r}. {ASK_SOURCE}"
        )
    old["public_inputs"] = inputs
    mechanism = _mechanism(old, ledger)
    selection = _selection(old, values["public_inputs"], mechanism, ledger)
    steps = tuple(RecordedStep(text.removeprefix(_DONE)) for text in old["assumptions"] if text.startswith(_DONE))
    reasons = () if old["reason"] is None else (_code(old["reason"]),)
    stated = tuple(_code(text) for text in old["conditions"])
    # In schema 1 the seed was a setting with the default 0.
    if "unstated" in stated and not reasons and _is_mean(old):
        reasons = ("projection_known_before",)
    built = not isinstance(mechanism, ThirdPartyMechanism)
    if "unstated" not in stated and not reasons and old["unit"] is not None:
        refuse_missing_conditions(old["assumptions"], stated, old["unit"])  # of whatever beginning
    provisos = tuple(code for code in stated if code not in mechanism.statement.conditions) if built else ()
    notes = {name: value for name, value in inputs.items() if name not in mechanism.public_inputs} if built else {}
    fields = {"mechanism": mechanism, "noise_source": old["noise_source"], "notes": notes, "reasons": reasons}
    return {**fields, "provisos": provisos, "steps": steps if built else (), "selection": selection}, written


def with_condition(written: Mapping[str, Any], code: str) -> dict[str, Any]:
    """Return a record of schema 2 with a further condition, by its code."""
    conditions = [*written["conditions"], code]
    return {**written, "guarantee": Guarantee.CONDITIONAL.value, "conditions": conditions}


def check_earlier(record: Derived, written: Mapping[str, Any]) -> None:
    """Refuse a record whose figures or sentences differ from those of its mechanism."""
    mechanism = record.mechanism
    if isinstance(mechanism, ThirdPartyMechanism) or not record.claims:
        return
    for name in ("mu", "requested_epsilon", "sensitivity", "sensitivity_norm", "clip", "noise_scale", "compositions"):
        _compare(mechanism, name, written[name], getattr(record, name))
    if not (written["epsilon"] or 0.0) * (1 + 1e-6) >= (record.epsilon or 0.0):
        raise InconsistentRecordError(
            f"{mechanism.name}: epsilon is {written['epsilon']}. The ledger gives {record.epsilon:.6g}. {ASK_SOURCE}"
        )
    for name, value in mechanism.public_inputs.items():
        if name in written["public_inputs"]:
            _compare(mechanism, f"public_inputs[{name!r}]", written["public_inputs"][name], value)
    statement = mechanism.statement
    for kind, codes in statement._asdict().items():
        for code in codes:
            texts = [text.format(m=mechanism) for text in earlier_sentences().get(code, ())]
            if texts and not {*texts} & {*written[kind]} and not (code == "metrics" and "map" in mechanism.tensors):
                raise InconsistentRecordError(f"{mechanism.name}: {kind} lack {texts[0]!r}. {ASK_SOURCE}")


def _compare(mechanism: Mechanism, name: str, stated: object, due: object) -> None:
    if not nearly_equal(stated, due):
        raise InconsistentRecordError(
            f"{mechanism.name}: {name} is {repr(stated)[:80]}. The ledger gives {repr(due)[:80]}. {ASK_SOURCE}"
        )


def _from_schema_1(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as schema 2 would state them; schema 1 has no conditions."""
    conditional = values.get("guarantee") == Guarantee.PROVED
    guarantee = Guarantee.CONDITIONAL.value if conditional else values.get("guarantee")
    unstated = (
        "nothing that was done to the data before depends on what is protected (the record is older than the statement of such "
        "conditions)"
    )
    return {**values, "guarantee": guarantee, "conditions": [unstated] if conditional else []}


def _check_stated(old: Mapping[str, Any]) -> None:
    """Refuse fields that contradict each other."""
    none = old["guarantee"] is Guarantee.NONE
    if none != (old["reason"] is not None) or (none and any(old[name] is not None for name in _CLAIMS)):
        raise RecordError("guarantee is 'none' without a reason, or with epsilon, delta or mu; or the reverse.")
    if bool(old["conditions"]) != (old["guarantee"] is Guarantee.CONDITIONAL):
        raise RecordError(f"guarantee is {old['guarantee'].value!r}. Only 'conditional' has conditions, at least one.")
    relation = old["relation"]
    if (None if relation is None else relation.unit) is not old["unit"]:
        raise RecordError(f"unit is {old['unit']}. Relation {relation} protects another unit.")


def _code(text: str) -> str:
    if found := _MOVED.fullmatch(text):
        return f"held_out_by_split:{found[1]}:{found[2]}"
    if text.startswith("it is as claimed by ") and text.endswith(f", {NOT_AUDITED}"):
        return CLAIMED_BY + text.removeprefix("it is as claimed by ").removesuffix(f", {NOT_AUDITED}")
    if text.startswith("nothing that was done to the data before depends on"):
        return "unstated"
    return _codes().get(text, text)


def _is_mean(old: Mapping[str, Any]) -> bool:
    inputs = old["public_inputs"]
    return "projection_seed" in inputs and inputs.get("calibration") not in ("unit", "max")


# Mechanisms.


def _mechanism(old: Mapping[str, Any], ledger: Sequence[PrivacyEvent] | None) -> Mechanism:
    name, kind = old["mechanism"], mechanism_named(old["mechanism"])
    singles = [event for entry in ledger or () for event, _ in flattened(entry, 1.0)]
    leading = next((event for event in singles if not isinstance(event, NoOpEvent | NonPrivateEvent)), None)
    claims, build = old["reason"] is None, _BUILD.get(name)
    if kind is None or ledger is None or build is None or leading is None:
        ours = kind in BUILT_IN
        if claims and ledger is not None and ours and build is None:
            raise RecordError(f"mechanism is {name}. It belongs to no publisher.")
        return _as_stated(old, EarlierMechanism if ours else ThirdPartyMechanism)
    try:
        sizes = {  # 0: not stated
            size: read_field(size, "int", old["public_inputs"].get(size, 0)) for size in ("num_users", "num_items")
        }
        common = {"relation": old["relation"], "delta": old["delta"] or 0.0, **sizes}
        return kind(**common, **build(old, leading, ledger))
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        if claims:
            raise InconsistentRecordError(f"The figures are not those of {name} ({error}). {ASK_SOURCE}") from error
        return _as_stated(old, EarlierMechanism)


def _as_stated(old: Mapping[str, Any], kind: type[ThirdPartyMechanism]) -> ThirdPartyMechanism:
    names = (
        "relation", "epsilon", "delta", "mu", "requested_epsilon", "sensitivity", "sensitivity_norm", "clip", "compositions",
        "not_protected",
    )  # fmt: skip
    stated = {name: old[name] for name in names}
    codes = {name: tuple(map(_code, old[name])) for name in ("conditions", "assumptions", "not_protected")}
    return kind(**{**stated, **codes}, name=old["mechanism"], noise_std=old["noise_scale"], inputs=old["public_inputs"])


def _selection(
    old: Mapping[str, Any], inputs: Mapping[str, Plain], mechanism: Mechanism, ledger: Sequence[PrivacyEvent] | None
) -> Selection | None:
    if _TRIED not in inputs or not ledger or isinstance(mechanism, ThirdPartyMechanism) or old["reason"] is not None:
        return None
    return Selection(
        num_candidates=read_field(_TRIED, "int", inputs[_TRIED]),
        events=tuple(ledger),
        delta=old["delta"],
        has_mu=old["mu"] is not None,
        seeds=tuple(str(inputs.get(_OTHER_SEEDS, "")).split()),
    )


def _wrong_ledger(event: PrivacyEvent) -> MechanismError:
    return MechanismError(f"the ledger begins with a {type(event).__name__}")


def _multiplier(event: PrivacyEvent) -> float:
    if not isinstance(event, GaussianEvent):
        raise _wrong_ledger(event)
    return event.noise_multiplier


def _number(old: Mapping[str, Any], name: str) -> float:
    value = old["public_inputs"].get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise MechanismError(f"public_inputs[{name!r}] is {str(value)[:80]!r}")
    return value


def _clip_of_users(old: Mapping[str, Any]) -> float | None:
    return old["clip"] if old["unit"] is Unit.USER else None


def _noisy_rows(old: Mapping[str, Any], event: PrivacyEvent, _: object) -> dict[str, Any]:
    threshold = _number(old, "threshold") if "threshold" in old["public_inputs"] else None
    return {"noise_multiplier": _multiplier(event), "clip": _clip_of_users(old), "threshold": threshold}


def _flipped_rows(old: Mapping[str, Any], event: PrivacyEvent, _: object) -> dict[str, Any]:
    if not isinstance(event, RandomisedResponseEvent):
        raise _wrong_ledger(event)
    return {"flip_probability": event.flip_probability, "keep": _number(old, "keep")}


def _projected(old: Mapping[str, Any], event: PrivacyEvent, _: object) -> dict[str, Any]:
    inputs, users = old["public_inputs"], old["unit"] is Unit.USER
    dim, w, calibration = inputs.get("num_components"), _number(old, "w"), inputs.get("calibration")
    if type(dim) is not int or not isinstance(calibration, str):
        raise MechanismError("num_components or calibration is missing")
    random = isinstance(event, GaussianProjectionEvent)
    if random is (calibration in ("unit", "max")):
        raise MechanismError(f"calibration {calibration!r} does not match a {type(event).__name__}")
    largest = None
    if not random:
        largest = math.sqrt(dim) if calibration == "unit" else w / (_multiplier(event) * (old["sensitivity"] or 0.0))
    known = "form" not in inputs
    if known and random and type(inputs.get("projection_seed")) is not int:
        raise MechanismError("projection_seed is missing")
    return {
        "calibration": calibration,
        "dim": dim,
        "w": w,
        "rating_range": None if users else old["sensitivity"],
        "clip": _clip_of_users(old),
        "largest_norm": largest,
        "asked": old["requested_epsilon"] if calibration == "paper" else None,
        "seed": inputs.get("projection_seed") if known else None,
        "centred": inputs.get(f"centred {'after the noise' if known else 'before the lift'}") is True,
        **({"density": _number(old, "density")} if old["mechanism"] == "SJLT" else {}),
    }


def _vectors(old: Mapping[str, Any], event: PrivacyEvent, _: object) -> dict[str, Any]:
    inputs = old["public_inputs"]
    named = {name: read_field(name, "int", inputs[name]) for name in ("num_layers", "width")}
    count = read_field("num_releases", "int", inputs.get("num_releases", 1))
    return {"noise_multiplier": _multiplier(event), "clip": old["clip"], "num_releases": count, **named}


def _bridge(old: Mapping[str, Any], event: PrivacyEvent, _: object) -> dict[str, Any]:
    inputs = old["public_inputs"]
    named = {name: read_field(name, "int", inputs[name]) for name in ("kept_items", "num_directions")}
    return {
        "noise_multiplier": _multiplier(event), "clip": old["clip"], "counts_share": _number(old, "counts_share"), **named,
    }  # fmt: skip


def _critic(old: Mapping[str, Any], event: PrivacyEvent, ledger: Sequence[PrivacyEvent]) -> dict[str, Any]:
    if not isinstance(event, PoissonSampledGaussianEvent):
        raise _wrong_ledger(event)
    return {**_steps(old, ledger), "noise_multiplier": event.noise_multiplier, "rate": event.rate}


def _sanitised(old: Mapping[str, Any], event: PrivacyEvent, ledger: Sequence[PrivacyEvent]) -> dict[str, Any]:
    rows = read_field("sample_size", "int", old["public_inputs"]["sample_size"])
    every = read_field("n_critic", "int", old["public_inputs"]["n_critic"])
    multiplier = _multiplier(event) * 2 * math.sqrt(rows)
    return {**_steps(old, ledger), "noise_multiplier": multiplier, "sample_size": rows, "n_critic": every}


def _steps(old: Mapping[str, Any], ledger: Sequence[PrivacyEvent]) -> dict[str, Any]:
    taken = sum(int(count) for _, count in flattened(ledger[0], 1.0))
    return {"clip": old["clip"], "steps": read_field("steps", "int", old["public_inputs"]["steps"]), "taken": taken}


_BUILD: Mapping[str, Callable[[Mapping[str, Any], PrivacyEvent, Sequence[PrivacyEvent]], dict[str, Any]]] = {
    "NoisyRows": _noisy_rows, "FlippedRows": _flipped_rows, "JLT": _projected, "SJLT": _projected,
    "EmbeddingPublisher": _vectors, "ProjectionPublisher": _vectors, "BridgePublisher": _bridge,
    "SPPG, private_d": _critic, "SPPG, first_layer_only": _critic, "SPPG, gs_wgan": _sanitised,
}  # fmt: skip
