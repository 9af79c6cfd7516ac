"""A record cannot lie beside its ledger: whatever the ledger determines is compared, and what has to be said is said."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import inf, sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import some_ratings
from tests.zoo.methods.one_bit_mc.problems import problem
from zoo import (
    BPR,
    JLT,
    SJLT,
    BridgePublisher,
    EmbeddingPublisher,
    FlippedRows,
    LightGCN,
    NoisyRows,
    ProjectionPublisher,
    Publisher,
)
from zoo.data.ratings import Step
from zoo.methods.one_bit_mc.gradient_perturbation import GradientPerturbation
from zoo.methods.one_bit_mc.input_perturbation import InputPerturbation
from zoo.methods.one_bit_mc.objective_perturbation import ObjectivePerturbation
from zoo.methods.one_bit_mc.output_perturbation import OutputPerturbation
from zoo.methods.one_bit_mc.perturbation import Perturbation
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import (
    GaussianEvent,
    NonPrivateEvent,
    NoOpEvent,
    PrivacyEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
    event_from_dict,
)
from zoo.privacy.accounting.pure import flips_epsilon
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.one_bit.plan import OneBitPlan
from zoo.privacy.record.record import Guarantee, PrivacyRecord, RecordError, UnderstatedPrivacyError
from zoo.privacy.record.requirements import MECHANISMS, InconsistentRecordError
from zoo.privacy.record.selection import TRIED, chosen_among
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.round_privacy import RoundPrivacy
from zoo.publishers.base import PublicSizes

Account = tuple[PrivacyRecord, tuple[PrivacyEvent, ...]]
ZERO_OUT, REPLACE, ONE_RATING = Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER, Relation.CHANGE_ONE_RATING
EARLIER = json.loads((Path(__file__).parent / "records_of_0.2.0.json").read_text())


def published(publisher: Publisher) -> Account:
    planned = publisher.prepare(PublicSizes(60, 70, (Step("split random2"),)))
    return planned.record, planned.events


def trained(mechanism: Any, relation: Relation, steps_taken: int | None = None) -> Account:  # noqa: ANN401
    privacy = GeneratorPrivacy(mechanism, 5.0, 1e-5, relation, 0.5, 20, 8, 3)
    plan = privacy.plan(100)
    assert plan is not None
    record = privacy.record(100, ("split random2",), steps_taken=steps_taken)
    return record, (plan.event_after(steps_taken or plan.steps),)


def bridged(**settings: Any) -> Account:  # noqa: ANN401
    return published(BridgePublisher(4.0, kept_items=30, **settings).for_target(some_ratings(60, 9)))


def in_rounds(relation: Relation, played: int | None = None) -> Account:
    privacy = RoundPrivacy(epsilon=5.0, delta=1e-5, clip=0.5, num_rounds=20, rate=0.25, relation=relation)
    rounds = privacy.rounds(100)
    if played is None:
        return privacy.record(100, ("split random2",)), (rounds.plan.event,)
    rounds.load_state_dict(rounds.state_dict() | {"steps_taken": played})
    return privacy.record(100, ("split random2",), rounds=rounds), rounds.events()


def completed(perturbation: Perturbation) -> Account:
    plan = perturbation.plan(problem().terms)
    assert isinstance(plan, OneBitPlan)
    return perturbation.record(problem()), (plan.event,)


HONEST: dict[str, Callable[[], Account]] = {
    "noisy rows": lambda: published(NoisyRows(4.0)),
    "noisy rows above": lambda: published(NoisyRows(4.0, threshold=1.5)),
    "noisy rows, users": lambda: published(NoisyRows(4.0, relation="zero_out_one_user", clip=2.0)),
    "noisy rows, users replaced": lambda: published(NoisyRows(4.0, relation="replace_one_user", clip=2.0, threshold=0)),
    "flipped rows": lambda: published(FlippedRows(2.0)),
    "flipped rows, few kept": lambda: published(FlippedRows(2.0, keep=0.25)),
    "JLT": lambda: published(JLT(8.0, num_components=16, rating_range=3.0)),
    "JLT, gaussian": lambda: published(JLT(8.0, num_components=16, calibration="gaussian")),
    "JLT, longest": lambda: published(JLT(8.0, num_components=16, calibration="max")),
    "JLT, paper": lambda: published(JLT(8.0, num_components=16, calibration="paper")),
    "JLT, printed": lambda: published(JLT(8.0, num_components=16, paper_faithful=True)),
    "JLT, users": lambda: published(
        JLT(8.0, num_components=16, calibration="gaussian", relation="replace_one_user", clip=2.0)
    ),
    "SJLT": lambda: published(SJLT(8.0, num_components=16)),
    "SJLT, longest": lambda: published(SJLT(8.0, num_components=16, calibration="max")),
    "embeddings": lambda: published(EmbeddingPublisher(LightGCN(4, 2), 4.0, clip=1.5)),
    "embeddings of one source of three": lambda: published(EmbeddingPublisher(BPR(4), 4.0, clip=1.5, num_releases=3)),
    "embeddings, zeroed": lambda: published(EmbeddingPublisher(BPR(4), 4.0, clip=1.5, relation="zero_out_one_user")),
    "projections": lambda: published(ProjectionPublisher(4.0)),
    "bridge": lambda: bridged(),
    "bridge, replaced": lambda: bridged(relation="replace_one_user", clip=2.0),
    "bridge, ratings": lambda: bridged(relation="change_one_rating", clip=3.0, counts_share=0.3),
    "private critic": lambda: trained("private_d", ZERO_OUT),
    "private critic, replaced": lambda: trained("first_layer_only", REPLACE),
    "private critic, ended": lambda: trained("private_d", ZERO_OUT, 11),
    "sanitised": lambda: trained("gs_wgan", ZERO_OUT),
    "sanitised, ended": lambda: trained("gs_wgan", REPLACE, 2),
    "private rounds": lambda: in_rounds(ZERO_OUT),
    "private rounds, ended": lambda: in_rounds(REPLACE, 7),
    "input": lambda: completed(InputPerturbation(1.5)),
    "input, pairs": lambda: completed(InputPerturbation(1.5, hide_pairs=True)),
    "objective": lambda: completed(ObjectivePerturbation(1.5)),
    "objective, Gaussian": lambda: completed(ObjectivePerturbation(1.5, noise="gaussian")),
    "gradient": lambda: completed(GradientPerturbation(1.5, steps=7)),
    "gradient, Laplace": lambda: completed(GradientPerturbation(1.5, steps=7, noise="laplace", clamp=0.25)),
    "output": lambda: completed(OutputPerturbation(1.5, steps=9)),
}
#: Not determined by a ledger: chosen in the open, or what a bound on ratings was taken to be (it is stated in words as well).
FREE = {"num_users", "num_items", "projection_seed", "density", "steps", "sample_size", "n_critic", "keep", "threshold"}
FREE |= {"max_epochs", "width", "num_layers", "item_damping", "num_directions", "kept_items"}


@cache
def honest(name: str) -> Account:
    record, ledger = HONEST[name]()
    assert record.claims
    return record, ledger


def said(record: PrivacyRecord, **inputs: Any) -> PrivacyRecord:  # noqa: ANN401
    return replace(record, public_inputs={**record.public_inputs, **inputs})


def changed(record: PrivacyRecord, **changes: Any) -> PrivacyRecord:  # noqa: ANN401
    return replace(record, **changes)


def refused(account: Account, match: str) -> None:
    with pytest.raises(InconsistentRecordError, match=match):
        account[0].check_against(account[1])


# Honest records.


@pytest.mark.parametrize("name", HONEST)
def test_honest_records_agree_with_their_ledgers(name: str) -> None:
    record, ledger = honest(name)
    record.check_against(ledger)
    PrivacyRecord.from_dict(json.loads(json.dumps(record.to_dict()))).check_against(ledger)
    replace(record, epsilon=3 * (record.epsilon or 0)).check_against(ledger)  # a bound stays true


def test_every_mechanism_that_claims_something_is_among_them() -> None:
    assert {honest(name)[0].mechanism for name in HONEST} == set(MECHANISMS)


@pytest.mark.parametrize(
    "name", sorted(EARLIER.keys() - {"paper"})
)  # whose claim is withdrawn: test_shared_projection.py
def test_records_of_earlier_versions_agree_with_their_ledgers(name: str) -> None:
    written = EARLIER[name]
    ledger = [event_from_dict(event) for event in written["ledger"]]
    record = PrivacyRecord.from_dict(written["record"])
    assert record.claims
    record.check_against(ledger)
    with pytest.raises((InconsistentRecordError, UnderstatedPrivacyError)):
        replace(record, noise_scale=2 * (record.noise_scale or 0)).check_against(ledger)


# Numbers.


@pytest.mark.parametrize("name", HONEST)
@settings(max_examples=40)
@given(data=st.data())
def test_a_number_that_the_ledger_determines_is_that_number(name: str, data: st.DataObject) -> None:
    record, ledger = honest(name)
    fields = [key for key in ("mu", "sensitivity", "noise_scale", "clip") if getattr(record, key) is not None]
    inputs = [
        key
        for key, value in record.public_inputs.items()
        if type(value) in (int, float) and key not in FREE and not record.mechanism.startswith("one-bit")
    ]
    which = data.draw(st.sampled_from(fields + inputs))
    factor = data.draw(st.floats(1e-12, 1e12).filter(lambda factor: abs(factor - 1) > 1e-6))
    if which in fields:
        lie = changed(record, **{which: getattr(record, which) * factor})
    else:
        lie = said(record, **{which: record.public_inputs[which] * factor})  # type: ignore[operator]
    with pytest.raises((RecordError, UnderstatedPrivacyError)):
        lie.check_against(ledger)


@pytest.mark.parametrize("name", HONEST)
@settings(max_examples=10)
@given(compositions=st.integers(1, 10_000))
def test_data_were_used_as_often_as_the_ledger_says(name: str, compositions: int) -> None:
    record, ledger = honest(name)
    if compositions != record.compositions:
        refused((replace(record, compositions=compositions), ledger), f"{compositions} compositions, its ledger has")


def test_nested_counts_multiply_and_nothing_is_no_use() -> None:
    event = GaussianEvent(5.0)
    ledger = (SelfComposedEvent(SelfComposedEvent(event, 2), 3), NoOpEvent(), event)
    record, _ = honest("noisy rows")
    outside = replace(record, mechanism="outside", mu=sqrt(7) / 5, public_inputs={}, compositions=7)
    outside = replace(outside, epsilon=epsilon_of(ledger, 1e-5))
    outside.check_against(ledger)
    refused((replace(outside, compositions=8), ledger), "states 8 compositions, its ledger has 7 events")


@pytest.mark.parametrize(
    ("name", "changes", "match"),
    [
        ("noisy rows", {"noise_scale": 1e-9}, r"noise_scale is stated as 1e-09, its ledger gives 1\.08"),
        ("JLT", {"noise_scale": 1e-9}, "noise_scale is stated as 1e-09, its ledger gives"),
        ("noisy rows", {"sensitivity": 1e-6}, "its ledger gives"),
        ("JLT", {"sensitivity": 1e-6}, "its ledger gives"),
        ("flipped rows", {"sensitivity": 1e-6}, r"sensitivity is stated as 1e-06, its ledger gives 1\."),
        ("flipped rows", {"compositions": 999}, "states 999 compositions, its ledger has 1 events"),
        ("flipped rows", {"sensitivity_norm": "L2"}, "in the norm L2, and the noise of a RandomisedResponseEvent is"),
        (
            "noisy rows",
            {"sensitivity_norm": "L1"},
            "in the norm L1, and the noise of a GaussianEvent is over that in L2",
        ),
        ("noisy rows", {"clip": 3.0}, "clip is stated as 3.0, its ledger gives nothing"),
        ("JLT", {"requested_epsilon": 1.0}, "requested_epsilon is stated as 1.0, its ledger gives nothing"),
        ("noisy rows", {"mu": 9.0}, "mu is stated as 9.0, its ledger gives 0.92"),
    ],
)
def test_fields_that_lie(name: str, changes: dict[str, Any], match: str) -> None:
    record, ledger = honest(name)
    refused((changed(record, **changes), ledger), match)


@pytest.mark.parametrize(
    ("name", "inputs", "match"),
    [
        (
            "flipped rows",
            {"flip_probability": 0.49},
            r"'flip_probability'\] is stated as 0.49, its ledger gives 0.1192",
        ),
        ("flipped rows", {"flip_probability": "0.1192"}, "is stated as 0.1192, its ledger gives 0.1192"),
        ("flipped rows", {"keep": 1.5}, r"'keep'\] is stated as 1.5, its ledger gives 1"),
        ("flipped rows", {"keep": -1.0}, r"'keep'\] must be a positive number, got '-1.0'"),
        ("flipped rows", {"sigma": 1.0}, r"'sigma'\] is stated as 1.0, its ledger gives nothing"),
        ("noisy rows", {"flip_probability": 0.1}, r"'flip_probability'\] is stated as 0.1, its ledger gives nothing"),
        ("noisy rows", {"sigma": 0.5}, r"'sigma'\] is stated as 0.5, its ledger gives 1\.08"),
        ("noisy rows", {"sigma": 10**400}, r"'sigma'\] is stated as 1000"),
        ("noisy rows", {"grid": 0.5}, r"'grid'\] is stated as 0.5, its ledger gives 0.0009765625"),
        ("noisy rows above", {"threshold": 1.0}, r"'threshold'\] is stated as 1.0, its ledger gives 1.00048828125"),
        ("noisy rows above", {"threshold": -1.0}, r"'threshold'\] must be a positive number"),
        ("JLT", {"w": 1.0}, r"'w'\] is stated as 1.0, its ledger gives|noise_scale is stated as"),
        ("JLT", {"num_components": 17}, "noise_scale is stated as"),
        ("JLT", {"num_components": None}, "must be a positive number, got 'None'|finite number or a bool"),
        ("JLT, gaussian", {"calibration": "unit"}, "calibration 'unit' does not go with a GaussianProjectionEvent"),
        ("JLT", {"calibration": "gaussian"}, "calibration 'gaussian' does not go with a GaussianEvent"),
        ("JLT, longest", {"largest_norm": 1.0}, r"'largest_norm'\] is stated as 1.0, its ledger gives"),
        ("private critic", {"noise_multiplier": 9.0}, r"'noise_multiplier'\] is stated as 9.0, its ledger gives"),
        ("sanitised", {"sample_size": 2}, "is stated as .*, its ledger gives"),
    ],
)
def test_public_inputs_that_lie(name: str, inputs: dict[str, Any], match: str) -> None:
    record, ledger = honest(name)
    with pytest.raises(RecordError, match=match):
        said(record, **inputs).check_against(ledger)


@pytest.mark.parametrize("key", ["noise_seed", "noise-seed", "seed of the noise", "Noise seed"])
@pytest.mark.parametrize("mechanism", ["FlippedRows", "rows of somebody else"])
def test_no_public_input_tells_a_seed_of_the_noise(key: str, mechanism: str) -> None:
    record, ledger = honest("flipped rows")
    lie = said(replace(record, mechanism=mechanism), **{key: 7})
    refused((lie, ledger), f"public_inputs holds '{key}'. Whoever knows the seed of the noise can subtract it")
    lie.without_guarantee("seeded noise").check_against(ledger)
    said(record, projection_seed=3, **{"seed of the share": 4, "noise is on": "rows"}).check_against(ledger)


@pytest.mark.parametrize("name", ["flipped rows", "JLT", "sanitised"])
@pytest.mark.parametrize(
    "inputs", [{"epsilon": 0.1}, {"guarantee": "proved"}, {"mechanism": "Nothing"}, {"delta": 0.0}]
)
def test_no_public_input_says_otherwise_what_the_record_says(name: str, inputs: dict[str, Any]) -> None:
    record, ledger = honest(name)
    names = str([*inputs]).strip("[]")
    refused((said(record, **inputs), ledger), rf"must not say again, and otherwise, .* it holds \[{names}\]")


@pytest.mark.parametrize(
    "key",
    [
        "Epsilon",
        "epsilon ",
        "the_epsilon",
        "true epsilon (certified)",
        "noise-source",
        "\N{FULLWIDTH LATIN SMALL LETTER E}psilon",
    ],
)
def test_no_public_input_says_it_in_another_spelling_or_without_a_guarantee(key: str) -> None:
    record, ledger = honest("flipped rows")
    lie = said(record, **{key: 0.1})
    for one in (lie, lie.without_guarantee("seeded noise")):
        refused((one, ledger), "public_inputs must not say again, and otherwise, what the record says; it holds")


@pytest.mark.parametrize("name", sorted({*HONEST} - {"JLT, paper", "JLT, printed"}))
def test_only_the_papers_calibration_and_several_releases_were_asked_for_another_epsilon(name: str) -> None:
    """Which stands beside the epsilon that is proved, and would be taken for it."""
    record, ledger = honest(name)
    given = "nothing" if record.requested_epsilon is None else f"{record.requested_epsilon:.12g}"
    refused(
        (replace(record, requested_epsilon=0.01), ledger),
        f"requested_epsilon is stated as 0.01, its ledger gives {given}",
    )


# Who is protected.


@pytest.mark.parametrize(
    ("name", "relation"),
    [
        ("JLT", ZERO_OUT),
        ("JLT", Relation.CHANGE_ONE_RATING_VALUE),
        ("JLT, paper", ZERO_OUT),
        ("SJLT", REPLACE),
        ("noisy rows", Relation.CHANGE_ONE_RATING_VALUE),
        ("private critic", ONE_RATING),
        ("sanitised", ONE_RATING),
        ("input", ONE_RATING),
        ("input, pairs", Relation.CHANGE_ONE_RATING_VALUE),
        ("objective", ONE_RATING),
        ("gradient", ZERO_OUT),
        ("output", ONE_RATING),
    ],
)
def test_a_mechanism_claims_what_it_protects_and_nothing_else(name: str, relation: Relation) -> None:
    record, ledger = honest(name)
    clip = record.clip or (1.0 if relation.unit is Unit.USER else None)
    lie = replace(record, relation=relation, unit=relation.unit, clip=clip)
    with pytest.raises(
        (InconsistentRecordError, ValueError), match=r"protects under \[|means nothing under|is stated as"
    ):
        lie.check_against(ledger)


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_flips_of_one_bit_protect_no_user(relation: Relation) -> None:
    record, ledger = honest("flipped rows")
    lie = replace(record, relation=relation, unit=Unit.USER, clip=1.0)
    refused((lie, ledger), r"flips of one bit protect one rating.*every item \(num_items 70\), it is there 1 times")
    refused(
        (said(replace(lie, mechanism="outside"), mechanism="outside"), ledger), "flips of one bit protect one rating"
    )
    # As often as there are items, they do; the mechanism of ours claims no such thing.
    often = tuple(SelfComposedEvent(event, 70) for event in ledger)
    honest_one = replace(lie, mechanism="outside", compositions=70, epsilon=70 * flips_epsilon(*2 * [0.1192]) * 1.1)
    honest_one = said(honest_one, mechanism="outside")
    honest_one.check_against(often)
    refused((said(replace(honest_one, mechanism="FlippedRows"), mechanism="FlippedRows"), often), "protects under")


def test_replacing_a_user_moves_twice_the_clip() -> None:
    record, ledger = honest("noisy rows, users")
    refused((replace(record, relation=REPLACE), ledger), "is stated as")


# What has to be said.


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("kind", ["assumptions", "not_protected"])
def test_no_text_of_a_mechanism_can_be_left_out(name: str, kind: str) -> None:
    record, ledger = honest(name)
    said_now = getattr(record, kind)
    due = [text for text in said_now if not text.startswith("done to the data before")]
    assert due or (kind == "assumptions" and record.mechanism.endswith(("input", "objective")))
    for text in due:
        others = tuple(other for other in said_now if other != text)
        refused((changed(record, **{kind: others}), ledger), f"{record.mechanism}: {kind} must say")
        refused((changed(record, **{kind: (*others, text.upper())}), ledger), f"{kind} must say")
    if due:
        refused((changed(record, **{kind: ()}), ledger), f"{kind} must say .*, as every record of this mechanism does")


def test_more_may_be_said() -> None:
    record, ledger = honest("JLT")
    replace(
        record, assumptions=(*record.assumptions, "and more"), not_protected=(*record.not_protected, "more")
    ).check_against(ledger)


def test_a_bound_on_ratings_is_the_sensitivity() -> None:
    record, ledger = honest("JLT")
    lie = replace(record, assumptions=tuple(text.replace("[0, 3]", "[0, 1]") for text in record.assumptions))
    refused((lie, ledger), r"must say 'ratings lie in \[0, 3\]")


# Ledgers.


def test_a_ledger_of_another_mechanism_is_refused() -> None:
    noisy, flipped = honest("noisy rows"), honest("flipped rows")
    lie = replace(noisy[0], mu=None, epsilon=inf_free(flipped), public_inputs={}, sensitivity_norm="L1")
    refused((lie, flipped[1]), "its ledger must begin with a GaussianEvent, it begins with a RandomisedResponseEvent")
    refused(
        (replace(honest("private critic")[0], mu=None, epsilon=1e6, compositions=1), noisy[1]),
        "must begin with a PoissonSampledGaussianEvent, it begins with a GaussianEvent",
    )


def inf_free(account: Account) -> float:
    return 1.01 * (account[0].epsilon or inf)


def test_a_choice_is_held_against_the_chosen_ones_noise() -> None:
    chosen, ledger = chosen_among(honest("noisy rows"), [honest("noisy rows above"), published(NoisyRows(2.0))])
    assert (chosen.compositions, chosen.public_inputs[TRIED]) == (3, 3)
    chosen.check_against(ledger)
    refused((chosen, ledger[::-1]), "is stated as")
    unsaid = replace(chosen, public_inputs=honest("noisy rows")[0].public_inputs)
    refused(
        (unsaid, ledger),
        "uses the data at most 1 times, and this one states 3; one that was chosen among several says so",
    )


def test_steps_are_no_more_than_were_planned() -> None:
    for name, planned in (("private critic", 20), ("sanitised", 7)):
        record, (event,) = honest(name)
        assert isinstance(event, SelfComposedEvent)
        assert record.compositions == planned
        more = (SelfComposedEvent(event.event, planned + 1),)
        lie = replace(record, compositions=planned + 1, epsilon=1e3, mu=None)
        refused((lie, more), f"at most {planned} times, and this one states {planned + 1}")


def test_without_a_guarantee_nothing_is_compared() -> None:
    record, ledger = honest("flipped rows")
    lie = said(replace(record.without_guarantee("control"), assumptions=(), compositions=9), flip_probability=0.49)
    assert lie.guarantee is Guarantee.NONE
    lie.check_against(ledger)
    lie.check_against([NonPrivateEvent()])


def test_of_others_nothing_is_known_but_what_every_ledger_says() -> None:
    ledger = (RandomisedResponseEvent(0.1),)
    epsilon = flips_epsilon(0.1, 0.1)
    record = replace(
        honest("flipped rows")[0],
        mechanism="outside",
        epsilon=epsilon,
        public_inputs={},
        assumptions=(),
        not_protected=(),
    )
    replace(record, sensitivity=5.0, noise_scale=8.0).check_against(ledger)
    said(record, flip_probability=0.1).check_against(ledger)
    refused((said(record, flip_probability=0.49), ledger), "is stated as 0.49, its ledger gives 0.1")
