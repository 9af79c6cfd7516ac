"""The noise that a private training needs, against the specification's vectors and Opacus' accountants."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import NonPrivateEvent, PoissonSampledGaussianEvent, SelfComposedEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.training.dp_sgd import TrainingPlan, plan_training

RATE, DELTA = 128 / 1574, 1e-5


def planned(epsilon: float = 5.0, steps: int = 1000, rate: float = RATE, delta: float = DELTA) -> TrainingPlan:
    return plan_training(epsilon=epsilon, delta=delta, rate=rate, steps=steps, clip=1.0)


def by_hand(noise_multiplier: float, rate: float, steps: int, delta: float = DELTA) -> TrainingPlan:
    relation = Relation.ZERO_OUT_ONE_USER
    return TrainingPlan(
        noise_multiplier=noise_multiplier, clip=1.0, rate=rate, steps=steps, relation=relation, delta=delta
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("steps", "epsilon", "multiplier"),
    [
        (1000, 1.0, 9.679), (1000, 5.0, 2.436), (1000, 16.0, 1.114), (5000, 1.0, 21.611), (5000, 5.0, 5.196),
        (5000, 16.0, 2.104),
    ],
)  # fmt: skip
def test_vectors(steps: int, epsilon: float, multiplier: float) -> None:
    plan = planned(epsilon, steps)
    assert plan.noise_multiplier == pytest.approx(multiplier, rel=0.01)
    assert epsilon * 0.995 <= plan.epsilon <= epsilon
    assert plan.epsilon == plan.epsilon_after(steps) == epsilon_of([plan.event], DELTA, plan.relation)
    assert replace(plan, noise_multiplier=plan.noise_multiplier / 1.001).epsilon > epsilon


@pytest.mark.parametrize(
    ("epsilon", "settings"),
    [
        (0.5, {"steps": 7, "rate": 0.5}),
        (0.01, {"steps": 500, "rate": 0.01, "delta": 1e-7}),
        pytest.param(60.0, {"steps": 7, "rate": 0.5}, marks=pytest.mark.slow),
        pytest.param(0.5, {"steps": 20_000, "rate": 1e-4, "delta": 1e-8}, marks=pytest.mark.slow),
    ],
)
def test_no_plan_exceeds_what_was_asked_for(epsilon: float, settings: dict[str, float]) -> None:
    plan = planned(epsilon, **settings)
    assert 0.99 * epsilon <= plan.epsilon <= epsilon


def test_where_the_least_noise_is_enough_it_is_taken() -> None:
    assert planned(1e12, 1, 1.0).noise_multiplier == pytest.approx(0.01)


def test_all_users_in_one_step_is_the_gaussian_mechanism() -> None:
    plan = planned(1.0, 1, 1.0)
    assert plan.noise_multiplier == pytest.approx(1 / gauss_mu(1.0, DELTA), rel=1e-3)
    assert planned(1.0, 9, 1.0).noise_multiplier == pytest.approx(3 / gauss_mu(1.0, DELTA), rel=1e-3)


def test_more_of_anything_costs_more() -> None:
    def spent(multiplier: float = 2.0, rate: float = RATE, steps: int = 1000, delta: float = DELTA) -> float:
        return by_hand(multiplier, rate, steps, delta=delta).epsilon

    for costs in (
        [spent(multiplier) for multiplier in (4.0, 2.0)],
        [spent(steps=steps) for steps in (10, 1000)],
        [spent(rate=rate) for rate in (0.03, RATE, 1.0)],
        [spent(delta=delta) for delta in (1e-3, 1e-5)],
    ):
        assert all(less < more for less, more in pairwise(costs))


@pytest.mark.slow
def test_more_of_anything_needs_more_noise() -> None:
    multipliers = [planned(epsilon, 50, 0.2).noise_multiplier for epsilon in (8.0, 4.0, 2.0)]
    assert multipliers == sorted(multipliers)
    assert planned(4.0, 100, 0.2).noise_multiplier > multipliers[1]
    assert planned(4.0, 50, 0.3).noise_multiplier > multipliers[1]


def test_replacing_a_user_costs_more() -> None:
    zeroed = planned()
    replaced = replace(zeroed, relation=Relation.REPLACE_ONE_USER)
    assert replaced.epsilon > 1.5 * zeroed.epsilon
    plan = plan_training(epsilon=5.0, delta=DELTA, rate=RATE, steps=1000, clip=1.0, relation=Relation.REPLACE_ONE_USER)
    assert plan.epsilon <= 5.0
    assert plan.noise_multiplier > 1.5 * zeroed.noise_multiplier


def test_a_user_moves_a_sum_by_one_clip_or_by_two() -> None:
    zeroed = replace(planned(), clip=0.5)
    assert zeroed.sensitivity == 0.5
    assert replace(zeroed, relation=Relation.REPLACE_ONE_USER).sensitivity == 1.0


def test_opacus_agrees() -> None:
    from opacus.accountants import PRVAccountant
    from opacus.accountants.utils import get_noise_multiplier

    plan = planned()
    settings = {"target_epsilon": 5.0, "target_delta": DELTA, "sample_rate": RATE, "steps": 1000}
    renyi = get_noise_multiplier(**settings, accountant="rdp", epsilon_tolerance=1e-3)
    assert plan.noise_multiplier <= renyi <= 1.15 * plan.noise_multiplier
    accountant = PRVAccountant()  # asked once: its own search takes a minute
    accountant.history = [(plan.noise_multiplier, RATE, 1000)]
    assert accountant.get_epsilon(DELTA) == pytest.approx(plan.epsilon, rel=0.02)


def test_the_ledger_grows_with_the_steps() -> None:
    plan = planned()
    assert plan.event_after(3) == SelfComposedEvent(PoissonSampledGaussianEvent(plan.noise_multiplier, RATE), 3)
    assert plan.event == plan.event_after(1000)
    spent = [plan.epsilon_after(steps) for steps in (0, 1, 500, 1000)]
    assert spent[0] == 0
    assert spent == sorted(spent)
    assert spent[-1] == plan.epsilon


def test_a_plan_without_noise_has_no_epsilon_but_infinity() -> None:
    plan = by_hand(0.0, RATE, 10)
    assert plan.step_event == NonPrivateEvent()
    assert plan.epsilon == plan.epsilon_after(1) == math.inf
    assert plan.epsilon_after(0) == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is 0"),
        ({"delta": 1.0}, "delta is .*Allowed: "),
        ({"rate": 0.0}, "rate must lie in"),
        ({"rate": 1.5}, "rate must lie in"),
        ({"steps": 0}, "steps must be an integer"),
        ({"steps": 10.0}, "steps must be an integer"),
        ({"steps": True}, "steps must be an integer"),
        ({"clip": 0.0}, "clip must be finite and positive"),
        ({"clip": math.inf}, "clip must be finite and positive"),
        ({"relation": Relation.CHANGE_ONE_RATING}, "protects whole users"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, object], message: str) -> None:
    settings: dict[str, object] = {"epsilon": 1.0, "delta": DELTA, "rate": 0.1, "steps": 10, "clip": 1.0} | setting
    with pytest.raises(ValueError, match=message):
        plan_training(**settings)  # type: ignore[arg-type]
    settings.pop("epsilon")
    if "epsilon" not in setting:  # a plan that is made by hand
        relation = settings.pop("relation", Relation.ZERO_OUT_ONE_USER)
        with pytest.raises(ValueError, match=message):
            TrainingPlan(noise_multiplier=1.0, relation=relation, **settings)  # type: ignore[arg-type]


def test_multipliers_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="noise_multiplier must be"):
        by_hand(-1.0, 0.5, 1)
    with pytest.raises(ValueError, match=r"is unreachable with"):
        planned(1e-7, 10**6, 1.0)
