"""Trackers: check that one can take a run, and send a report as its own run."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pytorch_lightning.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from callbacks.trackers import log_figure, log_settings, log_table
from zoo.runtime.run_folder import atomic_folder, plain, refusal

if TYPE_CHECKING:
    import polars as pl
    import wandb

#: Project name and folder, as in `configs/overlays`.
PROJECT, FOLDER = "cdr-zoo", Path("runs")
#: Modes in which W&B needs no key.
WITHOUT_KEY = ("offline", "dryrun", "disabled")
#: Settings with which W&B sends nothing about the machine: output, name, folders, packages and commits.
NO_MACHINE_DATA: Mapping[str, Any] = {
    "console": "off", "silent": True, "host": "-", "disable_git": True, "x_disable_meta": True,
    "x_disable_machine_info": True, "x_disable_stats": True, "x_save_requirements": False,
}  # fmt: skip

#: Tags of a run of MLflow in place of the user and the program of this machine.
NO_MACHINE_TAGS: Mapping[str, str] = {"mlflow.user": "-", "mlflow.source.name": "zoo"}
#: Trackers that are extras: module, name and extra.
EXTRAS = {"tensorboard": ("TensorBoard", "trackers"), "mlflow": ("MLflow", "mlflow")}


#: Runs of W&B that trainings of this process began.
_BEGUN: set[str] = set()


class TrackerError(RuntimeError):
    """A tracker cannot take a run."""


def check(tracker: str, without: str = "--tracker") -> None:
    """Raise a `TrackerError` if ``wandb`` has no valid key, or another is not installed; ``without`` is for the message."""
    if tracker == "wandb":
        _check_wandb(without)
    elif importlib.util.find_spec(tracker) is None:
        name, extra = EXTRAS[tracker]
        raise TrackerError(f"{name} is not installed. pip install 'cdr-zoo[{extra}]', or omit {without}.")


def begin_own_run(logger: WandbLogger) -> None:
    """Begin a run of W&B for a logger, also if that of an earlier training in this process is still open.

    Lightning would continue the open run. A run that the caller began with ``wandb.init``, as in a sweep, is continued.
    """
    import wandb

    others = wandb.run is not None and wandb.run.id not in _BEGUN
    if logger._experiment is not None or others:
        return
    logger._wandb_init["settings"] = _settings(logger._wandb_init.get("settings"))
    if wandb.run is not None:
        offline = {"mode": "offline"} if logger._offline else {}
        logger._experiment = wandb.init(**logger._wandb_init | offline | {"reinit": "create_new"})
        logger._experiment.define_metric("trainer/global_step")
        logger._experiment.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    _BEGUN.add(str(logger.experiment.id))


def send_report(
    tracker: str, name: str, config: Mapping[str, Any], images: Mapping[str, bytes], tables: Mapping[str, pl.DataFrame]
) -> str:
    """Send a report as its own run to ``wandb``, ``tensorboard`` or ``mlflow``, and return a message with its address."""
    if tracker == "wandb":
        with short_errors("--tracker"):
            return _to_wandb(name, config, images, tables)
    if tracker == "mlflow":
        return _to_mlflow(name, config, images, tables)
    return _to_tensorboard(name, config, images, tables)


def refused_by_wandb(error: Exception, without: str) -> str:
    """Return the message for an error of W&B, with the option to omit; "" for any other error."""
    if not type(error).__module__.startswith("wandb."):
        return ""
    return f"W&B: {refusal(error)} Without an account: WANDB_MODE=offline, or omit {without}."


@contextmanager
def short_errors(without: str) -> Iterator[None]:
    """Turn an error of W&B into a `TrackerError` of one line."""
    try:
        yield
    except Exception as error:
        if message := refused_by_wandb(error, without):
            raise TrackerError(" ".join(message.split())) from error
        raise


def _settings(given: Mapping[str, Any] | wandb.Settings | None) -> dict[str, Any]:
    """Return the settings of a run that differ from W&B's.

    A config's are completed by defaults, which would replace those of the environment. Console output, which quotes refused
    rows, is sent only if they ask for it.
    """
    if given is not None and not isinstance(given, Mapping):
        usual, stated = type(given)(), {name: getattr(given, name) for name in given.model_fields_set}
        known = {name: value for name, value in stated.items() if type(value) is not object}  # its mark for "not given"
        given = {name: value for name, value in known.items() if plain(value) != plain(getattr(usual, name))}
    return {"console": "off", **(given or {})}


def _check_wandb(without: str) -> None:
    import wandb

    with short_errors(without):
        if wandb.setup().settings.mode in WITHOUT_KEY or wandb.login(prompt=False):
            return
    raise TrackerError(
        f"W&B has no API key. Run `wandb login`, set WANDB_API_KEY or WANDB_MODE=offline, or omit {without}."
    )


def _to_wandb(
    name: str, config: Mapping[str, Any], images: Mapping[str, bytes], tables: Mapping[str, pl.DataFrame]
) -> str:
    import wandb

    FOLDER.mkdir(exist_ok=True)  # or W&B takes another folder
    with wandb.init(
        project=os.environ.get("WANDB_PROJECT") or PROJECT,
        job_type="report",
        name=name,
        config=dict(config),
        dir=str(FOLDER),
        settings=dict(NO_MACHINE_DATA),
    ) as run:
        _log(WandbLogger(experiment=run), images, tables)
    if run.disabled:
        return "W&B is disabled (WANDB_MODE): nothing was sent."
    if not run.offline:
        return f"W&B: {run.url}"
    folder = os.path.relpath(Path(run.dir).parent)
    return f"W&B, offline: {folder}; `wandb sync {folder}` sends it."


def _to_tensorboard(
    name: str, config: Mapping[str, Any], images: Mapping[str, bytes], tables: Mapping[str, pl.DataFrame]
) -> str:
    folder = Path(TensorBoardLogger(FOLDER / "tensorboard" / PROJECT, name=f"report-{name}").log_dir)
    with atomic_folder(folder) as temporary:
        logger = TensorBoardLogger(temporary, name="", version="")
        try:
            logger.experiment.add_text("config", f"```yaml\n{yaml.safe_dump(dict(config), sort_keys=False)}```")
            _log(logger, images, tables)
        finally:
            logger.experiment.close()
    return f"TensorBoard: {folder}; `tensorboard --logdir {FOLDER / 'tensorboard'}` shows it."


def _to_mlflow(
    name: str, config: Mapping[str, Any], images: Mapping[str, bytes], tables: Mapping[str, pl.DataFrame]
) -> str:
    FOLDER.mkdir(exist_ok=True)
    address = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{FOLDER / 'mlflow.db'}"
    artifacts = str(FOLDER / "mlflow") if address.startswith("sqlite:") else None
    logger = MLFlowLogger(
        PROJECT, f"report-{name}", address, dict(NO_MACHINE_TAGS), artifact_location=artifacts, synchronous=True
    )
    try:
        log_settings(logger, config)
        _log(logger, images, tables)
    except BaseException:
        logger.finalize("failed")
        raise
    logger.finalize("success")
    return f"MLflow: {address}; `mlflow ui --backend-store-uri {address}` shows it."


def _log(logger: Logger, images: Mapping[str, bytes], tables: Mapping[str, pl.DataFrame]) -> None:
    for name, png in images.items():
        log_figure(logger, name, BytesIO(png))
    for name, table in tables.items():
        log_table(logger, name, table)
