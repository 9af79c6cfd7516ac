"""Whether a record says what its ledger says: numbers, units and words that nobody else compares."""

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

from zoo.privacy.accounting.accountant import Accountant, flattened
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    LaplaceEvent,
    NoOpEvent,
    PoissonSampledGaussianEvent,
    PrivacyEvent,
    RandomisedResponseEvent,
)
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.record.fields import Guarantee
from zoo.privacy.record.requirements import Due, InconsistentRecordError, due_of
from zoo.privacy.record.stated import Stated
from zoo.privacy.record.texts import EARLIER, TRIED

_ROUNDING = 1e-9  # relative; what multiplying and dividing again may change
_NORMS: dict[type[PrivacyEvent], str] = {
    GaussianEvent: "L2",
    GaussianProjectionEvent: "L2",
    PoissonSampledGaussianEvent: "L2",
    LaplaceEvent: "L1",
    RandomisedResponseEvent: "L1",
}
_CLAIMED = {"guarantee", "unit", "relation", "epsilon", "delta", "mu", "compositions", "noise source", "accountant"}
_LOSS = {"epsilon", "delta", "mu", "guarantee", "proved"}  # no name of a public input has one of these words
_NEXT = "Do not use the release; ask the source party for a correct one."

Counted = Sequence[tuple[PrivacyEvent, int]]
"""Single events of a ledger in order, each with how often it happened."""


def check_claims(record: Stated, ledger: Iterable[PrivacyEvent]) -> None:
    """Hold a record with a claim against its ledger, and against what records of its mechanism say.

    Every number that the ledger determines must be that number, whichever way it is wrong: mu, how often the data were used, and
    for the mechanisms of this package sensitivity, noise and what public inputs say of either. Epsilon is compared elsewhere
    (`zoo.privacy.record.record`), and may be stated too large: a bound stays true, and accountants get tighter.
    The relation must be one that the mechanism protects, the assumptions and what is not protected must be said, and no
    public input may tell a seed of the noise, or another epsilon than the record's.

    No ledger says what share of flipped ones is kept, or where a threshold lies: neither moves an epsilon. Rows say it, as far
    as rows can (`zoo.release.plausible`).

    A mechanism that is none of this package's is held against what any ledger says of any record; whether the rest holds,
    nobody has looked at.

    `InconsistentRecordError` says what is stated, and what it has to be.
    """
    ledger = tuple(ledger)
    counted = [
        (event, int(count))
        for entry in ledger
        for event, count in flattened(entry, 1.0)
        if not isinstance(event, NoOpEvent)
    ]
    _check_seed(record)
    check_names(record)
    if not counted:
        return
    if record.mu is not None:
        _compare(record, "mu", record.mu, Accountant(record.relation, ledger).mu)
    _check_counts(record, counted)
    leading = counted[0][0]
    _check_leading(record, leading)
    due = due_of(record, leading)
    if due is not None:
        _check_due(record, due)


def check_names(record: Stated) -> None:
    """Refuse public inputs that say again what the record says, an epsilon above all, in whatever spelling: nobody compares them.

    Also those of a record without a guarantee, which has no epsilon anywhere. `InconsistentRecordError`.
    """
    stated = [name for name in record.public_inputs if _plain(name) in _CLAIMED or _LOSS & {*_plain(name).split()}]
    other = record.public_inputs.get("mechanism", record.mechanism) != record.mechanism
    if stated or (other and record.guarantee is not Guarantee.NONE):
        raise InconsistentRecordError(
            f"{record.mechanism}: public_inputs must not say again, and otherwise, what the record says; it holds "
            f"{stated or ['mechanism']}. {_NEXT}"
        )


def _check_seed(record: Stated) -> None:
    for name in record.public_inputs:
        if {"noise", "seed"} <= {*_plain(name).split()}:
            raise InconsistentRecordError(
                f"{record.mechanism}: public_inputs holds {name!r}. Whoever knows the seed of the noise can subtract it, so "
                "such a release protects nobody."
            )


def _plain(name: str) -> str:
    """A name as a reader takes it: letters, digits and single spaces, in lower case."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", name).casefold().replace("_", " ")))


def _check_counts(record: Stated, counted: Counted) -> None:
    uses = sum(count for _, count in counted)
    if record.compositions != uses:
        raise InconsistentRecordError(
            f"{record.mechanism}: the record states {record.compositions} compositions, its ledger has {uses} events. {_NEXT}"
        )
    flips = [count for event, count in counted if isinstance(event, RandomisedResponseEvent)]
    if flips and record.unit is Unit.USER:
        items = record.public_inputs.get("num_items")
        if type(items) is not int or min(flips) < items:
            raise InconsistentRecordError(
                f"{record.mechanism}: flips of one bit protect one rating. For whole users each must be in the ledger once for "
                f"every item (num_items {items!r}), it is there {min(flips)} times. {_NEXT}"
            )


def _check_leading(record: Stated, event: PrivacyEvent) -> None:
    """What the event at hand says of any record, whoever made it; a denoiser reads these public inputs by name."""
    norm = _NORMS.get(type(event), record.sensitivity_norm)
    if record.sensitivity_norm != norm:
        raise InconsistentRecordError(
            f"{record.mechanism}: the sensitivity is stated in the norm {record.sensitivity_norm}, and the noise of a "
            f"{type(event).__name__} is over that in {norm}. {_NEXT}"
        )
    if "flip_probability" in record.public_inputs:
        flip = event.flip_probability if isinstance(event, RandomisedResponseEvent) else None
        _compare(record, "public_inputs['flip_probability']", record.public_inputs["flip_probability"], flip)
    if "sigma" in record.public_inputs:
        sigma = event.noise_multiplier * (record.sensitivity or 0.0) if isinstance(event, GaussianEvent) else None
        _compare(record, "public_inputs['sigma']", record.public_inputs["sigma"], sigma)
        _compare(record, "noise_scale", record.noise_scale, sigma)


def _check_due(record: Stated, due: Due) -> None:
    if record.relation not in due.relations:
        allowed = sorted(relation.value for relation in due.relations)
        raise InconsistentRecordError(
            f"{record.mechanism}: the record claims {record.relation.value if record.relation else None!r}, and this "
            f"mechanism protects under {allowed} alone. {_NEXT}"
        )
    if due.uses is not None and record.compositions > due.uses and TRIED not in record.public_inputs:
        raise InconsistentRecordError(
            f"{record.mechanism}: one release uses the data at most {due.uses} times, and this one states "
            f"{record.compositions}; one that was chosen among several says so ({TRIED!r}). {_NEXT}"
        )
    for name, value in due.fields.items():
        _compare(record, name, getattr(record, name), value)
    for name, number in due.inputs.items():
        _compare(record, f"public_inputs[{name!r}]", record.public_inputs.get(name), number)
    for kind, said, wanted in (
        ("conditions", record.conditions, due.conditions),
        ("assumptions", record.assumptions, due.assumptions),
        ("not_protected", record.not_protected, due.not_protected),
    ):
        for text in _missing(said, wanted):
            raise InconsistentRecordError(
                f"{record.mechanism}: {kind} must say {text!r}, as every record of this mechanism does. {_NEXT}"
            )


def _missing(said: Sequence[str], wanted: Sequence[str]) -> Iterator[str]:
    return (text for text in wanted if not {text, *EARLIER.get(text, ())} & {*said})


def _compare(record: Stated, name: str, stated: object, due: float | None) -> None:
    if due is None and stated is None:
        return
    if due is None or not _is_number(stated) or not math.isclose(stated, due, rel_tol=_ROUNDING):
        shown = "nothing" if due is None else f"{due:.12g}"
        raise InconsistentRecordError(
            f"{record.mechanism}: {name} is stated as {str(stated)[:80]}, its ledger gives {shown}. {_NEXT}"
        )


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value of somebody's JSON can be compared: a bool is no number, and an integer can be beyond any float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300
