"""PrivacyBudget: the epsilon it shows, the step it stops before, what it holds a resumed run to, and what it is refused on."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import yaml
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Callback

from callbacks import PrivacyBudget
from callbacks.privacy_budget import Spender, most_steps
from datamodules import Synthetic
from tests.zoo.privacy.training.critics import Losses, SmallCritic, bare_plan, some_rows
from zoo import DMF, SPPG
from zoo.commands.cli import ZooCLI
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.noisy_steps import BudgetSpentError
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.sanitisation import SanitisationPlan
from zoo.privacy.training.sanitised_gradient import SanitisedGradient

ROOT = Path(__file__).parent.parent.parent
# Three batches an epoch with three private steps each: 9, 18 and 20 steps are taken after the first epochs.
SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}
SMALL: dict[str, Any] = {
    "steps": 20, "sample_size": 4, "n_critic": 3, "condition_dim": 4, "generator_dims": (8,), "critic_dims": (8, 4),
}  # fmt: skip
PLAN = bare_plan(1.0, clip=1.0, steps=20, rate=0.1)


class Epochs(Callback):
    """Keeps what is logged by the end of each epoch, and what of it stands in the progress bar."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []
        self.bar: list[dict[str, Any]] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep it; stands behind the callback at hand."""
        self.logged.append({name: float(value) for name, value in trainer.callback_metrics.items()})
        self.bar.append(dict(trainer.progress_bar_metrics))


def trainer_of(*callbacks: Callback, epochs: int = 20, **settings: Any) -> Trainer:  # noqa: ANN401
    return Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, callbacks=[*callbacks], **settings,
    )  # fmt: skip


def spender_of(method: SPPG) -> PrivateGradient | SanitisedGradient:
    assert method.private_gradient is not None
    _: Spender = method.private_gradient  # for mypy: it is one
    return method.private_gradient


def fitted(
    *callbacks: Callback,
    ckpt: Path | None = None,
    epochs: int = 20,
    method: SPPG | None = None,
    **settings: Any,  # noqa: ANN401
) -> tuple[SPPG, Trainer]:
    """A training, from the beginning or from a checkpoint on."""
    seed_everything(0)
    method = SPPG(**(SMALL | settings)) if method is None else method
    trainer = trainer_of(*callbacks, epochs=epochs)
    trainer.fit(method, datamodule=Synthetic(**SIZES), ckpt_path=ckpt, weights_only=True if ckpt else None)
    return method, trainer


def reference(plan: TrainingPlan, steps: int) -> float:
    """Epsilon by dp_accounting's own accountant, a finer one than ours."""
    accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
    event = PoissonSampledDpEvent(plan.rate, GaussianDpEvent(plan.noise_multiplier))
    return float(accountant.compose(event, steps).get_epsilon(plan.delta))


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search for the noise: 11 steps cost 2.94, 12 cost 3.02, all 20 cost 3.59."""
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: PLAN)


@pytest.fixture
def half(planned: None, tmp_path: Path) -> Path:
    """The checkpoint of the first epoch of a training with a budget of 3: 9 steps."""
    _, trainer = fitted(PrivacyBudget(3.0), epochs=1)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    return tmp_path / "half.ckpt"


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A checkpoint with another state of the callback."""
    checkpoint = torch.load(path, weights_only=True)
    change(checkpoint["callbacks"]["PrivacyBudget"])
    torch.save(checkpoint, path.with_name("rewritten.ckpt"))
    return path.with_name("rewritten.ckpt")


# What it shows.


def test_epsilon_stands_beside_the_loss_as_an_independent_accountant_has_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    epochs = Epochs()
    method, _ = fitted(PrivacyBudget(), epochs, epsilon=2.0)
    spender = spender_of(method)
    assert spender.steps_taken == 20
    for logged, bar, steps in zip(epochs.logged, epochs.bar, (9, 18, 20), strict=True):
        expected = reference(spender.plan, steps)
        assert expected <= logged["train/epsilon"] <= 1.01 * expected
        assert spender.plan.epsilon_after(steps) <= logged["train/epsilon"]
        assert logged["train/steps_left"] == 20 - steps
        assert {"train/loss", "train/epsilon"} <= bar.keys()
        assert "train/steps_left" not in bar
    line = "Privacy budget used up: 20 steps, epsilon 2.00 of 2.00 at delta 1e-05 (zero_out_one_user)\n"
    assert line in capsys.readouterr().out


@pytest.mark.usefixtures("planned")
def test_nothing_else_is_logged() -> None:
    found = []
    for callbacks in ([], [PrivacyBudget(3.0)]):
        _, trainer = fitted(*callbacks, epochs=1)
        found.append(set(trainer.callback_metrics))
    assert found[1] - found[0] == {"train/epsilon", "train/steps_left"}


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
    shown = [logged.get("train/epsilon") for logged in epochs.logged]
    assert shown == [None, pytest.approx(3.46), pytest.approx(3.60)], "the last epoch has one anyway"
    epochs = Epochs()
    fitted(PrivacyBudget(every=2), epochs, epochs=1)
    assert epochs.logged[-1]["train/epsilon"] == pytest.approx(2.77), "also where epochs end it"


@pytest.mark.usefixtures("planned")
def test_single_precision_does_not_lower_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert float(torch.tensor(1.3)) < 1.3
    monkeypatch.setattr(TrainingPlan, "epsilon_after", lambda _plan, steps: 1.3 * steps / 9)
    epochs = Epochs()
    fitted(PrivacyBudget(), epochs, epochs=1)
    assert 1.3 <= epochs.logged[-1]["train/epsilon"] < 1.300001


@pytest.mark.usefixtures("planned")
def test_noise_with_a_seed_shows_no_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    epochs = Epochs()
    with pytest.warns(UserWarning, match="has a seed, or there is none, so nothing is guaranteed") as warned:
        method, trainer = fitted(PrivacyBudget(3.0), epochs, noise_seed=3)
    assert sum("PrivacyBudget" in str(warning.message) for warning in warned) == 1
    assert spender_of(method).steps_taken == 11, "where it would end without a seed"
    assert len(epochs.logged) == 2
    for names in (*epochs.logged, *epochs.bar, trainer.logged_metrics):
        assert "train/epsilon" not in names
    assert "epsilon" not in capsys.readouterr().out


def test_a_plan_without_noise_shows_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bare_plan(0.0, clip=1.0, steps=4, rate=0.1)
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: plan)
    epochs = Epochs()
    with pytest.warns(UserWarning, match="no epsilon is shown"):
        fitted(PrivacyBudget(3.0), epochs)
    assert "train/epsilon" not in epochs.logged[-1]


# Where it stops.


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
        assert reference(PLAN, steps) <= spender.epsilon_spent <= budget < reference(PLAN, steps + 1)
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
    assert costs[allowed - 1] <= epochs.logged[-1]["train/epsilon"] <= min(6.0, 1.01 * costs[allowed - 1])
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


@given(
    costs=st.lists(st.floats(0, 10), min_size=1, max_size=60).map(sorted),
    budget=st.one_of(st.floats(0, 10), st.just(math.inf)),
)
def test_the_most_steps_within_a_budget_are_found(costs: list[float], budget: float) -> None:
    asked = []

    def cost(steps: int) -> float:
        asked.append(steps)
        assert 1 <= steps <= len(costs)
        return costs[steps - 1]

    found = most_steps(cost, budget, len(costs))
    assert found == sum(value <= budget for value in costs)
    assert len(asked) == len(set(asked)) <= math.ceil(math.log2(len(costs) + 1))


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


# What goes on.


def test_a_resumed_run_ends_where_an_unbroken_one_does(half: Path) -> None:
    state = torch.load(half, weights_only=True)["callbacks"]["PrivacyBudget"]
    assert (state["epsilon"], state["steps_taken"]) == (3.0, 9)
    assert state["settings"].items() >= {"mechanism": "private_d", "noise_multiplier": 1.0, "private": True}.items()
    epochs = Epochs()
    method, trainer = fitted(PrivacyBudget(3.0), epochs, ckpt=half)
    unbroken, _ = fitted(PrivacyBudget(3.0))
    assert spender_of(method).steps_taken == spender_of(unbroken).steps_taken == 11
    assert [logged["train/steps_left"] for logged in epochs.logged] == [0]
    trainer.save_checkpoint(half.with_name("whole.ckpt"))
    method, trainer = fitted(PrivacyBudget(3.0), ckpt=half.with_name("whole.ckpt"))
    assert spender_of(method).steps_taken == 11
    assert trainer.current_epoch == 2, "no further epoch"


def test_without_it_a_resumed_run_ends_with_the_plan(half: Path) -> None:
    with pytest.warns(UserWarning, match=r"Please add the following callbacks: .*PrivacyBudget"):
        method, _ = fitted(ckpt=half)
    assert spender_of(method).steps_taken == 20
    assert spender_of(method).epsilon_spent == PLAN.epsilon


def test_it_may_be_added_to_a_training_that_had_none(planned: None, tmp_path: Path) -> None:
    _, trainer = fitted(epochs=1)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    method, _ = fitted(PrivacyBudget(3.0), ckpt=tmp_path / "half.ckpt")
    assert spender_of(method).steps_taken == 11


def test_a_lower_budget_is_kept_and_one_that_is_spent_refused(half: Path) -> None:
    method, _ = fitted(PrivacyBudget(2.9), ckpt=half)
    assert spender_of(method).steps_taken == 10
    with pytest.raises(
        ValueError, match=r"epsilon 2 does not cover the 9 steps taken so far, planned at 2\.77\. Allow"
    ):
        fitted(PrivacyBudget(2.0), ckpt=half)


@pytest.mark.parametrize("budget", [3.01, None])
def test_a_higher_budget_than_was_promised_is_refused(half: Path, budget: float | None) -> None:
    with pytest.raises(ValueError, match=rf"another promise: the budget was 3\.0 and is {budget}\. Go on"):
        fitted(PrivacyBudget(budget), ckpt=half)


def test_budgets_above_the_plan_are_the_same(half: Path) -> None:
    ckpt = rewritten(half, lambda state: state.update(epsilon=None))
    method, _ = fitted(PrivacyBudget(50.0), ckpt=ckpt)
    assert spender_of(method).steps_taken == 20


def test_other_settings_are_refused_one_by_one_with_both_values(half: Path) -> None:
    with pytest.raises(ValueError, match="trained with private_d, not first_layer_only; train anew"):
        fitted(PrivacyBudget(3.0), ckpt=half, mechanism="first_layer_only")
    with pytest.raises(ValueError, match=r"noise_seed was None and is 3, private was True and is False"):
        fitted(PrivacyBudget(3.0), ckpt=half, noise_seed=3)
    ckpt = rewritten(half, lambda state: state["settings"].update(noise_multiplier=2.0, clip=0.5))
    with pytest.raises(ValueError, match=r"clip was 0\.5 and is 1\.0, noise_multiplier was 2\.0 and is 1\.0"):
        fitted(PrivacyBudget(3.0), ckpt=ckpt)


class Forgetful(SPPG):
    """Begins its count anew with every checkpoint."""

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Forget what was spent."""
        checkpoint["zoo"]["spent"]["private"]["steps_taken"] = 4
        super().on_load_checkpoint(checkpoint)


def test_a_count_that_fell_is_refused(half: Path) -> None:
    with pytest.raises(ValueError, match="promise: 9 steps were taken and 4 are counted"):
        fitted(PrivacyBudget(3.0), ckpt=half, method=Forgetful(**SMALL))


@pytest.mark.usefixtures("planned")
def test_a_second_fit_counts_on() -> None:
    callback = PrivacyBudget(3.0)
    method, _ = fitted(callback, epochs=1)
    assert spender_of(method).steps_taken == 9
    fitted(callback, method=method)
    assert spender_of(method).steps_taken == 11
    fitted(callback, method=method)
    assert spender_of(method).steps_taken == 11
    with pytest.raises(ValueError, match=r"11 steps were taken and 0 are counted\. .* begin anew with a new callback"):
        fitted(callback)
    fitted(PrivacyBudget(3.5), method=method)
    assert spender_of(method).steps_taken == 11, "nor does another callback raise a limit"


def test_a_checkpoint_that_is_looked_at_promises_nothing(half: Path) -> None:
    callback = PrivacyBudget(3.0)
    ckpt = rewritten(half, lambda state: state.update(epsilon=1.0, steps_taken=20))
    method = SPPG(**SMALL)
    trainer_of(callback).test(method, datamodule=Synthetic(**SIZES), ckpt_path=ckpt, weights_only=True, verbose=False)
    fitted(callback, method=method)
    assert spender_of(method).steps_taken == 11


# What it is refused on.


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_budget_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match=rf"epsilon must be positive and finite, got {epsilon}\. Take null"):
        PrivacyBudget(epsilon)


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_a_bad_interval_is_refused(every: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=rf"every must be an integer of at least 1, a number of epochs; got {every}"):
        PrivacyBudget(every=every)


@pytest.mark.usefixtures("planned")
def test_a_budget_that_allows_no_step_is_refused_before_training() -> None:
    epochs = Epochs()
    with pytest.raises(
        ValueError, match=r"epsilon 1\.5 does not cover one step, planned at 1\.69\. Allow at least that"
    ):
        fitted(PrivacyBudget(1.5), epochs)
    assert not epochs.logged


def test_who_takes_no_private_steps_is_refused_before_training() -> None:
    epochs = Epochs()
    with pytest.raises(
        TypeError, match=r"needs a method that takes private steps, and this SPPG takes none\. .* leave"
    ):
        fitted(PrivacyBudget(), epochs, mechanism="none")
    with pytest.raises(TypeError, match="this DMF takes none"):
        trainer_of(PrivacyBudget(), epochs).fit(DMF(dims=(8, 4)), datamodule=Synthetic(**SIZES))
    assert not epochs.logged


@pytest.mark.usefixtures("planned")
def test_a_second_one_is_refused() -> None:
    with pytest.raises(RuntimeError, match="more than one stateful callback of type `PrivacyBudget`"):
        trainer_of(PrivacyBudget(), PrivacyBudget(1.0))


# The limit of a private gradient.


def test_a_limit_is_kept_to_and_never_raised() -> None:
    critic, nobody = SmallCritic(), torch.tensor([], dtype=torch.int64)
    losses = Losses(critic, some_rows())
    gradient = PrivateGradient(critic, PLAN, 4.0, NoiseSource.os())
    assert gradient.steps_left == 20
    gradient.limit(100)
    assert gradient.steps_left == 20
    gradient.limit(3)
    gradient.limit(5)
    for left in (2, 1, 0):
        gradient(nobody, losses)
        assert gradient.steps_left == left
    with pytest.raises(
        BudgetSpentError, match="The 3 steps that this run is limited to were taken, of 20 planned ones"
    ):
        gradient(nobody, losses)
    assert gradient.steps_taken == 3
    gradient.limit(1)
    assert gradient.steps_left == 0, "never below none"
    other = PrivateGradient(critic, PLAN, 4.0, NoiseSource.os())
    other.load_state_dict(gradient.state_dict())
    assert (other.steps_taken, other.steps_left) == (3, 17), "a limit is no part of the state"


@pytest.mark.parametrize("steps", [-1, 1.0, True])
def test_a_bad_limit_is_refused(steps: Any) -> None:  # noqa: ANN401
    gradient = PrivateGradient(SmallCritic(), PLAN, 4.0, NoiseSource.os())
    with pytest.raises(ValueError, match=f"steps must be an integer of at least 0, got {steps}"):
        gradient.limit(steps)
    assert gradient.steps_left == 20


# From the command line.


@pytest.mark.usefixtures("planned", "zoo_data")
def test_it_is_added_by_name_and_is_part_of_the_experiment(cli: Callable[..., ZooCLI]) -> None:
    small = ("--model.sample_size", "2", "--model.steps", "20", "--trainer.max_epochs", "20")
    added = ("--trainer.callbacks+=PrivacyBudget", "--trainer.callbacks.epsilon", "3.0")
    run = cli("fit", "--config", ROOT / "configs/sppg/douban.yaml", *small, *added)
    folder = Path(str(run.trainer.log_dir))
    assert run.model.steps_left == 0
    figures = pl.read_csv(folder / "metrics.csv")["train/epsilon"].drop_nulls().to_list()
    assert figures == sorted(figures)
    assert figures[-1] == pytest.approx(2.94, abs=1e-6)
    settings = yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["callbacks"]
    (kept,) = (entry["init_args"] for entry in settings if entry["class_path"].endswith("PrivacyBudget"))
    assert kept == {"epsilon": 3.0, "every": 1}
