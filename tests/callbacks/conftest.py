"""What tests of the budget share."""

from pathlib import Path

import pytest

from callbacks import PrivacyBudget
from tests.callbacks.budgets import PLAN, fitted
from zoo.privacy.training.generator_privacy import GeneratorPrivacy


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
