"""Runs of OneBitMC through Lightning that several tests look at."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback

from datamodules import CrossDomainDataModule, LowRank
from tests.zoo.methods.quiet_trainer import quiet
from zoo import (
    GradientPerturbation,
    InputPerturbation,
    ObjectivePerturbation,
    OneBitMC,
    OutputPerturbation,
    Perturbation,
)

Make = Callable[[int | None], Perturbation]

#: With a seed, as what is compared must be repeated; without, as people use it.
PRIVATE: dict[str, Make] = {
    "InP": lambda seed: InputPerturbation(2.0, noise_seed=seed),
    "InP, pairs": lambda seed: InputPerturbation(2.0, hide_pairs=True, noise_seed=seed),
    "ObjP": lambda seed: ObjectivePerturbation(2.0, noise_seed=seed),
    "GraP": lambda seed: GradientPerturbation(2.0, steps=6, noise_seed=seed),
    "OutP": lambda seed: OutputPerturbation(2.0, steps=6, noise_seed=seed),
}


def low_rank(**settings: Any) -> LowRank:  # noqa: ANN401
    return LowRank(**{"num_users": 24, "num_items": 20, "observed": 0.4, "seed": 1} | settings)


def method(perturbation: Perturbation | None = None, **settings: Any) -> OneBitMC:  # noqa: ANN401
    return OneBitMC(**{"tau": 15.0, "perturbation": perturbation} | settings)


class Log(Callback):
    """Keeps what is logged after each step, and a checkpoint after some step, at which it stops if asked."""

    def __init__(self, save: Path | None = None, at: int = 3, stop: bool = True) -> None:
        self.save, self.at, self.stop = save, at, stop
        self.logged: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        self.logged.append({name: float(value) for name, value in trainer.callback_metrics.items()})
        if self.save is not None and len(self.logged) == self.at:
            trainer.save_checkpoint(self.save)
            trainer.should_stop = self.stop


def trainer(*callbacks: Callback, **settings: Any) -> Trainer:  # noqa: ANN401
    return quiet(max_epochs=1, limit_val_batches=0, callbacks=[*callbacks], **settings)


def fitted(
    model: OneBitMC, data: CrossDomainDataModule | None = None, *callbacks: Callback, ckpt_path: Path | None = None
) -> tuple[OneBitMC, Trainer]:
    run = trainer(*callbacks)
    run.fit(model, datamodule=low_rank() if data is None else data, ckpt_path=ckpt_path)
    return model, run
