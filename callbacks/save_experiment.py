"""SaveExperiment: save the settings of a run in its folder and in its checkpoints."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pytorch_lightning import Callback, LightningModule, Trainer

from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import CONFIG, FROM_PYTHON, TARGET, atomic_write, class_path, folder_of_run
from zoo.runtime.settings_files import with_absolute_paths


class SaveExperiment(Callback):
    """Save the experiment as ``config.yaml`` in the run folder; every command accepts the file.

    It has the datamodule's current releases and list of users, so it is the target's form. Paths of data are absolute. A fit also
    saves the training ratings in the private folder ``target``, so that the run scores after its files changed.

    Args:
        settings: Plain settings of the experiment: ``model``, ``data``, ``trainer`` and so on; ``keep_ratings``: false saves none.
        others: Callbacks given as objects, which settings cannot hold; a comment names them.

    Examples:
        >>> callbacks = [SaveExperiment({"data": {"class_path": "datamodules.Synthetic"}})]  # Trainer(callbacks=callbacks)
    """

    def __init__(self, settings: Mapping[str, Any], others: Sequence[Callback] = ()) -> None:
        self.settings, self.others = settings, others
        self._saved = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder on every process, then write the file once, on the first; a test writes it too."""
        folder = folder_of_run(trainer)
        if folder is not None and trainer.is_global_zero and not self._saved:
            self._write(folder, trainer.datamodule)  # type: ignore[attr-defined]
            if stage == "fit" and self.settings.get("keep_ratings", True):
                self._keep_ratings(folder / TARGET, trainer.datamodule)  # type: ignore[attr-defined]
        self._saved = True

    def _write(self, folder: Path, data: Any) -> None:  # noqa: ANN401  any datamodule
        inputs = {
            "releases": {name: str(path) for name, path in data.release_paths.items()} or None,
            "users": data.users,
        }
        part = self.settings["data"]
        own = with_absolute_paths(part.get("init_args") or {})
        settings = {**self.settings, "data": {**part, "init_args": {**own, **inputs}}}
        names = ", ".join(type(callback).__name__ for callback in self.others)
        head = f"# cdr-zoo {VERSION}{f'{FROM_PYTHON}{names}' if names else ''}\n"
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(folder / CONFIG) as file:
            text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
            file.write_text(head + text, encoding="utf-8")

    def _keep_ratings(self, folder: Path, data: Any) -> None:  # noqa: ANN401  any datamodule
        shutil.rmtree(folder, ignore_errors=True)  # of a run that is resumed
        data.save_target(folder)
        if folder.is_dir() and Path(data.users).is_file():  # an agreed list
            shutil.copyfile(data.users, folder / Path(data.users).name)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Store the version, the method's class, and the publisher's settings, to refuse others later."""
        checkpoint["version"] = VERSION
        checkpoint["publisher"] = self.settings.get("publisher")
        checkpoint.setdefault("hyper_parameters", {}).setdefault("_class_path", class_path(type(pl_module)))
