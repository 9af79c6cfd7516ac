"""CFGAN: which zeros enter where, both losses by hand, and a pattern that it must learn."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from callbacks import GANStabilizer
from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import CFGAN
from zoo.data.batch_types import UserBatch
from zoo.data.rows import Bags
from zoo.methods.cfgan import ACTIVATIONS, Activation, RowPerceptron, Scheme, sampled_zeros

SMALL: dict[str, Any] = {"generator_dims": (8, 8), "discriminator_dims": (4,)}
USERS = torch.tensor([5, 0, 119])


class Spied:
    """Keeps the rows that a method's discriminator reads."""

    def __init__(self, method: CFGAN) -> None:
        self.seen: list[Tensor] = []
        method.discriminator.register_forward_pre_hook(lambda _, inputs: self.seen.append(inputs[1].detach()))


def realness(method: CFGAN, rows: Tensor) -> Tensor:
    """What the discriminator says, layer by layer, of dense rows under the users' own rows."""
    both = torch.cat([method.target_rows.dense(USERS), rows], dim=1)
    first, last = method.discriminator.first, method.discriminator.rest[0]
    hidden = torch.tanh(both @ first.weight + first.bias)
    return F.linear(hidden, last.weight, last.bias).squeeze(1)


def test_samples_are_zeros_fresh_and_as_many_as_asked() -> None:
    """200 rows of 990 zeros at .3: the share's standard deviation is .001, the bounds are ten of them."""
    torch.manual_seed(0)
    purchased = torch.zeros(200, 1000)
    purchased[:, :10] = 1
    sample, another = sampled_zeros(purchased, 0.3), sampled_zeros(purchased, 0.3)
    assert set(sample.unique().tolist()) == {0.0, 1.0}
    assert not (sample * purchased).any()
    assert 0.29 < float(sample[:, 10:].mean()) < 0.31
    assert 0.08 < float((sample * another)[:, 10:].mean()) < 0.10, "drawn anew, and apart from the first"
    assert not sampled_zeros(purchased, 0.0).any()
    assert torch.equal(sampled_zeros(purchased, 1.0), 1 - purchased)


@pytest.mark.parametrize("scheme", ["ZR", "PM", "ZP"])
def test_which_zeros_the_discriminator_sees(scheme: Scheme) -> None:
    method, _ = fitted(CFGAN(scheme, pm_ratio=0.5, **SMALL), 0)
    purchased = method.target_rows.dense(USERS)
    spied = Spied(method)
    for _ in range(2):
        method.discriminator_step(UserBatch(USERS))
        method.step(UserBatch(USERS))
    rows = method.score_all(USERS).detach()
    real, *fakes = spied.seen[:3]
    fakes += spied.seen[4:]
    assert torch.equal(real, purchased), "real rows are not masked"
    for fake in fakes:
        shown = fake != 0
        assert torch.allclose(fake[shown], rows[shown], atol=1e-6)
        assert shown[purchased > 0].all(), "purchases are always shown"
        share = float(shown[purchased == 0].float().mean())
        assert share == 0 if scheme == "ZR" else 0.25 < share < 0.75
    fresh = any(not torch.equal(fake != 0, fakes[0] != 0) for fake in fakes[1:])
    assert fresh == (scheme != "ZR")


def test_the_discriminators_loss_is_logistic() -> None:
    method, _ = fitted(CFGAN("ZR", discriminator_activation="tanh", **SMALL), 0)
    purchased = method.target_rows.dense(USERS)
    real, fake = realness(method, purchased), realness(method, method.score_all(USERS) * purchased)
    expected = sum(-math.log(1 / (1 + math.exp(-x))) for x in real.tolist()) / 3
    expected += sum(-math.log(1 - 1 / (1 + math.exp(-x))) for x in fake.tolist()) / 3
    outputs = method.discriminator_step(UserBatch(USERS))
    assert float(outputs["loss"]) == pytest.approx(expected, rel=1e-5)
    assert torch.allclose(outputs["real_scores"], real, atol=1e-6)
    assert torch.allclose(outputs["fake_scores"], fake, atol=1e-6)


@pytest.mark.parametrize("scheme", ["ZR", "PM", "ZP"])
def test_the_generators_loss_pulls_sampled_zeros_to_0(scheme: Scheme) -> None:
    """With ratios of 1 the samples are all zeros, so nothing is left to chance."""
    settings = {"zr_ratio": 1.0, "pm_ratio": 1.0, "zr_weight": 0.3, "discriminator_activation": "tanh"}
    method, _ = fitted(CFGAN(scheme, **settings, **SMALL), 0)
    purchased, rows = method.target_rows.dense(USERS), method.score_all(USERS)
    seen = rows * purchased if scheme == "ZR" else rows
    expected = sum(-math.log(1 / (1 + math.exp(-x))) for x in realness(method, seen).tolist()) / 3
    if scheme != "PM":
        wrong = sum(float(rows[u, i]) ** 2 for u in range(3) for i in range(rows.shape[1]) if not purchased[u, i])
        expected += 0.3 * wrong / 3
    assert method.step(UserBatch(USERS))["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_sampled_zeros_of_the_penalty_are_drawn_anew() -> None:
    method, _ = fitted(CFGAN("ZR", zr_ratio=0.5, **SMALL), 0)
    losses = {round(method.step(UserBatch(USERS))["loss"].item(), 7) for _ in range(5)}
    assert len(losses) == 5


def test_scores_are_the_linear_output() -> None:
    method, _ = fitted(CFGAN(generator_dims=(8,), discriminator_dims=(4,)), 0)
    first, last = method.generator.first, method.generator.rest[0]
    hidden = torch.tanh(method.target_rows.dense(USERS) @ first.weight + first.bias)
    expected = F.linear(hidden, last.weight, last.bias)
    assert torch.allclose(method.score_all(USERS), expected, atol=1e-6)
    assert float(expected.min()) < 0


@pytest.mark.parametrize(("still", "lrs"), [("generator", (1e-30, 1e-2)), ("discriminator", (1e-2, 1e-30))])
def test_each_player_moves_its_own_weights_alone(still: str, lrs: tuple[float, float]) -> None:
    before, _ = fitted(CFGAN(**SMALL), 0)
    after, _ = fitted(CFGAN(**SMALL, lr_generator=lrs[0], lr_discriminator=lrs[1]), 1)
    for name, values in before.state_dict().items():
        moved = not torch.allclose(values, after.state_dict()[name])
        assert moved == (not name.startswith(still)), name


def test_scores_can_be_stabilised() -> None:
    plain, _ = fitted(CFGAN(**SMALL), 1)
    stable, trainer = fitted(CFGAN(**SMALL), 1, GANStabilizer(tau=2.0))
    figures = trainer.callback_metrics
    assert float(figures["train/penalty/gan_stabilizer"]) > 0
    assert "train/critic_gap" in figures
    assert not torch.allclose(plain.discriminator.first.weight, stable.discriminator.first.weight)


def test_planted_tastes_are_learned() -> None:
    settings: dict[str, Any] = {"zr_ratio": 0.7, "zr_weight": 0.1, "lr_generator": 3e-3, "lr_discriminator": 1e-3}
    method = CFGAN(generator_dims=(64,), discriminator_dims=(16,), discriminator_activation="relu", **settings)
    _, trainer = fitted(method, 40)
    assert learned(trainer) > 1.2 * popular()


ROWS = Bags(torch.tensor([0, 3, 2]), torch.tensor([0, 2, 2]), torch.tensor([1.0, 1.0, 1.0]))  # two, none, one


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_one_row_is_read_as_by_a_dense_layer(activation: Activation) -> None:
    torch.manual_seed(0)
    network = RowPerceptron(5, (4, 3), 2, activation)
    dense = ROWS.dense(5)
    function = {"linear": lambda x: x, "leaky_relu": F.leaky_relu}.get(activation) or getattr(torch, activation)
    hidden = function(dense @ network.first.weight + network.first.bias)
    hidden = function(F.linear(hidden, network.rest[0].weight, network.rest[0].bias))
    expected = F.linear(hidden, network.rest[1].weight, network.rest[1].bias)
    assert torch.allclose(network(ROWS), expected, atol=1e-6)


def test_two_rows_are_read_as_one_vector() -> None:
    torch.manual_seed(0)
    network = RowPerceptron(5, (4,), 1, "tanh", reads_second=True)
    second = torch.randn(3, 5)
    both = torch.cat([ROWS.dense(5), second], dim=1)
    hidden = torch.tanh(both @ network.first.weight + network.first.bias)
    expected = F.linear(hidden, network.rest[0].weight, network.rest[0].bias)
    assert torch.allclose(network(ROWS, second), expected, atol=1e-6)


def test_weights_are_glorot_uniform_and_biases_small() -> None:
    torch.manual_seed(0)
    network = RowPerceptron(100, (60,), 50, "tanh", reads_second=True)
    for layer, fans in ((network.first, 200 + 60), (network.rest[0], 60 + 50)):
        bound = (6 / fans) ** 0.5
        assert 0.95 * bound < float(layer.weight.detach().abs().max()) <= bound
        assert 0.005 < float(layer.bias.detach().abs().max()) <= 0.01
