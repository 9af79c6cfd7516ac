"""Short trainings of SPPG with a budget, and what is kept of them."""

from functools import cache
from pathlib import Path
from typing import Any

from dp_accounting import NeighboringRelation
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Callback

from datamodules import Synthetic
from tests.zoo.methods import sppg_runs
from tests.zoo.methods.sppg_runs import SIZES
from tests.zoo.privacy.training.critics import bare_plan
from zoo import SPPG
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.sanitised_gradient import SanitisedGradient

# Three batches an epoch with three private steps each: 9, 18 and 20 steps are taken after the first epochs.
SMALL: dict[str, Any] = sppg_runs.SMALL | {"steps": 20, "sample_size": 4, "n_critic": 3}
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


def trainer_of(*callbacks: Callback, epochs: int = 20) -> Trainer:
    return sppg_runs.trainer_of(*callbacks, epochs=epochs, limit_val_batches=0)


def spender_of(method: SPPG) -> PrivateGradient | SanitisedGradient:
    assert method.private_gradient is not None
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
    """Epsilon by dp_accounting's own distributions, finer ones than ours."""
    composed = step_of(plan.noise_multiplier, plan.rate).self_compose(steps)
    return float(composed.get_epsilon_for_delta(plan.delta))


@cache
def step_of(noise_multiplier: float, rate: float) -> PrivacyLossDistribution:
    """Of one step, as `PLDAccountant` has it, which would make it again for each count of steps."""
    zero_out = NeighboringRelation.REPLACE_SPECIAL
    return from_gaussian_mechanism(
        noise_multiplier, value_discretization_interval=1e-4, sampling_prob=rate, neighboring_relation=zero_out
    )
