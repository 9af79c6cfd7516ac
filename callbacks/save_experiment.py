"""SaveExperiment: the settings of a run, in its folder and in its checkpoints."""

from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.cli import SaveConfigCallback

from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import folder_of_run, plain, whole

#: Words of one command, which are no part of an experiment.
COMMAND_WORDS = ("ckpt_path", "resume", "weights_only", "verbose", "out", "source", "return_predictions", "dataloaders")


class SaveExperiment(SaveConfigCallback):
    """Saves the experiment as ``config.yaml`` in the run folder, without the words of one command.

    Every command accepts the saved file: after publishing it names the releases, so it is the target's form.
    """

    folder: Path | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Ask for the folder on every process, then save on the first, once: a test's figures stand beside it too."""
        self.folder = folder_of_run(trainer)
        super().setup(trainer, pl_module, stage)

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the file, whole or not at all."""
        if self.folder is None:
            return
        config = self.config.clone()
        for word in COMMAND_WORDS:
            config.pop(word, None)
        path = self.folder / self.config_filename
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as file:
            self.parser.save(config, str(file), skip_unset=False, overwrite=True, multifile=False, skip_validation=True)

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the publisher's settings, as plain values, to refuse others later; and which version made it."""
        checkpoint["version"] = VERSION
        checkpoint["publisher"] = plain(self.config.get("publisher"))
