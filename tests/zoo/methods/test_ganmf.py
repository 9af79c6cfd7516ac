"""GANMF: both losses by hand, whose weights each step moves, and a pattern that it must learn."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from callbacks import RobustnessConductor
from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import GANMF
from zoo.data.batch_types import UserBatch

SMALL: dict[str, Any] = {"num_factors": 4, "code_dim": 6}
USERS = torch.tensor([5, 0, 119])


class ByHand:
    """The rows of some users, real and generated, and what the autoencoder makes of them."""

    def __init__(self, method: GANMF) -> None:
        weights = {name: values.detach().double().numpy() for name, values in method.state_dict().items()}
        self.real = method.target_rows.dense(USERS).double().numpy()
        self.fake = weights["generator.users.weight"][USERS.numpy()] @ weights["generator.items.weight"].T
        self.weights = weights

    def code(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Linear, and so is the way back."""
        return rows @ self.weights["discriminator.encoder.weight"] + self.weights["discriminator.encoder.bias"]

    def energy(self, rows: NDArray[Any]) -> float:
        """Mean squared error over users and items."""
        decoded = self.code(rows) @ self.weights["discriminator.decoder.weight"].T
        return float(((decoded + self.weights["discriminator.decoder.bias"] - rows) ** 2).mean())


@pytest.mark.parametrize("margin", [10.0, 1e-3], ids=["inside the margin", "beyond it"])
def test_the_discriminators_loss_is_an_energy_with_a_margin(margin: float) -> None:
    method, _ = fitted(GANMF(**SMALL, margin=margin), 0)
    hand = ByHand(method)
    real, fake = hand.energy(hand.real), hand.energy(hand.fake)
    assert (margin * real > fake) == (margin == 10)
    expected = real + max(0.0, margin * real - fake)
    assert method.discriminator_step(UserBatch(USERS))["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_the_generators_loss_is_the_energy_and_the_distance_of_the_codes() -> None:
    method, _ = fitted(GANMF(**SMALL, feature_matching=0.3), 0)
    hand = ByHand(method)
    distance = float(np.mean((hand.code(hand.real) - hand.code(hand.fake)) ** 2))
    expected = 0.7 * hand.energy(hand.fake) + 0.3 * distance
    assert method.step(UserBatch(USERS))["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_scores_are_the_generated_rows() -> None:
    method, _ = fitted(GANMF(**SMALL), 0)
    assert np.allclose(method.score_all(USERS).detach().numpy(), ByHand(method).fake, atol=1e-6)


@pytest.mark.parametrize(("still", "lrs"), [("generator", (1e-30, 1e-2)), ("discriminator", (1e-2, 1e-30))])
def test_each_player_moves_its_own_weights_alone(still: str, lrs: tuple[float, float]) -> None:
    before, _ = fitted(GANMF(**SMALL), 0)
    after, _ = fitted(GANMF(**SMALL, lr_generator=lrs[0], lr_discriminator=lrs[1]), 1)
    for name, values in before.state_dict().items():
        moved = not torch.allclose(values, after.state_dict()[name])
        assert moved == (not name.startswith(still)), name


def test_a_penalty_on_factors_reaches_the_generator() -> None:
    plain, _ = fitted(GANMF(**SMALL), 1)
    conducted, trainer = fitted(GANMF(**SMALL), 1, RobustnessConductor(weight=100.0))
    assert float(trainer.callback_metrics["train/penalty/robustness_conductor"]) > 0
    assert not torch.allclose(plain.generator.users.weight, conducted.generator.users.weight)


@pytest.mark.slow
def test_planted_tastes_are_learned() -> None:
    method = GANMF(num_factors=16, code_dim=32, feature_matching=0.3, lr_generator=1e-2, lr_discriminator=1e-3)
    _, trainer = fitted(method, 60)
    assert learned(trainer) > 1.2 * popular()
