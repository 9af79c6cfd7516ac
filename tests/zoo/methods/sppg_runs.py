"""Short trainings of SPPG, and what is kept of them."""

from typing import Any, NamedTuple

import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from zoo import SPPG
from zoo.privacy.training.private_gradient import PrivateGradient

SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}
SMALL: dict[str, Any] = {
    "steps": 7, "sample_size": 8, "n_critic": 2, "condition_dim": 4, "generator_dims": (8,), "critic_dims": (8, 4),
}  # fmt: skip


def trainer_of(*callbacks: Callback, epochs: int = 20, **settings: Any) -> Trainer:  # noqa: ANN401
    return quiet(max_epochs=epochs, callbacks=[*callbacks], **settings)


class Spied(SPPG):
    """Keeps what it logs, and the scores of real rows, which it must not."""

    logged: list[tuple[str, float]]
    to_average: list[tuple[str, float]]
    real: list[Tensor]

    def build(self, sizes: dict[str, Any]) -> None:
        """Begin to keep."""
        super().build(sizes)
        self.logged, self.to_average, self.real = [], [], []
        self.critic.register_forward_hook(lambda _critic, _inputs, scores: self.real.append(scores.detach()))

    def log(self, name: str, value: Any, **settings: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Keep it."""
        self.logged.append((name, float(torch.as_tensor(value).detach())))
        super().log(name, value, **settings)

    def log_mean(self, name: str, value: Any, weight: float | None = None) -> None:  # noqa: ANN401
        """Keep what its mean is taken of."""
        self.to_average.append((name, float(torch.as_tensor(value).detach())))
        super().log_mean(name, value, weight)


class Weights(Callback):
    """Keeps the weights that training begins from, and the generator's after each of its steps."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Tensor]] = []

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:  # noqa: ANN401
        self.before = {name: values.clone() for name, values in pl_module.state_dict().items()}

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: object) -> None:  # noqa: ANN401
        self.steps.append(pl_module.generator.tensors())


class Run(NamedTuple):
    method: Spied
    trainer: Trainer
    weights: Weights


def fitted(*callbacks: Callback, data: Synthetic | None = None, epochs: int = 20, **settings: Any) -> Run:  # noqa: ANN401
    """A training from the beginning, without validation."""
    seed_everything(0)
    method, weights = Spied(**(SMALL | settings)), Weights()
    trainer = trainer_of(*callbacks, weights, epochs=epochs, limit_val_batches=0)
    trainer.fit(method, datamodule=Synthetic(**SIZES) if data is None else data)
    return Run(method, trainer, weights)


def same(one: dict[str, Tensor], other: dict[str, Tensor], within: float = 0.0) -> bool:
    assert one.keys() == other.keys()
    return all(float((one[name].double() - other[name].double()).abs().max()) <= within for name in one)


def gradients(method: SPPG, users: Tensor) -> list[Tensor]:
    """What a private step leaves of some users' losses."""
    assert isinstance(method.private_gradient, PrivateGradient)
    method.private_gradient(users, method._real_loss)
    return [p.grad.clone() for p in method.critic.parameters() if p.grad is not None]
