"""Plans of sanitised gradients: the noise that so many steps need, against independent accountants."""

import math
from dataclasses import replace
from typing import Any

import dp_accounting
import numpy as np
import pytest
from scipy.stats import norm

from zoo.privacy.accounting.accountant import Accountant, epsilon_of
from zoo.privacy.accounting.events import GaussianEvent, SelfComposedEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.training.sanitised_gradient import SanitisationPlan, plan_sanitisation

SETTINGS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "rows": 128, "steps": 1000, "clip": 1.0}
PLAN = plan_sanitisation(**SETTINGS)


def delta_of(epsilon: float, mu: float) -> float:
    """The curve of one Gaussian release (Balle & Wang, ICML 2018), by scipy."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(
    ("steps", "epsilon", "noise_multiplier"),
    [(1000, 1, 2669.4), (1000, 5, 638.2), (1000, 16, 246.3), (5000, 1, 5969.0), (5000, 5, 1427.0), (5000, 16, 550.7)],
)
def test_the_noise_is_that_of_the_papers_setting(steps: int, epsilon: float, noise_multiplier: float) -> None:
    """128 rows a step at delta 1e-5, the critic trained on everybody: two orders of magnitude above DP-SGD's."""
    plan = plan_sanitisation(**(SETTINGS | {"steps": steps, "epsilon": epsilon}))
    assert plan.noise_multiplier == pytest.approx(noise_multiplier, abs=0.05)
    assert delta_of(epsilon, 2 * math.sqrt(128 * steps) / plan.noise_multiplier) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(("rows", "steps", "epsilon"), [(1, 1, 0.5), (1, 1000, 8.0), (8, 60, 8.0), (128, 60, 0.5)])
def test_all_steps_are_one_gaussian_release(rows: int, steps: int, epsilon: float) -> None:
    plan = plan_sanitisation(epsilon=epsilon, delta=1e-6, rows=rows, steps=steps, clip=0.3)
    mu = 2 * math.sqrt(rows * steps) / plan.noise_multiplier
    reference = dp_accounting.get_sigma_gaussian(epsilon, 1e-6) * 2 * math.sqrt(rows * steps)
    assert plan.noise_multiplier == pytest.approx(reference, rel=1e-9)
    assert plan.mu_after(steps) == pytest.approx(mu, rel=1e-12)
    assert plan.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert plan.epsilon <= epsilon * (1 + 1e-9)
    accountant = Accountant(plan.relation).compose(plan.event_after(steps))
    assert accountant.mu == pytest.approx(mu, rel=1e-9)


def test_the_noise_does_not_depend_on_the_clip_and_the_sensitivity_does() -> None:
    """Clipping at C moves a row by at most 2C, and all rows by ``2C sqrt(rows)``: brute force over the worst rows."""
    plans = [plan_sanitisation(**(SETTINGS | {"clip": clip})) for clip in (0.01, 1.0, 30.0)]
    assert len({plan.noise_multiplier for plan in plans}) == 1
    for plan in plans:
        rows = np.full((plan.rows, 1), plan.clip)
        assert plan.sensitivity == pytest.approx(float(np.linalg.norm(rows - -rows)), rel=1e-12)


def test_fewer_steps_spend_less_and_none_nothing() -> None:
    spent = [PLAN.epsilon_after(steps) for steps in (0, 1, 10, 500, 1000)]
    assert spent[0] == 0
    assert spent == sorted(spent)
    assert spent[-1] == PLAN.epsilon
    assert delta_of(spent[3], PLAN.mu_after(500)) == pytest.approx(1e-5, rel=1e-4)
    event = PLAN.event_after(500)
    assert event == SelfComposedEvent(GaussianEvent(PLAN.noise_multiplier / (2 * math.sqrt(128))), 500)
    assert epsilon_of([event], 1e-5, PLAN.relation) == spent[3]


def test_both_relations_between_users_cost_the_same() -> None:
    """What a row's gradient was and what it is are both within the clip, wherever the user's data went."""
    plans = [
        plan_sanitisation(**SETTINGS, relation=relation)
        for relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER)
    ]
    assert plans[0].noise_multiplier == plans[1].noise_multiplier
    assert plans[0].epsilon == plans[1].epsilon


def test_its_settings_are_all_that_makes_it() -> None:
    settings = PLAN.settings()
    relation = Relation(settings.pop("relation"))
    assert SanitisationPlan(**settings, relation=relation) == PLAN  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is"),
        ({"rows": 0}, "rows must be an integer >= 1, got 0"),
        ({"rows": 2.0}, r"rows must be an integer >= 1, got 2\.0"),
        ({"clip": math.inf}, "clip must be finite and positive, got inf"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_sanitisation(**(SETTINGS | change))


@pytest.mark.parametrize("noise_multiplier", [0.0, -1.0, math.inf, math.nan])
def test_no_plan_is_without_noise(noise_multiplier: float) -> None:
    with pytest.raises(ValueError, match="noise_multiplier must be finite and positive"):
        replace(PLAN, noise_multiplier=noise_multiplier)
