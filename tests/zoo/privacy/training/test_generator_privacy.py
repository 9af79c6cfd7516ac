"""What a generator may claim: records and ledgers of each mechanism, and what is refused before any data."""

import math
import warnings
from dataclasses import replace
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, get_sigma_gaussian
from dp_accounting.pld import PLDAccountant

from zoo.data.ratings import Step
from zoo.privacy.accounting.events import GaussianEvent, NonPrivateEvent, SelfComposedEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import Guarantee, PrivacyRecord, UnderstatedPrivacyError, warn_once
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.generator_privacy import FAITHFUL, UNSOUND, GeneratorPrivacy, Mechanism
from zoo.privacy.training.noisy_steps import NoisySteps
from zoo.privacy.training.sanitised_gradient import SanitisationPlan
from zoo.privacy.training.step_plan import StepPlan

USERS = 400
ZERO_OUT, REPLACE = Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER


def made(mechanism: Any = "private_d", **change: Any) -> GeneratorPrivacy:  # noqa: ANN401
    settings: dict[str, Any] = {
        "epsilon": 4.0, "delta": None, "relation": ZERO_OUT, "clip": 0.5, "steps": 50, "sample_size": 40, "n_critic": 3,
        "paper_faithful": mechanism in FAITHFUL
    }  # fmt: skip
    return GeneratorPrivacy(mechanism, **(settings | change))


def reference(plan: TrainingPlan, steps: int) -> float:
    """Epsilon by dp_accounting's own accountant, under the plan's relation."""
    relations = {ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL, REPLACE: NeighboringRelation.REPLACE_ONE}
    accountant = PLDAccountant(relations[plan.relation])
    event = PoissonSampledDpEvent(plan.rate, GaussianDpEvent(plan.noise_multiplier))
    return float(accountant.compose(event, steps).get_epsilon(plan.delta))


def counted(plan: StepPlan, steps_taken: int, private: bool) -> NoisySteps[StepPlan]:
    """What a training has spent."""
    spent = NoisySteps(plan, NoiseSource.os())
    spent.load_state_dict({"steps_taken": steps_taken, "private": private, "settings": plan.settings()})
    return spent


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mechanism", "relation", "sensitivity"), [("private_d", ZERO_OUT, 0.5), ("first_layer_only", REPLACE, 1.0)]
)
def test_dp_sgd_claims_what_an_independent_accountant_gives_it(
    mechanism: Mechanism, relation: Relation, sensitivity: float
) -> None:
    privacy = made(mechanism, relation=relation)
    plan, record = privacy.plan(USERS), privacy.record(USERS, inputs={"num_items": 30})
    assert isinstance(plan, TrainingPlan)
    assert (plan.rate, plan.steps, plan.clip, plan.delta) == (0.1, 50, 0.5, 1e-5)
    assert record.guarantee is Guarantee.PROVED
    assert record.epsilon == pytest.approx(plan.epsilon, rel=1e-8)
    assert 0.99 * 4 < reference(plan, 50) <= record.epsilon <= 4.0
    assert (record.unit, record.relation, record.delta, record.mu) == (Unit.USER, relation, 1e-5, None)
    assert (record.sensitivity, record.sensitivity_norm, record.clip) == (sensitivity, "L2", 0.5)
    assert record.noise_scale == plan.noise_multiplier * 0.5
    assert (record.compositions, record.mechanism.name) == (50, f"SPPG, {mechanism}")
    assert record.public_inputs == {
        "steps": 50, "sample_size": 40, "n_critic": 3, "num_items": 30, "num_users": USERS,
        "noise_multiplier": plan.noise_multiplier,
        "noise is on": "each sum of users' clipped gradients"
    }  # fmt: skip
    assert {"sample_secret", "resumed_once"} <= {*record.assumptions}
    record.check_against(privacy.events(USERS))


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_gs_wgan_claims_one_gaussian_release_of_all_rows(relation: Relation) -> None:
    """Fifty critic steps, three before each of the generator's: 17 of those, of 40 rows each; either relation alike."""
    privacy = made("gs_wgan", relation=relation)
    plan, record = privacy.plan(USERS), privacy.record(USERS)
    assert isinstance(plan, SanitisationPlan)
    assert (plan.rows, plan.steps, plan.clip) == (40, 17, 0.5)
    assert record.guarantee is Guarantee.PROVED
    assert record.epsilon == pytest.approx(4.0, rel=1e-6)
    assert record.mu == pytest.approx(gauss_mu(4.0, 1e-5), rel=1e-9)
    assert record.sensitivity == pytest.approx(2 * 0.5 * math.sqrt(40))
    sigma = get_sigma_gaussian(4.0, 1e-5) * 2 * math.sqrt(40 * 17)
    assert record.noise_scale == pytest.approx(0.5 * sigma, rel=1e-9)
    assert (record.compositions, record.clip, record.relation) == (17, 0.5, relation)
    assert record.public_inputs["noise is on"] == "the gradient of each generated row"
    assert "sample_secret" not in record.assumptions, "nothing rests on it"
    assert "resumed_once" in record.assumptions
    record.check_against(privacy.events(USERS))
    (event,) = privacy.events(USERS)
    assert event == SelfComposedEvent(GaussianEvent(plan.noise_multiplier / (2 * math.sqrt(40))), 17)


@pytest.mark.parametrize("mechanism", sorted(UNSOUND))
def test_what_protects_nobody_states_no_epsilon_anywhere(mechanism: Mechanism) -> None:
    privacy = made(mechanism)
    record = privacy.record(USERS, inputs={"num_items": 30})
    assert record.guarantee is Guarantee.NONE
    assert record.reason == UNSOUND[mechanism]
    assert (record.epsilon, record.delta, record.mu) == (None, None, None)
    assert "epsilon" not in str(record)
    assert "delta" not in str(record)
    assert record.summary() == f"none ({UNSOUND[mechanism]})"
    assert record.noise_source == ("none" if mechanism == "none" else "philox keyed by os entropy")
    assert record.not_protected == ("everything",)
    assert privacy.events(USERS) == [NonPrivateEvent()]
    assert privacy.plan(USERS) is None
    assert not privacy.sound
    assert PrivacyRecord.from_dict(record.to_dict()) == record


@pytest.mark.parametrize("mechanism", ["private_d", "first_layer_only", "gs_wgan"])
def test_seeded_noise_claims_nothing(mechanism: Mechanism) -> None:
    record = made(mechanism, noise_seed=3).record(USERS)
    assert (record.guarantee, record.reason, record.noise_source) == (Guarantee.NONE, "seeded noise", "seeded noise")
    assert (record.epsilon, record.delta, record.mu) == (None, None, None)
    assert made("first_layer_noise", noise_seed=3).record(USERS).noise_source == "seeded noise"


@pytest.mark.parametrize("mechanism", ["private_d", "gs_wgan"])
def test_fewer_steps_than_planned_cost_less(mechanism: Mechanism) -> None:
    privacy = made(mechanism)
    plan = privacy.plan(USERS)
    assert plan is not None
    whole, half = privacy.record(USERS), privacy.record(USERS, steps_taken=plan.steps // 2)
    assert half.epsilon is not None
    assert whole.epsilon is not None
    assert 0 < half.epsilon < 0.8 * whole.epsilon
    assert half.compositions == plan.steps // 2
    half.check_against([plan.event_after(plan.steps // 2)])
    with pytest.raises(UnderstatedPrivacyError, match="Do not use the release"):
        half.check_against([plan.event_after(plan.steps // 2 + 1)])


def test_what_was_done_to_the_data_before_is_named() -> None:
    for mechanism in ("private_d", "gs_wgan", "none"):
        record = made(mechanism).record(USERS, [Step("users with fewer than 5 ratings left out")])
        text = "earlier step: users with fewer than 5 ratings left out"
        assert text in record.sentences("assumptions")


def test_a_release_claims_what_was_spent_until_then() -> None:
    privacy = made("gs_wgan")
    plan = privacy.plan(USERS)
    assert plan is not None
    record, events = privacy.released(USERS, (), {}, counted(plan, 9, True))
    assert events == (plan.event_after(9),)
    assert (record.epsilon, record.compositions) == (pytest.approx(plan.epsilon_after(9), rel=1e-8), 9)
    record, _ = privacy.released(USERS, (), {}, counted(plan, 9, False))
    assert (record.guarantee, record.reason) == (Guarantee.NONE, "some of its steps were taken with seeded noise")
    record, events = made("none").released(USERS, (), {}, None)
    assert (record.guarantee, events) == (Guarantee.NONE, (NonPrivateEvent(),))
    record, _ = made("gs_wgan", noise_seed=1).released(USERS, (), {}, counted(plan, 9, False))
    assert record.reason == "seeded noise", "said once"


def test_delta_is_chosen_by_the_number_of_users() -> None:
    assert made("gs_wgan", delta=1e-3).sanitisation_plan(USERS).delta == 1e-3
    assert made("gs_wgan").sanitisation_plan(10**6).delta == 1e-7
    assert made("gs_wgan", delta=1e-4).sanitisation_plan(USERS).delta == 1e-4


@pytest.mark.parametrize(("steps", "n_critic", "generator"), [(50, 3, 17), (51, 3, 17), (1, 5, 1), (7, 1, 7)])
def test_the_generator_steps_once_after_so_many_critic_steps_and_once_at_the_end(
    steps: int, n_critic: int, generator: int
) -> None:
    assert made(steps=steps, n_critic=n_critic).generator_steps == generator
    assert made("gs_wgan", steps=steps, n_critic=n_critic).sanitisation_plan(USERS).steps == generator


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "gs_gan"}, r"mechanism must be one of \('private_d', .*, 'upstream_noise'\), got 'gs_gan'"),
        *(
            ({"mechanism": mechanism, "paper_faithful": False}, f"mechanism is '{mechanism}' and paper_faithful False")
            for mechanism in FAITHFUL
        ),
        *(
            ({"mechanism": mechanism, "paper_faithful": True}, f"mechanism is '{mechanism}' and paper_faithful True")
            for mechanism in ("private_d", "first_layer_only", "gs_wgan", "none")
        ),
        ({"steps": 0}, r"steps, sample_size and n_critic must be at least 1; got \(0, 40, 3\)"),
        ({"sample_size": 0}, r"must be at least 1; got \(50, 0, 3\)"),
        ({"n_critic": 0}, r"must be at least 1; got \(50, 40, 0\)"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_at_once(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(made(), **change)


@pytest.mark.parametrize(
    "mechanism", ["private_d", "first_layer_only", "gs_wgan", "first_layer_noise", "upstream_noise"]
)
def test_what_does_not_fit_the_number_of_users_is_refused(mechanism: Mechanism) -> None:
    def plan(privacy: GeneratorPrivacy) -> object:
        return privacy.sanitisation_plan(39) if mechanism == "gs_wgan" else privacy.training_plan(39)

    with pytest.raises(ValueError, match=r"sample_size 40 exceeds the 39 users.*Take a tenth"):
        plan(made(mechanism))
    for delta in (1 / 39, 0.5):
        with pytest.raises(ValueError, match=f"delta is {delta:g}. Allowed: below 1/39 .*Take 1e-05"):
            plan(made(mechanism, sample_size=4, delta=delta))


def test_a_reading_that_does_not_hold_is_warned_of_once() -> None:
    warn_once.cache_clear()
    with pytest.warns(UserWarning, match="SPPG with upstream_noise has no guarantee: the first layer's") as warned:
        made("upstream_noise").warn()
    assert "epsilon" not in str(warned[0].message)
    with pytest.warns(UserWarning, match="SPPG with first_layer_noise has no guarantee: all layers of the critic"):
        made("first_layer_noise").warn()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mechanism in (*FAITHFUL, "none", "private_d"):
            made(mechanism).warn()  # said already, or asked for, or not so
