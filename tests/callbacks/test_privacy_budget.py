"""PrivacyBudget: the epsilon it shows, the step it stops before, and what it is refused on."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
import torch
import yaml
from dp_accounting import get_epsilon_gaussian

from callbacks import PrivacyBudget
from datamodules import Synthetic
from tests.callbacks.budgets import PLAN, SIZES, SMALL, Epochs, fitted, reference, spender_of, trainer_of
from tests.zoo.privacy.training.critics import bare_plan
from zoo import DMF, SPPG
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.noisy_steps import NoisySteps
from zoo.privacy.training.sanitised_gradient import SanitisationPlan
from zoo.runs.cli import ZooCLI

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parent.parent.parent


def test_epsilon_stands_beside_the_loss_as_an_independent_accountant_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    epochs = Epochs()
    method, _ = fitted(PrivacyBudget(), epochs, epsilon=2.0)
    spender = spender_of(method)
    assert spender.steps_taken == 20
    for logged, bar, steps in zip(epochs.logged, epochs.bar, (9, 18, 20), strict=True):
        expected = reference(spender.plan, steps)
        assert expected <= logged["train/epsilon_zero_out_one_user"] <= 1.01 * expected
        assert spender.plan.epsilon_after(steps) <= logged["train/epsilon_zero_out_one_user"]
        assert logged["train/steps_left"] == 20 - steps
        assert {"train/loss", "train/epsilon_zero_out_one_user"} <= bar.keys()
        assert "train/steps_left" not in bar
    line = "Privacy budget used up: 20 steps, epsilon 2.00 of 2.00 at delta 1e-05 (zero_out_one_user), for the ratings "
    line += "that were read. The record states whether this is a guarantee, and its conditions.\n"
    assert line in capsys.readouterr().out


@pytest.mark.usefixtures("planned")
def test_nothing_else_is_logged() -> None:
    found = []
    for callbacks in ([], [PrivacyBudget(3.0)]):
        _, trainer = fitted(*callbacks, epochs=1)
        found.append(set(trainer.callback_metrics))
    assert found[1] - found[0] == {"train/epsilon_zero_out_one_user", "train/steps_left"}


@pytest.mark.usefixtures("planned")
def test_each_epsilon_is_computed_once_and_no_oftener_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    compute = TrainingPlan.epsilon_after

    def epsilon_after(plan: TrainingPlan, steps: int) -> float:
        asked.append(steps)
        return compute(plan, steps)

    monkeypatch.setattr(TrainingPlan, "epsilon_after", epsilon_after)
    fitted(PrivacyBudget(3.0))
    assert {9, 11} <= set(asked)
    assert len(asked) <= len(set(asked)) + 1, "that of the whole plan is kept by the plan"
    asked.clear()
    epochs = Epochs()
    fitted(PrivacyBudget(every=2), epochs)
    assert 9 not in asked
    shown = [logged.get("train/epsilon_zero_out_one_user") for logged in epochs.logged]
    assert shown == [None, pytest.approx(3.46), pytest.approx(3.60)], "the last epoch has one anyway"
    epochs = Epochs()
    fitted(PrivacyBudget(every=2), epochs, epochs=1)
    assert epochs.logged[-1]["train/epsilon_zero_out_one_user"] == pytest.approx(2.77), "also where epochs end it"


@pytest.mark.usefixtures("planned")
def test_single_precision_does_not_lower_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert float(torch.tensor(1.3)) < 1.3
    monkeypatch.setattr(TrainingPlan, "epsilon_after", lambda _plan, steps: 1.3 * steps / 9)
    epochs = Epochs()
    fitted(PrivacyBudget(), epochs, epochs=1)
    assert 1.3 <= epochs.logged[-1]["train/epsilon_zero_out_one_user"] < 1.300001


@pytest.mark.usefixtures("planned")
def test_noise_with_a_seed_shows_no_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    epochs = Epochs()
    with pytest.warns(UserWarning, match="is seeded or absent, so there is no epsilon") as warned:
        method, trainer = fitted(PrivacyBudget(3.0), epochs, noise_seed=3)
    assert sum("PrivacyBudget" in str(warning.message) for warning in warned) == 1
    assert spender_of(method).steps_taken == 11, "where it would end without a seed"
    assert len(epochs.logged) == 2
    for names in (*epochs.logged, *epochs.bar, trainer.logged_metrics):
        assert "train/epsilon_zero_out_one_user" not in names
    assert "epsilon" not in capsys.readouterr().out


def test_a_plan_without_noise_shows_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bare_plan(0.0, clip=1.0, steps=4, rate=0.1)
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: plan)
    epochs = Epochs()
    with pytest.warns(UserWarning, match="there is no epsilon"):
        fitted(PrivacyBudget(3.0), epochs)
    assert "train/epsilon_zero_out_one_user" not in epochs.logged[-1]


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(
    ("budget", "steps"), [(1.7, 1), (3.0, 11), (PLAN.epsilon_after(11), 11), (3.58, 19), (3.7, 20), (None, 20)]
)
def test_it_stops_after_the_last_step_within_the_budget(
    budget: float | None, steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    method, trainer = fitted(PrivacyBudget(budget))
    spender = spender_of(method)
    assert (spender.steps_taken, spender.steps_left, method.steps_left) == (steps, 0, 0)
    assert trainer.should_stop
    critic = next(iter(trainer.optimizers[0].state.values()))["step"]
    assert int(critic) == steps, "also within a batch of three"
    if budget is not None and steps < 20:
        assert reference(PLAN, steps) <= PLAN.epsilon_after(steps) <= budget < reference(PLAN, steps + 1)
    assert f"Privacy budget used up: {steps} steps, epsilon" in capsys.readouterr().out


def test_it_counts_the_generators_steps_where_those_have_the_noise(capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty critic steps, three before each of the generator's: seven of those are planned, of four rows each."""
    epochs = Epochs()
    method, trainer = fitted(PrivacyBudget(6.0), epochs, mechanism="gs_wgan")
    spender = spender_of(method)
    plan = spender.plan
    assert isinstance(plan, SanitisationPlan)
    costs = [get_epsilon_gaussian(plan.noise_multiplier / (2 * math.sqrt(4 * steps)), 1e-5) for steps in range(1, 8)]
    allowed = sum(cost <= 6.0 for cost in costs)
    assert 1 < allowed < 7
    assert (spender.steps_taken, spender.steps_left, method.steps_left) == (allowed, 0, 0)
    generator = next(iter(trainer.optimizers[1].state.values()))["step"]
    assert int(generator) == allowed
    assert (
        costs[allowed - 1]
        <= epochs.logged[-1]["train/epsilon_zero_out_one_user"]
        <= min(6.0, 1.01 * costs[allowed - 1])
    )
    assert "train/loss" not in epochs.logged[-1]
    assert f"Privacy budget used up: {allowed} steps, epsilon" in capsys.readouterr().out


class Restless(SPPG):
    """Does not end a training by itself."""

    def training_step(self, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        """Take the steps that are left."""
        super().training_step(batch, batch_idx)
        self.trainer.should_stop = False


@pytest.mark.usefixtures("planned")
def test_it_ends_the_training_of_a_method_that_does_not() -> None:
    method, trainer = fitted(PrivacyBudget(3.0), epochs=9, method=Restless(**SMALL))
    assert spender_of(method).steps_taken == 11
    assert trainer.current_epoch == 2


@pytest.mark.filterwarnings("ignore:PrivacyBudget")
@pytest.mark.usefixtures("planned")
def test_without_a_lower_budget_it_changes_nothing() -> None:
    """Bit by bit, where noise and samples have a seed."""
    weights = []
    for callbacks in ([], [PrivacyBudget()], [PrivacyBudget(100.0)]):
        method, _ = fitted(*callbacks, noise_seed=3)
        assert spender_of(method).steps_taken == 20
        weights.append(method.state_dict())
    for with_it in weights[1:]:
        assert all(torch.equal(values, with_it[name]) for name, values in weights[0].items())


@pytest.mark.filterwarnings("ignore:PrivacyBudget")
@pytest.mark.usefixtures("planned")
def test_with_a_lower_budget_it_only_ends_earlier() -> None:
    """The same bits as of a training whose plan has so many steps."""
    short, _ = fitted(PrivacyBudget(3.0), noise_seed=3)
    with pytest.MonkeyPatch.context() as patch:
        shorter = bare_plan(1.0, clip=1.0, steps=11, rate=0.1)
        patch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: shorter)
        planned_so, _ = fitted(noise_seed=3)
    assert all(torch.equal(values, planned_so.state_dict()[name]) for name, values in short.state_dict().items())


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_budget_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=rf"epsilon is {epsilon}\. It must be positive and finite\."):
        PrivacyBudget(epsilon)


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_a_bad_interval_is_refused(every: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=rf"every must be an integer of at least 1 \(epochs\); got {every}"):
        PrivacyBudget(every=every)


@pytest.mark.usefixtures("planned")
def test_a_budget_that_allows_no_step_is_refused_before_training() -> None:
    epochs = Epochs()
    with pytest.raises(ValueError, match=r"epsilon 1\.5 does not cover one step, planned at 1\.69\. Raise it"):
        fitted(PrivacyBudget(1.5), epochs)
    assert not epochs.logged


def test_who_takes_no_private_steps_is_refused_before_training() -> None:
    epochs = Epochs()
    with pytest.raises(TypeError, match=r"SPPG has no private steps\. .* omit"):
        fitted(PrivacyBudget(), epochs, mechanism="none")
    with pytest.raises(TypeError, match="DMF has no private steps"):
        trainer_of(PrivacyBudget(), epochs).fit(DMF(dims=(8, 4)), datamodule=Synthetic(**SIZES))
    module = torch.nn.Sequential(torch.nn.Linear(1, 1))
    module.private_gradient, module[0].other = (NoisySteps(PLAN, NoiseSource.os()) for _ in range(2))
    with pytest.raises(
        TypeError, match=r"Sequential has private steps besides private_gradient\..* counts only private_gradient"
    ):
        PrivacyBudget().on_fit_start(SimpleNamespace(), module)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="no setter"):
        module.private_gradient.plan = PLAN
    assert not epochs.logged


@pytest.mark.usefixtures("planned")
def test_a_second_one_is_refused() -> None:
    with pytest.raises(RuntimeError, match="more than one stateful callback of type `PrivacyBudget`"):
        trainer_of(PrivacyBudget(), PrivacyBudget(1.0))


@pytest.mark.usefixtures("planned", "zoo_data")
def test_it_is_added_by_name_and_is_part_of_the_experiment(cli: Callable[..., ZooCLI]) -> None:
    small = ("--model.sample_size", "2", "--model.steps", "20", "--trainer.max_epochs", "20")
    added = ("--trainer.callbacks+=PrivacyBudget", "--trainer.callbacks.epsilon", "3.0")
    run = cli("fit", "--config", ROOT / "configs/sppg/douban.yaml", *small, *added)
    folder = Path(str(run.trainer.log_dir))
    assert run.model.steps_left == 0
    figures = pl.read_csv(folder / "metrics.csv")["train/epsilon_zero_out_one_user"].drop_nulls().to_list()
    assert figures == sorted(figures)
    assert figures[-1] == pytest.approx(2.94, abs=1e-6)
    settings = yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["callbacks"]
    (kept,) = (entry["init_args"] for entry in settings if entry["class_path"].endswith("PrivacyBudget"))
    assert kept == {"epsilon": 3.0, "every": 1}
