"""Trackers: send a run to W&B, TensorBoard and MLflow alike, without personal data unless requested."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import polars as pl
import torch
import yaml
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from pytorch_lightning.utilities import rank_zero_warn

from callbacks.run_report import records
from zoo.data.batch_types import PredictBatch
from zoo.data.best_items import table_of
from zoo.data.held_out_cases import entries
from zoo.privacy.record.record import PrivacyRecord
from zoo.runtime.run_folder import BEST, CONFIG, METRICS, flat, folder_of_run, visible
from zoo.runtime.run_folder import markdown as escaped

Artifact = Literal["checkpoint", "releases"]
#: Numbers of ``metrics.json`` that describe the run, not its ranking.
FACTS = ("train_seconds", "epochs", "parameters", "peak_memory", "ranked_by_item_counts", "energy_kwh", "co2_kg")


class Trackers(Callback):
    """Send the whole experiment to every logger except the CSV file, and the results of the run at the end.

    When training begins: the settings, and each release's guarantee, with epsilon and delta, as hyperparameters. When it ends: the
    guarantee of a private training. A test or validation alone sends all guarantees. After the test: seconds, parameters,
    peak memory, and the figures (PNG files) in the run folder. Recommendations (with ids of users and items) and artifacts (not
    TensorBoard) are personal data, which another company may receive: they are sent on request.

    Args:
        artifacts: `checkpoint` (the best one, trained on the target's ratings), `releases`: files to send.
        recommendations: Number of users whose recommendations are sent, the first by row.

    Examples:
        >>> callbacks = [Trackers(recommendations=5)]  # zoo.fit(method, data, callbacks=callbacks, logger=...)
    """

    def __init__(self, artifacts: list[Artifact] | None = None, recommendations: int = 0) -> None:
        if recommendations < 0:
            raise ValueError(f"recommendations must not be negative, got {recommendations}.")
        self.artifacts, self.recommendations = artifacts or [], recommendations
        self.folder: Path | None = None
        self._fitted = False  # in this process, which sent the guarantees

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder on every process."""
        self.folder = folder_of_run(trainer)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Send the settings and the releases' guarantees."""
        self._fitted = True
        self._send_guarantees(trainer, pl_module, self._settings(), of_training=(False,))

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Send the guarantee of the training, which its steps decide."""
        self._send_guarantees(trainer, pl_module, {}, of_training=(True,))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Send the guarantees if nothing was fitted: the metrics of a checkpoint are a run of their own."""
        if not self._fitted:
            self._send_guarantees(trainer, pl_module, {}, of_training=(False, True))

    on_test_start = on_validation_start

    def _send_guarantees(
        self, trainer: Trainer, pl_module: LightningModule, settings: dict[str, Any], *, of_training: tuple[bool, ...]
    ) -> None:
        if not (others := self._others(trainer)):
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        found = {k: v for k, v in records(data, pl_module).items() if (k not in data.releases) in of_training}
        for logger in others if found or settings else ():
            log_settings(logger, settings | {"privacy": privacy_of(found)})

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Send the results, after all callbacks wrote them."""
        if stage != "test" or self.folder is None:
            return
        wanted = self.recommendations if any(not isinstance(logger, CSVLogger) for logger in trainer.loggers) else 0
        # On every process, because sharded tables need all of them.
        shown = recommended(pl_module, trainer.datamodule, wanted) if wanted else None  # type: ignore[attr-defined]
        if not (others := self._others(trainer)):
            return
        facts = json.loads((self.folder / METRICS).read_text(encoding="utf-8"))
        numbers = {name: float(facts[name]) for name in FACTS if name in facts}
        for logger in others:
            logger.log_metrics(numbers, step=trainer.global_step)
            for path in sorted(self.folder.rglob("*.png")):
                log_figure(logger, path.stem, path, trainer.global_step)
            if shown is not None:
                log_table(logger, "recommendations", shown, trainer.global_step)
            self._send(logger)

    def _others(self, trainer: Trainer) -> list[Logger]:
        return [x for x in trainer.loggers if not isinstance(x, CSVLogger)] if trainer.is_global_zero else []

    def _settings(self) -> dict[str, Any]:
        path = None if self.folder is None else self.folder / CONFIG
        if path is None or not path.is_file():
            return {}
        settings: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
        (settings.get("trainer") or {}).pop("logger", None)  # names folders and accounts
        return settings

    def _send(self, logger: Logger) -> None:
        if not self.artifacts or self.folder is None:
            return
        paths = {"checkpoint": self.folder / BEST, "releases": self.folder / "releases"}
        if isinstance(logger, MLFlowLogger):
            for path in (paths[kind] for kind in self.artifacts if paths[kind].exists()):
                logger.experiment.log_artifact(str(logger.run_id), str(path))
            return
        if not isinstance(logger, WandbLogger):
            rank_zero_warn(
                f"{type(logger).__name__} stores no files; {', '.join(self.artifacts)} stay in {self.folder}."
            )
            return
        import wandb  # takes half a second, and few runs need it

        for kind in self.artifacts:
            if (path := paths[kind]).exists():
                artifact = wandb.Artifact(f"{kind}-{logger.experiment.id}", type=kind)
                (artifact.add_dir if path.is_dir() else artifact.add_file)(str(path))
                logger.experiment.log_artifact(artifact)


def privacy_of(found: dict[str, PrivacyRecord]) -> dict[str, dict[str, Any]]:
    """Return each record's guarantee as plain values; epsilon and delta are None without one."""
    return {name: {"mechanism": record.mechanism.name, **record.view.to_dict()} for name, record in found.items()}


def recommended(method: Any, data: Any, count: int) -> pl.DataFrame:  # noqa: ANN401  a recommender and its data
    """Return the best unseen items of the first ``count`` users: user_id, rank, item_id, score."""
    users = torch.arange(min(count, data.train.num_users))
    batch = PredictBatch(*(part.to(method.device) for part in (users, *entries(data.test.seen, users))))
    method.eval()
    with torch.no_grad():
        method.prepare_scoring()
        found = method.predict_step(batch, 0)
    method.cache = {}
    return table_of(data.train, found)


def log_settings(logger: Logger, settings: Mapping[str, Any]) -> None:
    """Send settings; in names that MLflow refuses, such as "PriCDR, JLT", other characters become dashes."""
    if isinstance(logger, MLFlowLogger):
        settings = {re.sub(r"[^\w.: /-]", "-", name, flags=re.ASCII): value for name, value in flat(settings).items()}
    logger.log_hyperparams(dict(settings))


def log_figure(logger: Logger, name: str, png: Path | BinaryIO, step: int | None = None) -> None:
    """Send a PNG file."""
    import matplotlib.image

    pixels = np.round(np.asarray(matplotlib.image.imread(png, "png"))[..., :3] * 255).astype(np.uint8)
    if isinstance(logger, WandbLogger):
        logger.log_image(name, [pixels])
    elif isinstance(logger, TensorBoardLogger):
        logger.experiment.add_image(name, pixels, step, dataformats="HWC")
    elif isinstance(logger, MLFlowLogger):
        logger.experiment.log_image(str(logger.run_id), pixels, f"{name}.png")


def log_table(logger: Logger, name: str, table: pl.DataFrame, step: int | None = None) -> None:
    """Send a table: as a table of W&B, as text to TensorBoard, and as a CSV file to MLflow."""
    if isinstance(logger, WandbLogger):
        logger.log_table(name, columns=table.columns, data=[list(row) for row in table.rows()])
    elif isinstance(logger, TensorBoardLogger):
        logger.experiment.add_text(name, markdown(table), step)
    elif isinstance(logger, MLFlowLogger):
        logger.experiment.log_text(str(logger.run_id), table.write_csv(), f"{name}.csv")


def markdown(table: pl.DataFrame) -> str:
    r"""Return a table as Markdown.

    Examples:
        >>> print(markdown(pl.DataFrame({"item": ["a|b"], "score": [0.5]})))
        | item | score |
        | --- | --- |
        | a\|b | 0.5 |
    """
    lines = [table.columns, ["---"] * table.width, *table.rows()]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    return "" if value is None else escaped(visible(str(value)), plain=True)
