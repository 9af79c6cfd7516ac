"""Ensemble: several methods trained one after another, or taken from runs, and the weighted sum of their standardised scores."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import Tensor, nn

from zoo.data.batch_types import Batch, RankingBatch
from zoo.data.metrics import full_counts, listed_items, ranking_values, sampled_counts
from zoo.methods.base import Outputs, Recommender
from zoo.methods.members import Member, checkpoint_in, copy_sizes, method_in, take, train
from zoo.methods.target_data import Sizes, TargetData
from zoo.runtime import checks
from zoo.runtime.run_folder import plain


def standardised(scores: Tensor) -> Tensor:
    """Standardise each row (batch, num_items) to mean 0 and standard deviation 1; a constant row becomes 0."""
    centred = scores - scores.mean(dim=1, keepdim=True)
    spread = centred.square().mean(dim=1, keepdim=True).sqrt()
    # Up to rounding of large level scores.
    level = spread <= 1e-6 * scores.abs().amax(dim=1, keepdim=True)
    return torch.where(level, 0.0, centred / spread.masked_fill(level, 1.0))


def greedy_weights(number: int, value: Callable[[Tensor], float], rounds: int) -> tuple[Tensor, float]:
    """Choose weights (number,) that sum to 1 by forward selection with replacement, and return them with what they are worth.

    Each of ``rounds`` adds the candidate that makes the mean of those chosen so far worth most, by ``value`` of weights; the
    weights of the best round are returned. So the value is never below that of the best candidate alone. The first of equal
    candidates and rounds wins.

    Reference: Caruana, Niculescu-Mizil, Crew, Ksikes, *Ensemble Selection from Libraries of Models*, ICML 2004, sections 2 and
    2.1. Departures: it starts empty, not with the best few (section 2.2), and selects once (section 2.3 repeats it).
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


class Ensemble(Recommender):
    """A weighted sum of what several methods score, each user's scores of each method standardised over all items.

    An epoch trains one copy of one member completely, with early stopping of its own, and keeps its best validation epoch. An
    interrupted run resumes with the current copy. Members that are runs are loaded in the first epoch. After each epoch,
    weights of the complete members are chosen by NDCG@10 on validation (`greedy_weights`), or are equal without a validation
    set. Training stops after the last copy: set `trainer.max_epochs` to at least the number of copies, and no `EarlyStopping`.
    The run keeps its best epoch on validation. A member adds nothing for users it cannot score.

    Privacy: all members read the same releases, one of each source, so the run's record lists each once. A run of another
    release is refused: two releases of a source cost their sum, which no record of this run would state. A member that adds
    noise in training is refused too: its guarantee does not cover weights chosen on validation.

    Reference: Caruana et al., *Ensemble Selection from Libraries of Models*, ICML 2004, sections 2 and 2.1, for the weights.
    Departures: scores are standardised by user first, as they have no common scale. Copies train on all users.

    Args:
        members: By name; see `zoo.methods.members.Member`.
        weights: Of every member by its name, instead of chosen ones; not negative.
        rounds: Rounds of the selection; weights are multiples of one over a number of rounds.
    """

    batches = "steps"
    logs = frozenset({"members/*"})
    not_saved = ("members",)  # objects, of which their settings are saved

    weights: Tensor
    finished: Tensor

    def __init__(
        self, members: Mapping[str, Member], weights: Mapping[str, float] | None = None, rounds: int = 30
    ) -> None:
        super().__init__()
        checks.at_least_one(rounds=rounds)
        self.rounds, self.fixed = rounds, None if weights is None else {**weights}
        self.members = {name: Member.of(member) for name, member in members.items()}
        _check_names(self.members, self.fixed)
        self._know(self.members)
        self.save_hyperparameters({"members": self._plain_members()})
        self.methods = nn.ModuleList()  # every copy, member by member, in the order of training
        self.owners: list[str] = []  # the member of each

    def _know(self, members: Mapping[str, Member]) -> None:
        """What the methods say of themselves; of a run that is not there, its checkpoint says it later, or `build` refuses."""
        self.members = {**members}
        known = [method for member in members.values() if (method := _method_of(member)) is not None]
        for method in known:
            _check_method(method)
        self.accepted_releases = frozenset[str]().union(*(method.accepted_releases for method in known))
        self.scoring_needs = frozenset[str]().union(*(method.scoring_needs for method in known))
        self.scores_cold_users = any(method.scores_cold_users for method in known)
        self.scores_by_rows = any(method.scores_by_rows for method in known)

    @property
    def settings_given(self) -> dict[str, Any]:
        """As a config has them; of members that came from runs, once they are built, the settings of their methods."""
        given = super().settings_given
        given["init_args"]["members"] = self._plain_members()
        return given

    def _plain_members(self) -> dict[str, Any]:
        return {name: plain(member) for name, member in self.members.items()}

    # Building and reading data.

    def build(self, sizes: Sizes) -> None:
        """Make the networks of every copy; a `ValueError` where a run is not there."""
        self.taken = {name: member.run for name, member in self.members.items() if member.run is not None}
        self._know({name: member.found() for name, member in self.members.items()})
        self.owners = [name for name, member in self.members.items() for _ in range(member.copies)]
        for name in self.owners:
            copy = self.members[name].made()
            copy.sizes = copy_sizes(sizes, copy)
            copy.build(copy.sizes)
            if self.has_trainer:  # whose data were read before there were copies
                copy.read_data(self.data)
            self.methods.append(copy)
        self.register_buffer("weights", torch.zeros(len(self.members)))
        self.register_buffer("finished", torch.zeros(len(self.owners), dtype=torch.bool))

    @property
    def copies(self) -> list[Recommender]:
        """Every copy of every member, in the order of training."""
        return [copy for copy in self.methods if isinstance(copy, Recommender)]

    def check_processes(self, number: int) -> None:
        """Refuse several processes, and a run that is not there: before anything is published."""
        super().check_processes(number)
        for member in self.members.values():
            member.found()

    def setup(self, stage: str) -> None:
        """Refuse what would end the training before its last member; then read the data."""
        if stage == "fit" and self.trainer.early_stopping_callbacks:
            raise ValueError(
                "EarlyStopping ends the ensemble too soon. Members stop by their own patience: leave it out."
            )
        super().setup(stage)

    def on_train_start(self) -> None:
        """Say where epochs are too few for all copies."""
        super().on_train_start()
        epochs, needed = self.trainer.max_epochs, len(self.finished) - len(self.taken)
        if epochs is not None and 0 <= epochs < needed and not self.trainer.fast_dev_run:  # type: ignore[attr-defined]
            rank_zero_warn(
                f"trainer.max_epochs is {epochs}, an epoch trains one copy, and {needed} are to be trained: the last are left out."
            )

    def read_data(self, data: TargetData) -> None:
        """For the ensemble and for every copy."""
        super().read_data(data)
        for copy in self.copies:
            copy.cache = {}
            copy.read_data(data)

    # Training.

    @torch.no_grad()
    def step(self, batch: Batch) -> Outputs:
        """Take what comes from runs, train the next copy, choose weights."""
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
            raise ValueError(_own_noise(copy))
        self.finished[at] = True
        self.log(f"members/{name}/epoch", float(epoch), on_step=False, on_epoch=True, batch_size=1)

    @property
    def converged(self) -> bool:
        """Whether every copy is trained."""
        return bool(self.finished.all())

    def _choose(self) -> None:
        """Weights of the members whose copies are all trained, and what each of them is worth alone."""
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
        """The copies of a member that are trained."""
        every = zip(self.owners, self.copies, self.finished.tolist(), strict=True)
        return [copy for owner, copy, finished in every if owner == name and finished]

    def _used(self) -> list[tuple[float, str]]:
        """Members that count, with their weights."""
        return [(weight, name) for weight, name in zip(self.weights.tolist(), self.members, strict=True) if weight]

    def member_scores(self, name: str, users: Tensor) -> Tensor:
        """Mean standardised scores of a member's copies, 0 for users (batch,) it cannot score; shape ``(batch, num_items)``."""
        parts = [standardised(copy.score_all(users)) * copy.can_score(users)[:, None] for copy in self._finished(name)]
        return torch.stack(parts).mean(0)

    def score_all(self, users: Tensor) -> Tensor:
        """The weighted sum, shape ``(batch, num_items)``."""
        total = torch.zeros(len(users), len(self.item_counts), device=users.device)
        for weight, name in self._used():
            total += weight * self.member_scores(name, users)
        return total

    def can_score(self, users: Tensor) -> Tensor:
        """Users (batch,) whom some member that counts can score, as a mask."""
        can = torch.zeros_like(users, dtype=torch.bool)
        for _, name in self._used():
            for copy in self._finished(name):
                can |= copy.can_score(users)
        return can

    def prepare_scoring(self) -> None:
        """Of every copy that is trained."""
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
        """Forget what was kept for scoring."""
        super().on_predict_epoch_end()
        self._forget()

    # Checkpoints.

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the members' settings, those from runs too: nobody needs the runs any more."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["zoo"]["members"] = self._plain_members()
        checkpoint.setdefault("hyper_parameters", {})["members"] = self._plain_members()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the methods of runs from the checkpoint, then build."""
        kept = checkpoint["zoo"]["members"]
        self._know({name: Member.of(kept[name]) for name in kept})
        super().on_load_checkpoint(checkpoint)


class HeldOutScores:
    """What each member scores on the validation cases, and what weights of members are worth.

    Candidates are scored where validation has any; else all items, of as many evenly spaced cases as `MOST_SCORES` allows.
    """

    def __init__(self, ensemble: Ensemble, names: list[str]) -> None:
        data: Any = ensemble.data
        self.sampled, self.ties = data.sampled_ranking, data.ties
        every = torch.arange(len(data.validation.users))
        if not self.sampled:
            cells = len(every) * data.train.num_items * len(names)
            every = every[:: -(-cells // MOST_SCORES)]
        self.parts: list[tuple[RankingBatch, Tensor]] = []  # scores (members, cases, candidates)
        for index in torch.split(every, data.evaluation_batch_size):
            batch = RankingBatch(*(part.to(ensemble.device) for part in data.validation.batch(index)))
            scores = torch.stack([ensemble.member_scores(name, batch.users) for name in names])
            if self.sampled:
                scores = scores.gather(2, listed_items(batch).expand(len(names), -1, -1))
            self.parts.append((batch, scores))

    def value(self, weights: Tensor) -> float:
        """Mean NDCG@10 of the sum by weights (members,)."""
        found = []
        for batch, scores in self.parts:
            total = torch.zeros_like(scores[0])
            for weight, part in zip(weights.tolist(), scores, strict=True):
                total += weight * part
            higher, level = sampled_counts(total, batch) if self.sampled else full_counts(total, batch)
            found.append(ranking_values(higher, level, (10,), self.ties)[0, 1])
        return float(torch.cat(found).mean())


def _method_of(member: Member) -> Recommender | None:
    """A new method of a member; None where it is that of a run that is not there."""
    if member.method is not None:
        return member.made()
    assert member.run is not None
    try:
        return method_in(checkpoint_in(member.run))
    except ValueError:  # it is said when it is needed: a checkpoint of the ensemble does without
        return None


def _check_names(members: Mapping[str, Member], weights: Mapping[str, float] | None) -> None:
    if not members or any(not name.replace("-", "").replace("_", "").isalnum() for name in members):
        raise ValueError(f"members must name at least one, by letters, digits, - and _; got {list(members)}.")
    if weights is None:
        return
    if set(weights) != set(members) or min(weights.values()) < 0 or not 0 < sum(weights.values()) < float("inf"):
        raise ValueError(
            f"weights are {dict(weights)}. Give one for each of {sorted(members)}, none negative and not all 0, or null."
        )


def _check_method(method: Recommender) -> None:
    """Refuse what cannot be a member, with a `ValueError`."""
    name = type(method).__name__
    if isinstance(method, Ensemble):
        raise ValueError("An Ensemble is no member of another: name its members.")
    if method.reads_signs:
        raise ValueError(f"{name} learns from signs, and an ensemble ranks by implicit feedback. Leave it out.")
    if getattr(method, "privacy", None) is not None:
        raise ValueError(_own_noise(method))


def _own_noise(method: Recommender) -> str:
    return (
        f"{type(method).__name__} adds noise of its own in training, which is paid for by every such training, and its guarantee "
        "does not cover weights that are chosen on validation ratings. Train it by itself, or set its epsilon to null."
    )
