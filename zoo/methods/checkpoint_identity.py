"""Checkpoint identity: sizes, digests and random states of a training, and the check against other data."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.trainer.states import TrainerFn
from pytorch_lightning.utilities import rank_zero_warn

from zoo.data.ratings import Ratings
from zoo.data.training_batches import (
    RandomState,
    random_states,
    restore_state,
    saved_states,
    separate_streams,
    share_of,
)
from zoo.methods.epoch_averages import EpochMeans
from zoo.methods.target_data import ReleaseMismatchError, Sizes, TargetData, TargetModule, refuse_other_data
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.steps import recorded_steps
from zoo.runtime.run_folder import differing, flat, visible

ELSEWHERE = "the weights were also learned from other ratings"
"""Reason why the record of a private training has no guarantee: its conditions are those of the last ratings alone."""

NOT_ENDED = "the training has not ended"
"""Reason before the first private step, and until a run ends: killed, its checkpoints have more steps than its record."""

#: What a checkpoint, and a bundle made of it, state of their training.
STATED = ("own_rows", "chosen_by_metrics", "ended_by_ratings", "learned_elsewhere")


#: Paths in the state of a `ModelCheckpoint`.
_PATHS = ("best_model_path", "kth_best_model_path", "last_model_path", "best_k_models")


def make_paths_local(states: object) -> None:
    """Drop paths of a checkpoint's callbacks with a protocol or ``~``, and resolve ``..``: Lightning removes what they name.

    It removes plain paths only inside the folder of the run. Dropped paths are named in a warning.
    """
    for state in states.values() if isinstance(states, Mapping) else ():
        for name in _PATHS if isinstance(state, dict) else ():
            if isinstance(paths := state.get(name), Mapping):
                state[name] = {kept: score for path, score in paths.items() if (kept := _local(path))}
            elif paths:
                state[name] = _local(paths)


def _local(path: object) -> str:
    if not isinstance(path, str) or re.search("::|://|^~", path):
        rank_zero_warn(f"The checkpoint names {visible(str(path))[:200]!r}, no local path. It is not taken over.")
        return ""
    return os.path.realpath(path) if ".." in Path(path).parts else path


class CheckpointIdentity(EpochMeans, TargetModule):
    """Store sizes, digests and random states of a training in its checkpoints, and resume from them."""

    build: Callable[[Sizes], None]  # the method's
    own_rows_read: Callable[[TargetData], tuple[str, ...]]
    privacy_record: Callable[[], PrivacyRecord | None]
    chosen_by_metrics: bool
    #: Sources whose rows the training of a loaded checkpoint, or of a member's run, read without noise.
    own_rows: frozenset[str] = frozenset()
    #: Whether weights were also learned from other ratings, as after a warm start or a second fit.
    learned_elsewhere: bool = False
    #: Whether the method comes from a checkpoint or bundle that hides item counts; its settings need not tell.
    counts_hidden: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Sizes | None = None
        self._random_states: list[RandomState] = []  # of every process, from the checkpoint that is resumed
        self.loaded_epoch: int | None = None  # from 1, of the checkpoint whose weights it has
        self._ended_by_ratings = False
        #: Digest of each release that the weights were learned from, without its denoiser, by source.
        self.learned_from: dict[str, str] = {}
        self._digests: Mapping[str, str] | None = None  # of the data that the weights were learned from
        self.steps_before: Any = None  # what was done to these ratings before the training, as `plain_steps`
        self.prepared_otherwise = False  # whether this differed between trainings of these weights

    def _build_once(self, sizes: Sizes) -> None:
        if self.sizes is None:
            self.sizes = sizes
            self.build(sizes)
            return
        ours, theirs = flat(self.sizes), flat(sizes)
        # Checkpoints of 0.2 state fewer sizes; whether the releases are theirs is compared by digests.
        common = ours.keys() & theirs.keys()
        differ = [f"{key}: {ours[key]!r} against {theirs[key]!r}" for key in differing(ours, theirs) if key in common]
        if differ:
            raise ReleaseMismatchError(
                f"Checkpoint and data differ in their sizes ({'; '.join(differ)}). Use its data, or train anew."
            )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store sizes, data digests, release paths and all random states, as plain values and tensors."""
        checkpoint["zoo"] = {
            "sizes": self.sizes,
            "digests": self.data.digests,
            "rng": random_states(self.device),
            "paths": {name: str(path) for name, path in self.data.release_paths.items()},
            "users": self.data.users,
            "own_rows": [*self.own_rows_read(self.data)],
            "chosen_by_metrics": self.chosen_by_metrics,
            "ended_by_ratings": self.ended_by_ratings(),
            "learned_elsewhere": self.learned_elsewhere,
            "steps": plain_steps(self.data.train),
            "prepared_otherwise": self.prepared_otherwise,
            "holds": {"counts": not self.hides_item_counts},
        }

    def of_these_ratings(self, record: PrivacyRecord) -> PrivacyRecord:
        """Return the record of a private training, without a guarantee if its weights were also learned otherwise."""
        other = self.learned_elsewhere or self.prepared_otherwise
        return record.without_guarantee(ELSEWHERE) if other and record.claims else record

    @property
    def hides_item_counts(self) -> bool:
        """Whether exact item counts are not shown."""
        return self.counts_hidden

    def ended_by_ratings(self) -> bool:
        """Return whether validation chose the epoch by held-out ratings, or EarlyStopping the number of steps, here or before."""
        if self.has_trainer and self.trainer.state.fn == TrainerFn.FITTING:
            cases = getattr(self.trainer.datamodule, "validation", None)  # type: ignore[attr-defined]
            validated = self.trainer.limit_val_batches != 0 and cases is not None and len(cases.users) > 0
            self._ended_by_ratings |= validated or bool(self.trainer.early_stopping_callbacks)
        return self._ended_by_ratings

    def adopt(self, kept: Mapping[str, Any]) -> None:
        """Take over what a checkpoint or bundle states (`STATED`); one of an earlier version is taken to have read and chosen."""
        maps = [name for name, source in kept["sizes"]["sources"].items() if source.get("kind") == "map"]
        own = kept.get("own_rows", maps)
        self.own_rows |= {*own}
        self.chosen_by_metrics |= bool(kept.get("chosen_by_metrics", own))
        self._ended_by_ratings |= bool(kept.get("ended_by_ratings"))
        self.learned_elsewhere |= bool(kept.get("learned_elsewhere"))
        self.counts_hidden |= not kept.get("holds", {}).get("counts", True)
        self.learned_from, self._digests = digests_of_releases(kept["sizes"], kept["digests"]), kept["digests"]
        self.steps_before = kept.get("steps")
        self.prepared_otherwise |= bool(kept.get("prepared_otherwise"))

    def refuse_other_releases(self) -> None:
        """Refuse to train weights further on other releases: they hold what the earlier ones tell, and no record would say so."""
        self.learned_elsewhere |= self._digests not in (None, self.data.digests)
        self.prepared_otherwise |= self.steps_before not in (None, plain_steps(self.data.train))
        now = digests_of_releases(self.data.sizes, self.data.digests) if self.learned_from else {}
        if changed := sorted(name for name, digest in self.learned_from.items() if now.get(name) != digest):
            raise ReleaseMismatchError(
                f"The weights were learned from other releases of {', '.join(changed)}. Pass those."
            )

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build from the checkpoint's sizes; raise an error if it belongs to other data or releases."""
        make_paths_local(checkpoint.get("callbacks"))
        kept, epoch = checkpoint["zoo"], checkpoint.get("epoch")
        self.loaded_epoch = epoch + 1 if type(epoch) is int else None
        self._build_once(kept["sizes"])
        self.adopt(kept)
        self._random_states = saved_states(kept["rng"])
        if not self.has_trainer:
            return
        refuse_other_data(kept, self.data.digests)
        self._refuse_other_steps(kept)

    def _refuse_other_steps(self, kept: Mapping[str, Any]) -> None:
        """Refuse a private training that began on the same ratings after other steps: its record names the last ones alone."""
        now, resumed = plain_steps(self.data.train), self.trainer.state.fn == TrainerFn.FITTING
        if kept.get("steps", None if resumed else now) == now or self.privacy_record() is None:
            return
        theirs = kept.get("steps")
        differ = [step[0] for step in [*theirs, *now] if step not in theirs or step not in now] if theirs else []
        words = "; ".join(differ) or "not stated"
        raise ReleaseMismatchError(
            f"The training is private. Its ratings were prepared by other steps ({words}). Use its config."
        )

    def on_train_start(self) -> None:
        """Start a random stream for each process, or continue those of a checkpoint as an uninterrupted run would."""
        super().on_train_start()
        self.ended_by_ratings()  # stored for questions after the training
        self._digests, self.steps_before = self.data.digests, plain_steps(self.data.train)
        if self.data.sizes["sources"]:
            self.learned_from = digests_of_releases(self.data.sizes, self.data.digests)
        states, self._random_states = self._random_states, []
        if not states:
            separate_streams(share_of(self.trainer).rank)  # processes that share one model draw the same numbers
            return
        restore_state(states, self.global_rank, self.device)
        if len(states) != self.trainer.world_size:
            rank_zero_warn(
                f"This run has {self.trainer.world_size} processes; the checkpoint was trained with {len(states)}. "
                f"Use {len(states)}."
            )


def plain_steps(ratings: Ratings) -> list[list[str]]:
    """Return the steps that were done to ratings, as plain values."""
    return [list(step) for step in recorded_steps(ratings.applied)]


def digests_of_releases(sizes: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each release by source, without its denoiser."""
    return {name: digests[name].partition(",")[0] for name in sizes["sources"] if name in digests}
