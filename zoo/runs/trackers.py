"""What a tracker gets beside a training: whether it can take a run at all, and a report as a run of its own."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pytorch_lightning.loggers import Logger, TensorBoardLogger, WandbLogger

from callbacks.trackers import log_figure, log_table
from zoo.runtime.run_folder import refusal, whole_folder

if TYPE_CHECKING:
    import polars as pl

#: Name of the project, and folder of the trackers: as in `configs/overlays`.
PROJECT, FOLDER = "cdr-zoo", Path("runs")
#: Modes in which W&B needs no key.
WITHOUT_KEY = ("offline", "dryrun", "disabled")
#: What W&B would send of the machine: its output, name, folders, packages and commits.
NOTHING_OF_THE_MACHINE: Mapping[str, Any] = {
    "console": "off",
    "silent": True,  # W&B's own lines would stand between ours
    "host": "-",
    "disable_git": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


class TrackerError(RuntimeError):
    """A tracker takes no run."""


def check(tracker: str, without: str = "--tracker") -> None:
    """Refuse a tracker that takes no run, before anything is computed for it.

    Args:
        tracker: ``wandb`` or ``tensorboard``.
        without: What to leave out to do without the tracker.

    Raises:
        TrackerError: W&B has no key, or refuses it; or TensorBoard is not installed.
    """
    if tracker == "wandb":
        _check_wandb(without)
    elif importlib.util.find_spec("tensorboard") is None:
        raise TrackerError(
            f"TensorBoard is not installed. It is an extra: pip install 'cdr-zoo[trackers]'. Or leave {without} out."
        )


def send_report(
    tracker: str, name: str, config: Mapping[str, Any], images: Mapping[str, bytes], tables: Mapping[str, pl.DataFrame]
) -> str:
    """Send a report as a finished run of its own, and return a sentence that says where it is.

    Args:
        tracker: ``wandb`` or ``tensorboard``.
        name: Name of the run, also of a folder.
        config: Plain values.
        images: PNG files by name.
        tables: Tables by name.

    Raises:
        TrackerError: W&B takes no run.
    """
    if tracker == "wandb":
        with in_a_sentence("--tracker"):
            return _to_wandb(name, config, images, tables)
    return _to_tensorboard(name, config, images, tables)


def refused_by_wandb(error: Exception, without: str) -> str:
    """Return the message for an error of W&B, with what to leave out to do without it; "" for any other error."""
    if not type(error).__module__.startswith("wandb."):
        return ""
    return f"W&B: {refusal(error)} Without an account: WANDB_MODE=offline, or leave {without} out."


@contextmanager
def in_a_sentence(without: str) -> Iterator[None]:
    """Turn an error of W&B into a `TrackerError` of one line."""
    try:
        yield
    except Exception as error:
        if said := refused_by_wandb(error, without):
            raise TrackerError(" ".join(said.split())) from error
        raise


def _check_wandb(without: str) -> None:
    import wandb

    with in_a_sentence(without):
        if wandb.setup().settings.mode in WITHOUT_KEY or wandb.login(prompt=False):
            return
    raise TrackerError(
        "W&B: there is no API key, neither in WANDB_API_KEY nor from `wandb login`. Without an account: WANDB_MODE=offline, or "
        f"leave {without} out."
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
        settings=dict(NOTHING_OF_THE_MACHINE),
    ) as run:
        _log(WandbLogger(experiment=run), images, tables)
    if run.disabled:
        return "W&B is disabled (WANDB_MODE), so it was told nothing."
    if not run.offline:
        return f"W&B: {run.url}"
    folder = os.path.relpath(Path(run.dir).parent)
    return f"W&B, offline: {folder}; `wandb sync {folder}` sends it."


def _to_tensorboard(
    name: str, config: Mapping[str, Any], images: Mapping[str, bytes], tables: Mapping[str, pl.DataFrame]
) -> str:
    place = Path(TensorBoardLogger(FOLDER / "tensorboard" / PROJECT, name=f"report-{name}").log_dir)
    with whole_folder(place) as temporary:
        logger = TensorBoardLogger(temporary, name="", version="")
        try:
            logger.experiment.add_text("config", f"```yaml\n{yaml.safe_dump(dict(config), sort_keys=False)}```")
            _log(logger, images, tables)
        finally:
            logger.experiment.close()
    return f"TensorBoard: {place}; `tensorboard --logdir {FOLDER / 'tensorboard'}` shows it."


def _log(logger: Logger, images: Mapping[str, bytes], tables: Mapping[str, pl.DataFrame]) -> None:
    for name, png in images.items():
        log_figure(logger, name, BytesIO(png))
    for name, table in tables.items():
        log_table(logger, name, table)
