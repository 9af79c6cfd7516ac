"""Checks of a run before anything is published: parts that fit together, figures that callbacks watch, a key of W&B."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint, Timer
from pytorch_lightning.loggers import WandbLogger

from callbacks import BestCheckpoint
from datamodules import CrossDomainDataModule
from zoo.data.metrics import METRICS, SELECTION_METRIC
from zoo.methods.base import Recommender
from zoo.runs.inputs import UsageError
from zoo.runs.trackers import WITHOUT_KEY
from zoo.runs.trackers import check as check_tracker
from zoo.runtime.suggestions import suggest

#: What a batch may hold, of `Recommender.batches`.
BATCHES = ("users", "pairs", "triples", "full_batch", "steps")
#: Epochs of Lightning where no number is set.
LIGHTNINGS_EPOCHS = 1000
#: Logged under names that callbacks choose.
PENALTIES = "train/penalty/*"
#: What a checkpoint may be chosen by besides, which Lightning counts itself.
COUNTED = ("epoch", "step")
#: Packages whose classes say all that they log.
OURS = ("zoo", "callbacks", "pytorch_lightning", "lightning")


def check_run(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Refuse what cannot be trained, before anything is published and any other process is started; say what has no end."""
    check_clipping(method, trainer.gradient_clip_val)
    method.check_processes(trainer.world_size)
    _check_precision(str(trainer.precision))
    check_monitors(method, data, trainer)
    _check_trackers(trainer)
    if method.batches not in BATCHES:
        raise UsageError(
            f"{type(method).__name__}.batches is {method.batches!r}.{suggest(str(method.batches), BATCHES)} A batch is one of "
            f"{', '.join(BATCHES)}."
        )
    if method.accepted_releases and not data.sources:
        raise UsageError(
            f"{type(method).__name__} learns from releases, and this experiment names no source: --data.sources [NAME]. "
            "DMF and EASE use the target alone."
        )
    others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set when it is made
    unlimited = trainer.max_epochs is None and trainer.max_steps == -1 and not any(isinstance(c, Timer) for c in others)
    if (
        unlimited and method.batches != "full_batch" and trainer.is_global_zero
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


def check_monitors(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Refuse a callback that watches a figure which nothing will log.

    A class of another package may log that figure, unless it lists all that it logs (``logs``). Nothing is refused then, and
    a missing figure ends the run when it is first looked up, after an epoch.

    Raises:
        UsageError: Names the nearest figures, and all that will be logged.
    """
    others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set when it is made
    monitors = [(c, getattr(c, "monitor", None)) for c in others if _insists(c)]
    watching = [(callback, name) for callback, name in monitors if isinstance(name, str)]
    if not watching:
        return
    validates = data.evaluation.has_validation and trainer.limit_val_batches != 0
    known = [*figures_of(method, data, validates), *sorted({name for c in others for name in _named(type(c))})]
    for callback, watched in watching:
        name = type(callback).__name__
        allowed = [*known, PENALTIES, *(COUNTED if isinstance(callback, ModelCheckpoint) else ())]
        if any(fnmatchcase(watched.replace("/pessimistic/", "/"), one) for one in allowed):
            continue
        if watched.startswith("val/") and not validates:
            raise UsageError(
                f"{name} watches {watched}, and the split {data.evaluation.split!r} has no validation set, or none of it is looked "
                "at. Leave it out (--trainer.callbacks null), or choose a split with one, such as latest2."
            )
        if all(_says_what_it_logs(type(one)) for one in (method, *others)):
            raise UsageError(
                f"{name} watches {watched!r}, which nothing logs.{suggest(watched, known)} It may watch {', '.join(known)}."
            )


def figures_of(method: Recommender, data: CrossDomainDataModule, validates: bool = True) -> list[str]:
    """Names of what a training of a method logs: figures of the validation, if it validates, and what the method names in ``logs``.

    A name that ends with ``*`` stands for all that begin so. Where ties matter every ranking figure has a second one, such as
    ``val/full/pessimistic/ndcg@10``, and penalties of callbacks are logged under ``train/penalty/``.
    """
    own = sorted(_named(type(method)) - ({"train/loss"} if method.batches in ("full_batch", "steps") else set()))
    kinds = {"sampled": data.sampled_ranking, "full": data.full_ranking is True}
    ranked = [f"val/{kind}/{name}@{k}" for kind, asked in kinds.items() if asked for k in data.ks for name in METRICS]
    return [
        *([SELECTION_METRIC, *ranked] if validates else []),
        *(name for name in own if validates or not name.startswith("val/")),
    ]


def _named(kind: type) -> set[str]:
    """What a class and those above it say that they log."""
    return {name for one in kind.__mro__ for name in vars(one).get("logs", ())}


def _says_what_it_logs(kind: type) -> bool:
    """Whether all that it logs is known: a class of ours or of Lightning, or one with ``logs`` of its own."""
    return "logs" in vars(kind) or kind.__module__.partition(".")[0] in OURS


def _insists(callback: Callback) -> bool:
    """Whether it cannot do without what it watches; our own checkpoint sees to it by itself."""
    return not isinstance(callback, BestCheckpoint) and bool(getattr(callback, "strict", True))
