"""The trainer of every run: from Python, on the command line and in benchmarks."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer, seed_everything
from pytorch_lightning.loggers import CSVLogger, Logger

from callbacks import BestCheckpoint, CaseWriter, RunReport, SaveExperiment, Trackers
from callbacks.progress import with_own_bar
from datamodules import CrossDomainDataModule
from zoo.methods.base import Recommender
from zoo.publishers.base import Publisher
from zoo.release.metadata import Statement
from zoo.release.release import Release
from zoo.runs.checks import check_run
from zoo.runs.inputs import HANDOVER, UsageError, make_publisher, resolve
from zoo.runs.processes import kill_on_failure
from zoo.runs.publishing import publish
from zoo.runs.resume import checkpoint_of, remove_if_empty
from zoo.runtime.run_folder import folder_of_run, plain

#: What the libraries say of things that are meant: a closed form has no optimiser, latest1 and random1 no validation set.
LIBRARY_CHATTER = (
    "`max_epochs` was not set.*",  # `check_run` says it, where it matters
    ".*isinstance.treespec, LeafSpec.*",
    ".*configure_optimizers.* returned `None`.*",
    ".*training_step.* returned `None`.*",
    "Total length of `list` across ranks is zero.*",
    "Full backward hook is firing.*",
    "Sparse CSR tensor support is in beta state.*",
)
#: Settings of the trainer that a run has unless it asks for others.
TRAINER: Mapping[str, Any] = {"log_every_n_steps": 1, "enable_model_summary": False}


@contextmanager
def quietly() -> Iterator[None]:
    """Without what the libraries say of hardware that is not there and products that are not used; warnings and errors stay."""
    chatter = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    before = chatter.level
    chatter.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in LIBRARY_CHATTER:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        chatter.setLevel(before)


def own_callbacks() -> list[Callback]:
    """What every run says and keeps of itself, beside its checkpoints."""
    return [RunReport(), CaseWriter()]


def with_trackers(asked: Sequence[Callback]) -> list[Callback]:
    """What was asked for, and what tells trackers of the run, unless that was asked for too."""
    return [*asked] if any(isinstance(callback, Trackers) for callback in asked) else [*asked, Trackers()]


def loggers(
    asked: Logger | Iterable[Logger] | bool | None, root: Path | str, method: Recommender
) -> list[Logger] | bool:
    """A CSV log always first: other loggers are added to it, never put in its place; False: none at all, and no run folder."""
    if asked is False:
        return False
    others = [asked] if isinstance(asked, Logger) else list(asked) if isinstance(asked, Iterable) else []
    if not any(isinstance(logger, CSVLogger) for logger in others):
        others.insert(0, CSVLogger(save_dir=str(root), name=type(method).__name__))
    return sorted(others, key=lambda logger: not isinstance(logger, CSVLogger))


def take_folder(trainer: Trainer) -> bool:
    """Make the run folder, by this run alone: of two that begin at once the second takes the next number.

    Returns:
        Whether it was made here and now; one that was asked for by its name may be there already.
    """
    logger = trainer.loggers[0] if trainer.loggers else None
    if not trainer.is_global_zero or not isinstance(logger, CSVLogger):
        return False
    while True:
        try:
            Path(logger.log_dir).mkdir(parents=True)
            return True
        except FileExistsError:
            if not isinstance(logger.version, int):  # a name, such as a benchmark's cells have
                return False
            logger._version = logger.version + 1


class ZooTrainer(Trainer):
    """A Lightning `Trainer` that takes the run folder, finds what a run reads or publishes it, and cleans up."""

    #: Folder of the run at hand, once it is taken; to ask for it later would ask processes that may be gone.
    run_folder: Path | None = None

    def fit(
        self,
        model: LightningModule,
        train_dataloaders: object = None,
        val_dataloaders: object = None,
        datamodule: LightningDataModule | None = None,
        ckpt_path: str | Path | None = None,
        weights_only: bool | None = None,
        resume: Path | None = None,
        publisher: Publisher | Namespace | None = None,
    ) -> None:
        """Train at the target; publish first where all data are at one place.

        Args:
            model: The recommender.
            train_dataloaders: Not used.
            val_dataloaders: Not used.
            datamodule: The target's data and the releases.
            ckpt_path: Checkpoint to go on from, with the run's own config.
            weights_only: Null and true: a checkpoint is tensors and plain values.
            resume: Folder of a run to go on with: its config and its last checkpoint are found in it.
            publisher: Publishes the releases that the datamodule names no path of; its settings will do.
        """
        assert isinstance(model, Recommender)
        assert isinstance(datamodule, CrossDomainDataModule)
        if resume is not None and ckpt_path is None:
            ckpt_path = checkpoint_of(resume)
        check_run(model, datamodule, self)
        with self.run_of(model, datamodule, ckpt_path, publisher):
            super().fit(model, datamodule=datamodule, ckpt_path=ckpt_path, weights_only=weights_only)

    def test_best(self, model: Recommender, datamodule: CrossDomainDataModule) -> None:
        """Test the checkpoint that validation chose, once; its figures end in the run folder."""
        (kept,) = (c for c in self.checkpoint_callbacks if isinstance(c, BestCheckpoint))
        with kill_on_failure(self):
            best = kept.best_model_path or None
            self.test(model, datamodule=datamodule, ckpt_path=best, weights_only=True, verbose=False)

    def publish(
        self,
        model: LightningModule,
        datamodule: CrossDomainDataModule,
        out: Path,
        source: str | None = None,
        budget: Path | None = None,
        sign: Path | None = None,
        about: Statement = Statement(),  # noqa: B008  frozen
        publisher: Publisher | Namespace | None = None,
    ) -> Release:
        """Write the release of a source party; needs that party's data alone.

        Args:
            model: The recommender of the experiment; not used.
            datamodule: Reads the source domain.
            out: Folder to write; must not exist.
            source: Which source domain, where the experiment has several.
            budget: File that remembers what was published and refuses what its cap does not allow; made by
                `python -m zoo privacy budget FILE --epsilon E --delta D --relation R`, and kept at this party.
            sign: PEM file of this party's private Ed25519 key (`openssl genpkey -algorithm ed25519 -out key.pem`).
            about: What is said of the release to whoever gets it; public.
            publisher: Publishes the release; its settings will do.
        """
        made = make_publisher(publisher)
        return publish(made, datamodule, out, source=source, budget=budget, sign=sign, about=about)

    @contextmanager
    def run_of(
        self,
        model: Recommender,
        data: CrossDomainDataModule,
        ckpt_path: str | Path | None,
        publisher: Publisher | Namespace | None,
    ) -> Iterator[None]:
        """Take the run folder and give the data its inputs; a folder that stays empty goes, and so do processes of a failed run."""
        own = take_folder(with_own_bar(self))
        self.run_folder = folder_of_run(self)
        try:
            inputs = resolve(data, self, reads=bool(model.accepted_releases), publisher=publisher, ckpt_path=ckpt_path)
            data.release_paths, data.users = dict(inputs.releases), inputs.users
            with kill_on_failure(self):
                yield
        finally:
            os.environ.pop(HANDOVER, None)
            if own and self.run_folder is not None:
                remove_if_empty(self.run_folder)


@dataclass(frozen=True)
class Run:
    """A finished training: what `fit` gives, and a path to its folder wherever one is asked for."""

    method: Recommender
    data: CrossDomainDataModule
    trainer: ZooTrainer
    folder: Path  # what the run has left behind

    def __fspath__(self) -> str:
        return str(self.folder)

    def test(self) -> dict[str, float]:
        """Test the checkpoint that validation chose; gives the figures, which the run folder keeps too."""
        with quietly():
            self.trainer.test_best(self.method, self.data)
        return {name: float(value) for name, value in self.trainer.callback_metrics.items() if name.startswith("test/")}


def fit(
    method: Recommender,
    data: CrossDomainDataModule,
    *,
    publisher: Publisher | None = None,
    runs: Path | str = "runs",
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    **trainer: Any,  # noqa: ANN401  the trainer's own
) -> Run:
    """Train a method at the target, and keep the epoch of the best validation NDCG@10.

    Does what ``python -m zoo fit`` does before its test. Releases that the datamodule does not name are published here first,
    where all data are at one place and there is a publisher.

    Args:
        method: What is trained.
        data: The target's ratings, and where the releases of its sources lie.
        publisher: Makes the releases that ``data`` names no path of; None: every source has published.
        runs: Folder of runs; this one's is a new one in it.
        seed: Of all that is drawn, but for the noise of a mechanism; also of the splits where ``data`` has none of its own.
        callbacks: Beside those that every run has.
        **trainer: As a Lightning `Trainer` takes it: `max_epochs`, `accelerator`, `enable_progress_bar` and so on.

    Returns:
        The run; `zoo.load(run)` recommends with it, and so does `zoo.load` of its folder, wherever that is moved.

    Raises:
        UsageError: The parts do not go together, or there is nobody to publish.
    """
    if trainer.get("logger") is False:
        raise UsageError("A run keeps what it finds in its folder: leave logger=False out.")
    seed_everything(seed, workers=True, verbose=False)
    logger = loggers(trainer.pop("logger", None), runs, method)
    settings = plain({"seed_everything": seed, "trainer": trainer, "model": method, "data": data})
    kept = [*own_callbacks(), *with_trackers(callbacks), SaveExperiment(settings, callbacks), BestCheckpoint()]
    with quietly():
        made = ZooTrainer(logger=logger, callbacks=kept, **{**TRAINER, **trainer})
        made.fit(method, datamodule=data, publisher=publisher)
    assert made.run_folder is not None
    return Run(method, data, made, made.run_folder.resolve())
