"""Measure CPU time of a shipped config's training by part: one line of JSON.

    ZOO_DATA=data python benchmarks/training_parts.py sppg/douban          # a source's generator, all its private steps
    ZOO_DATA=data python benchmarks/training_parts.py ppgencdr/douban 8    # a target on such a generator's rows, 8 epochs
    ZOO_DATA=data python benchmarks/training_parts.py one_bit_mc/ml_100k   # a whole fit; any config of the folder

One thread, the config's own sizes and callbacks, seeded noise. A part excludes nested parts. For networks, milliseconds are per
step after the first epoch; for one-bit matrix completion, of the fit from the first draw of noise to the matrix.
"""

import logging
import statistics
import sys
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import scipy.linalg
import torch
import yaml
from generated import QUIET, Parts, line
from jsonargparse import ArgumentParser
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from pytorch_lightning.loops import _EvaluationLoop
from torch.optim.swa_utils import AveragedModel
from torch.utils.flop_counter import FlopCounterMode

import zoo
from callbacks import GANStabilizer, RobustnessConductor
from datamodules import CrossDomainDataModule
from zoo import SPPG, Publisher
from zoo.data.rows import SparseRows
from zoo.methods import ppgencdr, sppg
from zoo.methods.base import Recommender
from zoo.methods.one_bit_mc import gradient_perturbation, solvers
from zoo.methods.one_bit_mc.method import OneBitMC
from zoo.methods.one_bit_mc.norm_balls import NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood
from zoo.nn.autoencoder import AlignedSources
from zoo.nn.generator import GeneratedRows, RowGenerator
from zoo.nn.towers import SparseTower, TwoTowers
from zoo.privacy.training import clipped_sum, private_gradient
from zoo.privacy.training.critic_steps import CriticSteps

RMSPROP = import_module("torch.optim.rmsprop")
#: Functions by part: owner and name.
Functions = dict[str, list[tuple[Any, str]]]
NETWORKS: Functions = {"rows": [(SparseRows, "bags")], "logging": [(LightningModule, "log")]}
SOLVERS = (solvers.SpectralProjectedGradient, solvers.FixedSteps, solvers.MultiStart)
CHECKS = ("check_alone", "_check_independent", "_check_length", "_check_paths", "_check_users")
PARTS: dict[str, Functions] = {
    "sppg": NETWORKS
    | {
        "rows": [(SparseRows, "bags"), (sppg, "padded")],
        "sampling": [(CriticSteps, "sample"), (CriticSteps, "random_users")],
        "critic of users": [(SPPG, "_real_loss")],
        "norms and clipped sum": [(private_gradient, "clipped_sum")],
        "checks": [(clipped_sum, name) for name in CHECKS],
        "noise": [(private_gradient, "with_noise"), (private_gradient, "fresh_generator")],
        "generator": [(RowGenerator, "forward")],
        "critic of generated rows": [(SPPG, "_score")],
        "backward of generated rows": [(LightningModule, "manual_backward")],
        "optimisers and average": [(RMSPROP, "rmsprop"), (AveragedModel, "update_parameters")],
        "stabiliser": [(GANStabilizer, "penalty"), (GANStabilizer, "on_before_optimizer_step")],
    },
    "ppgencdr": NETWORKS
    | {
        "generated rows": [(GeneratedRows, "dense")],
        "towers": [(SparseTower, "forward")],
        "autoencoder": [(AlignedSources, "losses")],
        "scores and their loss": [(TwoTowers, "logits"), (ppgencdr, "all_items_loss")],
        "RobustnessConductor": [(RobustnessConductor, "penalty")],
        "backward": [(LightningModule, "backward")],
        "optimiser": [(import_module("torch.optim.adam"), "adam")],
        "validation": [(_EvaluationLoop, "run")],
    },
    "one_bit_mc": {
        "projection: products": [(NuclearBall, "__call__")],
        "projection: eigenvectors": [(scipy.linalg, "eigh")],
        "projection: eigenvalues alone": [(scipy.linalg, "eigvalsh")],
        "projection: all singular values": [(scipy.linalg, "svd")],
        "objective": [(Likelihood, "value")],
        "gradient": [(Likelihood, "gradient")],
        "noise": [(gradient_perturbation.NoisyGradients, "_noisy")],  # and draws of the perturbation, see `main`
        "solver": [(kind, "step") for kind in SOLVERS],
    },
}
WHOLE = ("checks", "validation")  # with nested parts
PRODUCTS = 100  # of one size, for the median


class Stopwatch(Parts, Callback):
    """CPU time by part, from the start of an epoch to the end of the training."""

    def __init__(self, first_epoch: int) -> None:
        super().__init__("trainer and rest", WHOLE)
        self.first_epoch, self.steps = first_epoch, 0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Discard earlier epochs."""
        if trainer.current_epoch == self.first_epoch > 0:
            self._begin()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Discard the setup."""
        self._begin()

    def _begin(self) -> None:
        self.turn()
        self.seconds.clear()
        self.steps = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        """Count steps."""
        self.steps += 1

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the rest."""
        self.turn()


def made(base: type, settings: Any) -> Any:  # noqa: ANN401  as a config's
    """Return the object that a part of a config describes."""
    parser = ArgumentParser()
    if base is Callback:
        parser.add_argument("--it", type=list[Callback])
    else:
        parser.add_subclass_arguments(base, "it")
    return parser.instantiate(parser.parse_object({"it": settings})).it


def seeded(model: dict[str, Any]) -> dict[str, Any]:
    """Return a model's settings, with seeded noise."""
    arguments = model.setdefault("init_args", {})
    if model["class_path"] == "SPPG":
        arguments["noise_seed"] = 0
    if "perturbation" in arguments:
        arguments["perturbation"]["init_args"]["noise_seed"] = 0
    return model


def products(method: Recommender) -> dict[str, float]:
    """Return operations of a step's matrix products, and their time at the rate of one product of a batch with all items."""
    batch: Any = next(iter(method.trainer.train_dataloader))  # type: ignore[arg-type]
    with FlopCounterMode(display=False) as counter:
        outputs = method.step(batch)
        (outputs["loss"] + method.penalties(outputs)).backward()
    users, items = torch.rand(len(batch.users), 100), torch.rand(method.data.train.num_items, 100)
    seconds = []
    for _ in range(PRODUCTS):
        began = time.process_time()
        users @ items.T
        seconds.append(time.process_time() - began)
    operations = counter.get_total_flops()
    rate = 2 * users.numel() * len(items) / statistics.median(seconds)
    return {"gflop": round(operations / 1e9, 2), "ms": round(1e3 * operations / rate, 1)}


def main() -> None:
    """Measure one config."""
    warnings.filterwarnings("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    for named in (*zoo.METHODS, *zoo.PUBLISHERS, *zoo.PERTURBATIONS):  # configs name them without their modules
        getattr(zoo, named)
    seed_everything(0, verbose=False)
    name, *epochs = sys.argv[1:]
    config = yaml.safe_load((Path("configs") / f"{name}.yaml").read_text(encoding="utf-8"))
    method = made(Recommender, seeded(config["model"]))
    single = isinstance(method, OneBitMC)
    watch = Stopwatch(first_epoch=0 if single else 1)
    trainer = dict(config["trainer"], accelerator="cpu", devices=1, num_sanity_val_steps=0, **QUIET)
    trainer |= {"max_epochs": 1 + int(epochs[0])} if epochs else {}
    trainer["callbacks"] = [watch, *made(Callback, config["trainer"].get("callbacks", []))]
    with tempfile.TemporaryDirectory() as folder:
        data = made(CrossDomainDataModule, config["data"])
        if "publisher" in config:
            publisher, releases = made(Publisher, config["publisher"]), {}
            for source in data.sources:
                release = publisher.publish(data.source(source), source)
                releases[source] = str(release.save(Path(folder) / source))
            config["data"]["init_args"]["releases"] = releases
            data = made(CrossDomainDataModule, config["data"])
        for part, functions in PARTS[name.split("/")[0]].items():
            for owner, function in functions:
                watch.watch(part, owner, function)
        if single:
            for function in ("draw", "finish"):
                watch.watch("noise", type(method.perturbation), function)
        Trainer(**trainer).fit(method, datamodule=data)
        found = products(method) if method.automatic_optimization and not single else None
    per = 1 if single else watch.steps
    parts = {part: round(1e3 * seconds / per, 2) for part, seconds in watch.seconds.most_common()}
    total = round(1e3 * sum(watch.seconds.values()) / per, 2)
    line(config=name, steps=watch.steps, cpu_ms=total, of_which=parts, matrix_products=found)


if __name__ == "__main__":
    main()
