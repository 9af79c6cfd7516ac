"""Load a run or a bundle, whichever a folder holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from datamodules import CrossDomainDataModule
from zoo.methods.base import Recommender
from zoo.methods.target_data import refuse_other_data
from zoo.runs.bundle import BUNDLE, load_bundle
from zoo.runs.import_policy import importing_nothing
from zoo.runs.inputs import UsageError, read_checkpoint
from zoo.runs.predictor import Predictor, check_names, of_this_version, read_inputs
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import BEST, CONFIG, refusal


def load(
    path: Path | str,
    *,
    data: CrossDomainDataModule | None = None,
    releases: Mapping[str, Path | str] | None = None,
) -> Predictor:
    """Load a run's best checkpoint, or a bundle, to recommend with it.

    A run is its folder, wherever it was moved or copied; what it published lies in it. Its ratings are read again, from where
    its ``config.yaml`` says. No file of a run or of a bundle has anything imported: the classes that it names are those of the
    zoo, or of packages that you have imported before.

    Args:
        path: Folder of a run or of a bundle.
        data: The target's data, where they are not to be found as the run's config says; for a bundle where it needs any.
        releases: Folder of each source's release, where it does not lie in the run or as the config says.

    Returns:
        A method that recommends.

    Raises:
        ReleaseMismatchError: The data or a release are not those that it was trained on.
        UsageError: It is neither a run nor a bundle, or another version's, or names a class of a package that is not imported.
    """
    folder = Path(path)
    if (folder / BUNDLE).is_file():
        return load_bundle(folder, data, releases)
    return load_run(folder, data, releases)


def load_run(
    folder: Path, data: CrossDomainDataModule | None = None, releases: Mapping[str, Path | str] | None = None
) -> Predictor:
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
        read_inputs(data, method)
    finally:
        said.setLevel(level)
    refuse_other_data(checkpoint["zoo"], data.digests)
    return Predictor(method, data, data.test.seen, folder)


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
