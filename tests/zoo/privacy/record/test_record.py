"""Records: figures that contradict each other, what is shown of them, and how they agree with ledgers."""

import json
from dataclasses import replace
from functools import partial
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zoo
from tests.zoo.privacy.record.stated import ForeignRows, earlier_file, stated
from zoo.privacy.accounting.accountant import ACCOUNTANT, UnsupportedEventError
from zoo.privacy.accounting.events import GaussianEvent, GaussianProjectionEvent, NonPrivateEvent, NoOpEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import MechanismError
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.delta import default_delta, delta_rule
from zoo.privacy.record.record import (
    FLOATING_POINT,
    Guarantee,
    InconsistentRecordError,
    PrivacyRecord,
    RecordError,
    UnderstatedPrivacyError,
    unprotected_record,
)

MU = gauss_mu(8.0, 1e-5)
INPUTS = {"projection_seed": 3, "num_components": 400, "w": 20 / MU, "calibration": "unit", "binary": True}


def proved(**changes: Any) -> PrivacyRecord:  # noqa: ANN401
    fields: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5, "mu": MU, "noise_scale": 1 / MU, "public_inputs": INPUTS}
    return stated(**fields | {"not_protected": ("who is a user",)} | changes)


def test_noise_of_a_generator_that_the_system_has_keyed_is_named_and_read() -> None:
    record = PrivacyRecord.of(
        JLT.calibrate(epsilon=8.0, delta=1e-5, dim=4, seed=7),
        NoiseSource.os(),
        noise_source="philox keyed by os entropy",
    )
    assert PrivacyRecord.from_dict(record.to_dict()) == record
    assert "noise_source   philox keyed by os entropy" in str(record)


def test_a_record_survives_json() -> None:
    proved_one = PrivacyRecord.of(JLT.calibrate(epsilon=8.0, delta=1e-5, dim=4, seed=7), NoiseSource.os())
    for record in (proved_one, proved_one.without_guarantee("control"), unprotected_record("Plaintext", "as it is")):
        assert PrivacyRecord.from_dict(json.loads(json.dumps(record.to_dict(), allow_nan=False))) == record


def test_every_record_says_what_the_arithmetic_does_not_prove() -> None:
    for record in (proved(), unprotected_record("Plaintext", "as it is")):
        assert record.to_dict()["floating_point"] == FLOATING_POINT
        assert FLOATING_POINT in str(record)
    assert FLOATING_POINT.startswith(
        "The guarantee is proved for exact real arithmetic; the implementation uses float64"
    )


def test_a_proved_record_shows_its_epsilon() -> None:
    text = str(proved())
    assert "epsilon        8.00 at delta 1e-05" in text
    assert "unit           rating (change_one_rating)" in text
    assert "public input   projection_seed = 3" in text
    assert "not protected  who is a user" in text
    assert proved().summary() == "rating (change one rating), eps 8.00, delta 1e-05, proved"
    assert proved().accountant == ACCOUNTANT


def test_a_record_without_guarantee_shows_no_epsilon_anywhere() -> None:
    record = proved(requested_epsilon=9.25).without_guarantee("seeded noise")
    assert record.guarantee is Guarantee.NONE
    assert "eps" not in str(record).lower()
    assert "8.0" not in str(record)
    assert "9.25" not in str(record)
    assert record.summary() == "none (seeded noise)"
    values = record.to_dict()
    assert [values[name] for name in ("epsilon", "delta", "mu", "requested_epsilon")] == [None] * 4
    assert record.noise_scale == 1 / MU  # a denoiser needs it


def test_seeded_noise_takes_the_claims_and_nothing_else() -> None:
    mechanism = JLT.calibrate(epsilon=8.0, delta=1e-5, dim=4, seed=7)
    whole, seeded = (PrivacyRecord.of(mechanism, noise) for noise in (NoiseSource.os(), NoiseSource.seeded(1)))
    assert seeded == replace(whole, reasons=("seeded noise",), noise_source="seeded noise")
    assert (whole.guarantee, seeded.guarantee) == (Guarantee.PROVED, Guarantee.NONE)


def test_reasons_add_up() -> None:
    record = proved().without_guarantee("seeded noise").without_guarantee("control")
    assert record.summary() == "none (seeded noise; control)"


def test_the_papers_epsilon_stands_beside_the_true_one() -> None:
    plan = JLT.calibrate(epsilon=1.0, delta=1e-5, dim=400, calibration="paper")
    record = PrivacyRecord.of(plan, NoiseSource.os())
    record.check_against([plan.event])
    assert "epsilon        0.00617 at delta 1e-05" in str(record)  # 0.006164...: rounded up
    assert "requested      epsilon 1 in the paper's formula" in str(record)


@given(epsilon=st.floats(1e-6, 1e6))
def test_a_printed_epsilon_is_never_below_the_stated_one(epsilon: float) -> None:
    printed = float(proved(epsilon=epsilon).summary().split("eps ")[1].split(",")[0])
    assert epsilon * (1 - 2e-9) <= printed <= epsilon * 1.0101


def test_a_calibrated_record_agrees_with_its_ledger() -> None:
    proved().check_against([GaussianEvent(1 / MU)])
    proved().check_against([GaussianEvent(1 / MU), NoOpEvent()])
    proved(epsilon=20.0).check_against([GaussianEvent(1 / MU)])  # stating more than was spent is no lie


@pytest.mark.parametrize(
    "ledger", [[GaussianEvent(0.999 / MU)], [GaussianEvent(1 / MU), GaussianEvent(50.0)], [NonPrivateEvent()]]
)
def test_an_understated_epsilon_is_refused(ledger: list[Any]) -> None:
    with pytest.raises(UnderstatedPrivacyError, match=r"JLT: epsilon is 8 at delta 1e-05. The ledger gives"):
        proved().check_against(ledger)


def test_an_understated_mu_is_refused() -> None:
    with pytest.raises(UnderstatedPrivacyError, match=r"mu is 1\.5. The ledger gives 1\.66"):
        proved(mu=1.5).check_against([GaussianEvent(1 / MU)])
    with pytest.raises(UnsupportedEventError, match="GaussianProjectionEvent has no mu"):
        proved().check_against([GaussianProjectionEvent(13.0, 400)])


def test_a_foreign_mechanism_states_the_epsilon_of_its_event() -> None:
    """A budget and a total read the ledger, so even a larger epsilon is refused."""
    of = partial(ForeignRows, relation=Relation.CHANGE_ONE_RATING, delta=1e-5, num_users=9, noise_multiplier=2.0)
    for share, error in ((0.1, UnderstatedPrivacyError), (3.0, InconsistentRecordError)):
        made = PrivacyRecord.of(of(epsilon_share=share), NoiseSource.of(None))
        with pytest.raises(error, match=r"gives 1\.99"):
            made.check_against([GaussianEvent(2.0)])
    honest = PrivacyRecord.of(of(), NoiseSource.of(None))
    honest.check_against([GaussianEvent(2.0)])
    PrivacyRecord.of(of(noise_multiplier=1e6), NoiseSource.of(None)).check_against([GaussianEvent(1e6)])
    with pytest.raises(InconsistentRecordError, match="other events"):
        honest.check_against([GaussianEvent(3.0)])
    read = PrivacyRecord.from_dict(honest.to_dict())  # where the package is not installed
    read.check_against([GaussianEvent(2.0)])
    assert (read.epsilon, read.conditions) == (honest.epsilon, honest.conditions)
    assert {"relation", "delta", "epsilon_share"}.isdisjoint(read.public_inputs)
    assert read.public_inputs["noise_multiplier"] == 2.0


def test_a_record_that_claims_nothing_agrees_with_every_ledger() -> None:
    proved().without_guarantee("control").check_against([NonPrivateEvent()])
    unprotected_record("Plaintext", "as it is").check_against([GaussianEvent(1.0)])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"noise_source": "seeded noise"},
            "noise_source is 'seeded noise'.*'os entropy' or 'philox keyed by os entropy'.*Omit the seed",
        ),
        ({"noise_source": "dice"}, "noise_source is 'dice'. Allowed:"),
        ({"epsilon": None}, "lacks epsilon"),
        ({"epsilon": None, "delta": None}, "lacks delta, epsilon"),
        ({"relation": None}, "lacks relation"),
        ({"relation": Relation.ZERO_OUT_ONE_USER}, "clip is missing. A guarantee for users"),
        ({"epsilon": inf}, r"epsilon is .*Allowed: \[0, inf\)"),
        ({"epsilon": nan}, "epsilon is .*Allowed: "),
        ({"delta": 1.0}, r"delta is 1\.0. Allowed: \[0, 1\)"),
        ({"sensitivity_norm": "L3"}, "sensitivity_norm is .*Allowed:"),
        ({"compositions": -1}, "compositions is .*Allowed: integers >= 0"),
        ({"mechanism": ""}, "Allowed: printable, non-empty"),
        ({"assumptions": ("\x1b[2J",)}, "Allowed: printable, non-empty"),
        ({"public_inputs": {"seed": nan}}, r"public_inputs\['seed'\] is no text, finite number or bool"),
        ({"public_inputs": {"seed": [1]}}, r"public_inputs\['seed'\] is no text"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(RecordError, match=match):
        proved(**changes)
    with pytest.raises(MechanismError, match="State both or neither"):
        proved(sensitivity_norm=None)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"schema": 4}, "schema of the record is 4. Allowed: <= 3. Upgrade cdr-zoo"),
        ({"schema": "1"}, "schema of the record is '1'"),
        ({"floating_point": "all is proved"}, "lacks the sentence on floating-point"),
        ({"surprise": 1}, "has exactly"),
        ({"epsilon": "__import__('os')"}, "epsilon is .*Allowed: finite numbers or null"),
        ({"epsilon": 10**400}, "epsilon is .*Allowed: finite numbers"),
        ({"epsilon": -0.5}, "epsilon is .*Allowed: "),
        ({"guarantee": "certain"}, r"guarantee is 'certain'. Allowed: \['proved', 'conditional', 'none'\]"),
        ({"guarantee": "none", "reason": "x"}, "'none' without a reason, or with epsilon"),
        ({"guarantee": "conditional"}, "Only 'conditional' has conditions"),
        ({"conditions": ["x"]}, "Only 'conditional' has conditions"),
        ({"unit": "user"}, "unit is user.*protects another unit"),
        ({"relation": ["change_one_rating"]}, "relation is .*Allowed:"),
        ({"mechanism": None}, "mechanism is of type NoneType, not a text"),
        ({"assumptions": [1]}, "assumptions is of type int, not a text"),
        ({"public_inputs": [1]}, "public_inputs is of type list, not a mapping"),
        ({"public_inputs": {"a": None}}, r"public_inputs\['a'\] is no text"),
        ({"public_inputs": {"epsilon": 0.1}}, "the public input 'epsilon' repeats"),
        ({"public_inputs": {"mechanism": "Nothing"}}, "public_inputs name another mechanism"),
        ({"mechanism": "\x1b" + 99 * "A", "public_inputs": {"mechanism": ""}}, r"^'\\x1bA{79}': public_inputs name"),
        ({"compositions": 1.5}, "compositions is of type float, not an integer"),
        ({"noise_source": "seeded noise"}, "needs noise from 'os entropy'"),
    ],
)
def test_hostile_records_of_earlier_versions_are_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(RecordError, match=match):
        PrivacyRecord.from_dict(earlier_file() | changes)


def test_every_field_is_needed() -> None:
    for values in (
        PrivacyRecord.of(JLT.calibrate(epsilon=8.0, delta=1e-5, dim=4, seed=7), NoiseSource.os()).to_dict(),
        earlier_file(),
    ):
        for name in values.keys() - {"delta_rule"}:  # absent from earlier files
            with pytest.raises(RecordError, match=f"{name}|has exactly"):
                PrivacyRecord.from_dict({key: value for key, value in values.items() if key != name})
    with pytest.raises(RecordError, match=r"is of type list, not a mapping"):
        PrivacyRecord.from_dict([])  # type: ignore[arg-type]


def test_replacing_a_field_checks_anew() -> None:
    with pytest.raises(RecordError, match="needs noise from"):
        replace(proved(), noise_source="seeded noise")


def test_the_default_delta_of_a_rating_counts_entries_and_the_record_names_its_rule() -> None:
    rows, users = zoo.NoisyRows(8.0), zoo.NoisyRows(8.0, relation="zero_out_one_user", clip=1.0)
    first = rows.forecast(943, 1682)
    assert (first.delta, first.delta_rule) == (pytest.approx(1 / (10 * 943 * 1682)), "delta_of_entries")
    second = users.forecast(943, 1682)
    assert (second.delta, second.delta_rule) == (1e-5, "delta_of_users")
    assert zoo.NoisyRows(8.0, delta=3e-6).forecast(943, 1682).delta_rule == "delta_requested"
    assert zoo.JLT(8.0).forecast(100_000, 9).delta == pytest.approx(1 / 9e6)
    of_none = {unit: delta_rule(0.016, unit, 60, 0) for unit in (Unit.USER, Unit.RATING)}
    assert {*of_none.values()} == {"delta_requested"}, "a source that states no items omits no rule"
    # A file of before, whose delta is that of users, has no rule and stays readable; asked for today, it is no default. A wrong
    # rule is refused.
    values = zoo.NoisyRows(8.0, delta=1e-5).forecast(943, 1682).to_dict()
    assert values["delta_rule"] == "delta_requested"
    assert (
        PrivacyRecord.from_dict({k: v for k, v in values.items() if k != "delta_rule"}).delta_rule == "delta_of_users"
    )
    with pytest.raises(InconsistentRecordError, match="delta_rule is 'delta_of_entries"):
        PrivacyRecord.from_dict({**values, "delta_rule": "delta_of_entries"})


def test_default_delta() -> None:
    assert default_delta(924) == 1e-5
    assert default_delta(10_000) == 1e-5
    assert default_delta(29_476) == pytest.approx(1 / 294_760)
    with pytest.raises(ValueError, match=r"num_units is 0.*Allowed: integers >= 1"):
        default_delta(0)


@pytest.mark.parametrize("ledger", [[], [NoOpEvent()]])
def test_a_guarantee_needs_a_release_in_its_ledger(ledger: list[Any]) -> None:
    with pytest.raises(UnderstatedPrivacyError, match="Its ledger has no private release"):
        proved().check_against(ledger)


@pytest.mark.thorough
def test_a_record_of_an_earlier_version_lacks_later_codes_and_no_others() -> None:
    rounds = zoo.FedGNN(epsilon=8.0, delta=1e-5, clip=0.5, num_rounds=4, rate=0.2)
    for method, later in (
        (zoo.SPPG("gs_wgan", delta=1e-5, steps=4), 2),
        (zoo.SPPG(delta=1e-5, steps=4), 1),
        (rounds, 1),
    ):
        written = method.forecast(200, 40).to_dict()
        earlier = [code for code in written["not_protected"] if code not in ("ratings_elsewhere", "critic_weights")]
        assert len(earlier) == len(written["not_protected"]) - later
        read = PrivacyRecord.from_dict(written | {"not_protected": earlier})
        assert "ratings_elsewhere" in read.not_protected, "it holds all the same"
        with pytest.raises(InconsistentRecordError, match="not_protected"):
            PrivacyRecord.from_dict(written | {"not_protected": earlier[1:]})
        assumed = [code for code in written["assumptions"] if code != "resumed_once"]
        assert "resumed_once" in PrivacyRecord.from_dict(written | {"assumptions": assumed}).assumptions
        with pytest.raises(InconsistentRecordError, match="assumptions"):
            PrivacyRecord.from_dict(written | {"assumptions": assumed[1:]})
