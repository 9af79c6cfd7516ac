"""Quiet ``fit`` inside this process: for a run, a trial of a search, or a check."""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zoo.runs.cli import ZooCLI, import_names


class Trial(ZooCLI):
    """``fit`` without the final test, which a search must not use."""

    def end_fit(self) -> None:
        """Skip the test."""

    @property
    def best(self) -> float:
        """The best validation NDCG@10; a split without validation is refused."""
        best = self.trainer.checkpoint_callback.best_model_score  # type: ignore[union-attr]
        if best is None:
            raise ValueError(
                "A search needs validation NDCG@10, and the split has no validation set. Change the split."
            )
        return float(best)

    def test_chosen(self) -> None:
        """Test the best checkpoint, as ``fit`` does at its end; its files must be at their original paths."""
        with _quietly():
            super().end_fit()


@contextmanager
def _quietly() -> Iterator[None]:
    import_names()
    for chatter in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(chatter).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def train_and_test(arguments: Sequence[str], folder: Path) -> None:
    """Train into a folder and test the best checkpoint, as ``python -m zoo fit`` with these arguments."""
    with _quietly():
        ZooCLI(args=["fit", *arguments, *folder_arguments(folder)])


def trial(arguments: Sequence[str], folder: Path) -> Trial:
    """Train into a folder without a test."""
    with _quietly():
        return Trial(args=["fit", *arguments, *folder_arguments(folder)])


def check(arguments: Sequence[str]) -> None:
    """Parse arguments and build every object of a run; opens no data."""
    with _quietly():
        ZooCLI(args=list(arguments), run=False).check()


def folder_arguments(folder: Path) -> list[str]:
    """Return arguments for a quiet run of one process in a folder: more processes would repeat the whole benchmark."""
    logger = {
        "class_path": "pytorch_lightning.loggers.CSVLogger",
        "init_args": {"save_dir": str(folder.parent), "name": "", "version": folder.name},
    }
    quiet = ["--trainer.enable_progress_bar", "false", "--checkpoint.keep_last", "false"]
    return ["--trainer.logger", json.dumps(logger), "--trainer.devices", "1", *quiet]
