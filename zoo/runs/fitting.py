"""Training at a target party: fit with the best checkpoint kept, and test it."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.loggers import CSVLogger, Logger, WandbLogger

from callbacks import BestCheckpoint, CaseWriter, RunReport, Trackers
from callbacks.progress import with_own_bar
from datamodules import CrossDomainDataModule
from zoo.methods.base import Recommender
from zoo.publishers.base import Publisher
from zoo.runs.inputs import HANDOVER, UsageError, resolve
from zoo.runs.monitors import check_monitors
from zoo.runs.resume import remove_if_empty
from zoo.runs.together import ending_together
from zoo.runs.trackers import WITHOUT_KEY
from zoo.runs.trackers import check as check_tracker
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import CONFIG, class_path, folder_of_run, plain, whole
from zoo.runtime.suggestions import nearest

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
#: What a batch may hold, of `Recommender.batches`.
BATCHES = ("users", "pairs", "triples", "once", "steps")
#: Epochs that Lightning gives a training which is given no end.
LIGHTNINGS_EPOCHS = 1000
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


def check_run(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Refuse what cannot be trained, before anything is published and any other process is started; say what has no end."""
    method.check_processes(trainer.world_size)
    _check_precision(str(trainer.precision))
    check_monitors(method, data, trainer)
    _check_trackers(trainer)
    if method.batches not in BATCHES:
        raise UsageError(
            f"{type(method).__name__}.batches is {method.batches!r}.{nearest(str(method.batches), BATCHES)} A batch is one of "
            f"{', '.join(BATCHES)}."
        )
    if method.reads and not data.sources:
        raise UsageError(
            f"{type(method).__name__} learns from releases, and this experiment names no source: --data.sources [NAME]. "
            "DMF and EASE use the target alone."
        )
    others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set when it is made
    unlimited = trainer.max_epochs is None and trainer.max_steps == -1 and not any(isinstance(c, Timer) for c in others)
    if (
        unlimited and method.batches != "once" and trainer.is_global_zero
    ):  # a closed form takes one epoch, whatever it is given
        sys.stderr.write(
            f"max_epochs is not set: the training takes {LIGHTNINGS_EPOCHS:,} epochs at most. Choose how many: "
            "--trainer.max_epochs N, in Python max_epochs=N.\n"
        )


def _check_trackers(trainer: Trainer) -> None:
    """Refuse W&B without a key while nothing is published: a release would have been paid for, and no run would follow."""
    wandb = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
    if trainer.is_global_zero and any(map(_needs_key, wandb)):
        check_tracker("wandb", "the logger")


def _needs_key(logger: WandbLogger) -> bool:
    begun = logger._experiment is not None  # by who made the logger
    return not (begun or logger._offline or logger._wandb_init.get("mode") in WITHOUT_KEY)


def _check_precision(precision: str) -> None:
    """Refuse to keep counts and moments in half precision, where they stop to grow."""
    if precision in ("16-true", "bf16-true") or precision.startswith("transformer-engine"):
        raise UsageError(
            f"trainer.precision is {precision!r}, which keeps everything in half precision, counts of items and Adam's moments "
            "among them: in bfloat16 a count ends at 256. Take bf16-mixed or, on CUDA, 16-mixed."
        )


def check_clipping(method: Recommender, gradient_clip_val: float | None) -> None:
    """Refuse a second clip of gradients where a guarantee rests on the first."""
    promises = (
        method.guarantee_bearing and method.hparams.get("epsilon", ...) is not None
    )  # null: no guarantee is asked for
    if gradient_clip_val and promises:
        raise UsageError(
            f"trainer.gradient_clip_val is {gradient_clip_val}, and {type(method).__name__} clips "
            "each user's gradient itself; a second clip would void its accounting. Leave it out."
        )


def test_best(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Test the checkpoint that validation chose, once; its figures end in the run folder."""
    (kept,) = (c for c in trainer.checkpoint_callbacks if isinstance(c, BestCheckpoint))
    best = kept.best_model_path or None
    trainer.test(method, datamodule=data, ckpt_path=best, weights_only=True, verbose=False)


test_best.__test__ = False  # type: ignore[attr-defined]  # no test of pytest


@dataclass(frozen=True)
class Run:
    """A finished training: what `fit` gives, and a path to its folder wherever one is asked for."""

    method: Recommender
    data: CrossDomainDataModule
    trainer: Trainer
    folder: Path  # what the run has left behind

    def __fspath__(self) -> str:
        return str(self.folder)

    def test(self) -> dict[str, float]:
        """Test the checkpoint that validation chose; gives the figures, which the run folder keeps too."""
        with quietly(), ending_together(self.trainer):
            test_best(self.method, self.data, self.trainer)
        return {name: float(value) for name, value in self.trainer.callback_metrics.items() if name.startswith("test/")}


class SaveSettings(Callback):
    """Saves the settings of a run that was made of objects, as ``config.yaml``: the target's form of the experiment.

    Callbacks are objects that cannot be written down; a comment names them.
    """

    def __init__(self, settings: Mapping[str, Any], others: Sequence[Callback]) -> None:
        self.settings, self.others = settings, others

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Ask for the folder on every process, then write on the first, whole or not at all."""
        folder = folder_of_run(trainer)
        if stage != "fit" or folder is None or not trainer.is_global_zero:
            return
        folder.mkdir(parents=True, exist_ok=True)
        names = ", ".join(type(callback).__name__ for callback in self.others)
        head = f"# cdr-zoo {VERSION}{f'; with the callbacks {names}' if names else ''}\n"
        with whole(folder / CONFIG) as file:
            file.write_text(head + yaml.safe_dump(plain(self.settings), sort_keys=False), encoding="utf-8")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep which version made it, and the method's class, which the command line asks of a checkpoint."""
        checkpoint["version"] = VERSION
        checkpoint.setdefault("hyper_parameters", {})["_class_path"] = class_path(type(pl_module))


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
    check_clipping(method, trainer.get("gradient_clip_val"))
    seed_everything(seed, workers=True, verbose=False)
    if trainer.get("logger") is False:
        raise UsageError("A run keeps what it finds in its folder: leave logger=False out.")
    written: dict[str, Any] = {}
    asked = Namespace(publisher=publisher)  # type: ignore[no-untyped-call]
    with quietly():
        made = Trainer(
            logger=loggers(trainer.pop("logger", None), runs, method),
            callbacks=[*own_callbacks(), *with_trackers(callbacks), SaveSettings(written, callbacks), BestCheckpoint()],
            **{**TRAINER, **trainer},
        )
        check_run(method, data, with_own_bar(made))
        own = take_folder(made)
        try:
            inputs = resolve(asked, data, made, reads=bool(method.reads))
            data.release_paths, data.users = dict(inputs.releases), inputs.users
            written |= plain({"seed_everything": seed, "trainer": trainer, "model": method, "data": data})
            written["data"]["init_args"] |= {"releases": inputs.plain()["paths"] or None, "users": inputs.users}
            with ending_together(made):
                made.fit(method, datamodule=data)
        except BaseException:
            if own:
                remove_if_empty(Path(str(made.loggers[0].log_dir)))  # the trainer would ask processes that may be gone
            raise
        finally:
            os.environ.pop(HANDOVER, None)
    folder = made.log_dir
    assert folder is not None
    return Run(method, data, made, Path(folder).resolve())
