"""Optimizers and learning-rate schedules that a run sets in place of its method's own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from pkgutil import resolve_name
from typing import Any

from jsonargparse import Namespace
from pytorch_lightning.cli import LRSchedulerTypeTuple
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from zoo.data.metrics import SELECTION_METRIC
from zoo.methods.base import Recommender, is_private
from zoo.runs.inputs import UsageError
from zoo.runtime.run_folder import class_path, plain
from zoo.runtime.suggestions import suggest

#: What the two arguments make.
KINDS: Mapping[str, tuple[type, ...]] = {"optimizer": (Optimizer,), "lr_scheduler": LRSchedulerTypeTuple}
EXAMPLES = {"optimizer": "torch.optim.SGD, lr=0.1", "lr_scheduler": "torch.optim.lr_scheduler.ExponentialLR, gamma=0.9"}


def own_training_reason(method: Recommender) -> str:
    """Return why a method does not train all its parameters by one optimizer, in words that follow its name, or ""."""
    if is_private(method):
        return "trains privately, and its guarantee covers its own steps"
    if not method.automatic_optimization:
        return "trains by several optimizers of its own"
    inherits = type(method).configure_optimizers is Recommender.configure_optimizers
    if not inherits or method.lr is not None:
        return ""
    return (
        "is solved without an optimizer"
        if method.batches in ("full_batch", "steps")
        else "has no lr, which training needs"
    )


def use_optimizer(method: Recommender, **given: Any) -> dict[str, Any]:  # noqa: ANN401  see below
    """Set optimizer and schedule of a method; return them as settings of a config. Without any, the method has its own.

    Args:
        method: A method with one optimizer.
        **given: ``optimizer`` and ``lr_scheduler``, each None, a class, a `functools.partial` of one with keywords, or settings
            (``class_path`` and ``init_args``).

    Raises:
        UsageError: An argument is something else, has unknown or missing keywords, or the method has its own training.

    Examples:
        >>> import torch, zoo
        >>> use_optimizer(zoo.BPR(), optimizer=partial(torch.optim.SGD, lr=0.1))
        {'optimizer': {'class_path': 'torch.optim.sgd.SGD', 'init_args': {'lr': 0.1}}}
    """
    vars(method).pop("configure_optimizers", None)  # of an earlier training
    made = {name: _factory(name, value) for name, value in given.items() if value is not None}
    if not made:
        return {}
    if reason := own_training_reason(method):
        raise UsageError(f"{' and '.join(made)}: {type(method).__name__} {reason}. Remove the setting.")
    own = method.configure_optimizers
    configured = partial(_configure, method, own, made.get("optimizer"), made.get("lr_scheduler"))
    method.configure_optimizers = configured  # type: ignore[method-assign]
    return {
        name: {"class_path": class_path(one.func), "init_args": plain(one.keywords)}  # type: ignore[arg-type]
        for name, one in made.items()
    }


def plateau_of(method: Recommender) -> tuple[str, str] | None:
    """Return metric and mode of a schedule that waits for a plateau; None for other schedules, and without one."""
    configured = vars(method).get("configure_optimizers")
    schedule = configured.args[-1] if isinstance(configured, partial) else None
    if schedule is None or not issubclass(schedule.func, ReduceLROnPlateau):
        return None
    return schedule.keywords.get("monitor", SELECTION_METRIC), schedule.keywords.get("mode", "min")


def _configure(method: Recommender, own: Any, optimizer: Any, schedule: Any) -> Any:  # noqa: ANN401  as Lightning's hook
    learned = [parameter for parameter in method.parameters() if parameter.requires_grad]
    made = own() if optimizer is None else optimizer(learned)
    if schedule is None:
        return made
    watched = {"monitor": found[0]} if (found := plateau_of(method)) else {}
    return {"optimizer": made, "lr_scheduler": {"scheduler": schedule(made), **watched}}


def _factory(name: str, given: Any) -> partial[Any]:  # noqa: ANN401  see `use_optimizer`
    """Return the partial of a class that an argument describes; refuse others, and unknown or missing keywords."""
    if isinstance(given, Namespace):
        given = given.as_dict()
    if isinstance(given, Mapping):
        keywords = {**(given.get("init_args") or {}), **(given.get("dict_kwargs") or {})}
        given = partial(resolve_name(given["class_path"]), **keywords)
    made = given if isinstance(given, partial) else partial(given) if isinstance(given, type) else None
    if made is None or made.args or not (isinstance(made.func, type) and issubclass(made.func, KINDS[name])):
        raise UsageError(
            f"{name} is {given!r:.80}. It must be a class or a partial. Set it, e.g. "
            f"functools.partial({EXAMPLES[name]})."
        )
    signature = inspect.signature(made.func)
    try:
        signature.bind(None, **made.keywords)
    except TypeError as error:
        unknown = next((word for word in made.keywords if word not in signature.parameters), "")
        near = suggest(unknown, signature.parameters) if unknown else ""
        raise UsageError(f"{name} {made.func.__name__}: {error}.{near} Correct its keywords.") from error
    return made
