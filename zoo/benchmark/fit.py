"""Quiet ``fit`` inside this process: for a run, a trial of a search, or a check."""

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from zoo.benchmark.grid import SEARCH
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.words import UNCOUNTED
from zoo.privacy.spending.total import record_of
from zoo.runs.cli import ZooCLI, import_names
from zoo.runtime.run_folder import PRIVACY, folder_of_run

NO_VALIDATION = (
    "A search needs validation NDCG@10; split or limit_val_batches has none. Change it. Private rounds have no search."
)


class Trial(ZooCLI):
    """``fit`` without the final test, which a search must not use."""

    def check_validation(self) -> None:
        """Refuse a split without validation, before anything is published or trained."""
        if not self.datamodule.evaluation.has_validation or self.trainer.limit_val_batches == 0:
            raise ValueError(NO_VALIDATION)

    def before_fit(self) -> None:
        """Note in the run's record that its settings are chosen by metrics."""
        self.check_validation()
        self.model.chosen_by_metrics = True

    def end_fit(self) -> None:
        """Skip the test."""

    @property
    def best(self) -> float:
        """The best validation NDCG@10."""
        best = self.trainer.checkpoint_callback.best_model_score  # type: ignore[union-attr]
        if best is None:  # the last epoch was stored
            best = self.trainer.callback_metrics.get("val/ndcg@10")
        if best is None:
            raise ValueError(NO_VALIDATION)
        return float(best)

    def test_chosen(self, others: tuple[PrivacyRecord, ...]) -> None:
        """Test the best checkpoint as ``fit`` does, with its files back in place; count the private trainings of other trials."""
        self.model.compared = others
        with _quietly():
            super().end_fit()


def private_trainings(search: Path, omit: str = "") -> tuple[PrivacyRecord, ...]:
    """Return the records of the private trainings of a search's trials, but for one trial, to count them in the run's record."""
    files = [path for path in sorted(search.glob(f"*/{PRIVACY}")) if path.parent.name != omit]
    entries = [entry for path in files for entry in json.loads(path.read_text(encoding="utf-8")).values()]
    found = [record_of(entry) for entry in entries if "ledger" not in entry]  # those of releases have one
    return tuple(replace(one, provisos=tuple(code for code in one.provisos if code != UNCOUNTED)) for one in found)


@contextmanager
def _quietly() -> Iterator[None]:
    import_names()
    for chatter in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(chatter).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Chosen(Trial):
    """``fit`` with settings that a search chose."""

    def before_fit(self) -> None:
        """Also count the private trainings of the search in the run's folder, if there is one."""
        super().before_fit()
        if (folder := folder_of_run(self.trainer)) is not None:  # that of the trainer is set in `fit`
            self.model.compared = private_trainings(folder / SEARCH)

    def end_fit(self) -> None:
        """Test the best checkpoint."""
        super(Trial, self).end_fit()


def train_and_test(arguments: Sequence[str], folder: Path, *, chosen: bool = False) -> None:
    """Train into a folder and test the best checkpoint, as ``python -m zoo fit`` does; a search may have ``chosen`` settings."""
    with _quietly():
        (Chosen if chosen else ZooCLI)(args=["fit", *arguments, *folder_arguments(folder)])


def trial(arguments: Sequence[str], folder: Path) -> Trial:
    """Train into a folder without a test."""
    with _quietly():
        return Trial(args=["fit", *arguments, *folder_arguments(folder)])


def check(arguments: Sequence[str], folder: Path, *, searches: bool = False) -> None:
    """Parse arguments, build every object of a run in a folder and check that its files exist; opens no data, writes nothing.

    A ValueError refuses given releases: a row would not be that of its publisher.
    """
    with _quietly():
        run = Trial(args=[*arguments, *folder_arguments(folder)], run=False)
        run.check()
    if searches:
        run.check_validation()
    if given := sorted(run.datamodule.release_paths):
        raise ValueError(
            f"data.releases gives {given}, and a row has its own publisher. Omit it, or compare fits by "
            "`python -m zoo report RUN RUN`."
        )


def folder_arguments(folder: Path) -> list[str]:
    """Return arguments for a quiet run of one process in a folder: more processes would repeat the whole benchmark."""
    logger = {
        "class_path": "pytorch_lightning.loggers.CSVLogger",
        "init_args": {"save_dir": str(folder.parent), "name": "", "version": folder.name},
    }
    quiet = ["--trainer.enable_progress_bar", "false", "--checkpoint.keep_last", "false"]
    quiet += ["--keep_ratings", "false"]  # many runs of the same data
    return ["--trainer.logger", json.dumps(logger), "--trainer.devices", "1", *quiet]
