"""Recommender: what every method shares. Ceremony only; no science lives here."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from pytorch_lightning.utilities import rank_zero_warn
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn

from zoo.data.batches import Batch, PredictBatch, RankingBatch
from zoo.data.best_items import Recommendations, best_unseen
from zoo.data.metrics import (
    SELECTION_METRIC,
    ListMetrics,
    PhaseRanking,
    full_counts,
    listed_items,
    sampled_counts,
)
from zoo.data.released_pairs import ReleasedPairs
from zoo.data.rows import LinkedRows, SparseRows
from zoo.data.training import RandomState, go_on_from, kept_states, part_streams, random_states, share_of
from zoo.methods.epoch_averages import EpochMeans
from zoo.methods.target_data import ReleaseMismatchError, Sizes, TargetData, refuse_other_data
from zoo.privacy.record.record import PrivacyRecord
from zoo.runtime.malloc_tuning import keep_freed_memory
from zoo.runtime.run_folder import Given, differing, flat

Outputs = dict[str, Tensor]
Penalty = Callable[[Outputs], Tensor]


class Recommender(Given, EpochMeans, ABC):
    """Base of all methods: scoring, ranking evaluation, penalties, checkpoints.

    A method stores its arguments in the constructor, makes its networks in :meth:`build` from the sizes of the data,
    and says in :meth:`step` what one batch costs. Nothing is built from data before ``setup``, so both parties can
    make every object.
    """

    #: What one training batch holds. ``users``: users whose whole rows are read; ``pairs``: user, item and label; ``triples``:
    #: user, observed and unobserved item; ``once``: all users in one batch, one batch an epoch (closed forms); ``steps``: all
    #: users in every batch, ``steps_per_epoch`` of them an epoch (solvers).
    batches: Literal["users", "pairs", "triples", "once", "steps"] = "users"
    num_negatives: int = 1  # sampled items for each observed one, where `batches` is ``pairs``
    steps_per_epoch: int = 1  # where `batches` is ``steps``
    #: Kinds of release that the method can use; empty for one that uses the target's ratings alone.
    reads: frozenset[str] = frozenset()
    #: Whether scores mean something for a user without target history. If not, such users are ranked by the item counts of
    #: the training ratings.
    scores_cold_users: bool = False
    #: Whether somebody it was not trained with is scored by the row of a release alone, as a user without target history is.
    scores_by_rows: bool = False
    #: Whether the method learns from ratings that are signs, +1 and -1, instead of implicit feedback.
    reads_signs: ClassVar[bool] = False
    #: Names of the tensors that ``step`` returns beside the loss, for penalties.
    exposes: ClassVar[frozenset[str]] = frozenset()
    #: Figures that training logs beside those of rankings, each class those of its own; one that ends with ``*`` names all that
    #: begin so. Who watches another one is refused before anything is published.
    logs: ClassVar[frozenset[str]] = frozenset({"train/loss"})
    #: Constructor arguments that are objects, and no part of a checkpoint's hyperparameters.
    not_saved: ClassVar[tuple[str, ...]] = ()
    #: Constructor arguments on which a privacy guarantee rests; a checkpoint may not change them.
    guarantee_bearing: ClassVar[frozenset[str]] = frozenset()

    weight_decay: float = 0.0  # L2 weight in Adam

    target_rows: SparseRows
    target_columns: SparseRows
    item_counts: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Those of the concrete class: Lightning walks up the constructors.
        self.save_hyperparameters(ignore=self.not_saved)
        self.sizes: Sizes | None = None
        self.sources = nn.ModuleDict()
        #: What `prepare_scoring` worked out for the evaluation or prediction epoch at hand; empty at other times.
        self.kept: dict[str, Tensor] = {}
        self._penalties: dict[str, dict[str, Penalty]] = {}
        self._random_states: list[RandomState] = []  # of every process, by a checkpoint that is gone on from

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: ANN401  any attribute's
        """As a module does, but at once where a plain attribute gets another string or None: a trainer does so 45 times a step."""
        if name in self.__dict__ and (value is None or type(value) is str):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    # What a method says.

    @abstractmethod
    def build(self, sizes: Sizes) -> None:
        """Make the networks from the sizes of the data: ``num_users``, ``num_items``, and ``sources`` (see `TargetData`)."""

    @abstractmethod
    def step(self, batch: Batch) -> Outputs:
        """``loss`` and what ``exposes`` names. What is solved goes into buffers, and nothing is returned."""

    @abstractmethod
    def score_all(self, users: Tensor) -> Tensor:
        """Logits of all items for users (batch,), shape ``(batch, num_items)``."""

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits of items (batch, candidates) for users (batch,); overridden where a few cost less than all."""
        return self.score_all(users).gather(1, items)

    def prepare_scoring(self) -> None:
        """Called before an evaluation or prediction epoch: what is put into ``kept`` lasts until its end."""

    # Building and reading data.

    @property
    def has_trainer(self) -> bool:
        """Whether a trainer runs it: ``load_from_checkpoint`` does without."""
        try:
            return self.trainer is not None
        except RuntimeError:  # what Lightning says of a module by itself
            return False

    def configure_model(self) -> None:
        """Build the networks once the datamodule knows the sizes."""
        if self.has_trainer:  # load_from_checkpoint calls this too, before on_load_checkpoint
            self._build_once(self.data.sizes)
            # What DDP leaves alone, and would send before a pass.
            self._ddp_params_and_buffers_to_ignore = [*self.worked_out_by_each]

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
                f"The checkpoint and the data at hand differ in their sizes ({'; '.join(differ)}). Use the data and the releases "
                "that this checkpoint was trained on, or train anew."
            )

    @property
    def data(self) -> TargetData:
        """The datamodule of the trainer at hand."""
        data: TargetData = self.trainer.datamodule  # type: ignore[attr-defined]
        return data

    def setup(self, stage: str) -> None:
        """Read the target's ratings and the releases into buffers."""
        keep_freed_memory()
        if stage == "fit":
            self.check_processes(self.trainer.world_size)
        self.check_signs(self.data.signs)
        self.read_data(self.data)

    @property
    def alone(self) -> str:
        """Why several processes may not train it together, in words that follow its name; empty where they may."""
        return "is solved by one process" if self.batches in ("once", "steps") else ""

    @property
    def worked_out_by_each(self) -> Sequence[str]:
        """Names of buffers and parameters that every process works out by itself, and so alike: all buffers."""
        return [name for name, _ in self.named_buffers()]

    def check_processes(self, number: int) -> None:
        """Refuse, with a `ValueError`, to be trained by several processes where one has to do it; they may all score."""
        if number > 1 and self.alone:
            raise ValueError(f"{type(self).__name__} {self.alone}; got {number} processes. Set trainer.devices to 1.")

    def check_signs(self, signs: bool) -> None:
        """Refuse ratings that are signs where the method learns from implicit feedback, and the other way round."""
        if signs != self.reads_signs:
            names = {True: "signs", False: "implicit feedback"}
            setting = "true and a threshold" if self.reads_signs else "false"
            raise ValueError(
                f"{type(self).__name__} learns from {names[self.reads_signs]}, and the data at hand are "
                f"{names[signs]}. Set --data.filters.signs {setting}, or choose another method."
            )

    def read_data(self, data: TargetData) -> None:
        """Keep what scoring needs beside the weights as non-persistent buffers; without a trainer, call it by hand."""
        self.target_rows = SparseRows.of(data.train)
        self.target_columns = SparseRows.of(data.train.transpose())
        self.register_buffer("item_counts", self.target_columns.counts().float(), persistent=False)
        self.sources = nn.ModuleDict()
        for name, release in data.releases.items() if self.reads else ():
            if release.kind not in self.reads:
                raise TypeError(
                    f"{type(self).__name__} reads releases of kind {sorted(self.reads)}; the release of {name!r} is of "
                    f"kind {release.kind!r}. Choose a publisher that makes one of these kinds."
                )
            self.sources[name] = LinkedRows(release.device_rows(), data.links[name])
        self.sources.train(self.training)  # rows that are made when they are read have noise while training
        # By stage, whether all items are ranked and whether sampled candidates are: neither where a source trains.
        asked = {"val": data.full_ranking is True, "test": bool(data.full_ranking)}
        self.rankings = nn.ModuleDict(
            {
                stage: PhaseRanking(full, data.sampled_ranking, data.ks, data.ties, self._lists(stage, full, data))
                for stage, full in asked.items()
                if full or data.sampled_ranking
            }
        )

    def _lists(self, stage: str, full: bool, data: TargetData) -> ListMetrics | None:
        """What lists are measured by: at the test, where all items are ranked."""
        return ListMetrics(self.item_counts, data.train.num_users, data.ks) if full and stage == "test" else None

    def source_rows(self, name: str, users: Tensor, entries: int | None = None) -> tuple[Tensor, Tensor]:
        """What `LinkedRows.dense` reads of users (batch,): rows, shape ``(batch, width)``, and who has one, shape ``(batch,)``."""
        return self._linked(name).dense(users, entries)

    def all_source_rows(
        self, users: Tensor, entries: Mapping[str, int] | None = None
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """What :meth:`source_rows` gives, for every source; ``entries`` as `UserBatch.released` has them."""
        return {name: self.source_rows(name, users, (entries or {}).get(name)) for name in self.sources}

    def source_pairs(self, name: str) -> ReleasedPairs:
        """The pairs that a release of 0/1 rows holds, to draw from; `TypeError` or `ValueError` if it holds none such."""
        return ReleasedPairs.of(self._linked(name).rows, name, type(self).__name__)

    def has_row(self, users: Tensor) -> Tensor:
        """Which users (batch,) have a row in some release, as a mask."""
        found = torch.zeros_like(users, dtype=torch.bool)
        for name in self.sources:
            found |= self._linked(name).links[users] >= 0
        return found

    def _linked(self, name: str) -> LinkedRows:
        linked = self.sources[name]
        assert isinstance(linked, LinkedRows)
        return linked

    # Training.

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor | None:
        """The method's loss and the penalties that callbacks have added to it."""
        outputs = self.step(batch)
        if "loss" not in outputs:
            self.trainer.should_stop = self.solved  # another epoch would solve the same again
            return None
        loss = outputs["loss"] + self.penalties(outputs)
        self.log_mean("train/loss", loss, len(batch.users))
        return loss

    @property
    def solved(self) -> bool:
        """Whether a method without a loss has come to its end: a closed form in its only step."""
        return True

    def privacy_record(self) -> PrivacyRecord | None:
        """What the training itself protects, of a method that adds noise to what it learns from; None of all others."""
        return None

    def add_penalty(self, name: str, fn: Penalty, to: str = "loss") -> None:
        """Add a term to a loss of the method (one loss is called ``loss``); a callback calls this in its ``setup``.

        It goes from the outputs of ``step`` to a scalar, or to one value per row where the loss is per user. A second penalty of
        a name takes the place of the first.
        """
        self._penalties.setdefault(to, {})[name] = fn

    def penalties(self, outputs: Outputs, to: str = "loss", logged: bool = True) -> Tensor:
        """Sum of the penalties added to a loss, logged one by one unless they are of data that no log may tell of."""
        total = torch.zeros((), device=self.device)
        for name, fn in self._penalties.get(to, {}).items():
            value = fn(outputs)
            if logged:
                self.log_mean(f"train/penalty/{name}", value.mean())
            total = total + value
        return total

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Adam, or None where there is no ``lr``: a closed form has no optimiser."""
        if self.lr is None:
            return None
        return torch.optim.Adam(self.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=True)

    # Evaluation.

    def ranking_scores(self, users: Tensor) -> Tensor:
        """Logits of all items (batch, num_items), item counts in place of those that mean nothing."""
        return self._without_cold(users, self.score_all(users), self.item_counts.expand(len(users), -1))

    def can_score(self, users: Tensor) -> Tensor:
        """For which users (batch,) the method's scores mean something, as a mask.

        Those with target history; where `scores_cold_users`, also with a row in some release, or all if it reads no release.
        """
        if self.scores_cold_users and not self.reads:
            return torch.ones_like(users, dtype=torch.bool)
        known = self.target_rows.counts_of(users) > 0
        return known | self.has_row(users) if self.scores_cold_users else known

    def _without_cold(self, users: Tensor, scores: Tensor, counts: Tensor) -> Tensor:
        known = self.can_score(users)
        if known.all():
            return scores  # as they are: they may be many
        return torch.where(known[:, None], scores, counts.to(scores.dtype))

    def _ranking(self, stage: str) -> PhaseRanking:
        ranking = self.rankings[stage]
        assert isinstance(ranking, PhaseRanking)
        return ranking

    def _rank(self, stage: str, batch: RankingBatch) -> dict[str, Tensor]:
        """Rank a batch; at the test, also the figures of its cases, each of shape ``(cases,)``, by name."""
        ranking = self._ranking(stage)
        listed, counts, best = listed_items(batch), {}, None
        if "full" in ranking.metrics:
            every = self.ranking_scores(batch.users)
            counts["full"], best = full_counts(every, batch), ranking.best(every, batch)
            scores = every.gather(1, listed)
        else:
            scores = self._without_cold(batch.users, self.score(batch.users, listed), self.item_counts[listed])
        if "sampled" in ranking.metrics:
            counts["sampled"] = sampled_counts(scores, batch)
        ranking.update(counts, best)
        return ranking.cases_of(counts, best) if stage == "test" else {}

    def _log_ranking(self, stage: str) -> None:
        self.kept = {}
        figures = {f"{stage}/{name}": value for name, value in self._ranking(stage).compute().items()}
        if stage == "val":
            kind = "sampled" if self.data.sampled_ranking else "full"
            self.log(SELECTION_METRIC, figures[f"val/{kind}/ndcg@10"], prog_bar=True, sync_dist=True)
        self.log_dict(figures, sync_dist=True)

    def on_validation_epoch_start(self) -> None:
        """Let the method keep what scoring needs."""
        self.prepare_scoring()

    on_test_epoch_start = on_predict_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: RankingBatch, batch_idx: int) -> None:
        """Rank the validation items of a batch of users."""
        self._rank("val", batch)

    def test_step(self, batch: RankingBatch, batch_idx: int) -> dict[str, Tensor]:
        """Rank the test items of a batch of users; what is known of each case, for callbacks."""
        counts = self.target_rows.counts_of(batch.users)
        known = {"users": batch.users, "items": batch.positives, "train_items": counts}
        return known | {"linked": self.has_row(batch.users)} | self._rank("test", batch)

    def on_validation_epoch_end(self) -> None:
        """Log the ranking figures of the validation items."""
        self._log_ranking("val")

    def on_test_epoch_end(self) -> None:
        """Log the ranking figures of the test items."""
        self._log_ranking("test")

    def on_predict_epoch_end(self) -> None:
        """Forget what was kept for scoring."""
        self.kept = {}

    def predict_step(self, batch: PredictBatch, batch_idx: int) -> Recommendations:
        """The best unseen items of a batch of users."""
        return best_unseen(self.ranking_scores(batch.users), batch, self.data.top_k)

    # Checkpoints.

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep sizes, digests of the data, release paths and every process's random state; plain values and tensors only."""
        checkpoint["zoo"] = {
            "sizes": self.sizes,
            "digests": self.data.digests,
            "rng": random_states(self.device),
            "paths": {name: str(path) for name, path in self.data.release_paths.items()},
            "users": self.data.users,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Build from the checkpoint's sizes, or refuse a checkpoint that belongs to other data or releases."""
        kept = checkpoint["zoo"]
        self._build_once(kept["sizes"])
        self._random_states = kept_states(kept["rng"])
        if not self.has_trainer:
            return
        refuse_other_data(kept, self.data.digests)

    def on_train_start(self) -> None:
        """Begin a random stream for each process; continue those of a checkpoint, so that a resumed run equals an unbroken one."""
        super().on_train_start()
        if self.trainer.world_size > 1:  # all else begins as the first process has it by now
            kept = self.state_dict()
            for name in [name for name in self.worked_out_by_each if name in kept]:  # in one order for all
                kept[name].copy_(self.trainer.strategy.broadcast(kept[name]))
        states, self._random_states = self._random_states, []
        if not states:
            part_streams(share_of(self.trainer).rank)  # who holds parts of one model draws the same
            return
        go_on_from(states, self.global_rank, self.device)
        if len(states) != self.trainer.world_size:
            rank_zero_warn(
                f"The checkpoint is of a training by {len(states)} processes, and {self.trainer.world_size} go on: with other "
                "batches and random numbers than an unbroken run's."
            )
