"""What a record of each mechanism must say, given the event that leads its ledger: relations, numbers and texts."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, overload

from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    LaplaceEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    PureEvent,
    RandomisedResponseEvent,
)
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.pure import ternary_keep
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.randomness.noise import lattice_spacing
from zoo.privacy.record import texts
from zoo.privacy.record.fields import RecordError
from zoo.privacy.record.shared_projection import OF_EVERY_PROJECTION
from zoo.privacy.record.stated import Stated

# Only the calibration of the paper is asked for another epsilon than it proves.
_ASKED: Mapping[str, None] = {"requested_epsilon": None}
_NO_CLIP: Mapping[str, None] = {"clip": None, **_ASKED}
_MOST_RELEASES = 10**6  # that can share an epsilon
_ONE_RATING = frozenset({Relation.CHANGE_ONE_RATING})
_ONE_VALUE = frozenset({Relation.CHANGE_ONE_RATING_VALUE})
_ONE_USER = frozenset({Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER})

One = TypeVar("One", bound=PrivacyEvent)
Other = TypeVar("Other", bound=PrivacyEvent)


class InconsistentRecordError(RecordError):
    """A record that says something else than its ledger, or leaves out what records of its mechanism say."""


@dataclass(frozen=True, kw_only=True)
class Due:
    """What a record must say."""

    relations: frozenset[Relation]  # that its mechanism may claim
    fields: Mapping[str, float | None]  # numbers of the record, by field; None: there must be none
    # Numbers among its public inputs, all of which must be there.
    inputs: Mapping[str, float] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    not_protected: tuple[str, ...] = ()
    uses: int | None = 1  # how often one release uses the data, at most; None: as often as it says


Mechanism = Callable[[Stated, PrivacyEvent], Due]
"""Record and the single event that its ledger begins with in, what the record must say out."""


def due_of(record: Stated, event: PrivacyEvent) -> Due | None:
    """What a record must say; None for a mechanism that is none of ours, of which nothing is known here.

    `InconsistentRecordError` if the event cannot be of this mechanism, or what the others follow from is not stated.
    """
    mechanism = MECHANISMS.get(record.mechanism)
    return None if mechanism is None else mechanism(record, event)


def stated_number(record: Stated, name: str) -> float:
    """A positive number among the public inputs, which may come from anybody."""
    value = record.public_inputs.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-300 <= value <= 1e300:
        raise InconsistentRecordError(
            f"{record.mechanism}: public_inputs[{name!r}] must be a positive number, got {str(value)[:80]!r}."
        )
    return value


@overload
def _expect(record: Stated, event: PrivacyEvent, one: type[One]) -> One: ...
@overload
def _expect(record: Stated, event: PrivacyEvent, one: type[One], other: type[Other]) -> One | Other: ...
def _expect(
    record: Stated, event: PrivacyEvent, one: type[PrivacyEvent], other: type[PrivacyEvent] | None = None
) -> PrivacyEvent:
    """The event, if it is of a kind that the mechanism has."""
    if type(event) not in (one, other):
        wanted = one.__name__ if other is None else f"{one.__name__} or {other.__name__}"
        raise InconsistentRecordError(
            f"{record.mechanism}: its ledger must begin with a {wanted}, it begins with a {type(event).__name__}."
        )
    return event


def _clip(record: Stated) -> float:
    if record.clip is None:
        raise InconsistentRecordError(f"{record.mechanism}: the record must state the clip that bounds one user.")
    return record.clip


def _row_sensitivity(record: Stated, of_rating: float) -> float:
    """How far one change moves rows (L2): a rating so far, a user the clip, and twice that where another one comes."""
    if record.unit is not Unit.USER:
        return of_rating
    return _clip(record) * (2 if record.relation is Relation.REPLACE_ONE_USER else 1)


# Rows.


def _noisy_rows(record: Stated, event: PrivacyEvent) -> Due:
    per_user = record.unit is Unit.USER
    sensitivity = _row_sensitivity(record, 1.0)
    sigma = _expect(record, event, GaussianEvent).noise_multiplier * sensitivity
    grid = lattice_spacing(sigma)
    inputs = {"sigma": sigma}
    if "grid" in record.public_inputs:
        # Sigma is recomputed, and its last digit may carry it over a power of two.
        inputs["grid"] = lattice_spacing(stated_number(record, "sigma"))
    if "threshold" in record.public_inputs:
        steps = math.floor(min(stated_number(record, "threshold") / grid, 2.0**60))
        inputs["threshold"] = (steps + 0.5) * grid  # half-way between two points of the lattice
    return Due(
        relations=_ONE_RATING | _ONE_USER,
        fields={"sensitivity": sensitivity, "noise_scale": sigma, **_ASKED, **({} if per_user else {"clip": None})},
        inputs=inputs,
        assumptions=(
            texts.BINARY,
            texts.SETS_PUBLIC,
            *((texts.clipped_before("the noise", _clip(record)),) if per_user else ()),
        ),
        not_protected=(texts.SETS_OPEN, texts.EVALUATED, *(() if per_user else (texts.SEVERAL_NOISY,))),
    )


def _flipped_rows(record: Stated, event: PrivacyEvent) -> Due:
    p = _expect(record, event, RandomisedResponseEvent).flip_probability
    keep = stated_number(record, "keep")
    return Due(
        relations=_ONE_RATING,
        fields={"sensitivity": 1.0, "noise_scale": math.sqrt(p * (1 - p)), **_NO_CLIP, "mu": None},
        inputs={"flip_probability": p, "keep": min(keep, 1.0)},
        assumptions=(texts.BINARY, texts.SETS_PUBLIC),
        not_protected=(texts.SETS_OPEN, texts.EVALUATED, texts.SEVERAL_FLIPPED),
    )


def _is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _projected(record: Stated, event: PrivacyEvent) -> Due:
    gaussian = _expect(record, event, GaussianEvent, GaussianProjectionEvent)
    multiplier = gaussian.noise_multiplier
    per_user, inputs, dim = record.unit is Unit.USER, record.public_inputs, stated_number(record, "num_components")
    sensitivity = _row_sensitivity(record, record.sensitivity or 0.0)
    at_random = isinstance(gaussian, GaussianProjectionEvent)
    calibration, w = inputs.get("calibration"), stated_number(record, "w")
    if calibration not in (("gaussian", "paper") if at_random else OF_EVERY_PROJECTION):
        raise InconsistentRecordError(
            f"{record.mechanism}: calibration {str(calibration)[:80]!r} does not go with a {type(event).__name__}."
        )
    due: dict[str, float] = {"num_components": dim}
    if isinstance(gaussian, GaussianProjectionEvent):
        due |= {"w": multiplier * sensitivity, "num_components": gaussian.dim}
    elif calibration == "unit":
        due["w"] = multiplier * math.sqrt(dim) * sensitivity
    if "largest_norm" in inputs and not at_random:  # records did not say it at first
        due["largest_norm"] = w / (multiplier * sensitivity)
    bound = texts.clipped_before("projection", _clip(record)) if per_user else texts.ratings_within(sensitivity)
    known_before = at_random and "form" not in inputs  # a secret M cannot be what the data were chosen by
    if known_before and not _is_seed(inputs.get("projection_seed")):
        raise InconsistentRecordError(
            f"{record.mechanism}: public_inputs['projection_seed'] must name the projection, so that no other release goes "
            f"through it; got {str(inputs.get('projection_seed'))[:80]!r}."
        )
    several = texts.SEVERAL_AT_RANDOM if at_random else texts.SEVERAL_PROJECTED
    return Due(
        relations=_ONE_RATING
        | (_ONE_USER if calibration == "gaussian" and record.mechanism == texts.JLT else frozenset()),
        fields={
            "sensitivity": sensitivity,
            "noise_scale": w / math.sqrt(dim),
            **({} if per_user else {"clip": None}),
            **({} if calibration == "paper" else _ASKED),
        },
        inputs=due,
        assumptions=(bound, texts.SETS_PUBLIC, *((texts.NOT_CHOSEN,) if known_before else ())),
        not_protected=(texts.SETS_OPEN, texts.ITEM_MEANS, texts.EVALUATED, *(() if per_user else (several,))),
    )


def _embeddings(record: Stated, event: PrivacyEvent) -> Due:
    multiplier = _expect(record, event, GaussianEvent).noise_multiplier
    sensitivity = math.sqrt(stated_number(record, "num_layers")) * _row_sensitivity(record, 0.0)
    asked, shared = _shared(record, multiplier)
    return Due(
        relations=_ONE_USER,
        fields={"sensitivity": sensitivity, "noise_scale": multiplier * sensitivity, "requested_epsilon": asked},
        conditions=(texts.OTHERS_GIVEN,),
        assumptions=(texts.layers_clipped(_clip(record)), texts.CHOSEN_BLIND, *shared),
        not_protected=texts.NOT_PROTECTED_BY_VECTORS,
    )


def _bridge(record: Stated, event: PrivacyEvent) -> Due:
    """The noise of the map leads the ledger; that of the sums follows from the share that they take."""
    multiplier = _expect(record, event, GaussianEvent).noise_multiplier
    clip, share = _clip(record), stated_number(record, "counts_share")
    if not share < 1:
        raise InconsistentRecordError(f"{record.mechanism}: counts_share must lie below 1, got {share:g}.")
    per_user = record.unit is Unit.USER
    sensitivity = _row_sensitivity(record, 1.0)
    return Due(
        relations=_ONE_RATING | _ONE_USER,
        fields={"sensitivity": sensitivity, "noise_scale": multiplier * sensitivity, **_ASKED},
        inputs={
            "row_clip": clip,
            "sigma": multiplier * sensitivity,
            "counts_scale": multiplier * sensitivity * math.sqrt((1 - share) / share),
        },
        assumptions=(texts.BINARY, texts.SETS_PUBLIC, texts.rows_of_bridge(clip), texts.PROJECTIONS_GIVEN),
        not_protected=(
            texts.SETS_OPEN,
            texts.EVALUATED,
            texts.JOINT,
            texts.TARGET_SIDE,
            *(() if per_user else (texts.SEVERAL_NOISY,)),
        ),
        uses=2,
    )


def _shared(record: Stated, multiplier: float) -> tuple[float | None, tuple[str, ...]]:
    """What all releases spend among which an epsilon is shared, each with such noise, and that it is; for one release, nothing.

    One that was chosen among several is none of those that anybody planned, and its record asks for no epsilon.
    """
    if texts.SHARED_BY not in record.public_inputs:
        return None, ()
    count = record.public_inputs[texts.SHARED_BY]
    if type(count) is not int or not 2 <= count <= _MOST_RELEASES:
        raise InconsistentRecordError(
            f"{record.mechanism}: public_inputs[{texts.SHARED_BY!r}] must be a whole number from 2 on, got {str(count)[:80]!r}."
        )
    if texts.TRIED in record.public_inputs or not record.delta:
        return None, (texts.one_of(count),)
    return gauss_epsilon(record.delta, math.sqrt(count) / multiplier), (texts.one_of(count),)


# Trained generators.


def _private_critic(record: Stated, event: PrivacyEvent) -> Due:
    multiplier = _expect(record, event, PoissonSampledGaussianEvent).noise_multiplier
    return _trained(record, multiplier, _row_sensitivity(record, 0.0), 1.0, (texts.SAMPLE_SECRET,))


def _sanitised(record: Stated, event: PrivacyEvent) -> Due:
    over_sensitivity = _expect(record, event, GaussianEvent).noise_multiplier
    moved = 2 * math.sqrt(stated_number(record, "sample_size"))  # by one user, in units of the clip
    return _trained(record, over_sensitivity * moved, moved * _clip(record), stated_number(record, "n_critic"), ())


def _trained(record: Stated, multiplier: float, sensitivity: float, every: float, assumptions: tuple[str, ...]) -> Due:
    """Of steps of which there is one in so many planned ones, with noise of so many times the clip."""
    planned = math.ceil(stated_number(record, "steps") / every)
    ended = (texts.ENDED_BLIND,) if record.compositions < planned else ()
    return Due(
        relations=_ONE_USER,
        fields={"sensitivity": sensitivity, "noise_scale": multiplier * _clip(record), **_ASKED},
        inputs={"noise_multiplier": multiplier},
        assumptions=(texts.SETS_PUBLIC, texts.CHOSEN_BLIND, *assumptions, *ended),
        not_protected=texts.NOT_PROTECTED_BY_TRAINING,
        uses=planned,
    )


def _private_rounds(record: Stated, event: PrivacyEvent) -> Due:
    sampled = _expect(record, event, PoissonSampledGaussianEvent)
    due = _trained(record, sampled.noise_multiplier, _row_sensitivity(record, 0.0), 1.0, ())
    return replace(
        due,
        inputs={**due.inputs, "rate": sampled.rate},
        assumptions=(*due.assumptions, texts.SAMPLE_SECRET, texts.TRUSTED_SERVER, texts.GONE_ON_ONCE),
        not_protected=texts.NOT_PROTECTED_BY_ROUNDS,
    )


# One-bit matrix completion.


def _input(record: Stated, event: PrivacyEvent) -> Due:
    response = _expect(record, event, RandomisedResponseEvent, PureEvent)
    with_pairs = isinstance(response, PureEvent)  # then each cell reports one of three symbols
    told = ternary_keep(response.epsilon) if isinstance(response, PureEvent) else response.flip_probability
    open_ = texts.NOT_PROTECTED_WITH_PAIRS if with_pairs else texts.NOT_PROTECTED_BY_SIGNS
    return Due(
        relations=_ONE_RATING if with_pairs else _ONE_VALUE,
        fields={"sensitivity": 1.0, "noise_scale": math.sqrt(told * (1 - told)), **_NO_CLIP, "mu": None},
        not_protected=(*open_, texts.SEVERAL_SIGNS),
    )


def _objective(record: Stated, event: PrivacyEvent) -> Due:
    return _noisy_signs(record, event, sensitivity=1.0, clip=None)


def _gradient(record: Stated, event: PrivacyEvent) -> Due:
    clamp = _clip(record)
    due = _noisy_signs(record, event, sensitivity=2 * clamp, clip=clamp, assumptions=(texts.NOTHING_SEEN,))
    return replace(due, uses=None)  # a step each


def _output(record: Stated, event: PrivacyEvent) -> Due:
    _expect(record, event, GaussianEvent)
    stated, several = record.sensitivity or 0.0, texts.SEVERAL_SIGNS_OUTPUT
    return _noisy_signs(
        record, event, sensitivity=stated, clip=None, assumptions=(texts.NO_CHECKPOINT,), several=several
    )


def _noisy_signs(
    record: Stated,
    event: PrivacyEvent,
    *,
    sensitivity: float,
    clip: float | None,
    assumptions: tuple[str, ...] = (),
    several: str | None = None,
) -> Due:
    scale = _expect(record, event, LaplaceEvent, GaussianEvent).noise_multiplier * sensitivity
    if several is None:
        several = texts.SEVERAL_SIGNS_GAUSSIAN if isinstance(event, GaussianEvent) else texts.SEVERAL_SIGNS
    return Due(
        relations=_ONE_VALUE,
        fields={"sensitivity": sensitivity, "noise_scale": scale, "clip": clip, **_ASKED},
        assumptions=assumptions,
        not_protected=(*texts.NOT_PROTECTED_BY_SIGNS, several),
    )


MECHANISMS: Mapping[str, Mechanism] = {
    texts.NOISY_ROWS: _noisy_rows,
    texts.FLIPPED_ROWS: _flipped_rows,
    texts.JLT: _projected,
    texts.SJLT: _projected,
    texts.EMBEDDINGS: _embeddings,
    texts.PROJECTIONS: _embeddings,
    texts.BRIDGE: _bridge,
    f"{texts.TRAINED}private_d": _private_critic,
    f"{texts.TRAINED}first_layer_only": _private_critic,
    f"{texts.TRAINED}gs_wgan": _sanitised,
    texts.ROUNDS: _private_rounds,
    f"{texts.ONE_BIT}input": _input,
    f"{texts.ONE_BIT}objective": _objective,
    f"{texts.ONE_BIT}gradient": _gradient,
    f"{texts.ONE_BIT}output": _output,
}
"""The mechanisms of ours that claim a guarantee, by the name in their records."""
