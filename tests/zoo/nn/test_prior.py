"""PriorDiscriminator: its losses against probabilities, and a game that codes win by becoming draws of the prior."""

import math

import pytest
import torch
from torch import nn

from zoo.nn.prior import PriorDiscriminator


def test_losses_are_the_cross_entropies_of_single_verdicts() -> None:
    torch.manual_seed(0)
    critic, codes = PriorDiscriminator(4), torch.randn(6, 4) * 3
    first, second = critic.layers[0], critic.layers[3]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)

    def verdict(code: torch.Tensor) -> float:
        hidden = [float((w @ code + b).detach().relu()) for w, b in zip(first.weight, first.bias, strict=True)]
        logit = sum(float(w.detach()) * h for w, h in zip(second.weight[0], hidden, strict=True)) + float(
            second.bias[0].detach()
        )
        return 1 / (1 + math.exp(-logit))

    assert len(first.bias) == 2
    real = [verdict(code) for code in codes]
    assert float(critic.loss_of(codes).detach()) == pytest.approx(-sum(math.log(p) for p in real), rel=1e-4)
    state = torch.get_rng_state()
    loss = float(critic.own_loss(codes).detach())
    torch.set_rng_state(state)
    drawn = [verdict(code) for code in torch.randn(6, 4)]
    expected = -sum(math.log(p) for p in drawn) - sum(math.log(1 - p) for p in real)
    assert loss == pytest.approx(expected, rel=1e-4)


def test_codes_come_nearer_to_the_prior() -> None:
    """They begin around 4 with a spread of 0.3; a game does not settle, so no more is asked than half the way."""
    torch.manual_seed(0)
    critic, codes = PriorDiscriminator(8), (4 + 0.3 * torch.randn(128, 8)).requires_grad_()
    learner, player = torch.optim.Adam(critic.parameters(), lr=5e-3), torch.optim.Adam([codes], lr=5e-2)
    for _ in range(200):
        learner.zero_grad()
        critic.own_loss(codes.detach()).backward()  # type: ignore[no-untyped-call]
        learner.step()
        player.zero_grad()
        critic.loss_of(codes).backward()  # type: ignore[no-untyped-call]
        player.step()
    assert float(codes.detach().mean().abs()) < 2


def test_of_nobody_there_is_nothing_to_tell_and_one_number_is_enough() -> None:
    critic = PriorDiscriminator(1)
    assert float(critic.own_loss(torch.zeros(0, 1)).detach()) == 0
    assert float(critic.loss_of(torch.zeros(0, 1)).detach()) == 0
    assert critic(torch.zeros(5, 1)).shape == (5,)
