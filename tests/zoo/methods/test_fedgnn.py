"""FedGNN: rounds that equal those of each client alone, what clients send and keep, who is left out, and a planted pattern."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

import zoo.methods.fedgnn as fedgnn
from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from zoo import EmbeddingPublisher, FedGNN, Release
from zoo.data.batch_types import UserBatch
from zoo.data.ratings import Ratings
from zoo.methods.federated.base import Uniform
from zoo.nn.ego_graph import EgoGraphs
from zoo.publishers.trained import SourceRatings

SMALL: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 6, "seed": 1, "batch_size": 16}
CLIENTS = torch.tensor([7, 3, 30])


def around(**settings: Any) -> Synthetic:  # noqa: ANN401
    return Synthetic(**SMALL | settings)


def fitted(method: FedGNN, data: Any, epochs: int = 1) -> Trainer:  # noqa: ANN401
    seed_everything(4)
    trainer = quiet(max_epochs=epochs, num_sanity_val_steps=0, limit_val_batches=0)
    trainer.fit(method, datamodule=data)
    return trainer


def begun(**settings: Any) -> FedGNN:  # noqa: ANN401
    """Built and with data, in double precision."""
    method = FedGNN(**{"num_factors": 3, "num_negatives": 2} | settings)
    fitted(method, around(), epochs=0)
    return method.double()


class Alone:
    """One client that knows its own items, and computes with scalars of its own; the slow reference."""

    def __init__(self, method: FedGNN, user: int, drawn: list[int]) -> None:
        self.method, self.drawn = method, drawn
        self.own = method.target_rows.bags(torch.tensor([user])).items.tolist()
        self.vector = method.factors[user].clone()
        self.rows = {item: method.items.detach()[item].clone() for item in (*self.own, *drawn)}
        self.attention = {name: part.detach().clone() for name, part in method.graphs.named_parameters()}
        self.start = self.state()

    def state(self) -> dict[Any, Tensor]:
        return {"vector": self.vector, **self.rows, **self.attention}

    def loss(self) -> Tensor:
        user, items = self.vector, [self.rows[item] for item in self.own]
        gat, layers = self.method.attention == "gat", self.method.num_layers
        for layer in range(layers):
            turn = self.attention["transforms"][layer] if gat else torch.eye(3).double()

            def mixed(node: Tensor, neighbours: list[Tensor], turn: Tensor = turn, layer: int = layer) -> Tensor:
                logits = torch.stack([(n @ turn) @ self.attention["sending"][layer] for n in neighbours])
                if gat:
                    logits = F.leaky_relu(logits + (node @ turn) @ self.attention["receiving"][layer], 0.2)
                total = logits.softmax(0) @ torch.stack([n @ turn for n in neighbours])
                return F.elu(total) if gat and layer < layers - 1 else total

            user, items = mixed(user, [user, *items]), [mixed(item, [user, item]) for item in items]
        total = torch.zeros(()).double()
        for place, item in enumerate([*self.own, *self.drawn]):
            logit = user @ self.rows[item]
            total = total - F.logsigmoid(logit if place < len(self.own) else -logit)
            total = total + self.method.l2 / 2 * (self.vector @ self.vector + self.rows[item] @ self.rows[item])
        return total / (len(self.own) + len(self.drawn))

    def train(self) -> float:
        first = None
        for _ in range(self.method.local_steps):
            parts = {name: part.requires_grad_() for name, part in self.state().items()}
            loss = self.loss()
            first = float(loss.detach()) if first is None else first
            gradients = torch.autograd.grad(loss, list(parts.values()))
            moves = zip(parts.items(), gradients, strict=True)
            after = {name: part.detach() - self.method.local_lr * move for (name, part), move in moves}
            self.vector = after["vector"]
            self.rows = {item: after[item] for item in self.rows}
            self.attention = {name: after[name] for name in self.attention}
        assert first is not None
        return first

    def moved(self, name: object) -> Tensor:
        """What it sends: the difference, or the negative gradient."""
        difference = self.state()[name] - self.start[name].detach()
        return difference / self.method.local_lr if self.method.rounds == "fedsgd" else difference


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"l2": 0.3, "num_layers": 1, "local_lr": 0.4},
        {"rounds": "fedavg", "local_steps": 3, "local_lr": 0.4},
        {"attention": "gat", "rounds": "fedavg", "local_steps": 2, "local_lr": 0.2, "l2": 0.1},
    ],
)
def test_a_round_is_that_of_each_client_alone(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    method = begun(**settings)
    monkeypatch.setattr(fedgnn, "unowned_items", seen := Seen())
    items = method.items.detach().clone()
    attention = {name: part.detach().clone() for name, part in method.graphs.named_parameters()}
    updates, vectors, losses = method.play(CLIENTS)
    clients = []
    for place, user in enumerate(CLIENTS.tolist()):
        client = Alone(method, user, seen.of(place))
        assert client.train() == pytest.approx(float(losses[place]))
        assert torch.allclose(vectors[place], client.vector)
        sent = updates.of(place)
        assert sent.rows.tolist() == sorted(client.rows)
        for item, difference in zip(sent.rows.tolist(), sent.differences, strict=True):
            assert torch.allclose(difference, client.moved(item))
        assert sent.shared.keys() == attention.keys()
        assert all(torch.allclose(part, client.moved(name)) for name, part in sent.shared.items())
        assert sent.weight == len(client.own)
        clients.append(client)
    # The server's gradient is minus the weighted mean, and what the loss says is the weighted mean of the losses.
    monkeypatch.setattr(fedgnn, "unowned_items", lambda *_: seen.drawn)
    loss = method.step(UserBatch(CLIENTS))["loss"]
    loss.backward()  # type: ignore[no-untyped-call]
    total = sum(len(client.own) for client in clients)
    means = {item: sum(len(c.own) / total * c.moved(item) for c in clients if item in c.rows) for item in range(30)}
    assert method.items.grad is not None
    for item, mean in means.items():
        assert torch.allclose(method.items.grad[item], -mean * torch.ones(3).double())
    for name, part in method.graphs.named_parameters():
        assert part.grad is not None
        assert torch.allclose(part.grad, -sum(len(c.own) / total * c.moved(name) for c in clients))
    weighed = [len(c.own) / total * float(x) for c, x in zip(clients, losses, strict=True)]
    assert loss.item() == pytest.approx(sum(weighed))
    assert torch.equal(method.items, items), "a round alone changes nothing"


class Seen:
    """Remembers what was drawn."""

    def __call__(
        self, items: Tensor, counts: Tensor, num_items: int, num_each: int, uniform: Uniform | None = None
    ) -> Tensor:
        self.counts = counts
        self.drawn = UNOWNED(items, counts, num_items, num_each, uniform)
        return self.drawn

    def of(self, place: int) -> list[int]:
        drawn: list[int] = self.drawn.split(self.counts.tolist())[place].flatten().tolist()
        return drawn


UNOWNED = fedgnn.unowned_items


def test_pseudo_items_are_sent_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    method = begun(num_pseudo_items=4)
    monkeypatch.setattr(fedgnn, "unowned_items", seen := Seen())
    updates, vectors, losses = method.play(CLIENTS)
    monkeypatch.setattr(fedgnn, "unowned_items", lambda *_: seen.drawn)
    method.num_pseudo_items = 0
    without, *same = method.play(CLIENTS)
    assert torch.equal(vectors, same[0])
    assert torch.equal(losses, same[1])
    for client in range(3):
        more, real = updates.of(client), without.of(client)
        assert 0 < len(more.rows) - len(real.rows) <= 4
        assert set(real.rows.tolist()) < set(more.rows.tolist())
        assert torch.equal(more.differences[torch.isin(more.rows, real.rows)], real.differences)


def test_clients_move_their_own_vectors_in_their_own_rounds_alone() -> None:
    method = FedGNN(num_factors=4)
    data = around()
    fitted(method, data, epochs=0)
    before = method.factors.clone()
    fitted(method, around(), epochs=1)
    assert (method.factors != before).any(1).all()
    assert "factors" in method.state_dict()
    assert all(part is not method.factors for part in method.parameters())
    moved = method.factors.clone()
    method.play(CLIENTS)
    assert torch.equal(method.factors, moved)


def test_plain_averaging_adds_the_mean_difference() -> None:
    method = FedGNN(num_factors=3, rounds="fedavg", local_steps=2, local_lr=0.5, server="sgd", lr=1.0)
    fitted(method, around(batch_size=40), epochs=0)
    before = method.items.detach().clone()
    fitted(method, around(batch_size=40), epochs=1)
    assert method.sent is not None
    mean = fedgnn.weighted_mean(method.sent, 30)
    assert float(mean.table.abs().sum()) > 0
    assert torch.allclose(method.items.detach(), before + mean.table, atol=1e-6)


def test_a_client_that_is_not_finite_is_left_out_and_counted() -> None:
    """Its vector stays, and the others move as if it were not there."""

    def after(broken: float | None) -> tuple[FedGNN, Trainer]:
        method = FedGNN(num_factors=3)
        fitted(method, around(batch_size=40), epochs=0)
        if broken is not None:
            method.factors[7] = broken
        return method, fitted(method, around(batch_size=40), epochs=1)

    with pytest.warns(UserWarning, match=r"1 of 40 clients had updates that are not finite and were left out\."):
        method, trainer = after(float("nan"))
    assert float(trainer.callback_metrics["train/clients_left_out"]) == 1
    assert float(after(None)[1].callback_metrics["train/clients_left_out"]) == 0
    assert method.factors[7].isnan().all()
    kept = torch.arange(40) != 7
    assert method.factors[kept].isfinite().all()
    assert method.items.isfinite().all()
    assert method.sent is not None
    assert method.sent.weights[method.sent.weights == 0].numel() == 1
    assert np.isfinite(float(trainer.callback_metrics["train/loss"]))


def test_a_round_that_is_nowhere_finite_is_refused() -> None:
    method = begun()
    with torch.no_grad():
        method.items.fill_(float("inf"))
    with pytest.raises(FloatingPointError, match=r"No client of the round has a finite update\. Lower lr"):
        method.step(UserBatch(CLIENTS))


def some(rows: list[list[int]]) -> Ratings:
    dense = np.array(rows, dtype=np.float32)
    users, items = (np.array([f"{name}{i}" for i in range(n)]) for name, n in zip("ui", dense.shape, strict=True))
    return Ratings(csr_array(dense), users, items)


def published(rows: list[list[int]], folder: Path, batch_size: int = 2) -> Tensor:
    publisher = EmbeddingPublisher(FedGNN(num_factors=3), max_epochs=1, batch_size=batch_size, progress=False)
    path = publisher.publish(some(rows), "book").save(folder / "book")
    return Release.load(path).tensors["vectors"]


def test_vectors_of_all_layers_are_published_and_zeros_for_who_has_nothing(tmp_path: Path) -> None:
    vectors = published([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 0]], tmp_path)
    assert vectors.shape == (3, 2, 3)
    assert (vectors[1] == 0).all()
    assert (vectors[[0, 2]] != 0).all()


def test_users_are_scored_by_the_last_layer_of_their_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    method = begun()
    monkeypatch.setattr(fedgnn, "_CLIENTS_AT_ONCE", 7)
    users = torch.tensor([5, 5, 0])
    with torch.no_grad():
        fresh = method.score_all(users)
        method.prepare_scoring()
        assert torch.allclose(method.score_all(users), fresh)
        assert torch.allclose(method.user_vectors()[users], method.layers(users))
        own = method.target_rows.bags(torch.tensor([5]))
        vector = method.graphs(method.factors[[5]], method.items[own.items], own.rows).users[0, -1]
    assert torch.allclose(fresh[0], method.items.detach() @ vector)


def test_who_has_nothing_is_refused_in_a_round_and_asking_for_too_many_is_told(tmp_path: Path) -> None:
    method = begun()
    empty = method.target_rows.starts.clone()
    empty[4:] -= empty[4] - empty[3]
    method.target_rows.starts = empty  # user 3 has none
    assert (method.user_vectors() != 0).all(2).all(1).tolist() == [user != 3 for user in range(40)]
    assert (method.user_vectors()[3] == 0).all()
    with pytest.raises(ValueError, match=r"1 clients of the round have no items"):
        method.step(UserBatch(CLIENTS))
    message = r"batch_size is 41, and 40 clients have ratings: each round has all\. Set it to 40 or less\."
    with pytest.warns(UserWarning, match=message):
        fitted(FedGNN(num_factors=3), around(batch_size=41))
    with pytest.raises(ValueError, match=r"All 2 users with ratings have all 3 items"):
        published([[1, 1, 1], [1, 1, 1]], tmp_path)


@pytest.mark.parametrize("attention", ["paper", "gat"])
def test_a_planted_pattern_is_found(attention: Any) -> None:  # noqa: ANN401
    """Two kinds of people, of whom each has 6 of the 15 items of its kind: what is left of them ranks first."""
    method = FedGNN(num_factors=2, attention=attention, lr=0.05)
    rng = np.random.default_rng(0)
    rows = np.zeros((60, 30), dtype=np.float32)
    for user in range(60):
        rows[user, 15 * (user % 2) + rng.permutation(15)[:6]] = 1
    fitted(method, SourceRatings(some(rows.tolist()), batch_size=60), epochs=20)
    with torch.no_grad():
        scores = method.score_all(torch.arange(60)).masked_fill(torch.from_numpy(rows) > 0, -torch.inf)
    best = scores.topk(5).indices
    right = (best // 15 == (torch.arange(60) % 2)[:, None]).float().mean()
    assert float(right) > 0.95


def test_private_rounds_of_several_processes_are_refused() -> None:
    FedGNN().check_processes(2)
    private = FedGNN(epsilon=8.0, clip=0.5)
    private.check_processes(1)
    with pytest.raises(ValueError, match=r"FedGNN plays private rounds in one process, which .*; got 2 processes"):
        private.check_processes(2)


def test_processes_work_out_all_but_the_items_alike() -> None:
    method = begun()
    assert {*method.replicated_buffers} >= {"factors", "graphs.sending", "item_counts"}
    assert "items" not in method.replicated_buffers


def test_the_block_is_that_of_the_settings() -> None:
    method = begun(num_layers=3, attention="gat")
    assert isinstance(method.graphs, EgoGraphs)
    assert method.vector_shape == (3, 3)
    assert method.user_vectors().shape == (40, 3, 3)
