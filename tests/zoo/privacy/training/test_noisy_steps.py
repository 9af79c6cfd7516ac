"""Noisy steps: the limit below the plan, and which steps are counted."""

from typing import Any

import pytest
import torch

from tests.zoo.privacy.training.critics import Losses, SmallCritic, bare_plan, some_rows
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.noisy_steps import BudgetSpentError
from zoo.privacy.training.private_gradient import PrivateGradient

PLAN = bare_plan(1.0, clip=1.0, steps=20, rate=0.1)


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
    with pytest.raises(BudgetSpentError, match=r"The limit of 3 steps is reached \(planned: 20\)"):
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
    with pytest.raises(ValueError, match=f"steps must be an integer >= 0, got {steps}"):
        gradient.limit(steps)
    assert gradient.steps_left == 20
