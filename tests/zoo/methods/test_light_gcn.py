"""LightGCN: scores and loss against a dense graph, BPR at its root, what is kept while scoring, and tastes that it must learn."""

import math
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import BPR, LightGCN
from zoo.data.batch_types import TripleBatch

TRIPLES = TripleBatch(torch.tensor([3, 3, 7]), torch.tensor([0, 5, 9]), torch.tensor([2, 9, 1]))


def dense_factors(method: LightGCN, weights: list[float]) -> tuple[Tensor, Tensor]:
    """What layers make of users and items by ``D^-1/2 A D^-1/2``, in double precision; rows of zeros without edges."""
    observed = method.target_rows.dense(torch.arange(method.target_rows.num_rows)).double()
    users, items = observed.shape
    above = torch.cat([torch.zeros(users, users), observed], dim=1)
    adjacency = torch.cat([above, torch.cat([observed.T, torch.zeros(items, items)], dim=1)])
    root = adjacency.sum(1).clamp(min=1).rsqrt()  # a degree of 0 has a row of zeros
    matrix = root[:, None] * adjacency * root
    layer = torch.cat([method.factors.users.weight, method.factors.items.weight]).detach().double()
    total = torch.zeros_like(layer)
    for weight in weights:
        total, layer = total + weight * layer, matrix @ layer
    return total[:users], total[users:]


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({}, [0.25] * 4),
        ({"num_layers": 1}, [0.5, 0.5]),
        ({"num_layers": 2, "layer_weights": (0.0, 0.3, 1.0)}, [0.0, 0.3, 1.0]),
        ({"num_layers": 0}, [1.0]),
    ],
)
def test_scores_are_those_of_the_dense_graph(settings: dict[str, Any], weights: list[float]) -> None:
    method, _ = fitted(LightGCN(num_factors=4, **settings), 0)
    users, items = dense_factors(method, weights)
    expected = (users @ items.T).float()
    chosen = torch.tensor([3, 0, 119, 3])
    assert torch.allclose(method.score_all(chosen), expected[chosen], atol=1e-6)
    few = torch.tensor([[0, 59], [7, 7], [1, 2], [4, 0]])
    assert torch.allclose(method.score(chosen, few), expected[chosen].gather(1, few), atol=1e-6)


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_the_loss_is_the_papers_with_its_penalty_before_any_layer(l2: float) -> None:
    method, _ = fitted(LightGCN(num_factors=4, l2=l2), 0)
    every_user, every_item = dense_factors(method, [0.25] * 4)
    own_user, own_item = method.factors.users.weight.detach(), method.factors.items.weight.detach()
    expected = 0.0
    for user, positive, negative in zip(*TRIPLES, strict=True):
        difference = float(every_user[user] @ every_item[positive]) - float(every_user[user] @ every_item[negative])
        squares = sum(float((own**2).sum()) for own in (own_user[user], own_item[positive], own_item[negative]))
        expected += math.log(1 + math.exp(-difference)) + l2 / 2 * squares
    assert method.step(TRIPLES)["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_factors_of_the_batch_are_exposed_after_the_layers() -> None:
    method, _ = fitted(LightGCN(num_factors=4), 0)
    outputs = method.step(TRIPLES)
    users, items = method.nodes()
    assert torch.equal(outputs["user_factors"], users[TRIPLES.users])
    assert torch.equal(outputs["item_factors"], items[[0, 5, 9, 2, 9, 1]])


def test_a_triple_teaches_everybody_within_three_steps_of_it() -> None:
    """BPR moves a user and two items; here their neighbours' factors have a gradient, too."""
    method, _ = fitted(LightGCN(num_factors=4), 0)
    (gradient,) = torch.autograd.grad(method.step(TRIPLES)["loss"], method.factors.users.weight)
    assert int((gradient.abs().sum(1) > 0).sum()) > len(set(TRIPLES.users.tolist()))


@pytest.mark.thorough
@pytest.mark.parametrize("l2", [0.0, 0.05])
def test_without_layers_it_is_bpr(l2: float) -> None:
    ours, _ = fitted(LightGCN(num_factors=8, num_layers=0, l2=l2, lr=1e-2), 3)
    theirs, _ = fitted(BPR(num_factors=8, l2=l2, lr=1e-2), 3)
    for name, table in theirs.factors.named_parameters():  # the penalty's gradient is added in another order
        assert torch.allclose(table, dict(ours.factors.named_parameters())[name], atol=1e-6)
    users = torch.arange(120)
    assert torch.allclose(ours.score_all(users), theirs.score_all(users), atol=1e-6)


class Counting(LightGCN):
    """Says how often factors were passed along the graph, and whether something was kept."""

    passes = 0

    def nodes(self) -> tuple[Tensor, Tensor]:
        self.passes += 1
        return super().nodes()


class PassesOfAPhase(Callback):
    """Passes in each epoch of training and of validation, with the batches of it."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[int, int]]] = {"train": [], "val": []}
        self.kept_while_training: list[bool] = []

    def on_train_epoch_start(self, trainer: Trainer, module: Counting) -> None:  # type: ignore[override]
        module.passes = 0

    def on_train_batch_start(self, trainer: Trainer, module: Counting, *_: object) -> None:  # type: ignore[override]
        self.kept_while_training.append(bool(module.cache))

    def on_validation_start(self, trainer: Trainer, module: Counting) -> None:  # type: ignore[override]
        self.found["train"].append((module.passes, trainer.num_training_batches))
        module.passes = 0

    def on_validation_end(self, trainer: Trainer, module: Counting) -> None:  # type: ignore[override]
        self.found["val"].append((module.passes, sum(trainer.num_val_batches)))


def test_factors_are_passed_on_once_a_batch_and_once_an_evaluation() -> None:
    seen = PassesOfAPhase()
    trainer = quiet(max_epochs=2, num_sanity_val_steps=0, callbacks=[seen])
    data = Synthetic(num_users=120, num_items=60, seed=0, evaluation_batch_size=32)
    trainer.fit(Counting(num_factors=4), datamodule=data)
    assert all(passes == batches > 1 for passes, batches in seen.found["train"])
    assert all(passes == 1 and batches > 1 for passes, batches in seen.found["val"])
    assert len(seen.found["val"]) == 2
    assert not any(seen.kept_while_training)


def test_scores_follow_the_weights() -> None:
    method, trainer = fitted(LightGCN(num_factors=4), 1)
    users = torch.arange(4)
    before = method.score_all(users)
    with torch.no_grad():
        method.factors.items.weight.mul_(2)
    assert torch.allclose(method.score_all(users), (torch.cat(method.nodes())[users] @ method.nodes()[1].T))
    assert not torch.allclose(method.score_all(users), before)
    method.prepare_scoring()
    kept = method.score_all(users)
    assert torch.equal(kept, torch.matmul(method.cache["users"][users], method.cache["items"].T))
    trainer.validate(method, datamodule=trainer.datamodule, verbose=False)  # type: ignore[attr-defined]
    assert not method.cache, "nothing outlasts an evaluation"


def test_the_graph_is_sent_to_no_other_process() -> None:
    method, _ = fitted(LightGCN(num_factors=4), 0)
    assert {"graph.starts", "graph.ends", "graph.weights"} <= set(method._ddp_params_and_buffers_to_ignore)
    assert set(method.state_dict()) == {"factors.users.weight", "factors.items.weight"}


def test_users_and_items_without_ratings_keep_factors_of_their_own() -> None:
    """The cold users of the split have no edge, nor has an item that they alone had: no factor of theirs is a NaN."""
    data = Synthetic(num_users=40, num_items=60, ratings_per_user=3, seed=1, evaluation=Evaluation(split="cold_start"))
    method = LightGCN(num_factors=4)
    trainer = quiet(max_epochs=1)
    trainer.fit(method, datamodule=data)
    alone = (method.target_rows.counts() == 0, method.target_columns.counts() == 0)
    tables = method.factors.users.weight, method.factors.items.weight
    for factors, table, without in zip(method.nodes(), tables, alone, strict=True):
        assert without.any()
        assert torch.isfinite(factors).all()
        assert torch.equal(factors[without], 0.25 * table[without])
    cold = data.test.users
    assert torch.equal(method.ranking_scores(cold), method.item_counts.expand(len(cold), -1))


@pytest.mark.slow
def test_planted_tastes_are_learned() -> None:
    _, trainer = fitted(LightGCN(num_factors=16, lr=3e-2, l2=1e-3), 30, batch_size=256)
    assert learned(trainer) > 1.2 * popular()


def test_layers_of_a_history_are_those_of_training() -> None:
    """With no weight on the own factors nothing has to be solved for, so a training row gives the user's own scores."""
    method, _ = fitted(LightGCN(num_factors=4, layer_weights=[0.0, 0.5, 0.3, 0.2]), 1)
    users = torch.arange(method.target_rows.num_rows)
    with torch.no_grad():
        method.eval().prepare_scoring()
        found = method.fold_in(method.target_rows, users - len(users), {})
        assert torch.allclose(found, method.ranking_scores(users), atol=1e-5)
