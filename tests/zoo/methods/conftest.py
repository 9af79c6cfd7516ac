"""What tests of SPPG share."""

import pytest

from tests.zoo.privacy.training.critics import bare_plan
from zoo.privacy.training.generator_privacy import GeneratorPrivacy


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search for the noise."""
    plan = bare_plan(2.0, clip=1.0, rate=0.2)
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: plan)
