"""Records of every mechanism: what follows from their parameters, and files and ledgers that say otherwise."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import zoo
from datamodules import Evaluation, Filters
from datamodules.protocol import SplitName
from datamodules.public_lists import COMMON, INTERSECTION, OWN, list_steps
from tests.samples import some_ratings
from tests.zoo.methods.one_bit_mc.problems import problem
from tests.zoo.privacy.record.stated import earlier_file
from zoo.data.ratings import Step
from zoo.methods.one_bit_mc.gradient_perturbation import GradientPerturbation
from zoo.methods.one_bit_mc.input_perturbation import InputPerturbation
from zoo.methods.one_bit_mc.objective_perturbation import ObjectivePerturbation
from zoo.methods.one_bit_mc.output_perturbation import OutputPerturbation
from zoo.methods.one_bit_mc.perturbation import Perturbation
from zoo.privacy.accounting import events
from zoo.privacy.accounting.gaussian import gauss_delta, gauss_mu
from zoo.privacy.accounting.pure import flips_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms import BUILT_IN
from zoo.privacy.mechanisms.base import Mechanism, MechanismError, round_up_epsilon
from zoo.privacy.mechanisms.generator import PrivateRounds
from zoo.privacy.mechanisms.one_bit import ExactObjective, OneBit
from zoo.privacy.mechanisms.sign_response import SignResponse, TernaryResponse
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import (
    Guarantee,
    InconsistentRecordError,
    PrivacyRecord,
    RecordError,
    UnderstatedPrivacyError,
)
from zoo.privacy.record.schema import DERIVED
from zoo.privacy.record.selection import chosen_among
from zoo.privacy.record.steps import refuse_missing_conditions
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.round_privacy import RoundPrivacy
from zoo.publishers.base import PublicSizes

Account = tuple[PrivacyRecord, tuple[events.PrivacyEvent, ...]]
ZERO_OUT, REPLACE, ONE_RATING = Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER, Relation.CHANGE_ONE_RATING
HERE = Path(__file__).parent
EARLIER = {version: json.loads((HERE / f"records_of_{version}.json").read_text()) for version in ("0.2.0", "0.3.0")}
SPLIT = Step("split random2")


def published(publisher: zoo.Publisher) -> Account:
    planned = publisher.prepare(PublicSizes(60, 70, (SPLIT,)))
    return planned.record, planned.events


def trained(mechanism: Any, relation: Relation, steps_taken: int | None = None) -> Account:  # noqa: ANN401
    privacy = GeneratorPrivacy(mechanism, 5.0, 1e-5, relation, 0.5, 20, 8, 3)
    plan = privacy.plan(100)
    assert plan is not None
    record = privacy.record(100, (SPLIT,), steps_taken=steps_taken)
    return record, (plan.event_after(steps_taken or plan.steps),)


def bridged(**settings: Any) -> Account:  # noqa: ANN401
    return published(zoo.BridgePublisher(4.0, kept_items=30, **settings).for_target(some_ratings(60, 9)))


def in_rounds(relation: Relation, played: int | None = None) -> Account:
    privacy = RoundPrivacy(epsilon=5.0, delta=1e-5, clip=0.5, num_rounds=20, rate=0.25, relation=relation)
    rounds = privacy.rounds(100)
    if played is None:
        return privacy.record(100, 50, (SPLIT,)), (rounds.plan.event,)
    rounds.load_state_dict(rounds.state_dict() | {"steps_taken": played})
    return privacy.record(100, 50, (SPLIT,), rounds), rounds.events()


def completed(perturbation: Perturbation) -> Account:
    plan = perturbation.plan(problem().terms)
    assert isinstance(plan, Mechanism)
    return perturbation.record(problem()), (plan.event,)


HONEST: dict[str, Callable[[], Account]] = {
    "noisy rows": lambda: published(zoo.NoisyRows(4.0)),
    "noisy rows above": lambda: published(zoo.NoisyRows(4.0, threshold=1.5)),
    "noisy rows, users": lambda: published(zoo.NoisyRows(4.0, relation="zero_out_one_user", clip=2.0)),
    "noisy rows, users replaced": lambda: published(
        zoo.NoisyRows(4.0, relation="replace_one_user", clip=2.0, threshold=0)
    ),
    "flipped rows": lambda: published(zoo.FlippedRows(2.0)),
    "flipped rows, few kept": lambda: published(zoo.FlippedRows(2.0, keep=0.25)),
    "JLT": lambda: published(zoo.JLT(8.0, num_components=16, rating_range=3.0)),
    "JLT, gaussian": lambda: published(zoo.JLT(8.0, num_components=16, calibration="gaussian")),
    "JLT, longest": lambda: published(zoo.JLT(8.0, num_components=16, calibration="max")),
    "JLT, paper": lambda: published(zoo.JLT(8.0, num_components=16, calibration="paper")),
    "JLT, printed": lambda: published(zoo.JLT(8.0, num_components=16, paper_faithful=True)),
    "JLT, users": lambda: published(
        zoo.JLT(8.0, num_components=16, calibration="gaussian", relation="replace_one_user", clip=2.0)
    ),
    "SJLT": lambda: published(zoo.SJLT(8.0, num_components=16)),
    "SJLT, longest": lambda: published(zoo.SJLT(8.0, num_components=16, calibration="max")),
    "embeddings": lambda: published(zoo.EmbeddingPublisher(zoo.LightGCN(4, 2), 4.0, clip=1.5)),
    "embeddings of one source of three": lambda: published(
        zoo.EmbeddingPublisher(zoo.BPR(4), 4.0, clip=1.5, num_releases=3)
    ),
    "embeddings, zeroed": lambda: published(
        zoo.EmbeddingPublisher(zoo.BPR(4), 4.0, clip=1.5, relation="zero_out_one_user")
    ),
    "projections": lambda: published(zoo.ProjectionPublisher(4.0)),
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
    "input, uneven": lambda: completed(InputPerturbation(p1=0.1, p2=0.3)),
    "input, pairs": lambda: completed(InputPerturbation(1.5, hide_pairs=True)),
    "objective": lambda: completed(ObjectivePerturbation(1.5)),
    "objective, Gaussian": lambda: completed(ObjectivePerturbation(1.5, noise="gaussian")),
    "gradient": lambda: completed(GradientPerturbation(1.5, steps=7)),
    "gradient, Laplace": lambda: completed(GradientPerturbation(1.5, steps=7, noise="laplace", clamp=0.25)),
    "output": lambda: completed(OutputPerturbation(1.5, steps=9)),
}


@cache
def honest(name: str) -> Account:
    record, ledger = HONEST[name]()
    assert record.claims
    return record, ledger


def file_of(record: PrivacyRecord) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    return made


def other(value: Any, data: st.DataObject) -> Any:  # noqa: ANN401  plain JSON
    """Another value than this, of a type that a file might hold."""
    if isinstance(value, bool) or value is None:
        return data.draw(st.sampled_from([0.5, "x", ["x"], not value]))
    if isinstance(value, int):
        return data.draw(st.integers(0, 10**6).filter(lambda drawn: drawn != value))
    if isinstance(value, float):
        return (value or 1.0) * data.draw(st.floats(1e-9, 1e9).filter(lambda factor: abs(factor - 1) > 1e-5))
    if isinstance(value, list):
        return data.draw(st.sampled_from([value[1:] if value else ["x"], [*value, "x"], ["x"], "x"]))
    return data.draw(st.sampled_from(["none", "x", None, f"{value} "]).filter(lambda drawn: drawn != value))


@pytest.mark.thorough
def test_honest_records_of_every_mechanism_agree_with_their_files_and_ledgers() -> None:
    for name in HONEST:
        record, ledger = honest(name)
        record.check_against(ledger)
        read = PrivacyRecord.from_dict(file_of(record))
        assert read == record, name
        assert read.to_dict() == record.to_dict()
        read.check_against(ledger)
    assert {type(honest(name)[0].mechanism) for name in HONEST} == {*BUILT_IN} - {ExactObjective}  # claims nothing


@pytest.mark.thorough
@settings(max_examples=400)
@given(data=st.data())
def test_a_file_in_which_any_derived_number_or_code_differs_is_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*HONEST]))
    record, _ = honest(name)
    values = file_of(record)
    which = data.draw(st.sampled_from([*DERIVED, "mechanism", "floating_point", "known", "schema"]))
    lie = values | {which: other(values[which], data)}
    with pytest.raises(RecordError):
        PrivacyRecord.from_dict(lie)


@settings(max_examples=200)
@given(data=st.data())
def test_a_file_in_which_a_parameter_of_the_noise_differs_is_refused(data: st.DataObject) -> None:
    """Whatever follows from it does not."""
    name = data.draw(st.sampled_from([*HONEST]))
    values = file_of(honest(name)[0])
    of_noise = {
        "noise_multiplier", "w", "scale", "flip_probability", "p1", "clip", "delta", "rate", "taken", "moved", "keep",
    }  # fmt: skip
    which = data.draw(st.sampled_from(sorted(of_noise & {k for k, v in values["parameters"].items() if v})))
    drawn = other(values["parameters"][which], data)
    # No figure follows from the share of reported ones that are kept: only counts show it, and those of plain rows with a density
    # between `keep * flip_probability` and `keep * (1 - flip_probability)` do not.
    assume(not (values["mechanism"] == "FlippedRows" and which == "keep" and 0 < drawn <= 1))
    lie = values | {"parameters": values["parameters"] | {which: drawn}}
    with pytest.raises(RecordError):
        PrivacyRecord.from_dict(lie)


def test_a_step_that_makes_a_guarantee_conditional_contradicts_a_proved_one() -> None:
    step = Step("users are those of the ratings", "users_from_ratings")
    record = zoo.NoisyRows(4.0).prepare(PublicSizes(60, 70, (step,))).record
    values = file_of(record)
    assert (values["guarantee"], values["conditions"]) == ("conditional", ["users_from_ratings"])
    for lie in ({"guarantee": "proved", "conditions": []}, {"conditions": ["items_from_ratings"]}):
        with pytest.raises(InconsistentRecordError):
            PrivacyRecord.from_dict(values | lie)
    assert "the user list is public; here it was derived from the ratings" in record.standing


def test_a_listed_step_without_its_condition_contradicts_a_proved_guarantee(tmp_path: Path) -> None:
    """For the steps of every datamodule: words are enough, whatever the file says of condition and reach. Earlier files, too."""
    splits = [Evaluation(split=split).step for split in get_args(SplitName)]
    splits.append(Evaluation("latest2", hold_out_of_sources=True, earlier_sources=True).source_step)
    splits.append(Evaluation("global_time", moments=("2014-01-01", "2014-04-01")).step)  # needs no condition
    filters = [step for one in (Filters("mean"), Filters(None, 1, 5), Filters(None, 2)) for step in one.steps]
    lists = list_steps(OWN, derived=False, catalogue=None, shipped=False)
    common = list_steps(COMMON, derived=True, catalogue=3, shipped=False)
    (found_list := tmp_path / "users.csv").write_text(f"user_id,{INTERSECTION}\nu,true\n")
    both = list_steps(str(found_list), derived=True, catalogue=3, shipped=False)
    own_reader = Step("read by plugin.Data", "read_by:plugin.Data", "values")
    steps = [*splits, *filters, *lists, *common, *both, own_reader]
    found = 0
    for step in steps:
        record = zoo.NoisyRows(4.0).prepare(PublicSizes(60, 70, (step,))).record
        values = file_of(record)
        lie = values | {
            "guarantee": "proved",
            "conditions": [],
            "steps": [{"words": step.words, "condition": "", "reach": "all"}],
        }
        done = ("done to the data before: ", "Done to the data  before : ", "donetothe data_before")
        old, *others = (earlier_file(mechanism="Other", assumptions=[f"{begun}{step.words}"]) for begun in done)
        if not record.conditions:
            assert PrivacyRecord.from_dict(lie).conditions == ()
            PrivacyRecord.from_dict(old)
            continue
        found += 1
        rewritten = (
            step.words.replace(" ", "  "), f"{step.words} .", f"agreed;{step.words.capitalize()}",
            step.words.replace("e", "\N{CYRILLIC SMALL LETTER IE}"), step.words.replace("a", "\N{LATIN SMALL LETTER ALPHA}"),
            step.words.replace(" ", "\N{BRAILLE PATTERN BLANK}"), step.words.replace("-", " - ").replace("(", "( ") + ",",
            step.words.replace(" (", "(").replace(" >=", ">-="), f">= {step.words[:9]};{step.words[9:]}",
        )  # fmt: skip
        again = [lie | {"steps": [{**lie["steps"][0], "words": text}]} for text in rewritten]
        for file in (lie, old, *others, *again):
            with pytest.raises(InconsistentRecordError, match=r"without its condition|Allowed: printable ASCII"):
                PrivacyRecord.from_dict(file)
    assert found == 9 + 1 + 3 + 3 + 2 + 1
    refuse_missing_conditions(["read by plugin.Data; users are hashed"], ["read_by:plugin.Data"], "rating")
    for text in ("read by plugin.Data", "read; by plugin.Data"):
        with pytest.raises(InconsistentRecordError, match="without its condition read_by:plugindata"):
            refuse_missing_conditions([text], ["read_by:plugin"], "rating")


@pytest.mark.parametrize("part", ["parameters", "steps", "selection", "notes"])
def test_hostile_parts_are_refused(part: str) -> None:
    values = file_of(chosen_among(honest("JLT"), [honest("noisy rows")])[0])
    hostile: tuple[object, ...] = (None, 1, "x", [1], {"x": []}, {"x": None}, [{"words": 1}])
    for value in hostile:
        with pytest.raises(RecordError):
            PrivacyRecord.from_dict(values | {part: value})


@pytest.mark.parametrize(
    "change",
    [
        {"notes": {"size": 10**400}},
        {"compositions": 10**400},
        *(
            {"parameters": {**file_of(honest("JLT")[0])["parameters"], name: 10**400}}
            for name in ("seed", "dim", "num_users")
        ),
    ],
)
def test_an_integer_that_no_number_holds_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RecordError, match=r"Allowed: integers below 2\^128"):
        PrivacyRecord.from_dict(file_of(honest("JLT")[0]) | change)


def test_a_mechanism_of_ours_cannot_be_claimed_without_its_parameters() -> None:
    values = file_of(honest("noisy rows")[0]) | {"known": False}
    with pytest.raises(RecordError, match=r"claims the guarantee of NoisyRows without parameters"):
        PrivacyRecord.from_dict(values)


def test_an_accountant_that_got_tighter_leaves_a_bound_true() -> None:
    values = file_of(honest("noisy rows")[0]) | {"accountant": "zoo.privacy.accounting/1"}
    assert PrivacyRecord.from_dict(values | {"epsilon": 4.5}).epsilon == pytest.approx(4.0)
    with pytest.raises(InconsistentRecordError, match=r"epsilon is 3.*parameters give 4"):
        PrivacyRecord.from_dict(values | {"epsilon": 3.0})


@pytest.mark.parametrize(
    ("name", "ledger", "error"),
    [
        ("noisy rows", (events.RandomisedResponseEvent(0.4),), InconsistentRecordError),
        ("noisy rows", (events.GaussianEvent(0.5),), UnderstatedPrivacyError),
        ("noisy rows", (events.GaussianEvent(5.0),), InconsistentRecordError),
        ("noisy rows", (events.GaussianEvent(1.081161849628355),) * 2, UnderstatedPrivacyError),
        ("flipped rows", (events.NonPrivateEvent(),), UnderstatedPrivacyError),
        ("JLT", (events.NoOpEvent(),), UnderstatedPrivacyError),
        ("bridge", (), UnderstatedPrivacyError),
    ],
)
def test_a_ledger_of_other_events_is_refused(name: str, ledger: tuple[events.PrivacyEvent, ...], error: type) -> None:
    with pytest.raises(error):
        honest(name)[0].check_against(ledger)


def test_a_choice_begins_with_the_events_of_the_chosen_one() -> None:
    chosen, ledger = chosen_among(honest("noisy rows"), [honest("noisy rows above"), published(zoo.NoisyRows(2.0))])
    assert (chosen.compositions, chosen.public_inputs["num_candidates"]) == (3, 3)
    chosen.check_against(ledger)
    assert PrivacyRecord.from_dict(file_of(chosen)) == chosen
    with pytest.raises(InconsistentRecordError, match="other events"):
        chosen.check_against(ledger[::-1])
    assert chosen.selection is not None
    with pytest.raises(InconsistentRecordError, match="must come first in the selection"):
        replace(chosen, selection=replace(chosen.selection, events=ledger[::-1]))


def test_without_a_guarantee_nothing_is_compared() -> None:
    record = honest("flipped rows")[0].without_guarantee("control")
    record.check_against([events.NonPrivateEvent()])
    assert record.guarantee is Guarantee.NONE


@pytest.mark.thorough
def test_records_of_earlier_versions_are_read_with_the_same_figures() -> None:
    """With their ledgers as the mechanisms that they are, without as they state themselves; and written as they were read."""
    for version, records in EARLIER.items():
        for name, written in records.items():
            old, published_once = written["record"], written["record"]["mechanism"].startswith(("one-bit", "DP-Fed"))
            ledger = None if published_once else [events.event_from_dict(event) for event in written["ledger"]]
            with_ledger, alone = PrivacyRecord.from_dict(old, ledger), PrivacyRecord.from_dict(old)
            if ledger is not None:
                with_ledger.check_against(ledger)
                made_by_us = old["epsilon"] is not None and name != "plugin"
                assert not made_by_us or not isinstance(with_ledger.mechanism, ThirdPartyMechanism), name
            for record in (with_ledger, alone):
                if (version, name) == ("0.2.0", "paper"):  # its projection was known before
                    assert record.guarantee is Guarantee.NONE
                    assert not PrivacyRecord.from_dict(record.to_dict(), ledger).claims
                    continue
                for field in ("epsilon", "delta", "mu", "sensitivity", "noise_scale", "clip", "requested_epsilon"):
                    stated, found = old[field], getattr(record, field)
                    assert found == (None if stated is None else pytest.approx(stated, rel=1e-8)), (name, field)
                assert record.compositions == old["compositions"] or not record.claims or record is alone
                assert (str(record.unit), str(record.relation)) == (str(old["unit"]), str(old["relation"]))
                proved = {"proved": Guarantee.CONDITIONAL} if version == "0.2.0" else {}
                assert record.guarantee is proved.get(old["guarantee"], Guarantee(old["guarantee"])), name
                assert version == "0.2.0" or record.to_dict() == old
                chosen = record.assuming("chosen_by_metrics").assuming("claimed_by:a.B")
                read = PrivacyRecord.from_dict(chosen.to_dict(), ledger if record is with_ledger else None)
                assert (read.conditions, read.to_dict(), str(read)) == (
                    chosen.conditions,
                    chosen.to_dict(),
                    str(chosen),
                )
                assert len(read.conditions) == len(record.conditions) + (2 if record.claims else 0)


@pytest.mark.thorough
@settings(max_examples=300)
@given(data=st.data())
def test_an_earlier_record_with_another_figure_is_refused(data: st.DataObject) -> None:
    """A file of an old schema is no way around the comparison."""
    claims = {
        name: written
        for name, written in EARLIER["0.3.0"].items()
        if written["record"]["epsilon"]
        and not written["record"]["mechanism"].startswith(("one-bit", "DP-Fed", "Laplace"))
    }
    written = claims[data.draw(st.sampled_from(sorted(claims)))]
    values, ledger = dict(written["record"]), [events.event_from_dict(event) for event in written["ledger"]]
    named = [key for key in ("mu", "sensitivity", "noise_scale", "clip", "compositions") if values[key] is not None]
    of_noise = {"sigma", "grid", "w", "flip_probability", "counts_scale", "row_clip", "noise_multiplier"}
    which = data.draw(st.sampled_from(named + sorted(of_noise & values["public_inputs"].keys())))
    if which in named:
        values[which] = other(values[which], data)
    else:
        values["public_inputs"] = values["public_inputs"] | {which: other(values["public_inputs"][which], data)}
    with pytest.raises((RecordError, UnderstatedPrivacyError)):
        PrivacyRecord.from_dict(values, ledger).check_against(ledger)


def test_a_sentence_that_an_earlier_record_leaves_out_is_missed() -> None:
    for name, written in EARLIER["0.3.0"].items():
        old = written["record"]
        if old["epsilon"] is None or old["mechanism"].startswith(("one-bit", "DP-Fed", "Laplace")) or "chosen" in name:
            continue
        ledger = [events.event_from_dict(event) for event in written["ledger"]]
        for kind in ("assumptions", "not_protected"):
            due = [text for text in old[kind] if not text.startswith("done to the data before")]
            with pytest.raises(InconsistentRecordError, match=f"{kind} lack"):
                PrivacyRecord.from_dict(old | {kind: old[kind][:0] + due[1:]}, ledger)


def test_a_release_cannot_carry_an_earlier_record_of_a_method() -> None:
    methods = [
        kind.name for kind in BUILT_IN if issubclass(kind, OneBit | PrivateRounds | SignResponse | TernaryResponse)
    ]
    assert len(methods) == 7
    for name in methods:
        with pytest.raises(RecordError, match="belongs to no publisher"):
            PrivacyRecord.from_dict(earlier_file(mechanism=name, epsilon=0.02), [events.GaussianEvent(400.0)])


def outside(**stated: Any) -> PrivacyRecord:  # noqa: ANN401
    epsilon = flips_epsilon(0.1, 0.1)
    fields = {"epsilon": epsilon, "delta": 0.0, "sensitivity": 1.0, "sensitivity_norm": "L1", "noise_scale": 0.3}
    return PrivacyRecord.proved_unless_seeded("outside", NoiseSource.os(), ONE_RATING, **fields | stated)


def test_of_others_nothing_is_known_but_what_every_ledger_says() -> None:
    ledger = (events.RandomisedResponseEvent(0.1),)
    outside(sensitivity=5.0, noise_scale=8.0).check_against(ledger)
    outside(public_inputs={"flip_probability": 0.1}).check_against(ledger)
    for lie, match in (
        ({"public_inputs": {"flip_probability": 0.49}}, "is 0.49. The ledger gives 0.1"),
        ({"public_inputs": {"sigma": 1.0}}, "sigma is 1.0. The ledger gives None"),
        ({"compositions": 9}, "compositions is 9. The ledger has 1 events"),
        ({"sensitivity_norm": "L2"}, "sensitivity_norm is L2. The noise needs L1"),
    ):
        with pytest.raises(InconsistentRecordError, match=match):
            outside(**lie).check_against(ledger)
    with pytest.raises(UnderstatedPrivacyError, match="The ledger gives"):
        outside(epsilon=1.0).check_against(ledger)


def test_the_attack_bound_of_others_is_that_of_their_epsilon_if_mu_gives_less() -> None:
    mu = gauss_mu(1.0, 1e-5)
    stated = {"delta": 1e-5, "mu": mu, "sensitivity_norm": "L2", "noise_scale": 1 / mu}
    assert outside(epsilon=1.0, **stated).attack_success == pytest.approx((1 + gauss_delta(0.0, mu)) / 2)
    assert outside(epsilon=8.0, **stated).attack_success == pytest.approx((math.exp(8) + 1e-5) / (1 + math.exp(8)))
    pure = outside(epsilon=1.0, **stated | {"delta": 0.0})  # mu has no epsilon at delta 0
    assert pure.attack_success == pytest.approx(1 / (1 + math.exp(-1)))


def test_nested_counts_multiply_and_nothing_is_no_use() -> None:
    event = events.RandomisedResponseEvent(0.1)
    ledger = (events.SelfComposedEvent(events.SelfComposedEvent(event, 2), 3), events.NoOpEvent(), event)
    outside(compositions=7, epsilon=16.0).check_against(ledger)


def test_flips_of_one_bit_protect_a_user_only_once_for_every_item() -> None:
    event = events.RandomisedResponseEvent(0.1)
    stated: dict[str, Any] = {"clip": 1.0, "epsilon": 200.0, "public_inputs": {"num_items": 70}}
    record = replace(outside(**stated), mechanism=replace(outside(**stated).mechanism, relation=ZERO_OUT))
    with pytest.raises(InconsistentRecordError, match="flips protect ratings"):
        record.check_against([event])
    often = replace(record, mechanism=replace(record.mechanism, compositions=70))
    often.check_against([events.SelfComposedEvent(event, 70)])


#: Keys that repeat a result, also in other letters, or tell the seed of the noise.
TELLING = (
    *("epsilon", "Epsilon", "the_epsilon", "true epsilon (certified)", "eps", "eps_1", "rowEps", "epsilons"),
    *("privacy loss", "privacyLoss", "noise-source", "guarantee", "noise_seed", "seed of the noise"),
    *("\N{GREEK SMALL LETTER EPSILON}", "\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK LUNATE EPSILON SYMBOL}"),
    *("\N{LATIN SMALL LETTER OPEN E}", "\N{MATHEMATICAL ITALIC SMALL DELTA} of the release"),
    *("\N{FULLWIDTH LATIN SMALL LETTER E}psilon", "\N{CYRILLIC SMALL LETTER IE}psilon"),
    *("\N{LATIN SMALL LETTER E WITH ACUTE}psilon2", "\N{LATIN LETTER SMALL CAPITAL E}ps"),
)


def test_no_public_input_repeats_a_result_or_tells_the_seed_of_the_noise() -> None:
    record, _ = honest("flipped rows")
    for key in TELLING:
        with pytest.raises(InconsistentRecordError, match="the public input"):
            replace(record, notes={key: 0.1})
        with pytest.raises(InconsistentRecordError, match="the public input"):
            outside(public_inputs={key: 0.1})
    replace(record, notes={"projection_seed": 3, "seed of the share": 4, "noise is on": "rows"})
    with pytest.raises(MechanismError, match="num_users is 10000"):
        outside(public_inputs={"num_users": 10**400})
    for name in ("flip_probability", "num_users", "num_candidates"):
        with pytest.raises(InconsistentRecordError, match=f"The note '{name}' is a parameter"):
            replace(record, notes={name: 0.1})


@pytest.mark.parametrize(
    ("code", "own"),
    [("shop.Rows", []), ("arithmetic, which", ["claimed_by:'outside'"]), ("zoo.JLT", ["claimed_by:'outside'"])],
)
def test_only_a_class_of_another_package_stands_for_the_claim_of_an_unknown_mechanism(
    code: str, own: list[str]
) -> None:
    assert [*outside(conditions=(f"claimed_by:{code}",)).conditions] == [f"claimed_by:{code}", *own]


@given(st.floats(1e-6, 1e4))
def test_an_epsilon_is_rounded_up_to_nine_digits(epsilon: float) -> None:
    assert epsilon <= round_up_epsilon(epsilon) <= epsilon * (1 + 1.1e-8)
    assert float(f"{round_up_epsilon(epsilon):.8e}") == round_up_epsilon(epsilon)


def test_parameters_that_a_mechanism_cannot_have_are_refused() -> None:
    rounds, rows = in_rounds(ZERO_OUT)[0].mechanism, published(zoo.NoisyRows(4.0))[0].mechanism
    assert isinstance(rounds, PrivateRounds)
    with pytest.raises(MechanismError, match="Only 20 noisy steps were planned"):
        replace(rounds, taken=rounds.planned + 1)
    with pytest.raises(MechanismError, match="relation is 'change_one_rating_value'"):
        replace(rows, relation=Relation.CHANGE_ONE_RATING_VALUE)


def test_rounds_trust_the_server_and_clipped_rows_have_no_entries() -> None:
    assert {"sample_secret", "trusted_server", "resumed_once"} < {*in_rounds(ZERO_OUT)[0].assumptions}
    whole, clipped = (
        published(zoo.NoisyRows(4.0, **of))[0].mechanism for of in ({}, {"relation": "zero_out_one_user", "clip": 1.0})
    )
    assert (whole.entry_model is None, clipped.entry_model is None) == (False, True)
