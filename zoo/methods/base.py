"""Recommender: building from data, training steps and penalties, shared by all methods."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self

import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.nn import functional as F

from zoo.data.batch_types import Batch
from zoo.data.released_pairs import ReleasedPairs
from zoo.data.rows import LinkedRows, SparseRows
from zoo.methods.checkpoint_identity import CheckpointIdentity
from zoo.methods.ranking import RankingEvaluation
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.modules import ModulesOf
from zoo.privacy.record.record import PrivacyRecord
from zoo.release.layouts import check_width
from zoo.runtime.malloc_tuning import keep_freed_memory
from zoo.runtime.renamed import OldName, take_new_names, warn_renamed_value
from zoo.runtime.run_folder import CapturesInit

Outputs = dict[str, Tensor]
Penalty = Callable[[Outputs], Tensor]


class Recommender(CapturesInit, RankingEvaluation, CheckpointIdentity, ABC):
    """Base class of all methods: building from data, training steps, penalties.

    A constructor stores its arguments, :meth:`build` makes the networks from the sizes of the data, and :meth:`step` returns
    the loss of a batch. Nothing is built from data before ``setup``, so both parties can construct every object. Everything
    that a method does with releases and target ratings is post-processing: it uses no further privacy budget of the sources.

    Examples:
        >>> import torch, zoo
        >>> class Shortest(zoo.Recommender):
        ...     batches = "full_batch"
        ...     def build(self, sizes):
        ...         self.register_buffer("scores", -torch.arange(float(sizes["num_items"])))
        ...     def step(self, batch):
        ...         return {}
        ...     def score_all(self, users):
        ...         return self.scores.expand(len(users), -1)
        >>> method = Shortest()
        >>> method.build({"num_users": 2, "num_items": 3, "sources": {}})
        >>> method.score_all(torch.tensor([0])).tolist()
        [[-0.0, -1.0, -2.0]]
    """

    #: What a training batch holds. ``users``: users with whole rows; ``pairs``: user, item, label; ``triples``: user, observed and
    #: unobserved item; ``full_batch``, ``steps``: all users, in one batch an epoch (closed forms) or `steps_per_epoch` (solvers).
    batches: Literal["users", "pairs", "triples", "full_batch", "steps"] = "users"
    num_negatives: int = 1  # sampled items for each observed one, where `batches` is ``pairs``
    steps_per_epoch: int = 1  # where `batches` is ``steps``
    #: Whether batches of ``users`` have users with every item, who have no negative; ``pairs`` and ``triples`` have none.
    trains_full_users: bool = True
    #: Kinds of release that the method can use; empty for one that uses the target's ratings alone.
    accepted_releases: frozenset[str] = frozenset()
    #: Publishers of the paper's private releases, such as ``JLT or SJLT``; a run on another release says so. Empty: none.
    published_with: ClassVar[str] = ""
    #: Whether users without target history can be scored; if not, they are ranked by item counts of the training ratings.
    scores_cold_users: bool = False
    #: Whether somebody it was not trained with is scored by the row of a release alone, as a user without target history is.
    scores_by_rows: bool = False
    #: What scoring needs beside the weights and counts of ratings: the target's ``ratings``, the ``releases`` that it reads.
    scoring_needs: frozenset[str] = frozenset({"ratings", "releases"})
    #: How `fold_in` scores a history that training has not seen. ``rows``: scores read nothing else of a user, so a training user's
    #: own history gives the same list. ``solve``: the user's factors are solved for, with items fixed. None: not at all.
    folds_in: Literal["rows", "solve"] | None = None
    #: What `fold_in` needs, as in `scoring_needs`, which it is by default.
    fold_in_needs: frozenset[str] | None = None
    #: Whether the method learns from ratings that are signs, +1 and -1, instead of implicit feedback.
    reads_signs: ClassVar[bool] = False
    #: Whether the method learns from the times of ratings, which data have if the split is by time.
    reads_times: ClassVar[bool] = False
    #: Names of the tensors that ``step`` returns beside the loss, for penalties.
    step_outputs: ClassVar[frozenset[str]] = frozenset()
    #: Further figures that training logs, by class; ``*`` at the end matches any. Monitors of other figures are refused.
    logs: ClassVar[frozenset[str]] = frozenset({"train/loss"})
    #: Constructor arguments that are objects, and no part of a checkpoint's hyperparameters.
    not_saved: ClassVar[tuple[str, ...]] = ()
    #: Prefixes of weights that scoring does not read. A bundle leaves them out.
    unused_in_scoring: ClassVar[tuple[str, ...]] = ()
    #: Constructor arguments on which a privacy guarantee rests; a checkpoint may not change them.
    guarantee_bearing: ClassVar[frozenset[str]] = frozenset()

    #: Whether settings or weights were chosen by validation metrics of several trainings. Set it before ``fit`` if you did so: the
    #: run's privacy record then says what this assumes of a source whose rows are read without noise, and of a private training.
    chosen_by_metrics: bool = False
    #: Whether the weights are those of a bundle, which does not count the steps that they cost.
    from_bundle: bool = False
    #: Records of the other private trainings of a search. That of this training counts them.
    compared: tuple[PrivacyRecord, ...] = ()

    weight_decay: float = 0.0  # L2 weight in Adam

    # For one version.
    alone, worked_out_by_each = OldName("single_process_reason"), OldName("replicated_buffers")
    kept, solved = OldName("cache"), OldName("converged")
    reads, exposes = OldName("accepted_releases"), OldName("step_outputs")

    target_rows: SparseRows
    target_columns: SparseRows
    item_counts: Tensor

    def __new__(cls, *positional: Any, **named: Any) -> Self:  # noqa: ANN401  a constructor's own
        """Refuse a class that lacks a required method, with what to do."""
        if lacking := sorted(cls.__abstractmethods__):
            raise TypeError(
                f"{cls.__name__} has no {' and no '.join(lacking)}. A method needs build, step and score_all. Define "
                "each."
            )
        return super().__new__(cls, *positional, **named)

    def __init_subclass__(cls, **arguments: Any) -> None:  # noqa: ANN401  of any base
        super().__init_subclass__(**arguments)
        take_new_names(cls, Recommender)
        if vars(cls).get("batches") == "once":
            warn_renamed_value(cls, "batches", "once", "full_batch")
            cls.batches = "full_batch"

    def __init__(self) -> None:
        super().__init__()
        # Those of the concrete class: Lightning walks up the constructors.
        self.save_hyperparameters(ignore=self.not_saved)
        self.sources: ModulesOf[LinkedRows] = ModulesOf()
        #: What `prepare_scoring` worked out for the evaluation or prediction epoch at hand; empty at other times.
        self.cache: dict[str, Tensor] = {}
        self._penalties: dict[str, dict[str, Penalty]] = {}

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401  any attribute's
        """Set an attribute as a module does, without its checks where a plain attribute gets another string or None.

        A trainer does so 45 times a step. The checks took 6 % of a training step of BPR on 128 pairs.
        """
        if name in self.__dict__ and (value is None or type(value) is str):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    # What a method says.

    @abstractmethod
    def build(self, sizes: Sizes) -> None:
        """Make the networks from the sizes of the data: ``num_users``, ``num_items`` and ``sources`` (see `TargetData`)."""

    @abstractmethod
    def step(self, batch: Batch) -> Outputs:
        """Return ``loss`` and the tensors named in ``step_outputs``; a solver fills buffers and returns nothing."""

    @abstractmethod
    def score_all(self, users: Tensor) -> Tensor:
        """Return the logits of all items for users (batch,), shape ``(batch, num_items)``."""

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return the logits of items (batch, candidates) for users (batch,); override where a few cost less than all."""
        return self.all_scores(users).gather(1, items)

    def prepare_scoring(self) -> None:
        """Fill ``cache`` before an evaluation or prediction epoch; it is emptied at its end."""

    # Building and reading data.

    def configure_model(self) -> None:
        """Build the networks once the datamodule knows the sizes."""
        if self.has_trainer:  # load_from_checkpoint calls this too, before on_load_checkpoint
            self._build_once(self.data.sizes)
            self.item_counts *= not self.hides_item_counts  # private steps may have been made just now
            # What DDP leaves alone, and would send before a pass.
            self._ddp_params_and_buffers_to_ignore = [*self.replicated_buffers]

    def setup(self, stage: str) -> None:
        """Read the target's ratings and the releases into buffers."""
        keep_freed_memory()
        if stage == "fit":
            self.check_processes(self.trainer.world_size)
            self.chosen_by_metrics |= "WANDB_SWEEP_ID" in os.environ  # a sweep of W&B chooses settings by metrics
            if self.batches != "full_batch":  # which is solved anew
                self.refuse_other_releases()
        self.check_signs(self.data.signs)
        savers = [] if self.trainer.fast_dev_run else self.trainer.checkpoint_callbacks  # type: ignore[attr-defined]  # nothing is saved
        watching = [each for each in savers if getattr(each, "monitor", None) is not None]
        chooses = [type(each).__name__ for each in (*self.trainer.early_stopping_callbacks, *watching)]
        if stage == "fit" and chooses and (read := self.own_rows_read(self.data)):
            raise ValueError(
                f"{chooses[0]} would choose the epoch by scores that read the rows of {', '.join(read)} without "
                "noise. Remove it."
            )
        self.read_data(self.data)

    def own_rows_read(self, data: TargetData) -> tuple[str, ...]:
        """Return the sources whose rows the scores or weights read without noise, next to their releases (`TargetData.own_rows`).

        A score is for its own user alone. What several people share, such as weights, an epoch or metrics, is no post-processing
        of the releases if it is computed from these scores.
        """
        read = {name for name in getattr(data, "own_rows", ()) if data.releases[name].kind in self.accepted_releases}
        return tuple(name for name in data.releases if name in read | self.own_rows)

    @property
    def single_process_reason(self) -> str:
        """Reason why distributed training is unsupported, in words that follow the class name, or ""."""
        return "is solved by one process" if self.batches in ("full_batch", "steps") else ""

    @property
    def replicated_buffers(self) -> Sequence[str]:
        """Names of the buffers and parameters that every process computes alike: all buffers."""
        return [name for name, _ in self.named_buffers()]

    def check_processes(self, number: int) -> None:
        """Raise a `ValueError` if several processes are to train a method that supports one; all methods can score in several."""
        if number > 1 and self.single_process_reason:
            raise ValueError(
                f"{type(self).__name__} {self.single_process_reason}; got {number} processes. Set trainer.devices to 1."
            )

    def check_signs(self, signs: bool) -> None:
        """Raise a `ValueError` if the data are signs and the method learns from implicit feedback, or the reverse."""
        if signs != self.reads_signs:
            names = {True: "signs", False: "implicit feedback"}
            setting = "true and a threshold" if self.reads_signs else "false"
            raise ValueError(
                f"The data are {names[signs]}; {type(self).__name__} needs {names[self.reads_signs]}. Set "
                f"--data.filters.signs {setting}."
            )

    def read_data(self, data: TargetData) -> None:
        """Store what scoring needs beside the weights in non-persistent buffers; without a trainer, call it yourself."""
        self.target_rows = SparseRows.from_ratings(data.train)
        self.target_columns = SparseRows.from_ratings(data.train.transpose())
        counts = self.target_columns.counts().float()
        self.register_buffer("item_counts", counts * (not self.hides_item_counts), persistent=False)
        self.sources = ModulesOf()
        for name, release in data.releases.items() if self.accepted_releases else ():
            if release.kind not in self.accepted_releases:
                raise TypeError(
                    f"The release of {name!r} is of kind {release.kind!r}. {type(self).__name__} reads "
                    f"{sorted(self.accepted_releases)}. Choose another publisher."
                )
            check_width(name, release.width)
            self.sources[name] = LinkedRows(release.device_rows(), data.links[name])
        self.sources.train(self.training)  # rows that are made when they are read have noise while training
        self.read_rankings(data)

    def stored_numbers(self, sizes: Sizes, entries: int) -> int:
        """Return about how many numbers scoring stores beside the weights; ``entries`` are those of ratings and releases."""
        modules = 1_000 * len(sizes["sources"])  # what those of a source take
        return int(sizes["num_users"] + sizes["num_items"] + entries + modules)

    def source_rows(self, name: str, users: Tensor, entries: int | None = None) -> tuple[Tensor, Tensor]:
        """Return release rows of users (batch,), shape ``(batch, width)``, and a mask of users with a row, shape ``(batch,)``."""
        return self.sources[name].dense(users, entries)

    def all_source_rows(
        self, users: Tensor, entries: Mapping[str, int] | None = None
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the results of :meth:`source_rows` by source; ``entries`` are those of `UserBatch.released`."""
        return {name: self.source_rows(name, users, (entries or {}).get(name)) for name in self.sources}

    def source_pairs(self, name: str) -> ReleasedPairs:
        """Return the pairs of a release of 0/1 rows, to sample from; raise `TypeError` or `ValueError` for other releases."""
        return ReleasedPairs.from_release(self.sources[name].rows, name, type(self).__name__)

    def has_row(self, users: Tensor) -> Tensor:
        """Return a mask of the users (batch,) with a row in some release."""
        found = torch.zeros_like(users, dtype=torch.bool)
        for linked in self.sources.values():
            found |= linked.links[users] >= 0
        return found

    @property
    def hides_item_counts(self) -> bool:
        """Whether the training protects which items users have. Then exact item counts are not used, and read as 0.

        By default if a guarantee rests on the training: see `is_private`.
        """
        return self.counts_hidden or is_private(self)

    def can_score(self, users: Tensor) -> Tensor:
        """Return a mask of the users (batch,) whose scores are informative: users with target history.

        With `scores_cold_users`, also users with a row in some release, or all users if the method reads no release. With
        `hides_item_counts` all users.
        """
        if self.hides_item_counts or (self.scores_cold_users and not self.accepted_releases):
            return torch.ones_like(users, dtype=torch.bool)
        known = self.target_rows.counts_of(users) > 0
        return known | self.has_row(users) if self.scores_cold_users else known

    # Users and ratings that training has not seen.

    def fold_in(self, rows: SparseRows, known: Tensor, links: Mapping[str, Tensor]) -> Tensor:
        """Return logits of all items for users by their histories, item counts for users that cannot be scored.

        Call `prepare_scoring` before. Nothing is trained, and items stay as they are.

        Args:
            rows: Histories, a row per user (batch, num_items).
            known: Index of each user in the training ratings, -1 for a new one, (batch,).
            links: By source, row of each user in its release, -1 for none, (batch,).

        Returns:
            Scores, shape ``(batch, num_items)``.

        Raises:
            ValueError: The method cannot fold in (`folds_in`).
        """
        if self.folds_in is None:
            raise ValueError(
                f"{type(self).__name__} cannot score histories that training has not seen. Train again, or choose "
                "another method."
            )
        with self.reading(rows, links):
            users = torch.arange(rows.num_rows, device=self.item_counts.device)
            scores = self._shaped("fold_in_scores", self.fold_in_scores(users, known), (len(users), rows.width))
            return self._without_cold(users, scores, self.item_counts.expand(len(users), -1))

    @contextmanager
    def reading(self, rows: SparseRows, links: Mapping[str, Tensor]) -> Iterator[None]:
        """Let scores read other users' histories and release rows; see `fold_in`."""
        own = self.target_rows, self.sources
        read = {name: LinkedRows(linked.rows, links[name]) for name, linked in self.sources.items()}
        self.target_rows, self.sources = rows, ModulesOf(read)
        try:
            yield
        finally:
            self.target_rows, self.sources = own

    def fold_in_scores(self, users: Tensor, known: Tensor) -> Tensor:
        """Return the logits of all items (batch, num_items) for users (batch,) of the rows that `reading` set; see `fold_in`.

        A method whose scores read more of a user than these rows overrides it.
        """
        return self.score_all(users)

    def factors_of_all(self) -> tuple[Tensor, Tensor]:
        """Return the vectors of users (num_users, dim) and items (num_items, dim) whose products are the scores.

        Raises:
            ValueError: The method has no such vectors.
        """
        raise ValueError(
            f"{type(self).__name__} has no vectors of users and items. Choose BPR or another method of factors."
        )

    def head_factors(self) -> tuple[Tensor, Tensor]:
        """Return vectors of users (num_users, dim) and items (num_items, dim) whose products equal the logits of `score_all`."""
        return self.factors_of_all()

    def item_similarities(self, items: Tensor) -> Tensor:
        """Return the similarity of items (batch,) to all items, shape ``(batch, num_items)``: the cosine of their vectors."""
        vectors = F.normalize(self.factors_of_all()[1], dim=1)
        return vectors[items] @ vectors.T

    def user_similarities(self, users: Tensor) -> Tensor:
        """Return the similarity of users (batch,) to all users, shape ``(batch, num_users)``: the cosine of their vectors."""
        vectors = F.normalize(self.factors_of_all()[0], dim=1)
        return vectors[users] @ vectors.T

    # Training.

    def on_train_start(self) -> None:
        """Start every process from the weights of the first, then start its random stream."""
        plateau = any(each.reduce_on_plateau for each in self.trainer.lr_scheduler_configs)
        if plateau and (read := self.own_rows_read(self.data)):
            raise ValueError(
                f"ReduceLROnPlateau would set the weights by scores that read the rows of {', '.join(read)} without "
                "noise. Choose another schedule."
            )
        if self.trainer.world_size > 1:
            kept = self.state_dict()
            for name in [name for name in self.replicated_buffers if name in kept]:  # in one order for all
                kept[name].copy_(self.trainer.strategy.broadcast(kept[name]))
        super().on_train_start()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        """Return the loss of the method plus the penalties that callbacks added."""
        outputs = self.step(batch)
        if not isinstance(outputs, Mapping):
            raise TypeError(
                f"{type(self).__name__}.step returned a {type(outputs).__name__}. It must return a dict. Return "
                "{'loss': loss} or {}."
            )
        if "loss" not in outputs:
            self.trainer.should_stop = self.converged  # another epoch would solve the same again
            return None
        loss = outputs["loss"] + self.penalties(outputs)
        if loss.numel() != 1:
            raise ValueError(
                f"The loss of {type(self).__name__}.step has shape {tuple(loss.shape)}. It must be one number. Return "
                "its mean."
            )
        self.log_mean("train/loss", loss, len(batch.users))
        return loss

    @property
    def converged(self) -> bool:
        """Whether a method without a loss is finished: a closed form after its only step."""
        return True

    def figures(self) -> set[str]:
        """Return the names of all figures that this training logs; see `logs`."""
        return {name for one in type(self).__mro__ for name in vars(one).get("logs", ())}

    def privacy_record(self) -> PrivacyRecord | None:
        """Return what the training itself protects, for methods that add noise while they learn; else None."""
        return None

    def add_penalty(self, name: str, fn: Penalty, to: str = "loss") -> None:
        """Add a named term to the loss ``to`` of the method; callbacks call this in ``setup``.

        ``fn`` maps the outputs of ``step`` to a scalar, or to one value per row where the loss is per user.
        """
        self._penalties.setdefault(to, {})[name] = fn

    def penalties(self, outputs: Outputs, to: str = "loss", logged: bool = True) -> Tensor:
        """Return the sum of the penalties added to a loss; log each one unless its data are secret."""
        total = torch.zeros((), device=self.device)
        for name, fn in self._penalties.get(to, {}).items():
            value = fn(outputs)
            if logged:
                self.log_mean(f"train/penalty/{name}", value.mean())
            total = total + value
        return total

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return Adam, or None for a closed form without ``lr``; refuse a method that would not be trained."""
        learned = [one for one in self.parameters() if one.requires_grad]  # a callback may freeze some
        if self.lr is None and learned and self.automatic_optimization and self.batches not in ("full_batch", "steps"):
            raise ValueError(f"{type(self).__name__} has no lr, so nothing would be trained. Set self.lr in __init__.")
        if self.lr is None:
            return None
        if not learned:
            raise ValueError(f"{type(self).__name__} of a loaded run is fixed. Pass a new one.")
        return torch.optim.Adam(learned, lr=self.lr, weight_decay=self.weight_decay, fused=True)


def is_private(method: Recommender) -> bool:
    """Return whether a guarantee rests on the training of a method; of another package's, by its record or private steps."""
    stated = method.guarantee_bearing or not type(method).privacy_record.__module__.startswith("zoo.")
    private = stated or getattr(method, "private_gradient", None) is not None
    return bool(private) and method.hparams.get("epsilon", ...) is not None  # null: no guarantee
