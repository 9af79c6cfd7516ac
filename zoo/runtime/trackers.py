"""Trackers without Lightning: whether W&B or TensorBoard can be told anything, and a run of its own for what is no training."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.runtime.run_folder import refusal, visible, whole_folder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import polars as pl

#: What the project is called, and where trackers write: as in `configs/overlays`.
PROJECT, FOLDER = "cdr-zoo", Path("runs")
#: Modes in which W&B needs no key.
WITHOUT_KEY = ("offline", "dryrun", "disabled")


class TrackerError(RuntimeError):
    """A tracker that cannot be told anything."""


@dataclass(frozen=True)
class Told:
    """What a tracker is told at once, as a run of its own."""

    kind: str  # what W&B calls the type of a job
    name: str  # also of a folder
    config: Mapping[str, Any]  # plain values
    images: Mapping[str, bytes] = field(default_factory=dict)  # PNG
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict)


def check(tracker: str, without: str = "--tracker") -> None:
    """Refuse a tracker that could not be told anything, before anything is computed for it; it is done without by leaving what out.

    Raises:
        TrackerError: W&B has no key, or refuses it; or TensorBoard is not installed.
    """
    _CHECKS[tracker](without)


def tell(tracker: str, told: Told) -> str:
    """Make the run and finish it; a sentence says where it is.

    Raises:
        TrackerError: W&B takes no run.
    """
    return _TELLS[tracker](told)


def refused_by_wandb(error: Exception, without: str) -> str:
    """What is said of an error of W&B's, and that one can do without; nothing of any other."""
    if not type(error).__module__.startswith("wandb."):
        return ""
    return f"W&B: {refusal(error)} Without an account: WANDB_MODE=offline, or leave {without} out."


def markdown(table: pl.DataFrame) -> str:
    """A table for TensorBoard, which shows text alone."""
    lines = [table.columns, ["---"] * table.width, *table.rows()]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    return "" if value is None else visible(str(value)).replace("|", "\\|")


def pixels(png: bytes) -> npt.NDArray[np.uint8]:
    """Height, width and three colours of a picture."""
    import matplotlib.image
    import numpy as np

    return np.round(np.asarray(matplotlib.image.imread(BytesIO(png)))[..., :3] * 255).astype(np.uint8)


# Weights & Biases.


@contextmanager
def _in_a_sentence(without: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if said := refused_by_wandb(error, without):
            raise TrackerError(" ".join(said.split())) from error
        raise


def _check_wandb(without: str) -> None:
    import wandb

    with _in_a_sentence(without):
        if wandb.setup().settings.mode in WITHOUT_KEY or wandb.login(prompt=False):
            return
    raise TrackerError(
        "W&B: there is no API key, neither in WANDB_API_KEY nor from `wandb login`. Without an account: WANDB_MODE=offline, or "
        f"leave {without} out."
    )


def _tell_wandb(told: Told) -> str:
    import wandb

    FOLDER.mkdir(exist_ok=True)
    project = os.environ.get("WANDB_PROJECT") or PROJECT
    # What the terminal shows is no part of the run, and W&B's own lines would stand between ours. Nor is the machine: its name,
    # folders, packages and commits are nobody's business.
    settings = wandb.Settings(
        console="off",
        silent=True,
        host="-",
        disable_git=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    with (
        _in_a_sentence("--tracker"),
        wandb.init(
            project=project,
            job_type=told.kind,
            name=told.name,
            config=dict(told.config),
            dir=str(FOLDER),
            settings=settings,
        ) as run,
    ):
        images = {name: wandb.Image(pixels(png)) for name, png in told.images.items()}
        tables = {
            name: wandb.Table(columns=[*table.columns], data=[list(row) for row in table.rows()])
            for name, table in told.tables.items()
        }
        run.log(images | tables)
    if run.disabled:
        return "W&B is disabled (WANDB_MODE), so it was told nothing."
    if not run.offline:
        return f"W&B: {run.url}"
    folder = os.path.relpath(Path(run.dir).parent)
    return f"W&B, offline: {folder}; `wandb sync {folder}` sends it."


# TensorBoard.


def _check_tensorboard(without: str) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise TrackerError(
            f"TensorBoard is not installed. It is an extra: pip install 'cdr-zoo[trackers]'. Or leave {without} out."
        )


def _tell_tensorboard(told: Told) -> str:
    import yaml
    from torch.utils.tensorboard import SummaryWriter

    runs = FOLDER / "tensorboard" / PROJECT / f"{told.kind}-{told.name}"
    place = next(folder for number in count() if not (folder := runs / f"version_{number}").exists())
    with whole_folder(place) as temporary, SummaryWriter(str(temporary)) as writer:
        writer.add_text("config", f"```yaml\n{yaml.safe_dump(dict(told.config), sort_keys=False)}```")
        for name, png in told.images.items():
            writer.add_image(name, pixels(png), dataformats="HWC")
        for name, table in told.tables.items():
            writer.add_text(name, markdown(table))
    return f"TensorBoard: {place}; `tensorboard --logdir {FOLDER / 'tensorboard'}` shows it."


_CHECKS: dict[str, Callable[[str], None]] = {"wandb": _check_wandb, "tensorboard": _check_tensorboard}
_TELLS: dict[str, Callable[[Told], str]] = {"wandb": _tell_wandb, "tensorboard": _tell_tensorboard}
#: Names of those that there are.
TRACKERS = tuple(_CHECKS)
