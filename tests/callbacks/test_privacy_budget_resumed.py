"""PrivacyBudget over several runs: what a resumed one is held to, and by which other checkpoints it is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from callbacks import PrivacyBudget
from datamodules import Synthetic
from tests.callbacks.budgets import PLAN, SIZES, SMALL, Epochs, fitted, spender_of, trainer_of
from zoo import SPPG

pytestmark = pytest.mark.thorough


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A checkpoint with another state of the callback."""
    checkpoint = torch.load(path, weights_only=True)
    change(checkpoint["callbacks"]["PrivacyBudget"])
    torch.save(checkpoint, path.with_name("rewritten.ckpt"))
    return path.with_name("rewritten.ckpt")


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
    assert spender_of(method).events() == (PLAN.event,)


def test_it_may_be_added_to_a_training_that_had_none(planned: None, tmp_path: Path) -> None:
    _, trainer = fitted(epochs=1)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    method, _ = fitted(PrivacyBudget(3.0), ckpt=tmp_path / "half.ckpt")
    assert spender_of(method).steps_taken == 11


def test_a_lower_budget_is_kept_and_one_that_is_spent_refused(half: Path) -> None:
    method, _ = fitted(PrivacyBudget(2.9), ckpt=half)
    assert spender_of(method).steps_taken == 10
    with pytest.raises(
        ValueError, match=r"epsilon 2 does not cover the 9 steps taken so far, planned at 2\.77\. Raise"
    ):
        fitted(PrivacyBudget(2.0), ckpt=half)


@pytest.mark.parametrize("budget", [3.01, None])
def test_a_higher_budget_than_was_promised_is_refused(half: Path, budget: float | None) -> None:
    with pytest.raises(ValueError, match=rf"cannot resume: the budget was 3\.0 and is {budget}\. Restore"):
        fitted(PrivacyBudget(budget), ckpt=half)


def test_budgets_above_the_plan_are_the_same(half: Path) -> None:
    ckpt = rewritten(half, lambda state: state.update(epsilon=None))
    method, _ = fitted(PrivacyBudget(50.0), ckpt=ckpt)
    assert spender_of(method).steps_taken == 20


def test_other_settings_are_refused_one_by_one_with_both_values(half: Path) -> None:
    with pytest.raises(ValueError, match="mechanism is private_d, this run's is first_layer_only"):
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
    with pytest.raises(ValueError, match="cannot resume: 9 steps were taken and 4 are counted"):
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
    with pytest.raises(ValueError, match=r"11 steps were taken and 0 are counted\. .* train anew"):
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
