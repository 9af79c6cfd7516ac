"""Members of an ensemble: their settings, their training, and loading one from a run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from pytorch_lightning import Callback, LightningDataModule, LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.data.metrics import SELECTION_METRIC
from zoo.data.training_batches import Batches, training_batches
from zoo.methods.base import Recommender, is_private
from zoo.methods.target_data import ReleaseMismatchError, Sizes
from zoo.runtime import checks
from zoo.runtime.run_folder import BEST, PRIVACY, load_tensors, plain, read_mapping
from zoo.runtime.settings_files import user_path


@dataclass(frozen=True)
class Member:
    """A method of an ensemble: a method to train, or the best epoch of a run.

    Attributes:
        method: Method to train; null if ``run`` is given.
        run: Folder of a run, or a checkpoint, whose weights are used unchanged.
        copies: Number of trained copies, with other weights and batches; their standardised scores are averaged.
        max_epochs: Largest number of epochs of each copy; a closed form stops by itself.
        patience: Epochs without a better validation NDCG@10 after which a copy stops.
        batch_size: Users or observed pairs in a batch; null: that of the data.
        releases: Whether it reads the releases of the run; false: it reads target ratings only.

    Examples:
        >>> import zoo
        >>> Member(zoo.BPR(num_factors=8), copies=3).copies
        3
    """

    method: Recommender | None = None
    run: str | None = None
    copies: int = 1
    max_epochs: int = 150
    patience: int = 10
    batch_size: int | None = None
    releases: bool = True

    def __post_init__(self) -> None:
        if (self.method is None) == (self.run is None):
            raise ValueError(f"A member is either a method or a run; got {self.method} and {self.run!r}.")
        checks.at_least_one(copies=self.copies, max_epochs=self.max_epochs, patience=self.patience)
        checks.at_least_one(batch_size=self.batch_size)
        if self.run is not None and self.copies > 1:
            raise ValueError(f"copies is {self.copies}; a member from a run has 1. Name each run separately.")

    @classmethod
    def of(cls, given: Member | Mapping[str, Any]) -> Member:
        """Return a member unchanged, or make one from the settings of a bundle or checkpoint, without imports."""
        if isinstance(given, Member):
            return given
        if not isinstance(given, Mapping):
            raise TypeError(f"A member is of type {type(given).__name__}. Write Member(METHOD).")
        if unknown := set(given) - {field.name for field in fields(cls)}:
            raise ValueError(f"A member has {[field.name for field in fields(cls)]}; got {sorted(unknown)}.")
        if given.get("run") is not None:  # perhaps a path of another party
            raise ValueError("A member in a mapping names a run. Only Member(run=FOLDER) opens one.")
        settings = given.get("method")
        method = settings if settings is None or isinstance(settings, Recommender) else method_of(settings)
        return cls(**{**given, "method": method})

    def made(self) -> Recommender:
        """Return a new method with the same settings, without weights."""
        made = method_of(plain(self.method))
        if self.method is not None:
            made.own_rows, made.chosen_by_metrics = self.method.own_rows, self.method.chosen_by_metrics
        if not self.releases:
            made.accepted_releases = frozenset()
        return made

    def known(self) -> Recommender | None:
        """Return a new method, or None if the run is missing."""
        if self.run is None:
            return self.made()
        try:
            return self.found().method
        except ValueError:  # it is said when it is needed: a checkpoint of the ensemble does without
            return None

    def found(self) -> Member:
        """Replace the path of a run by its method; raise a `ValueError` if the run has no checkpoint."""
        if self.run is None:
            return self
        method, path = method_in(checkpoint_in(self.run)), user_path(self.run)
        records = (path if path.is_dir() else path.parent.parent) / PRIVACY
        stated = read_mapping(records) if records.is_file() else None
        if is_private(method) if stated is None else type(method).__name__ in stated:
            raise ValueError(own_noise(method))
        return replace(self, method=method, run=None)


def own_noise(method: Recommender) -> str:
    """Return why a method is no member: it adds noise of its own."""
    return (
        f"{type(method).__name__} adds noise of its own in training, which is paid for by every such training, and its guarantee "
        "does not cover weights that are chosen on validation ratings. Train it by itself, or set its epsilon to null."
    )


def check_names(members: Mapping[str, Member], weights: Mapping[str, float] | None) -> None:
    """Refuse unusable names of members, and weights that are not one for each."""
    if not members or any(not name.replace("-", "").replace("_", "").isalnum() for name in members):
        raise ValueError(f"members must name at least one, by letters, digits, - and _; got {list(members)}.")
    if weights is None:
        return
    given = [-1.0 if weight is None else weight for weight in weights.values()]  # a null is no fixed weight
    if set(weights) != set(members) or min(given) < 0 or not 0 < sum(given) < float("inf"):
        raise ValueError(
            f"weights are {dict(weights)}. Give each of {sorted(members)} at least 0, one above 0, or null."
        )


def method_of(settings: Mapping[str, Any]) -> Recommender:
    """Make the method that plain settings name, from the zoo or from a module that is already imported."""
    name = str(settings.get("class_path"))
    package, _, last = name.rpartition(".")
    there = sys.modules.get(package or "zoo")
    # The zoo imports its own names when they are asked for; of others what they have already is taken.
    found = getattr(there, last, None) if there is sys.modules["zoo"] else vars(there).get(last) if there else None
    if not (isinstance(found, type) and issubclass(found, Recommender)):
        raise ValueError(f"{name[:200]!r} is no known method. If you trust its package, import it first.")
    return found(**settings.get("init_args") or {})


def checkpoint_in(run: str) -> dict[str, Any]:
    """Read the checkpoint of a run, by its folder or its own path; raise a `ValueError` if there is none."""
    path = user_path(run)
    path = path / BEST if path.is_dir() else path
    try:
        found = load_tensors(path)
        if not {"zoo", "state_dict", "hyper_parameters"} <= found.keys():
            raise KeyError("zoo")
    except Exception as error:  # whatever a missing, damaged or other file leads to
        raise ValueError(
            f"{path} is no checkpoint of a run ({type(error).__name__}). Name the folder of a finished run; got "
            f"{run!r}."
        ) from error
    return {**found}


def method_in(checkpoint: Mapping[str, Any]) -> Recommender:
    """Make the method of a checkpoint, with what it states of source rows and choices, and without its weights."""
    kept = {**checkpoint["hyper_parameters"]}
    name = kept.pop("_class_path", None)
    made = method_of({"class_path": name, "init_args": {k: v for k, v in kept.items() if not k.startswith("_")}})
    made.adopt(checkpoint["zoo"])
    return made


def take(
    method: Recommender, checkpoint: Mapping[str, Any], sizes: Mapping[str, Any], digests: Mapping[str, str]
) -> None:
    """Load the weights of a run on the same data and releases into a method.

    Raises:
        ReleaseMismatchError: The run had other ratings, or another release, whose cost is in no record of this run.
    """
    kept = checkpoint["zoo"]
    differing = [name for name, digest in kept["digests"].items() if digests.get(name) != digest]
    sources = kept["sizes"]["sources"]
    if differing or any(sizes["sources"].get(name) != size for name, size in sources.items()):
        raise ReleaseMismatchError(
            f"A member ({type(method).__name__}) was trained on other data or releases; these differ: "
            f"{differing or sorted(sources)}. Use its releases ({kept['paths'] or 'no path'}), or train it here."
        )
    method.load_state_dict(checkpoint["state_dict"])


def copy_sizes(sizes: Sizes, method: Recommender) -> Sizes:
    """Return the sizes that a method is built from: without sources if it reads none."""
    return sizes if method.accepted_releases else {**sizes, "sources": {}}


class MemberData(LightningDataModule):
    """The data of an ensemble for one copy: the same ratings, releases and validation, with its own batches."""

    def __init__(self, data: Any, sizes: Sizes, batch_size: int | None, number: int) -> None:  # noqa: ANN401  any datamodule
        super().__init__()
        self.whole, self.sizes = data, sizes
        self.batch_size = data.batch_size if batch_size is None else batch_size
        self.seed = data.split_seed + number  # copies take their batches in other orders

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever a method asks of its data
        return getattr(self.__dict__["whole"], name)

    def train_dataloader(self) -> Batches[Batch]:
        """Return the batches of an epoch in the form of the member."""
        trainer: Any = self.trainer
        return training_batches(
            self.whole.train,
            trainer.lightning_module,
            self.batch_size,
            self.seed,
            lambda: trainer.current_epoch,
            device=trainer.strategy.root_device,
        )

    def val_dataloader(self) -> Any:  # noqa: ANN401  as Lightning takes them
        """Return the validation cases of the ensemble."""
        return self.whole.val_dataloader()


class KeepBest(Callback):
    """Store the weights of the epoch with the best validation NDCG@10 in memory; the first of equal ones."""

    def __init__(self) -> None:
        self.best, self.value, self.epoch = dict[str, Tensor](), -torch.inf, 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Compare this epoch with the best."""
        value = float(trainer.callback_metrics.get(SELECTION_METRIC, -torch.inf))
        if not trainer.sanity_checking and value > self.value:
            self.value, self.epoch = value, trainer.current_epoch + 1
            self.best = {name: tensor.clone() for name, tensor in pl_module.state_dict().items()}


def train(member: Member, method: Recommender, data: Any, number: int, outer: Trainer) -> int:  # noqa: ANN401  any datamodule
    """Train a method by itself, restore its best validation epoch (without validation: its last), and return that epoch, from 1.

    ``number`` is the index of this copy among all trained copies; ``outer`` is the ensemble's trainer, whose device is used.
    """
    # No epoch is chosen by scores that read a source's rows without noise.
    validated = len(data.validation.users) > 0 and outer.limit_val_batches != 0 and not method.own_rows_read(data)
    kept, device = KeepBest(), outer.strategy.root_device
    stops = [EarlyStopping(SELECTION_METRIC, mode="max", patience=member.patience)] if validated else []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "You defined a `validation_step` but have no `val_dataloader`")
        trainer = Trainer(
            accelerator=device.type,
            devices=1 if device.index is None or device.type == "cpu" else [device.index],
            precision=outer.precision,
            max_epochs=1 if outer.fast_dev_run else member.max_epochs,  # type: ignore[attr-defined]  # set when it is made
            callbacks=[kept, *stops],
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            limit_val_batches=outer.limit_val_batches,
            num_sanity_val_steps=0,
        )
        method.train()
        trainer.fit(method, datamodule=MemberData(data, copy_sizes(data.sizes, method), member.batch_size, number))
    if kept.best:
        method.load_state_dict(kept.best)
    method.trainer = None
    method.to(device)
    return kept.epoch or trainer.current_epoch
