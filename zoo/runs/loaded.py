"""A run's folder, read again wherever it lies: its settings, its best checkpoint and its data."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from datamodules import CrossDomainDataModule
from zoo.methods.base import Recommender
from zoo.methods.target_data import refuse_other_data
from zoo.runs.inputs import UsageError, read_checkpoint
from zoo.runs.known_classes import importing_nothing
from zoo.runs.trained import Trained
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import BEST, CONFIG, refusal
from zoo.runtime.suggestions import nearest


def load_run(
    folder: Path, data: CrossDomainDataModule | None = None, releases: Mapping[str, Path | str] | None = None
) -> Trained:
    """A run's best checkpoint with its data; as `load`."""
    settings = settings_of(folder)
    checkpoint = read_checkpoint(folder / BEST)
    method = _made("model", Recommender, settings["model"], folder)
    if data is None:
        data = _made("data", CrossDomainDataModule, settings["data"], folder)
        if data.seed is None and isinstance(seed := settings.get("seed_everything"), int):
            data.seed = int(seed)
        data.release_paths |= {name: path for name in data.sources if (path := folder / "releases" / name).is_dir()}
        if not Path(data.users).exists() and (beside := folder / Path(data.users).name).is_file():
            data.users = str(beside)
    check_names(releases or {}, data.sources)
    data.release_paths |= {name: Path(path) for name, path in (releases or {}).items()}
    said = logging.getLogger("datamodules")  # what is odd about the data was said when they were trained on
    with of_this_version(folder, checkpoint):
        method.on_load_checkpoint(checkpoint)
        method.load_state_dict(checkpoint["state_dict"])
    level = said.level
    said.setLevel(logging.ERROR)
    try:
        read(data, method)
    finally:
        said.setLevel(level)
    refuse_other_data(checkpoint["zoo"], data.digests)
    return Trained(method, data, data.test.seen, folder)


def check_names(releases: Collection[str], sources: Collection[str]) -> None:
    """Refuse releases of domains that it was not trained with."""
    if others := sorted(set(releases) - set(sources)):
        known = f"its sources are {sorted(sources)}" if sources else "it has no sources"
        raise UsageError(f"releases names {others}, which are no sources of it; {known}.{nearest(others[0], sources)}")


def read(data: CrossDomainDataModule, method: Recommender) -> None:
    """Read the target, and the releases for a method that learns from them."""
    data.read_target()
    method.check_signs(data.signs)
    if method.reads and not data.releases:
        data.read_releases()


def settings_of(folder: Path) -> dict[str, Any]:
    """The settings of a run, from its config."""
    if not folder.is_dir():
        raise FileNotFoundError(f"No run at {folder}. A run is a folder such as runs/PriCDR/version_0.")
    if not (path := folder / CONFIG).is_file():
        raise UsageError(
            f"{folder} is neither a run nor a bundle: there is no {CONFIG} in it. `fit` of this project leaves such folders, "
            "as runs/PriCDR/version_0."
        )
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    if not isinstance(settings, dict) or not {"model", "data"} <= settings.keys():
        raise UsageError(f"{path} is no experiment: it needs `model` and `data`.")
    return settings


def _made(part: str, base: type, settings: Any, folder: Path) -> Any:  # noqa: ANN401  a method, or a datamodule
    """What a config's settings of a part name."""
    parser = ArgumentParser(exit_on_error=False)  # its own: Lightning's instantiators stay out
    parser.add_subclass_arguments(base, part)
    with importing_nothing(folder / CONFIG):
        try:
            return parser.instantiate(parser.parse_object({part: settings}))[part]
        except (ArgumentError, TypeError, ValueError) as error:
            raise UsageError(
                f"{folder / CONFIG}: its `{part}` cannot be made by this version, {VERSION}: {refusal(error)}"
            ) from error


@contextmanager
def of_this_version(folder: Path, kept: Mapping[str, Any]) -> Iterator[None]:
    """Say which version made the weights where they do not fit the method as it is here."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError) as error:
        by = kept.get("version", "an older version")
        raise UsageError(
            f"The weights in {folder} were made by {by} of this project, and do not fit the method as {VERSION} has it. "
            "Use that version, or train anew."
        ) from error
