"""Load a run or a bundle from its folder."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentError

from datamodules import CrossDomainDataModule, Frames
from datamodules.cache import PreparedTarget
from datamodules.frames import as_datamodule
from zoo.methods.base import Recommender
from zoo.runs.bundle import BUNDLE, load_bundle
from zoo.runs.hub import located
from zoo.runs.import_policy import importing_nothing
from zoo.runs.inputs import UsageError, check_names, explain_mismatch, instantiate, read_checkpoint, read_inputs
from zoo.runs.predictor import Predictor
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import BEST, CONFIG, TARGET, class_path, refusal
from zoo.runtime.settings_files import SettingsFileError, check_size, read_yaml, user_path


def load(
    path: Path | str,
    *,
    data: CrossDomainDataModule | Any = None,  # noqa: ANN401  or a table
    releases: Mapping[str, Path | str] | None = None,
    root: Path | str | None = None,
    registry: Path | str | None = None,
) -> Predictor:
    """Load a run's best checkpoint, or a bundle, for recommendation.

    A run folder may be moved or copied; releases that it published and its training ratings are read from it. Without them (``fit``
    with ``keep_ratings=False``) the ratings are read again, from the location in its ``config.yaml``. Loading imports nothing: the
    classes that the files name must be those of the zoo, or of packages that you have imported.

    Args:
        path: Folder of a run or of a bundle; with ``registry`` the name of a model, such as ``cdr-zoo/bpr-ml-100k``.
        data: Data of the target, if the run has none and they were moved or are tables; for a bundle if its method needs data. A
            table counts as in `zoo.fit`.
        releases: Folder of the release of each source, if it was moved since.
        root: Folder of the ratings of a run, if they are to be read again and were moved.
        registry: Folder of bundles by name, or the address of Hugging Face or of a mirror, which needs the extra ``hub``.

    Returns:
        A predictor.

    Raises:
        ReleaseMismatchError: The data or a release are not those of the training.
        UsageError: The folder is neither a run nor a bundle, is of another version, or names a class that is not imported.

    Examples:
        >>> import tempfile, zoo
        >>> from datamodules import Synthetic
        >>> folder = tempfile.mkdtemp()
        >>> quiet = {"accelerator": "cpu", "enable_progress_bar": False}
        >>> data = Synthetic(num_users=60, num_items=40, sources=[])
        >>> run = zoo.fit(zoo.Popularity(), data, runs=folder, **quiet)
        Data: target music, split latest2, seed 0...
        >>> predictor = zoo.load(run)
        >>> predictor.recommend(predictor.user_ids[:2], k=3).shape
        (6, 4)
    """
    folder = user_path(path) if registry is None else located(str(path), registry)
    data = as_datamodule(data)
    if root is not None and (data is not None or (folder / BUNDLE).is_file()):
        raise UsageError(f"root is {str(root)!r}. Only a run uses it. Pass data=Files(...) alone.")
    if (folder / BUNDLE).is_file():
        return load_bundle(folder, data, releases)
    return load_run(folder, data, releases, root)


def load_run(
    folder: Path,
    data: CrossDomainDataModule | None = None,
    releases: Mapping[str, Path | str] | None = None,
    root: Path | str | None = None,
) -> Predictor:
    """Load a run's best checkpoint with its data; see `load`."""
    settings = settings_of(folder)
    checkpoint = read_checkpoint(folder / BEST)
    method = _instantiate("model", Recommender, settings["model"], folder)
    if data is None:
        kept = root is None and (folder / TARGET).is_dir()
        data = data_of_run(folder, root, kept=kept)
        data.release_paths |= {name: path for name in data.sources if (path := folder / "releases" / name).is_dir()}
        beside = [path for part in (folder, folder / TARGET) if (path := part / Path(data.users).name).is_file()]
        if beside and not Path(data.users).exists():
            data.users = str(beside[0])
        if kept and (made := PreparedTarget.load(folder / TARGET, data.steps(data.target))) is not None:
            data.use_target(made)
    check_names(releases or {}, data.sources)
    data.release_paths |= {name: user_path(path) for name, path in (releases or {}).items()}
    with explain_mismatch(folder, checkpoint):
        drawn, shapes = _instantiate("model", Recommender, settings["model"], folder), None
        with (
            torch.device("meta"),
            suppress(RuntimeError),
        ):  # which a method may not support; what else fails is repeated below
            drawn.on_load_checkpoint(
                checkpoint
            )  # without memory: sizes and settings may state more than the weights have
            shapes = {name: each.shape for name, each in drawn.state_dict().items()}
        if shapes not in (None, {name: each.shape for name, each in checkpoint["state_dict"].items()}):
            raise RuntimeError("weights and sizes differ")
        method.on_load_checkpoint(checkpoint)
        method.load_state_dict(checkpoint["state_dict"])
    warned = logging.getLogger("datamodules")  # `fit` warned about the data already
    level = warned.level
    warned.setLevel(logging.ERROR)
    try:
        read_inputs(data, method, checkpoint["zoo"])
    finally:
        warned.setLevel(level)
    return Predictor(method, data, data.test.seen, folder)


class _KeptData(CrossDomainDataModule):
    """Training ratings of a run whose own datamodule needs tables in memory."""

    def read(self, domain: str) -> Any:  # noqa: ANN401  no table
        """Refuse to read ratings."""
        raise FileNotFoundError(f"The table of {domain!r} is not in the run. Pass data=Frames(...).")


def data_of_run(folder: Path, root: Path | str | None = None, *, kept: bool = False) -> CrossDomainDataModule:
    """Return the datamodule of a run, from its config, without opening data.

    Args:
        folder: Folder of the run.
        root: Replaces its folder of ratings.
        kept: Whether the ratings in the run folder will be used, so that tables in memory are not needed.

    Raises:
        UsageError: The folder is no run, or its config does not fit this version.
    """
    settings = settings_of(folder)
    part = settings["data"]
    if str(part.get("class_path", "")) == class_path(Frames):
        if not kept:
            raise UsageError(f"{folder} was trained on tables in memory. Pass them: data=Frames(...).")
        given = part.get("init_args") or {}
        sources = given.get("sources")  # a text if there are none
        own = {name: given[name] for name in inspect.signature(CrossDomainDataModule).parameters if name in given}
        own |= {
            "target": given.get("name", "target"),
            "sources": list(sources) if isinstance(sources, list | dict) else [],
        }
        part = {"class_path": f"{_KeptData.__module__}.{_KeptData.__qualname__}", "init_args": own}
    if root is not None:
        part = {**part, "init_args": {**(part.get("init_args") or {}), "root": str(user_path(root))}}
    data: CrossDomainDataModule = _instantiate("data", CrossDomainDataModule, part, folder)
    if data.seed is None and isinstance(seed := settings.get("seed_everything"), int):
        data.seed = int(seed)
    return data


def settings_of(folder: Path) -> dict[str, Any]:
    """Return the settings of a run, from its config."""
    if not folder.is_dir():
        raise FileNotFoundError(f"No run at {folder}. Pass one, such as runs/PriCDR/version_0.")
    if not (path := folder / CONFIG).is_file():
        raise UsageError(f"{folder} is neither a run nor a bundle (no {CONFIG}). Pass one.")
    try:
        check_size(path)
        settings: dict[str, Any] = read_yaml(path.read_text(encoding="utf-8"), path)
    except SettingsFileError as error:
        raise UsageError(str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from error
    for part in ("model", "data"):
        given = settings.get(part) if isinstance(settings, dict) else None
        own = given if isinstance(given, dict) else {}
        if not (isinstance(own.get("class_path"), str) and isinstance(own.get("init_args"), dict | None)):
            raise UsageError(
                f"`{part}` of {path} is {str(given)[:80]!r}. It needs class_path (text) and init_args (mapping). Pass a run."
            )
    return settings


def _instantiate(part: str, base: type, settings: Any, folder: Path) -> Any:  # noqa: ANN401  a method, or a datamodule
    with importing_nothing(folder / CONFIG):
        try:
            return instantiate(part, base, settings)
        except (ArgumentError, TypeError, ValueError) as error:
            raise UsageError(
                f"`{part}` of {folder / CONFIG} does not fit version {VERSION}: {refusal(error)}"
            ) from error
