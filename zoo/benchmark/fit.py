"""``fit`` inside this process, without a word on the terminal: the run of a cell, a trial of a search, a check."""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from zoo.runs.cli import ZooCLI, import_names


class Trial(ZooCLI):
    """``fit`` that ends with validation: a search may not look at the test."""

    def end_fit(self) -> None:
        """Leave the test alone."""

    @property
    def best(self) -> float:
        """The best validation NDCG@10; a split without validation is refused."""
        best = self.trainer.checkpoint_callback.best_model_score  # type: ignore[union-attr]
        if best is None:
            raise ValueError("A search chooses by validation NDCG@10, and this split has no validation set.")
        return float(best)

    def test_chosen(self) -> None:
        """Test the best checkpoint once, as ``fit`` does at its end; its files must lie where they were written."""
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


def tested(arguments: Sequence[str], folder: Path) -> None:
    """Train into a folder, and test the best checkpoint once, as ``python -m zoo fit`` with these arguments does."""
    with _quietly():
        ZooCLI(args=["fit", *arguments, *logged_to(folder)])


def trial(arguments: Sequence[str], folder: Path) -> Trial:
    """Train into a folder without a test."""
    with _quietly():
        return Trial(args=["fit", *arguments, *logged_to(folder)])


def check(arguments: Sequence[str]) -> None:
    """Parse, and make every object that a run needs; opens no data."""
    with _quietly():
        ZooCLI(args=list(arguments), run=False).check()


def logged_to(folder: Path) -> list[str]:
    """Arguments that make a folder the run folder, and a run quiet and of one process: others would run the whole benchmark."""
    logger = {
        "class_path": "pytorch_lightning.loggers.CSVLogger",
        "init_args": {"save_dir": str(folder.parent), "name": "", "version": folder.name},
    }
    quiet = ["--trainer.enable_progress_bar", "false", "--checkpoint.keep_last", "false"]
    return ["--trainer.logger", json.dumps(logger), "--trainer.devices", "1", *quiet]
