"""Monitors: figures that a training logs and callbacks may watch; one that nothing logs is refused before anything is published."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import ModelCheckpoint

from callbacks import BestCheckpoint
from datamodules import CrossDomainDataModule
from zoo.data.metrics import METRICS, SELECTION_METRIC
from zoo.methods.base import Recommender
from zoo.runs.inputs import UsageError
from zoo.runtime.suggestions import nearest

#: Logged under names that callbacks choose.
PENALTIES = "train/penalty/*"
#: What a checkpoint may be chosen by besides, which Lightning counts itself.
COUNTED = ("epoch", "step")
#: Packages whose classes say all that they log.
OURS = ("zoo", "callbacks", "pytorch_lightning", "lightning")


def check_monitors(method: Recommender, data: CrossDomainDataModule, trainer: Trainer) -> None:
    """Refuse a callback that watches a figure which nothing will log.

    Where a class of another package has a part in the training, logs something and does not say what (``logs``), it may be that
    figure: then nothing is refused here, and a figure that is not there ends the run after its first epoch.

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
                f"{name} watches {watched!r}, which nothing logs.{nearest(watched, known)} It may watch {', '.join(known)}."
            )


def figures_of(method: Recommender, data: CrossDomainDataModule, validates: bool = True) -> list[str]:
    """Names of what a training of a method logs: figures of the validation, if it validates, and what the method names in ``logs``.

    A name that ends with ``*`` stands for all that begin so. Where ties matter every ranking figure has a second one, such as
    ``val/full/pessimistic/ndcg@10``, and penalties of callbacks are logged under ``train/penalty/``.
    """
    own = sorted(_named(type(method)) - ({"train/loss"} if method.batches in ("once", "steps") else set()))
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
    """Whether all that it logs is known: a class of ours, one with `logs`, or one of which no line of code logs anything."""
    others = [one for one in kind.__mro__ if one.__module__.partition(".")[0] not in (*OURS, "builtins", "abc")]
    if "logs" in vars(kind) or not others:
        return True
    try:
        return not any(re.search(r"\.log\w*\(", inspect.getsource(one)) for one in others)
    except (OSError, TypeError):  # it was not made from a file
        return False


def _insists(callback: Callback) -> bool:
    """Whether it cannot do without what it watches; our own checkpoint sees to it by itself."""
    return not isinstance(callback, BestCheckpoint) and bool(getattr(callback, "strict", True))
