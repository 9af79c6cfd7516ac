"""Checks of a run before anything is published: settings that fit together, metrics that callbacks watch, a key of W&B."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint, Timer
from pytorch_lightning.loggers import WandbLogger

from callbacks import BestCheckpoint
from datamodules import CrossDomainDataModule
from zoo.data.metrics import METRICS, SELECTION_METRIC
from zoo.methods.base import Recommender
from zoo.publishers.base import Publisher
from zoo.runs.inputs import UsageError
from zoo.runs.trackers import WITHOUT_KEY
from zoo.runs.trackers import check as check_tracker
from zoo.runtime import checks
from zoo.runtime.suggestions import suggest

#: Allowed values of `Recommender.batches`.
BATCHES = ("users", "pairs", "triples", "full_batch", "steps")
#: Lightning's default number of epochs.
LIGHTNINGS_EPOCHS = 1000
#: Metrics that callbacks name.
PENALTIES = "train/penalty/*"
#: Further values that a checkpoint may watch.
COUNTED = ("epoch", "step")
#: Packages whose classes list every metric that they log.
OURS = ("zoo", "callbacks", "pytorch_lightning", "lightning")


def check_arguments(
    method: object, data: object, publisher: object, callbacks: object, trainer: Iterable[str], own: Iterable[str]
) -> None:
    """Refuse arguments of ``zoo.fit`` of another class (`TypeError`), and unknown names (`UsageError`) with similar ones.

    Args:
        method: A recommender.
        data: A datamodule.
        publisher: A publisher, or None.
        callbacks: A list of callbacks.
        trainer: Names of further arguments, for Lightning's `Trainer`.
        own: Names of the arguments of ``zoo.fit``.
    """
    checks.instance(Recommender, "zoo.BPR()", method=method)
    if "_penalties" not in vars(method):
        name = type(method).__name__
        raise TypeError(f"{name} is not initialised. Its constructor must call super().__init__() first. Add the call.")
    checks.instance(CrossDomainDataModule, "datamodules.Files(...)", data=data)
    if publisher is not None:
        checks.instance(Publisher, "zoo.JLT(epsilon=8)", publisher=publisher)
    checks.instance(Sequence, "[EarlyStopping(...)]", callbacks=callbacks)
    for callback in callbacks:  # type: ignore[attr-defined]  # a sequence
        checks.instance(Callback, "EarlyStopping(...)", **{"an entry of callbacks": callback})
    known = [name for name in inspect.signature(Trainer.__init__).parameters if name not in ("self", "callbacks")]
    if unknown := [name for name in trainer if name not in known]:
        near = suggest(unknown[0], [*known, *(name for name in own if name != "trainer")])
        raise UsageError(
            f"zoo.fit has no argument {unknown[0]!r}.{near} It takes its own arguments and those of a Lightning Trainer."
        )


def check_run(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Refuse what cannot be trained, before publishing and before other processes start; warn about a missing ``max_epochs``."""
    check_clipping(method, trainer.gradient_clip_val)
    method.check_processes(trainer.world_size)
    _check_precision(str(trainer.precision))
    check_monitors(method, data, trainer)
    _check_trackers(trainer)
    if method.batches not in BATCHES:
        raise UsageError(
            f"{type(method).__name__}.batches is {method.batches!r}.{suggest(str(method.batches), BATCHES)} It must be one of "
            f"{', '.join(BATCHES)}."
        )
    if method.accepted_releases and not data.sources:
        raise UsageError(
            f"data.sources is empty, and {type(method).__name__} needs a release. Set --data.sources [NAME], or choose a "
            "single-domain method such as EASE."
        )
    others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set in __init__
    unlimited = trainer.max_epochs is None and trainer.max_steps == -1 and not any(isinstance(c, Timer) for c in others)
    if unlimited and method.batches != "full_batch" and trainer.is_global_zero:  # a closed form takes one epoch
        sys.stderr.write(
            f"max_epochs is not set: at most {LIGHTNINGS_EPOCHS:,} epochs. Set it: --trainer.max_epochs N (Python: max_epochs=N).\n"
        )


def _check_trackers(trainer: Trainer) -> None:
    """Refuse W&B without a key before a release is published and charged."""
    wandb = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
    if trainer.is_global_zero and any(map(_needs_key, wandb)):
        check_tracker("wandb", "the logger")


def _needs_key(logger: WandbLogger) -> bool:
    started = logger._experiment is not None
    return not (started or logger._offline or logger._wandb_init.get("mode") in WITHOUT_KEY)


def _check_precision(precision: str) -> None:
    """Refuse half precision for everything: counts and moments stop growing in it."""
    if precision in ("16-true", "bf16-true") or precision.startswith("transformer-engine"):
        raise UsageError(
            f"trainer.precision is {precision!r}, in which item counts and Adam's moments overflow or stall. Set it to bf16-mixed "
            "or, on CUDA, 16-mixed."
        )


def check_clipping(method: Recommender, gradient_clip_val: float | None) -> None:
    """Refuse to clip gradients a second time if a guarantee depends on the first clip."""
    private = method.guarantee_bearing and method.hparams.get("epsilon", ...) is not None  # null: no guarantee
    if gradient_clip_val and private:
        raise UsageError(
            f"trainer.gradient_clip_val is {gradient_clip_val}, but {type(method).__name__} clips each user's gradient itself. "
            "Omit it."
        )


def check_monitors(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Raise a `UsageError` with similar metrics if a callback watches a metric that nothing logs.

    A class of another package may log metrics that its ``logs`` does not list. Then a missing metric fails after the first epoch.
    """
    others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set in __init__
    monitors = [(c, getattr(c, "monitor", None)) for c in others if _is_strict(c)]
    watching = [(callback, name) for callback, name in monitors if isinstance(name, str)]
    if not watching:
        return
    validates = data.evaluation.has_validation and trainer.limit_val_batches != 0
    known = [*figures_of(method, data, validates), *sorted({name for c in others for name in _logs_of(type(c))})]
    for callback, watched in watching:
        name = type(callback).__name__
        allowed = [*known, PENALTIES, *(COUNTED if isinstance(callback, ModelCheckpoint) else ())]
        if any(fnmatchcase(watched.replace("/pessimistic/", "/"), one) for one in allowed):
            continue
        if watched == "train/epsilon":
            logged = [one for one in known if one.startswith("train/epsilon_")] or [
                "train/epsilon_RELATION (PrivacyBudget)"
            ]
            raise UsageError(
                f"{name} watches 'train/epsilon', whose name now has the neighbouring relation. Watch {' or '.join(logged)}."
            )
        if watched.startswith("val/") and not validates:
            raise UsageError(
                f"{name} watches {watched!r}, but the split {data.evaluation.split!r} is not validated. Omit the callback, or set "
                "data.evaluation.split to latest2."
            )
        if all(_lists_metrics(type(one)) for one in (method, *others)):
            raise UsageError(
                f"{name} watches {watched!r}, which nothing logs.{suggest(watched, known)} Logged: {', '.join(known)}."
            )


def figures_of(method: Recommender, data: CrossDomainDataModule, validates: bool = True) -> list[str]:
    """Return the names of the metrics that training a method logs; a name that ends with ``*`` is a prefix.

    With ties, each ranking metric has a second name, such as ``val/full/pessimistic/ndcg@10``.
    """
    own = sorted(_logs_of(type(method)) - ({"train/loss"} if method.batches in ("full_batch", "steps") else set()))
    kinds = {"sampled": data.sampled_ranking, "full": data.full_ranking is True}
    ranked = [
        f"val/{kind}/{name}@{k}" for kind, enabled in kinds.items() if enabled for k in data.ks for name in METRICS
    ]
    return [
        *([SELECTION_METRIC, *ranked] if validates else []),
        *(name for name in own if validates or not name.startswith("val/")),
    ]


def _logs_of(kind: type) -> set[str]:
    return {name for one in kind.__mro__ for name in vars(one).get("logs", ())}


def _lists_metrics(kind: type) -> bool:
    """Return whether all metrics of a class are known: one of ours or of Lightning, or with its own ``logs``."""
    return "logs" in vars(kind) or kind.__module__.partition(".")[0] in OURS


def _is_strict(callback: Callback) -> bool:
    """Return whether a callback fails without its metric; our checkpoint does not."""
    return not isinstance(callback, BestCheckpoint) and bool(getattr(callback, "strict", True))
