"""Steps of a critic: which mechanism takes which."""

from typing import Any

import pytest
import torch

from tests.zoo.privacy.training.critics import HUGE, USERS, Losses, SmallCritic, bare_plan, some_rows
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.training.critic_steps import CriticSteps
from zoo.privacy.training.generator_privacy import GeneratorPrivacy, Mechanism
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.published_readings import FirstLayerNoise, UpstreamNoise

EVERYBODY = torch.arange(USERS)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search for the noise."""
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: bare_plan(0.0, clip=HUGE, rate=0.5))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("mechanism", "kind", "frozen"),
    [
        ("private_d", PrivateGradient, False),
        ("first_layer_only", PrivateGradient, True),
        ("first_layer_noise", FirstLayerNoise, False),
        ("upstream_noise", UpstreamNoise, False),
    ],
)
def test_without_noise_and_clip_every_mechanism_takes_the_ordinary_step(
    mechanism: Mechanism, kind: type[Any], frozen: bool
) -> None:
    torch.manual_seed(0)
    losses = Losses(SmallCritic(), some_rows())
    critic = losses.critic
    assert isinstance(critic, SmallCritic)
    privacy = GeneratorPrivacy(
        mechanism, 1.0, None, Relation.ZERO_OUT_ONE_USER, 1.0, 10, 20, 1, paper_faithful=kind is not PrivateGradient
    )
    steps = CriticSteps(privacy)
    steps.begin(USERS, critic, critic.first, (critic.condition, critic.rest))
    assert isinstance(steps.gradient, kind)
    names = dict(critic.named_parameters())
    assert {name for name, parameter in names.items() if not parameter.requires_grad} == (
        {name for name in names if not name.startswith("first")} if frozen else set()
    )
    steps.gradient(EVERYBODY, losses)
    found = {name: parameter.grad.clone() for name, parameter in names.items() if parameter.grad is not None}
    critic.zero_grad()
    (losses(EVERYBODY).sum() / steps.sampler.expected_size).backward()
    for name, gradient in found.items():
        assert torch.allclose(gradient, names[name].grad, atol=1e-6), name  # type: ignore[arg-type]
    assert found.keys() == {name for name in names if names[name].requires_grad}


@pytest.mark.parametrize("going_on", [True, False])
def test_steps_that_were_taken_stay_taken(going_on: bool) -> None:
    steps = CriticSteps(GeneratorPrivacy("none", 1.0, None, Relation.ZERO_OUT_ONE_USER, 1.0, 10, 20, 1))
    for critic_steps, taken in ((7, 7), (3, 7), (9, 9)):
        state = {"mechanism": "none", "critic_steps": critic_steps, "private": None, "place": None}
        steps.load_state_dict(state, going_on=going_on)
        assert (steps.taken, steps.left) == (taken, 10 - taken)
    assert steps.state_dict() == state


def test_noise_with_a_seed_of_an_older_checkpoint_is_refused_where_it_would_be_drawn_again() -> None:
    state = {"mechanism": "upstream_noise", "critic_steps": 3, "private": None}
    relation = Relation.ZERO_OUT_ONE_USER
    privacy = GeneratorPrivacy("upstream_noise", 1.0, None, relation, 1.0, 10, 20, 1, noise_seed=3, paper_faithful=True)
    steps, critic = CriticSteps(privacy), SmallCritic()
    steps.begin(USERS, critic, critic.first, (critic.condition, critic.rest))
    steps.load_state_dict(state, going_on=False)
    steps.load_state_dict(state | {"critic_steps": 0}, going_on=True)
    with pytest.raises(ValueError, match=r"no position of its seeded noise.*Train anew"):
        steps.load_state_dict(state, going_on=True)
