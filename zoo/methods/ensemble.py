"""Ensemble: several methods, trained in sequence or taken from runs, and the weighted sum of their standardised scores."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn

from zoo.data.batch_types import Batch, RankingBatch
from zoo.data.metrics import full_counts, listed_items, ranking_values, sampled_counts
from zoo.data.rows import SparseRows
from zoo.methods.base import Outputs, Recommender, is_private
from zoo.methods.epoch_averages import DivergedError
from zoo.methods.members import Member, check_names, checkpoint_in, copy_sizes, own_noise, take, train
from zoo.methods.target_data import Sizes, TargetData
from zoo.runtime import checks
from zoo.runtime.run_folder import plain


def standardised(scores: Tensor) -> Tensor:
    """Standardise each row (batch, num_items) to mean 0 and standard deviation 1; a constant row becomes 0.

    Examples:
        >>> standardised(torch.tensor([[1.0, 3.0], [5.0, 5.0]])).tolist()
        [[-1.0, 1.0], [0.0, 0.0]]
    """
    centred = scores - scores.mean(dim=1, keepdim=True)
    spread = centred.square().mean(dim=1, keepdim=True).sqrt()
    # Up to rounding of large level scores.
    level = spread <= 1e-6 * scores.abs().amax(dim=1, keepdim=True)
    return torch.where(level, 0.0, centred / spread.masked_fill(level, 1.0))


def greedy_weights(number: int, value: Callable[[Tensor], float], rounds: int) -> tuple[Tensor, float]:
    """Choose weights that sum to 1 by forward selection with replacement; return them with their value.

    Each round adds the candidate with the highest value of the mean of all chosen so far. The weights of the best round are
    returned, so the value is never below that of the best candidate. The first of equal candidates and rounds wins.

    Args:
        number: Number of candidates.
        value: Value of weights (number,).
        rounds: Number of rounds.

    Reference: Caruana, Niculescu-Mizil, Crew, Ksikes, *Ensemble Selection from Libraries of Models*, ICML 2004, sections 2 and
    2.1. Departures: it starts empty, not with the best few (section 2.2), and selects once (section 2.3 repeats it).

    Examples:
        >>> weights, value = greedy_weights(2, lambda w: -float((w - torch.tensor([0.25, 0.75])).abs().sum()), rounds=4)
        >>> weights.tolist(), value
        ([0.25, 0.75], -0.0)
    """
    counts = torch.zeros(number)
    best, worth = counts, -torch.inf
    for chosen in range(1, rounds + 1):
        tried = [(counts + one) / chosen for one in torch.eye(number)]
        values = [value(weights) for weights in tried]
        first = max(range(number), key=values.__getitem__)
        counts[first] += 1
        if values[first] > worth:
            best, worth = tried[first], values[first]
    return best, worth


#: Scores of all items that are kept at once to choose weights by, where validation ranks all items; more cases are thinned.
MOST_SCORES = 1 << 28
#: Copies of all members together: they are made before the weights of a received file are compared with them.
MOST_MEMBERS = 1_000


class Ensemble(Recommender):
    """A weighted sum of the scores of several methods, each standardised over all items of a user.

    An epoch trains one copy of one member completely, with its own early stopping, and restores its best validation epoch. An
    interrupted run resumes with the current copy. Members that are runs are loaded in the first epoch. After each epoch,
    weights of the complete members are chosen by NDCG@10 on validation (`greedy_weights`), or are equal without a validation
    set. Training stops after the last copy: set `trainer.max_epochs` to at least the number of copies, and no `EarlyStopping`.
    The run stores its best epoch on validation; with fixed weights, that of the last copy. A member adds nothing for users it
    cannot score.

    Privacy: all members read the same releases, one of each source, so the run's record lists each once. A run of another
    release raises an error: two releases of a source cost their sum, which no record of this run would state. A member that
    adds noise in training raises an error too: its guarantee does not cover weights chosen on validation. With a member that reads
    a source's rows without noise (`Bridge`, or a run of it), weights must be fixed, and the last epoch is stored: else lists of all
    people would depend on each person's rows at the source.

    Reference: Caruana et al., *Ensemble Selection from Libraries of Models*, ICML 2004, sections 2 and 2.1, for the weights.
    Departures: scores are standardised by user first, as they have no common scale. Copies train on all users.

    Args:
        members: By name; see `zoo.methods.members.Member`.
        weights: Fixed non-negative weight of every member by name; null: chosen on validation.
        rounds: Rounds of the selection; weights are multiples of one over a number of rounds.
        weights_from_own_rows: Choose weights even by scores that read a source's rows without noise. For research: the run's
            privacy record then assumes that the weights reveal none of them.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> from zoo.methods.members import Member
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> ensemble = zoo.Ensemble({"ease": Member(zoo.EASE()), "popularity": Member(zoo.Popularity())})
        >>> run = zoo.fit(ensemble, data, max_epochs=2, enable_progress_bar=False)
        Data: target music...
        >>> float(run.method.weights.sum())
        1.0
    """

    batches = "steps"
    logs = frozenset({"members/*"})
    not_saved = ("members",)  # objects, of which their settings are saved

    weights: Tensor
    finished: Tensor

    def __init__(
        self,
        members: Mapping[str, Member],
        weights: Mapping[str, float] | None = None,
        rounds: int = 30,
        weights_from_own_rows: bool = False,
    ) -> None:
        super().__init__()
        checks.at_least_one(rounds=rounds)
        self.weights_from_own_rows = weights_from_own_rows
        self.rounds, self.fixed = rounds, None if weights is None else {**weights}
        if not isinstance(members, Mapping):
            raise TypeError(f"members is of type {type(members).__name__}. Name each: {{'first': Member(METHOD)}}.")
        self.members = {name: Member.of(member) for name, member in members.items()}
        check_names(self.members, self.fixed)
        if (number := sum(member.copies for member in self.members.values())) > MOST_MEMBERS:
            raise ValueError(f"An ensemble has at most {MOST_MEMBERS:,} copies; got {number:,}.")
        self._know(self.members)
        self.save_hyperparameters({"members": self._plain_members()})
        self.methods = nn.ModuleList()  # every copy, member by member, in the order of training
        self.owners: list[str] = []  # the member of each

    def _know(self, members: Mapping[str, Member]) -> None:
        """Take over the class attributes of the members; a missing run is read from the checkpoint later, or `build` raises."""
        self.members = {**members}
        known = [method for member in members.values() if (method := member.known()) is not None]
        for method in known:
            _check_method(method)
            self.own_rows |= method.own_rows
            self.learned_elsewhere |= method.learned_elsewhere
            self.chosen_by_metrics |= method.chosen_by_metrics and "map" in method.accepted_releases
        self.accepted_releases = frozenset[str]().union(*(method.accepted_releases for method in known))
        self.scoring_needs = frozenset[str]().union(*(method.scoring_needs for method in known))
        ways = {method.folds_in for method in known}
        self.folds_in = None if None in ways else "rows" if ways == {"rows"} else "solve"
        needs = (method.scoring_needs if (own := method.fold_in_needs) is None else own for method in known)
        self.fold_in_needs = frozenset[str]().union(*needs)
        self.scores_cold_users = any(method.scores_cold_users for method in known)
        self.scores_by_rows = any(method.scores_by_rows for method in known)

    @property
    def settings_given(self) -> dict[str, Any]:
        """Settings as in a config; for members from runs, once built, the settings of their methods."""
        given = super().settings_given
        given["init_args"]["members"] = self._plain_members()
        return given

    def _plain_members(self) -> dict[str, Any]:
        return {name: plain(member) for name, member in self.members.items()}

    # Building and reading data.

    def build(self, sizes: Sizes) -> None:
        """Make the networks of every copy; raise a `ValueError` if a run is missing."""
        self.taken = {name: member.run for name, member in self.members.items() if member.run is not None}
        self._know({name: member.found() for name, member in self.members.items()})
        self.owners = [name for name, member in self.members.items() for _ in range(member.copies)]
        for name in self.owners:
            copy = self.members[name].made()
            copy.sizes = copy_sizes(sizes, copy)
            copy.build(copy.sizes)
            if is_private(copy):  # private steps may be made by `build`
                raise ValueError(own_noise(copy))
            if self.has_trainer:  # whose data were read before there were copies
                with torch.device("cpu"):  # where the data lie; Lightning builds on the trainer's device
                    copy.read_data(self.data)
            self.methods.append(copy)
        self.register_buffer("weights", torch.zeros(len(self.members)))
        self.register_buffer("finished", torch.zeros(len(self.owners), dtype=torch.bool))

    @property
    def copies(self) -> list[Recommender]:
        """All copies of all members, in the order of training."""
        return [copy for copy in self.methods if isinstance(copy, Recommender)]

    def check_processes(self, number: int) -> None:
        """Raise a `ValueError` for several processes or a missing run, before anything is published."""
        super().check_processes(number)
        for member in self.members.values():
            member.found()
        self._know(self.members)

    def setup(self, stage: str) -> None:
        """Refuse early stopping, before the last member, and epochs without validation; then read the data."""
        if stage == "fit" and self.trainer.early_stopping_callbacks:
            raise ValueError("EarlyStopping ends the ensemble too soon. Members have their own patience. Omit it.")
        super().setup(stage)
        validated = len(self.trainer.datamodule.validation.users) and self.trainer.limit_val_batches  # type: ignore[attr-defined]
        if stage == "fit" and validated and (every := self.trainer.check_val_every_n_epoch) != 1:
            raise ValueError(f"check_val_every_n_epoch is {every}. Each epoch validates a copy. Omit it.")
        chooses = self.fixed is None and len(self.trainer.datamodule.validation.users) > 0  # type: ignore[attr-defined]
        self.chosen_by_metrics |= chooses
        read = self.own_rows_read(self.data)
        if stage == "fit" and chooses and read and not self.weights_from_own_rows:
            raise ValueError(
                f"weights is null, and members read the rows of {', '.join(read)} without noise. Set weights, or "
                "weights_from_own_rows."
            )

    def on_train_start(self) -> None:
        """Warn if there are fewer epochs than copies."""
        super().on_train_start()
        epochs, needed = self.trainer.max_epochs, len(self.finished) - len(self.taken)
        if epochs is not None and 0 <= epochs < needed and not self.trainer.fast_dev_run:  # type: ignore[attr-defined]
            rank_zero_warn(
                f"trainer.max_epochs is {epochs}, an epoch trains one copy, and {needed} are to be trained: the last are left out."
            )

    def stored_numbers(self, sizes: Sizes, entries: int) -> int:
        """Return those of all copies."""
        known = [(member.copies, made) for member in self.members.values() if (made := member.known()) is not None]
        return sum(copies * made.stored_numbers(copy_sizes(sizes, made), entries) for copies, made in known)

    def read_data(self, data: TargetData) -> None:
        """Read the data for the ensemble and for every copy."""
        super().read_data(data)
        for copy in self.copies:
            copy.cache = {}
            copy.read_data(data)

    # Training.

    @torch.no_grad()
    def step(self, batch: Batch) -> Outputs:
        """Load members from runs, train the next copy, choose weights."""
        for name, run in self.taken.items():
            at = self.owners.index(name)
            if not self.finished[at]:  # by the checkpoint that is gone on from
                take(self.copies[at], checkpoint_in(run), self.data.sizes, self.data.digests)
                self.finished[at] = True
        self.taken = {}
        if not self.converged:
            self._train(int((~self.finished).nonzero()[0]))
        self._choose()
        return {}

    def _train(self, at: int) -> None:
        name, copy = self.owners[at], self.copies[at]
        with torch.enable_grad():
            epoch = train(self.members[name], copy, self.data, at, self.trainer)
        if copy.privacy_record() is not None:
            raise ValueError(own_noise(copy))
        self.finished[at] = True
        self.log(f"members/{name}/epoch", float(epoch), on_step=False, on_epoch=True, batch_size=1)

    @property
    def converged(self) -> bool:
        """Whether every copy is trained."""
        return bool(self.finished.all())

    @property
    def complete(self) -> bool:
        """Whether this epoch may be stored instead of an earlier one, whatever its metric: fixed weights need every member."""
        return self.fixed is None or self.converged

    def _choose(self) -> None:
        """Choose weights of the members whose copies are all trained, and log the value of each alone."""
        there = [name for name, member in self.members.items() if len(self._finished(name)) == member.copies]
        if not there:
            return
        names, validation = list(self.members), self.trainer.datamodule.validation  # type: ignore[attr-defined]
        if self.fixed is not None:
            chosen = torch.tensor([self.fixed[name] for name in there])
        elif not len(validation.users):
            chosen = torch.ones(len(there))
        else:
            self.eval()
            self.prepare_scoring()
            held_out = HeldOutScores(self, there)
            for name, one in zip(there, torch.eye(len(there)), strict=True):
                self.log(f"members/{name}/ndcg@10", held_out.value(one), on_step=False, on_epoch=True, batch_size=1)
            chosen, _ = greedy_weights(len(there), held_out.value, self.rounds)
            self._forget()
            self.train()
        total = chosen.sum().clamp(min=torch.finfo().tiny)
        self.weights.zero_()
        for name, weight in zip(there, chosen / total, strict=True):
            self.weights[names.index(name)] = weight
            self.log(f"members/{name}/weight", float(weight), on_step=False, on_epoch=True, batch_size=1)

    # Scoring.

    def _finished(self, name: str) -> list[Recommender]:
        """Trained copies of a member."""
        every = zip(self.owners, self.copies, self.finished.tolist(), strict=True)
        return [copy for owner, copy, finished in every if owner == name and finished]

    def _used(self) -> list[tuple[float, str]]:
        """Members with a nonzero weight, and that weight."""
        return [(weight, name) for weight, name in zip(self.weights.tolist(), self.members, strict=True) if weight]

    def member_scores(self, name: str, users: Tensor, known: Tensor | None = None) -> Tensor:
        """Return mean standardised scores of a member's copies (batch, num_items), 0 for users (batch,) it cannot score.

        With ``known``, users are those of `fold_in`.
        """
        copies, total = self._finished(name), torch.zeros(len(users), len(self.item_counts), device=users.device)
        for copy in copies:
            scores = copy.score_all(users) if known is None else copy.fold_in_scores(users, known)
            total += standardised(scores) * copy.can_score(users)[:, None]
        return total / len(copies)

    def score_all(self, users: Tensor) -> Tensor:
        """Return the weighted sum, shape ``(batch, num_items)``."""
        return self._sum(users)

    def fold_in_scores(self, users: Tensor, known: Tensor) -> Tensor:
        """Return the weighted sum of what the members give the rows, shape ``(batch, num_items)``."""
        return self._sum(users, known)

    @contextmanager
    def reading(self, rows: SparseRows, links: Mapping[str, Tensor]) -> Iterator[None]:
        """Let every copy read other users' histories and release rows."""
        with ExitStack() as stack:
            for copy in self.copies:
                stack.enter_context(copy.reading(rows, links))
            stack.enter_context(super().reading(rows, links))
            yield

    def _sum(self, users: Tensor, known: Tensor | None = None) -> Tensor:
        total = torch.zeros(len(users), len(self.item_counts), device=users.device)
        for weight, name in self._used():
            total += weight * self.member_scores(name, users, known)
        return total

    def can_score(self, users: Tensor) -> Tensor:
        """Return a mask of the users (batch,) that some member with a weight can score."""
        can = torch.zeros_like(users, dtype=torch.bool)
        for _, name in self._used():
            for copy in self._finished(name):
                can |= copy.can_score(users)
        return can

    def prepare_scoring(self) -> None:
        """Prepare every trained copy."""
        self._forget()
        for name in self.members:
            for copy in self._finished(name):
                copy.prepare_scoring()

    def _forget(self) -> None:
        for copy in self.copies:
            copy.cache = {}

    def _log_ranking(self, stage: str) -> None:
        super()._log_ranking(stage)
        self._forget()

    def on_predict_epoch_end(self) -> None:
        """Empty the caches for scoring."""
        super().on_predict_epoch_end()
        self._forget()

    # Checkpoints.

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Also store the members' settings, so that the checkpoint does not need their runs."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["zoo"]["members"] = self._plain_members()
        checkpoint.setdefault("hyper_parameters", {})["members"] = self._plain_members()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the methods of runs from the checkpoint, then build."""
        kept = checkpoint["zoo"]["members"]
        self._know({name: Member.of(kept[name]) for name in kept})
        super().on_load_checkpoint(checkpoint)


class HeldOutScores:
    """Scores of each member on the validation cases, and the value of member weights.

    Candidates are scored where validation has any; else all items, for as many evenly spaced cases as `MOST_SCORES` allows.
    """

    def __init__(self, ensemble: Ensemble, names: list[str]) -> None:
        data: Any = ensemble.data
        self.sampled, self.ties, self.average = data.sampled_ranking, data.ties, data.average
        every = torch.arange(len(data.validation.users))
        if not self.sampled:
            cells = len(every) * data.train.num_items * len(names)
            every = every[:: -(-cells // MOST_SCORES)]
        self.parts: list[tuple[RankingBatch, Tensor]] = []  # scores (members, cases, candidates)
        for index in torch.split(every, data.evaluation_batch_size):
            batch = RankingBatch(*(part.to(ensemble.device) for part in data.validation.batch(index)))
            scores = torch.stack([ensemble.member_scores(name, batch.users) for name in names])
            if broken := [name for name, part in zip(names, scores, strict=True) if not part.isfinite().all()]:
                raise DivergedError(f"Member {broken[0]!r} has scores that are not finite. Remove it, or its releases.")
            if self.sampled:
                scores = scores.gather(2, listed_items(batch).expand(len(names), -1, -1))
            self.parts.append((batch, scores))

    def value(self, weights: Tensor) -> float:
        """Return the mean NDCG@10 of the sum weighted by weights (members,)."""
        found = []
        for batch, scores in self.parts:
            total = torch.zeros_like(scores[0])
            for weight, part in zip(weights.tolist(), scores, strict=True):
                total += weight * part
            num_better, num_tied = sampled_counts(total, batch) if self.sampled else full_counts(total, batch)
            found.append(ranking_values(num_better, num_tied, (10,), self.ties)[0, 1])
        values = torch.cat(found)
        shares = [share for batch, _ in self.parts if (share := batch.weights(self.average)) is not None]
        return float((values if not shares else values * torch.cat(shares) / torch.cat(shares).mean()).mean())


def _check_method(method: Recommender) -> None:
    """Raise a `ValueError` for a method that cannot be a member."""
    name = type(method).__name__
    if isinstance(method, Ensemble):
        raise ValueError("An Ensemble is no member of another: name its members.")
    if method.reads_signs:
        raise ValueError(f"{name} learns from signs, and an ensemble ranks. Leave it out.")
    if getattr(method, "privacy", None) is not None:
        raise ValueError(own_noise(method))
