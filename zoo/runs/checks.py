"""Checks of a run before anything is published: settings that fit together, metrics that callbacks watch, a key of W&B."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import BaseFinetuning, ModelCheckpoint, ModelPruning, StochasticWeightAveraging, Timer
from pytorch_lightning.callbacks.weight_averaging import WeightAveraging
from pytorch_lightning.loggers import WandbLogger

from callbacks import BestCheckpoint
from datamodules import CrossDomainDataModule
from datamodules.public_lists import COMMON, OWN, agreed_users, catalogue_ids
from zoo.data.metrics import METRICS, SELECTION_METRIC
from zoo.methods.base import Recommender, is_private
from zoo.publishers.base import Publisher
from zoo.release.release import Release
from zoo.runs.inputs import UsageError
from zoo.runs.optimization import own_training_reason, plateau_of
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
        raise TypeError(f"{name} is not initialised. Call super().__init__() first in its constructor.")
    checks.instance(CrossDomainDataModule, "datamodules.Files(...)", data=data)
    if publisher is not None:
        checks.instance(Publisher, "zoo.JLT(epsilon=8)", publisher=publisher)
    checks.instance(Sequence, "[EarlyStopping(...)]", callbacks=callbacks)
    for callback in callbacks:  # type: ignore[attr-defined]  # a sequence
        checks.instance(Callback, "EarlyStopping(...)", **{"an entry of callbacks": callback})
    known = [name for name in inspect.signature(Trainer.__init__).parameters if name not in ("self", "callbacks")]
    if unknown := [name for name in trainer if name not in known]:
        near = suggest(unknown[0], [*known, *(name for name in own if name != "trainer")])
        raise UsageError(f"zoo.fit has no argument {unknown[0]!r}.{near} Allowed: its own and those of a Trainer.")


def check_run(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Refuse what cannot be trained, before publishing and before other processes start; warn about a missing ``max_epochs``."""
    check_clipping(method, trainer.gradient_clip_val)
    method.check_processes(trainer.world_size)
    _check_precision(str(trainer.precision))
    check_monitors(method, data, trainer)
    check_callbacks(method, trainer)
    _check_trackers(trainer)
    if method.batches not in BATCHES:
        raise UsageError(
            f"{type(method).__name__}.batches is {method.batches!r}.{suggest(str(method.batches), BATCHES)} It must be one of "
            f"{', '.join(BATCHES)}."
        )
    if method.accepted_releases and not data.sources:
        raise UsageError(
            f"data.sources is empty, and {type(method).__name__} needs a release. Set --data.sources [NAME], or "
            "choose e.g. EASE."
        )
    if method.from_bundle and is_private(method):
        raise UsageError(f"A bundle does not count the private steps of {type(method).__name__}. Load the run instead.")
    if type(method).__name__ in (*data.sources, *data.release_paths):
        raise UsageError(f"A source is named {type(method).__name__!r}, as the method is. Rename the domain.")
    others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set in __init__
    unlimited = trainer.max_epochs is None and trainer.max_steps == -1 and not any(isinstance(c, Timer) for c in others)
    if unlimited and method.batches != "full_batch" and trainer.is_global_zero:  # a closed form takes one epoch
        sys.stderr.write(
            f"max_epochs is not set: at most {LIGHTNINGS_EPOCHS:,} epochs. Set it: --trainer.max_epochs N (Python: max_epochs=N).\n"
        )


def check_inputs(data: CrossDomainDataModule, *, reads: bool) -> None:
    """Raise, for a missing file of a run, the error of the function that would read it; present files are not opened.

    Args:
        data: Datamodule of the run.
        reads: Whether releases are read, of sources without one after they are published.
    """
    unreleased = [name for name in data.sources if reads and name not in data.release_paths]
    for name in (data.target, *unreleased):
        files = data.files(name)
        if files is not None and not any(path.exists() for path in files):
            data.read(name)
    for path in data.release_paths.values() if reads else ():
        if not path.exists():
            Release.load(path)
    if data.users not in (OWN, COMMON) and not Path(data.users).exists():
        agreed_users(data.users)
    for listed in data.catalogues.values():
        if isinstance(listed, Path) and not listed.exists():
            catalogue_ids(listed)


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
            f"trainer.precision is {precision!r}, in which Adam's moments overflow or stall. Set it to bf16-mixed or "
            "16-mixed."
        )


def check_clipping(method: Recommender, gradient_clip_val: float | None) -> None:
    """Refuse to clip gradients a second time if a guarantee depends on the first clip."""
    if gradient_clip_val and is_private(method):
        raise UsageError(
            f"trainer.gradient_clip_val is {gradient_clip_val}, but {type(method).__name__} clips gradients itself. "
            "Omit it."
        )


def check_monitors(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Raise a `UsageError` with similar metrics if a callback watches a metric that nothing logs.

    A class of another package may log metrics that its ``logs`` does not list. Then a missing metric fails after the first epoch.
    """
    others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set in __init__
    plateau = plateau_of(method)
    every: list[tuple[str, Any, Any, Callback | None]] = [
        (type(c).__name__, getattr(c, "monitor", None), getattr(c, "mode", None), c) for c in others
    ]
    every += [("ReduceLROnPlateau", *plateau, None)] if plateau else []
    for name, watched, mode, _ in every:
        wanted = direction_of(watched) if isinstance(watched, str) else ""
        if wanted and mode in ("min", "max") and mode != wanted:
            how = "grows" if wanted == "max" else "falls"
            raise UsageError(f"{name}.mode is {mode!r}, but {watched} {how} with improvement. Set mode to {wanted!r}.")
    watching = [(name, watched, c) for name, watched, _, c in every if isinstance(watched, str) and _is_strict(c)]
    if not watching:
        return
    validates = data.evaluation.has_validation and trainer.limit_val_batches != 0
    known = [*figures_of(method, data, validates), *sorted({name for c in others for name in _logs_of(type(c))})]
    for name, watched, callback in watching:
        allowed = [*known, PENALTIES, *(COUNTED if isinstance(callback, ModelCheckpoint) else ())]
        if any(fnmatchcase(watched.replace("/pessimistic/", "/"), one) for one in allowed):
            continue
        if watched == "train/epsilon":
            logged = [one for one in known if one.startswith("train/epsilon_")] or [
                "train/epsilon_RELATION (PrivacyBudget)"
            ]
            raise UsageError(
                f"{name} watches 'train/epsilon', which now has the neighbouring relation. Watch {' or '.join(logged)}."
            )
        if watched.startswith("val/") and not validates:
            raise UsageError(
                f"{name} watches {watched!r}, but the split {data.evaluation.split!r} is not validated. Omit it, or "
                "set data.evaluation.split."
            )
        if all(_lists_metrics(type(one)) for one in (method, *others)):
            raise UsageError(
                f"{name} watches {watched!r}, which nothing logs.{suggest(watched, known)} Logged: {', '.join(known)}."
            )


def direction_of(metric: str) -> str:
    """Return ``max`` or ``min``, the direction in which a metric improves; "" if it is unknown.

    Examples:
        >>> direction_of("val/full/ndcg@10"), direction_of("train/loss"), direction_of("train/critic_gap")
        ('max', 'min', '')
    """
    measure = metric.rpartition("/")[2].partition("@")[0]
    if measure in METRICS or measure == "sign_accuracy":
        return "max"
    return "min" if measure == "loss" else ""


def check_callbacks(method: Recommender, trainer: Trainer) -> None:
    """Raise a `UsageError` for a callback of Lightning whose change of parameters would be lost, or would break a method."""
    others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set in __init__
    for callback in others:
        name, reason = type(callback).__name__, ""
        if isinstance(callback, StochasticWeightAveraging):
            reason = "averages after the last epoch, but best.ckpt is an earlier one. Use EMAWeightAveraging(use_buffers=False)."
        elif isinstance(callback, ModelPruning):
            reason = "masks weights in the call of a layer, but methods read weights directly. Remove it."
        elif isinstance(callback, WeightAveraging | BaseFinetuning) and (own := own_training_reason(method)):
            reason = f"needs one optimizer, but {type(method).__name__} {own}. Remove it."
        elif isinstance(callback, WeightAveraging) and callback._use_buffers:
            reason = "has use_buffers true, which averages item counts and row numbers too. Set use_buffers to False."
        if reason:
            raise UsageError(f"{name} {reason}")


def figures_of(method: Recommender, data: CrossDomainDataModule, validates: bool = True) -> list[str]:
    """Return the names of the metrics that training a method logs; a name that ends with ``*`` is a prefix.

    With ties, each ranking metric has a second name, such as ``val/full/pessimistic/ndcg@10``.
    """
    solved = method.batches in ("full_batch", "steps") and not method.step_outputs
    own = sorted(method.figures() - ({"train/loss"} if solved else set()))
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


def _is_strict(callback: Callback | None) -> bool:
    """Return whether a callback fails without its metric; our checkpoint does not."""
    return not isinstance(callback, BestCheckpoint) and bool(getattr(callback, "strict", True))
