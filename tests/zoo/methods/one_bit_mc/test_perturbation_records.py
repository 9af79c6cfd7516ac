"""What a perturbation says of itself: records, settings, and what it refuses."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.zoo.methods.one_bit_mc.problems import completed, problem, with_other_signs
from zoo.data.ratings import Step
from zoo.methods.one_bit_mc.gradient_perturbation import GradientPerturbation
from zoo.methods.one_bit_mc.input_perturbation import InputPerturbation
from zoo.methods.one_bit_mc.objective_perturbation import ObjectivePerturbation
from zoo.methods.one_bit_mc.output_perturbation import OutputPerturbation
from zoo.methods.one_bit_mc.perturbation import Clear, Perturbation, Problem, Terms
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.one_bit.link_functions import Link, Logistic, Probit
from zoo.privacy.record.delta import default_delta
from zoo.privacy.record.fields import Guarantee
from zoo.privacy.record.record import PrivacyRecord


def check_no_epsilon(record: PrivacyRecord) -> None:
    assert record.guarantee is Guarantee.NONE
    assert (record.epsilon, record.delta, record.mu, record.requested_epsilon) == (None, None, None, None)
    assert not any(line.startswith(("epsilon", "mu ", "asked for")) for line in str(record).splitlines())
    assert record.summary() == f"none ({record.reason})"


SOUND: dict[str, tuple[Perturbation, dict[str, Any]]] = {
    "InP": (InputPerturbation(1.5), {"delta": 0.0}),
    "ObjP": (ObjectivePerturbation(1.5), {"delta": 0.0, "noise_scale": 1 / 1.5, "sensitivity": 1.0}),
    "ObjP, Gaussian": (ObjectivePerturbation(1.5, noise="gaussian"), {"delta": 1e-5, "sensitivity": 1.0}),
    "GraP": (GradientPerturbation(1.5, steps=7), {"delta": 1e-5, "compositions": 7, "clip": 0.5, "sensitivity": 1.0}),
    "GraP, Laplace": (
        GradientPerturbation(1.5, steps=3, noise="laplace", clamp=0.2),
        {"delta": 0.0, "compositions": 3, "clip": 0.2, "noise_scale": 0.4 * 3 / 1.5},
    ),
    "OutP": (OutputPerturbation(1.5, steps=9), {"delta": 1e-5, "sensitivity_norm": "L2", "compositions": 1}),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_record_says_who_is_protected_and_how_strongly(name: str) -> None:
    perturbation, facts = SOUND[name]
    posed = problem()
    record = perturbation.record(posed, (Step("ratings >= 3 count as +1"),))
    assert (record.guarantee, record.epsilon) == (Guarantee.PROVED, 1.5)
    assert (record.unit, record.relation) == (Unit.RATING_VALUE, Relation.CHANGE_ONE_RATING_VALUE)
    for fact, value in facts.items():
        assert getattr(record, fact) == pytest.approx(value), fact
    assert record.public_inputs["rated pairs"] == "all of them"
    assert record.sentences("assumptions")[-1] == "earlier step: ratings >= 3 count as +1"
    assert "rated_pairs" in record.not_protected
    written = json.loads(json.dumps(record.to_dict()))
    assert PrivacyRecord.from_dict(written) == record
    written["not_protected"].remove("training_failure_of_signs")
    assert PrivacyRecord.from_dict(written) == record, "as an earlier version wrote it"
    assert with_other_signs(posed).observations.signs[0] != posed.observations.signs[0]
    assert perturbation.record(with_other_signs(posed), (Step("ratings >= 3 count as +1"),)) == record
    perturbation.noise_seed = 4
    try:
        unsafe = perturbation.record(posed)
    finally:
        perturbation.noise_seed = None
    assert unsafe.reason == "seeded noise"
    check_no_epsilon(unsafe)


HALTED = (
    "each checkpoint is resumed at most once; of an interrupted run, only the checkpoint that it resumes from is seen"
)
BEFORE_NOISE = "checkpoints from inside the run, which have no noise yet, stay secret and are resumed at most once"


@pytest.mark.parametrize(
    ("perturbation", "own", "assumed"),
    [
        (InputPerturbation(1.0), {}, ()),
        (ObjectivePerturbation(1.0, ridge=0.3), {"ridge": 0.3}, ()),
        (GradientPerturbation(1.0), {}, (HALTED,)),
        (OutputPerturbation(1.0, steps=9), {"ridge": 0.2, "step_size": 0.5 / 0.45, "steps": 9}, (BEFORE_NOISE,)),
    ],
    ids=["InP", "ObjP", "GraP", "OutP"],
)
def test_a_record_names_all_that_is_public_and_assumed(
    perturbation: Perturbation, own: dict[str, Any], assumed: tuple[str, ...]
) -> None:
    free = {"link": "logistic", "tau": 4.0, "rows": 6, "columns": 7, "rated pairs": "all of them"} | own
    record = perturbation.record(problem(), (Step("as given"),))
    assert record.public_inputs == free
    assert record.sentences("assumptions") == [*assumed, "earlier step: as given"]
    held = perturbation.record(problem(alpha=0.5, bounded=True)).public_inputs
    assert held == free | {"alpha": 0.5, "entries are held to alpha": True}


@pytest.mark.filterwarnings("ignore:one-bit matrix completion.*published noise does not protect")
def test_a_record_of_published_noise_names_its_scale() -> None:
    record = OutputPerturbation(2.0, paper_faithful=True).record(problem(alpha=0.5))
    assert record.public_inputs["scale of the noise"] == 0.5
    assert record.mechanism.name == "one-bit matrix completion, output, as published"
    assert "rated pairs" not in record.public_inputs


def test_hidden_pairs_are_said_to_be_protected() -> None:
    record = InputPerturbation(1.5, hide_pairs=True).record(problem())
    assert (record.epsilon, record.delta) == (1.5, 0.0)
    assert (record.unit, record.relation) == (Unit.RATING, Relation.CHANGE_ONE_RATING)
    assert "rated pairs" not in record.public_inputs
    assert "rated_pairs" not in record.not_protected
    assert {"users_and_items", "training_failure_of_signs"} <= {*record.not_protected}


def test_flips_of_two_probabilities_are_recorded_with_the_largest_ratio() -> None:
    for p1, p2 in ((0.1, 0.3), (0.3, 0.1)):
        record = InputPerturbation(p1=p1, p2=p2).record(problem())
        assert record.epsilon == pytest.approx(math.log(0.7 / 0.1), rel=1e-8)
        assert (record.guarantee, record.delta) == (Guarantee.PROVED, 0.0)
        assert record.relation is Relation.CHANGE_ONE_RATING_VALUE
        assert (record.mechanism.parameters["p1"], record.mechanism.parameters["p2"]) == (p1, p2)
    for settings in ({}, {"p1": 0.1}, {"epsilon": 1.0, "p2": 0.1}, {"p1": 0.1, "p2": 0.1, "hide_pairs": True}):
        with pytest.raises(ValueError, match="set epsilon, or p1 and p2 without hide_pairs"):
            InputPerturbation(**settings)


def test_a_delta_follows_from_the_number_of_users() -> None:
    posed = problem(shape=(20_000, 2), count=10)
    for perturbation in (GradientPerturbation(1.0), OutputPerturbation(1.0), ObjectivePerturbation(1.0, "gaussian")):
        assert perturbation.record(posed).delta == default_delta(20_000) == 5e-6
    assert GradientPerturbation(1.0, delta=2e-5).record(posed).delta == 2e-5


@pytest.mark.parametrize("kind", [GradientPerturbation, OutputPerturbation])
def test_a_delta_that_hands_over_a_user_is_refused(kind: Callable[..., Perturbation]) -> None:
    posed = problem()
    users = posed.observations.shape[0]
    with pytest.raises(ValueError, match=rf"delta is 0\.5. Allowed: below 1/{users} .*Take 1e-05"):
        kind(1.0, delta=0.5).record(posed)
    with pytest.raises(ValueError, match="Allowed: below 1/"):
        kind(1.0, delta=1 / users).record(posed)
    assert kind(1.0, delta=0.99 / users).record(posed).delta == 0.99 / users


PROBIT = problem(link=Probit(), alpha=1.0)
UNSOUND: dict[str, tuple[Perturbation, Problem, str]] = {
    "published ObjP": (ObjectivePerturbation(1.0, paper_faithful=True), problem(), "published noise is half"),
    "published probit ObjP": (ObjectivePerturbation(1.0, paper_faithful=True), PROBIT, "proof lacks a factor of 2"),
    "published OutP": (OutputPerturbation(1.0, paper_faithful=True), problem(alpha=1.0), "noise is for one entry"),
    "inexact ObjP": (ObjectivePerturbation(1.0, inexact=True), PROBIT, "the minimiser is not exact"),
    "no noise": (Clear(), problem(), "no noise"),
}


@pytest.mark.filterwarnings("ignore:one-bit matrix completion.*published noise does not protect")
@pytest.mark.parametrize("name", UNSOUND)
def test_what_does_not_hold_has_no_epsilon(name: str) -> None:
    perturbation, posed, reason = UNSOUND[name]
    perturbation.check(posed.terms)
    assert name == "no noise" or not perturbation.shows_objective(posed.link)
    record = perturbation.record(posed)
    assert reason in str(record.reason)
    check_no_epsilon(record)
    assert completed(perturbation, posed).shape == (6, 7)


@pytest.mark.parametrize(
    ("perturbation", "link", "shown"),
    [
        (Clear(), Logistic(), True),
        (InputPerturbation(1.0), Probit(), True),
        (ObjectivePerturbation(1.0), Logistic(), True),
        (ObjectivePerturbation(1.0, paper_faithful=True), Logistic(), False),
        (ObjectivePerturbation(1.0, inexact=True), Probit(), False),
        (GradientPerturbation(1.0), Logistic(), False),
        (OutputPerturbation(1.0), Logistic(), False),
    ],
)
def test_an_objective_is_shown_where_it_is_of_what_was_noised(
    perturbation: Perturbation, link: Link, shown: bool
) -> None:
    perturbation.check(Terms(link, 1.0))
    assert perturbation.shows_objective(link) is shown


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_an_epsilon_out_of_range_is_refused(bad: float) -> None:
    for make in (InputPerturbation, ObjectivePerturbation, GradientPerturbation, OutputPerturbation):
        with pytest.raises(ValueError, match="epsilon is"):
            make(bad)


def refused(perturbation: Perturbation, link: Link, alpha: float | None = None, bounded: bool = False) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        perturbation.check(Terms(link, alpha, bounded))
    return str(caught.value)


def test_a_probit_objective_is_refused_unless_nothing_is_promised() -> None:
    said = refused(ObjectivePerturbation(1.0), Probit(), 1.0)
    assert "private only for the exact minimiser" in said
    assert "needs alpha here, the largest entry" in refused(ObjectivePerturbation(1.0, inexact=True), Probit())
    assert "needs alpha here" in refused(ObjectivePerturbation(1.0, paper_faithful=True), Probit())
    assert "needs more than 0.7713" in refused(ObjectivePerturbation(0.5, inexact=True), Probit(), 1.0)
    gaussian = ObjectivePerturbation(1.0, noise="gaussian", inexact=True)
    assert "noise is 'gaussian' with the probit link. Use 'laplace'" in refused(gaussian, Probit(), 1.0)


def test_settings_of_an_objective_are_checked_before_data_are_read() -> None:
    assert "ridge must be finite and >= 0" in refused(ObjectivePerturbation(1.0, ridge=-1.0), Logistic())
    assert "delta" in refused(ObjectivePerturbation(1.0, noise="gaussian", delta=2.0), Logistic())
    other: Any = "normal"
    assert "Allowed: 'laplace', 'gaussian'" in refused(ObjectivePerturbation(1.0, noise=other), Logistic())
    with pytest.raises(ValueError, match=r"The published noise is Laplace; got noise 'gaussian' with paper_faithful"):
        ObjectivePerturbation(1.0, noise="gaussian", paper_faithful=True)


def test_settings_of_gradients_are_checked_before_data_are_read() -> None:
    for bad, message in (
        ({"steps": 0}, "steps must be an integer >= 1"),
        ({"clamp": 0.0}, "Allowed: finite, > 0"),
        ({"delta": 1.5}, "delta"),
        ({"noise": "normal"}, "Allowed: 'laplace', 'gaussian'"),
        ({"step_size": 0.0}, "step_size must be positive and finite, 'spectral' or null; got 0.0"),
        ({"step_size": "spectral"}, "Spectral steps go from the last point: set dual to false"),
    ):
        with pytest.raises(ValueError, match=message):
            GradientPerturbation(1.0, **bad)


def test_an_output_without_a_sensitivity_is_refused() -> None:
    said = refused(OutputPerturbation(1.0), Probit(), 1.0)
    assert "without bounded entries" in said
    assert "needs alpha, the largest entry" in refused(OutputPerturbation(1.0, paper_faithful=True), Logistic())
    assert "step_size must lie in (0, 3.07692]" in refused(OutputPerturbation(1.0, step_size=3.1), Logistic())
    assert "steps must be an integer >= 1" in refused(OutputPerturbation(1.0, steps=0), Logistic())
    for ridge in (-0.1, -0.125, float("nan")):
        with pytest.raises(ValueError, match="ridge must be finite and >= 0"):
            OutputPerturbation(1.0, ridge=ridge)
    assert "delta" in refused(OutputPerturbation(1.0, delta=0.0), Logistic())


def test_settings_are_plain_and_tell_perturbations_apart() -> None:
    expected = {"name": "InputPerturbation", "epsilon": 1.0, "hide_pairs": False, "noise_seed": None}
    assert InputPerturbation(1.0).settings == expected | {"p1": None, "p2": None}
    assert Clear().settings == {"name": "Clear"}
    made = ObjectivePerturbation(1.0)
    before = made.settings
    made.check(Terms(Logistic()))
    assert made.settings == before
    assert json.loads(json.dumps(GradientPerturbation(2.0).settings))["steps"] == 5
