"""Train from an earlier run: resume it from its folder, or start a new one from its factors."""

import copy
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor

from datamodules import CrossDomainDataModule
from datamodules.cache import PreparedTarget
from zoo.data.ratings import Ratings, index_of
from zoo.methods.base import Recommender, is_private
from zoo.runs.inputs import UsageError, read_checkpoint
from zoo.runtime.run_folder import BEST, CONFIG, FREE, FROM_PYTHON, TARGET, class_path, flat

#: Exit code after Ctrl-C: 128 and the number of SIGINT, as in a shell.
INTERRUPTED = 130
OPTION = "--resume"
EPOCHS = "trainer.max_epochs"


def resume_folder(arguments: Sequence[str]) -> Path | None:
    """Return the run folder that arguments of ``fit`` name, or None.

    Examples:
        >>> resume_folder(["fit", "--resume=runs/BPR/version_0"]).name
        'version_0'
    """
    for at, argument in enumerate(arguments):
        if argument == OPTION and at + 1 < len(arguments):
            return Path(arguments[at + 1])
        if argument.startswith(f"{OPTION}="):
            return Path(argument.removeprefix(f"{OPTION}="))
    return None


def resume_arguments(run: Path) -> list[str]:
    """Return config and checkpoint of a run folder as arguments; raise a `UsageError` if it cannot be resumed."""
    config = run / "config.yaml"
    if not config.is_file():
        raise UsageError(f"{run} is no run folder (no config.yaml). Pass one.")
    return ["--config", str(config), "--ckpt_path", str(checkpoint_of(run))]


def callbacks_from_python(run: Path) -> str:
    """Return the names of the callbacks that a run got as objects; a resumed run has none of them."""
    return (run / CONFIG).read_text(encoding="utf-8").partition("\n")[0].partition(FROM_PYTHON)[2]


def checkpoint_of(run: Path) -> Path:
    """Return the last checkpoint of a run, else the best one."""
    found = [path for name in ("last.ckpt", "best.ckpt") if (path := run / "checkpoints" / name).is_file()]
    if not found:
        raise UsageError(
            f"{run} has no checkpoint. Start again: python -m zoo fit --config {shlex.quote(str(run / 'config.yaml'))}"
        )
    return found[0]


def check_same_run(before: Any, now: Any) -> str:  # noqa: ANN401  plain settings
    """Return the changed settings of a resumed run in words; raise a `UsageError` if they make it another run."""
    ours, theirs = flat(before), flat(now)
    changed = {
        key: f"{key} from {ours.get(key)!r} to {theirs.get(key)!r}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    }
    refused = [text for key, text in changed.items() if not _may_change(key) and key != EPOCHS]
    if EPOCHS in changed and _epochs(theirs[EPOCHS]) < _epochs(ours[EPOCHS]):
        refused.append(f"{changed[EPOCHS]} (it may only grow)")
    if refused:
        raise UsageError(f"Cannot resume: these settings changed: {'; '.join(refused)}. Omit them.")
    return "; ".join(changed.values())


def _may_change(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def _epochs(setting: int | None) -> float:
    return float("inf") if setting in (None, -1) else float(setting)


def resume_hint(run: Path) -> str:
    """Return the end of a message about an interrupted run: the command that resumes it."""
    try:
        checkpoint_of(run)
    except UsageError:
        return " before the first epoch was finished, so there is nothing to resume."
    return f". To resume:\n  python -m zoo fit {OPTION} {shlex.quote(str(run))}"


def remove_if_empty(run: Path) -> None:
    """Remove the folder of a run that failed before training: it holds at most settings and ratings."""
    files = [path for path in run.rglob("*") if path.is_file() and path.parent != run / TARGET]
    if not run.is_dir() or any(path.name not in ("config.yaml", "hparams.yaml") for path in files):
        return
    shutil.rmtree(run)
    for folder in (run.parent, run.parent.parent):  # of the method, and of all runs
        try:
            folder.rmdir()
        except OSError:  # not empty
            return


class WarmStart(Callback):
    """Start a training from the best checkpoint of an earlier run of the same method.

    Factors are taken for users and items that both trainings have, by id; those of new ones keep their random start. Parameters
    that depend on neither, such as layers, are taken whole. Optimizers start anew. The counts are printed.

    Args:
        run: Folder of the earlier run, with its training ratings (``keep_ratings``).
        method: Method to train.

    Raises:
        UsageError: The method has no such factors, or its guarantee assumes a random start; or the run is of another class.

    Examples:
        >>> import tempfile, zoo
        >>> from datamodules import Synthetic
        >>> quiet = {"accelerator": "cpu", "enable_progress_bar": False, "max_epochs": 1}
        >>> folder, data = tempfile.mkdtemp(), Synthetic(num_users=60, num_items=40)
        >>> last_week = zoo.fit(zoo.BPR(8), data, runs=folder, **quiet)
        Data: target music, split latest2, seed 0...
        >>> run = zoo.fit(zoo.BPR(8), data, runs=folder, warm_start=last_week, **quiet)
        Data: target music, split latest2, seed 0...
        Warm start: 60 users taken, 0 new, 0 gone; 40 items taken, 0 new, 0 gone.
    """

    def __init__(self, run: Path, method: Recommender) -> None:
        self.run = run
        self._refuse(method)
        self._checkpoint = read_checkpoint(run / BEST)
        if (theirs := self._checkpoint["hyper_parameters"]["_class_path"]) != class_path(type(method)):
            raise UsageError(
                f"{run} trained {theirs}, not {type(method).__name__}. Start from a run of the same method."
            )
        earlier = PreparedTarget.load(run / TARGET, ())
        if earlier is None:
            raise UsageError(f"{run} has no training ratings, so its ids are unknown. Train it with keep_ratings true.")
        self._train: Ratings = earlier.train

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Copy the weights and print the counts."""
        assert isinstance(pl_module, Recommender)
        self._refuse(pl_module)  # it is built now, and may have private steps
        data: CrossDomainDataModule = trainer.datamodule  # type: ignore[attr-defined]
        kept = self._checkpoint["zoo"]
        pl_module.adopt(kept)
        pl_module.refuse_other_releases()
        self._check_held_out(data)
        now = data.train
        at = {
            "users": index_of(self._train.user_ids, now.user_ids),
            "items": index_of(self._train.item_ids, now.item_ids),
        }
        gone = {"users": self._train.num_users, "items": self._train.num_items}
        counts = [
            f"{(rows >= 0).sum()} {what} taken, {(rows < 0).sum()} new, {gone[what] - (rows >= 0).sum()} gone"
            for what, rows in at.items()
        ]
        _copy_weights(
            pl_module, self._checkpoint["state_dict"], {what: torch.from_numpy(at[what].copy()) for what in at}
        )
        if trainer.is_global_zero:
            print(f"Warm start: {'; '.join(counts)}.")

    def _refuse(self, method: Recommender) -> None:
        private = method.guarantee_bearing or is_private(method)
        if private or method.batches == "full_batch" or method.not_saved:
            why = "its guarantee assumes a random start" if private else "it has no factors to start from"
            raise UsageError(f"{type(method).__name__} cannot start from {self.run}: {why}. Omit warm_start.")

    def _check_held_out(self, data: CrossDomainDataModule) -> None:
        """Refuse an earlier run that was trained on held-out ratings of this one."""
        old, now = self._train, data.train
        users, items = index_of(old.user_ids, now.user_ids), index_of(old.item_ids, now.item_ids)
        cases = [data.validation, data.test]
        user, item = (
            users[np.concatenate([one.users for one in cases])],
            items[np.concatenate([one.items for one in cases])],
        )
        both = (user >= 0) & (item >= 0)
        pairs = old.matrix.tocoo()
        trained = np.isin(user * old.num_items + item, pairs.row.astype(np.int64) * old.num_items + pairs.col)
        if leaked := int((trained & both).sum()):
            raise UsageError(
                f"{self.run} was trained on {leaked} held-out ratings of this split. Set data.evaluation.split to none, or omit "
                "warm_start."
            )


def _copy_weights(method: Recommender, earlier: Mapping[str, Tensor], at: Mapping[str, Tensor]) -> None:
    """Copy the weights of an earlier run into a method, rows by their position ``at`` there, -1 for none."""
    owners, learned = _row_owners(method), {name for name, _ in method.named_parameters()}
    for name, own in method.state_dict().items():
        owner = owners[name]
        if owner is None and name not in learned:
            continue  # a buffer of this training
        if (
            name not in earlier
            or earlier[name].shape[1:] != own.shape[1:]
            or (owner is None and earlier[name].shape != own.shape)
        ):
            found = tuple(earlier[name].shape) if name in earlier else "missing"
            raise UsageError(
                f"{name} is {found} in the earlier run, {tuple(own.shape)} here. Use its settings, or omit warm_start."
            )
        with torch.no_grad():
            if owner is None:
                own.copy_(earlier[name])
            else:
                known = at[owner] >= 0
                own[known.to(own.device)] = earlier[name][at[owner][known]].to(own)


def _row_owners(method: Recommender) -> dict[str, Literal["users", "items"] | None]:
    """Return what the rows of each weight belong to, None for neither, by building the method once with other sizes."""
    assert method.sizes is not None
    others = method.sizes | {"num_users": method.sizes["num_users"] + 1, "num_items": method.sizes["num_items"] + 2}
    positional, named = copy.deepcopy(method.made_with)
    with isolate_rng(), torch.device("meta"):
        probe = type(method)(*positional, **named)
        probe.build(others)
    owners: dict[str, Literal["users", "items"] | None] = {}
    for name, other in probe.state_dict().items():
        own = method.state_dict()[name]
        change = [after - before for before, after in zip(own.shape, other.shape, strict=True)]
        if not any(change):
            owners[name] = None
        elif change[0] == 1 and len(own) == method.sizes["num_users"] and not any(change[1:]):
            owners[name] = "users"
        elif change[0] == 2 and len(own) == method.sizes["num_items"] and not any(change[1:]):
            owners[name] = "items"
        else:
            raise UsageError(
                f"{type(method).__name__} cannot start from a run: {name} has no row for each user or item. Omit warm_start."
            )
    if not any(owners.values()):
        raise UsageError(f"{type(method).__name__} has no factors to start from. Omit warm_start.")
    return owners
