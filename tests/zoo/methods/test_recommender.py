"""Recommender: what every method's scores become, on scores that are given."""

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from zoo import Recommender
from zoo.data.batch_types import Batch, UserBatch
from zoo.methods.base import Outputs
from zoo.methods.target_data import Sizes

USERS = 24


class Given(Recommender):
    """Scores of few values, so that many are equal."""

    batches = "full_batch"

    scores: Tensor

    def build(self, sizes: Sizes) -> None:
        shape = sizes["num_users"], sizes["num_items"]
        self.register_buffer("scores", torch.from_numpy(np.random.default_rng(0).integers(0, 5, shape) / 2))

    def step(self, batch: Batch) -> Outputs:
        return {}

    def score_all(self, users: Tensor) -> Tensor:
        return self.scores[users]


def trainer(*callbacks: Callback) -> Trainer:
    return quiet(callbacks=[*callbacks])


def data(top_k: int = 10, **evaluation: object) -> Synthetic:
    settings = Evaluation(split="ratio", shares=(0.4, 0.2, 0.4), ks=(1, 3, 10), **evaluation)  # type: ignore[arg-type]
    sizes: dict[str, Any] = {"num_users": USERS, "num_items": 20, "ratings_per_user": 8, "evaluation_batch_size": 5}
    return Synthetic(**sizes, top_k=top_k, evaluation=settings)


def rated(made: Synthetic) -> dict[int, set[int]]:
    """All items of each user, from the table itself."""
    users = {name: number for number, name in enumerate(made.train.user_ids.tolist())}
    items = {name: number for number, name in enumerate(made.train.item_ids.tolist())}
    found = defaultdict(set)
    for user, item in made.read("music").select("user_id", "item_id").iter_rows():
        found[users[user]].add(items[item])
    return found


def expected(scores: list[float], positive: int, others: list[int], k: int) -> tuple[float, float, float]:
    """Hit rate, NDCG and MRR, the mean over every place among the equal ones."""
    above = sum(scores[item] > scores[positive] for item in others)
    level = sum(scores[item] == scores[positive] for item in others)
    hits = [rank for rank in range(above + 1, above + level + 2) if rank <= k]
    values = (len(hits), sum(1 / math.log2(rank + 1) for rank in hits), sum(1 / rank for rank in hits))
    hit_rate, ndcg, mrr = (value / (level + 1) for value in values)
    return hit_rate, ndcg, mrr


@pytest.mark.parametrize("full", [True, False], ids=["both", "sampled alone"])
def test_ranking_figures_are_those_of_brute_force(full: bool) -> None:
    made, run = data(num_candidates=14, full_ranking=full), trainer()
    method = Given()
    run.test(method, datamodule=made, verbose=False)
    own, scores = rated(made), method.scores.tolist()
    users, positives, out = made.test.users.tolist(), made.test.items.tolist(), {*made.test.left_out.tolist()}
    assert len(set(users)) < len(users), "several held-out items of one user"
    assert (made.test.candidates < 0).any(), "lists of several lengths"
    others = {
        "sampled": [[item for item in listed if item >= 0] for listed in made.test.candidates.tolist()],
        "full": [[item for item in range(made.train.num_items) if item not in own[user] | out] for user in users],
    }
    for kind in ("sampled", "full") if full else ("sampled",):
        for k in (1, 3, 10):
            cases = [
                expected(scores[user], positive, others[kind][case], k)
                for case, (user, positive) in enumerate(zip(users, positives, strict=True))
            ]
            found = [float(run.callback_metrics[f"test/{kind}/{name}@{k}"]) for name in ("hit_rate", "ndcg", "mrr")]
            assert found == pytest.approx(np.mean(cases, axis=0).tolist(), abs=1e-6)
    assert full == any(name.startswith("test/full/") for name in run.callback_metrics)


def test_all_items_are_ranked_at_the_test_alone_where_that_is_asked() -> None:
    made, run = data(num_candidates=14, full_ranking="test"), trainer()
    run.validate(Given(), datamodule=made, verbose=False)
    figures = set(run.callback_metrics)
    assert "val/ndcg@10" in figures
    assert {name.split("/")[1] for name in figures} == {"sampled", "ndcg@10"}
    run.test(Given(), datamodule=made, verbose=False)
    assert {name.split("/")[1] for name in run.callback_metrics} == {"sampled", "full"}


@pytest.mark.parametrize("top_k", [3, 15])
def test_the_best_unseen_items_are_recommended_and_no_seen_one(top_k: int) -> None:
    made, method = data(top_k), Given()
    batches = trainer().predict(method, datamodule=made)
    assert batches
    own, scores = rated(made), method.scores.tolist()
    done = []
    for batch in batches:
        for user, items in zip(batch.users.tolist(), batch.items.tolist(), strict=True):
            unseen = sorted(set(range(made.train.num_items)) - own[user], key=lambda item: -scores[user][item])
            kept = [item for item in items if item >= 0]
            assert len(items) == top_k
            assert items == kept + [-1] * (top_k - len(kept))
            assert len(kept) == len(set(kept)) == min(top_k, len(unseen))
            assert not own[user] & set(kept)
            assert [scores[user][item] for item in kept] == [scores[user][item] for item in unseen[:top_k]]
            done.append(user)
    assert done == list(range(USERS))


def test_a_user_without_finite_scores_is_recommended_popular_items() -> None:
    class Overflowing(Given):
        def score_all(self, users: Tensor) -> Tensor:
            found = super().score_all(users).clone()
            found[users == 1, 4] = torch.nan
            return found

    made, method = data(3), Overflowing()
    with pytest.warns(UserWarning, match="scores that are not finite. They get popular items"):
        found = {user: best for batch in trainer().predict(method, datamodule=made) for user, best in zip(
            batch.users.tolist(), batch.scores.tolist(), strict=True
        )}  # fmt: skip
    counts = method.item_counts.tolist()
    assert found[1] == sorted((n for item, n in enumerate(counts) if item not in rated(made)[1]), reverse=True)[:3]
    assert found[2] == sorted((s for i, s in enumerate(method.scores[2].tolist()) if i not in rated(made)[2]))[:-4:-1]


class Costly(Given):
    """A loss for each epoch and batch that is known: ten times the epoch, and how many users there are."""

    batches = "users"

    def build(self, sizes: Sizes) -> None:
        super().build(sizes)
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.lr = 1e-3
        self.seen: list[list[int]] = []

    def step(self, batch: Batch) -> Outputs:
        if not self.seen or len(self.seen) <= self.current_epoch:
            self.seen.append([])
        self.seen[-1].append(len(batch.users))
        return {"loss": 10.0 * self.current_epoch + len(batch.users) + 0 * self.weight}


def test_the_loss_of_an_epoch_is_the_mean_over_examples() -> None:
    made, method, run = data(), Costly(), trainer()
    made.batch_size = 7
    run.fit_loop.max_epochs = 2
    run.fit(method, datamodule=made)
    assert [len(set(sizes)) for sizes in method.seen] == [2, 2], "the last batch is shorter"
    sizes = np.array(method.seen[-1])
    expected = 10 + (sizes**2).sum() / sizes.sum()
    assert float(run.callback_metrics["train/loss"]) == pytest.approx(expected)


def test_a_penaltys_mean_is_what_lightning_would_log() -> None:
    """By the rows of each batch, of which the last has fewer."""

    class Penalised(Callback):
        def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
            assert isinstance(pl_module, Recommender)
            pl_module.add_penalty("users", lambda outputs: outputs["loss"].detach())

        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: object) -> None:  # noqa: ANN401
            pl_module.log("by lightning", outputs["loss"].mean() / 2, on_step=False, on_epoch=True)

    made, method, run = data(), Costly(), trainer(Penalised())
    made.batch_size = 7
    run.fit_loop.max_epochs = 2
    run.fit(method, datamodule=made)
    found = {name: float(value) for name, value in run.callback_metrics.items()}
    assert found["train/penalty/users"] == pytest.approx(found["by lightning"], rel=1e-6)
    assert found["train/penalty/users"] == pytest.approx(found["train/loss"] / 2, rel=1e-6)


def test_a_figure_that_is_no_number_ends_no_training() -> None:
    """Only a loss does: the norm of a gradient is none in each step that a scaler of half precision leaves out."""

    class Odd(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
            assert isinstance(pl_module, Recommender)
            pl_module.log_mean("train/gradient_norm/0", torch.tensor(math.nan))

    run = trainer(Odd())
    run.fit_loop.max_epochs = 2
    run.fit(Costly(), datamodule=data())
    assert run.current_epoch == 2
    assert math.isnan(float(run.callback_metrics["train/gradient_norm/0"]))
    assert math.isfinite(float(run.callback_metrics["train/loss"]))


def test_batches_that_hold_nobody_weigh_alike() -> None:
    method = Costly()
    for value in (1.0, torch.tensor(4.0)):
        method.on_train_batch_start(UserBatch(torch.zeros(0, dtype=torch.long)), 0)
        method.log_mean("train/steps", value)
    total, weights = method._means["train/steps"]
    assert (float(total), weights) == (5.0, 2)


def test_an_epoch_that_was_broken_off_counts_for_no_later_fit() -> None:
    made, method, run = data(), Costly(), trainer()
    method.log_mean("train/loss", torch.tensor(float("nan")), 1.0)
    run.fit_loop.max_epochs = 1
    run.fit(method, datamodule=made)
    assert math.isfinite(float(run.callback_metrics["train/loss"]))


def test_old_names_of_attributes_warn_and_are_the_new_ones() -> None:
    with pytest.warns(DeprecationWarning, match=r"Plugged\.alone is now single_process_reason\. Use that; the old"):

        class Plugged(Given):
            @property
            def alone(self) -> str:
                return "is of one process"

    with pytest.warns(DeprecationWarning, match=r"Solved\.batches is 'once', which is now 'full_batch'"):

        class Solved(Given):
            batches = "once"  # type: ignore[assignment]

    assert Solved.batches == "full_batch"

    with pytest.warns(DeprecationWarning, match=r"Linked\.reads is now accepted_releases"):

        class Linked(Given):
            reads = frozenset({"rows"})

    assert Linked().accepted_releases == {"rows"}
    method = Plugged()
    with pytest.raises(ValueError, match=r"Plugged is of one process; got 2 processes"):
        method.check_processes(2)
    renamed = {
        "alone": "single_process_reason",
        "solved": "converged",
        "worked_out_by_each": "replicated_buffers",
        "exposes": "step_outputs",
    }
    for old, new in renamed.items():
        with pytest.warns(DeprecationWarning, match=rf"Plugged\.{old} is now {new}\. Use that"):
            assert getattr(method, old) == getattr(method, new)
    with pytest.warns(DeprecationWarning, match=r"Plugged\.kept is now cache"):
        method.kept = {"items": torch.ones(1)}
    assert method.cache["items"] == 1


def test_attributes_are_set_as_a_module_sets_them() -> None:
    method = Given()
    method.register_buffer("scores", torch.ones(2))
    method.layer = nn.Linear(2, 2)
    method.word = None
    method.word = "a word"
    assert method.__dict__["word"] == "a word"
    for name in ("scores", "layer"):
        with pytest.raises(TypeError, match=f"cannot assign 'str.*' as .*'{name}'"):
            setattr(method, name, "a word")
        setattr(method, name, None)
    assert [name for name, _ in method.named_buffers()] == [name for name, _ in method.named_parameters()] == []
    assert "scores" not in method.__dict__
    method.word = nn.Parameter(torch.ones(1))
    assert [name for name, _ in method.named_parameters()] == ["word"]
