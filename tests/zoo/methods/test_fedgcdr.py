"""FedGCDR: rounds that equal those of each client alone, stages, cold users, domain attention, a planted transfer, refusals."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Tensor
from torch.nn import functional as F

import zoo.methods.fedgnn as fedgnn
from datamodules import Evaluation
from tests.zoo.methods import mixed_runs
from tests.zoo.methods.mixed_runs import TWO, around, cold_hit_rate, embedded, fitted, of_nobody
from zoo import FedGCDR, FedGNN, Shuffled
from zoo.data.batch_types import UserBatch
from zoo.methods.federated.base import unowned_items

pytestmark = pytest.mark.thorough

COLD = Evaluation(split="cold_start")
two_sources = partial(mixed_runs.two_sources, layers=(2, 2))


def of_two(folder: Path, epochs: int = 0, releases: dict[str, Path] | None = None, **settings: Any) -> FedGCDR:  # noqa: ANN401
    method = FedGCDR(**{"num_factors": 3, "map_dims": (4,), "num_negatives": 2} | settings)
    found = two_sources(folder) if releases is None else releases
    fitted(method, around(found, evaluation=COLD, batch_size=16, **TWO), epochs)
    return method


def clients_of(method: FedGCDR) -> Tensor:
    """One client with history in both sources, one in each, one in none."""
    known = method.target_rows.counts() > 0
    book, film = ((method.sources[name].links >= 0) & known for name in TWO["sources"])
    kinds = (book & film, book & ~film, film & ~book, known & ~book & ~film)
    return torch.stack([mask.nonzero()[0, 0] for mask in kinds])


class Alone:
    """One client with its own items and vectors from elsewhere, one virtual user after the other; the slow reference."""

    def __init__(self, method: FedGCDR, user: int, drawn: list[int]) -> None:
        self.method, self.drawn = method, drawn
        self.own = method.target_rows.bags(torch.tensor([user])).items.tolist()
        found = {name: self.of_source(name, user) for name in TWO["sources"]}
        self.released = {name: vectors for name, vectors in found.items() if vectors is not None}
        items = {item: method.items.detach()[item].clone() for item in (*self.own, *drawn)}
        self.parts: dict[Any, Tensor] = {"vector": method.factors[user].clone(), **items}
        self.parts |= {name: part.detach().clone() for name, part in method.shared().items()}

    def of_source(self, name: str, user: int) -> Tensor | None:
        linked = self.method.sources[name]
        if (row := int(linked.links[user])) < 0:
            return None
        rows = linked.rows.dense(torch.arange(linked.rows.num_rows)).double()
        of_target = rows[[int(link) for link in linked.links if link >= 0]]
        centre = of_target.mean(0)
        return ((rows[row] - centre) / (of_target - centre).square().mean().sqrt()).reshape(self.method.num_layers, -1)

    def mapped(self, parts: dict[Any, Tensor], name: str, layer: int) -> Tensor:
        vector = self.released[name][layer]
        if not self.method.mapping:
            return vector
        hidden = torch.tanh(parts[f"maps.{name}.1.weight"] @ vector + parts[f"maps.{name}.1.bias"])
        return parts[f"maps.{name}.3.weight"] @ hidden + parts[f"maps.{name}.3.bias"]

    def loss(self, parts: dict[Any, Tensor]) -> Tensor:
        method, user, items = self.method, parts["vector"], [parts[item] for item in self.own]
        further, made = torch.zeros(()).double(), user
        for layer in range(method.num_layers):
            virtual = [self.mapped(parts, name, layer) for name in self.released]

            def mixed(neighbours: list[Tensor], layer: int = layer) -> Tensor:
                stacked = torch.stack(neighbours)
                return (stacked @ parts["sending"][layer]).softmax(0) @ stacked

            met = [user, *items, *(virtual if method.expansion else [])]
            user, items = mixed(met), [mixed([user, item]) for item in items]
            made = user if method.expansion or not virtual else user + sum(virtual) / len(virtual)
            if method.mapping:
                further = further + method.mapping_weight * sum((made - v).square().sum() for v in virtual)
            if method.expansion and virtual:
                weights = [max(float(F.cosine_similarity(made.detach(), v.detach(), dim=0)), 0) + 1e-8 for v in virtual]
                mean = sum(w * v for w, v in zip(weights, virtual, strict=True)) / sum(weights)
                further = further + method.social_weight * (made - mean).square().sum()
        total = torch.zeros(()).double()
        for place, item in enumerate([*self.own, *self.drawn]):
            logit = made @ parts[item]
            total = total - F.logsigmoid(logit if place < len(self.own) else -logit)
        return total / (len(self.own) + len(self.drawn)) + further / (1 + method.halved)

    def moves(self) -> tuple[float, dict[Any, Tensor]]:
        """Its loss, and the negative gradient of all that it has."""
        parts = {name: part.requires_grad_() for name, part in self.parts.items()}
        loss = self.loss(parts)
        gradients = torch.autograd.grad(loss, list(parts.values()), allow_unused=True)
        zeros = (torch.zeros_like(part) if g is None else g for g, part in zip(gradients, parts.values(), strict=True))
        return float(loss.detach()), {name: -g for name, g in zip(parts, zeros, strict=True)}


@pytest.mark.parametrize(
    "settings",
    [
        {"mapping_weight": 0.3, "social_weight": 0.2, "halved": True},
        {"expansion": False, "finetune_after": None, "mapping_weight": 0.3},
        {"mapping": False, "social_weight": 0.7},
    ],
    ids=["whole", "without activation", "without mapping"],
)
def test_a_round_is_that_of_each_client_alone(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    widths = (3, 5) if settings.get("mapping", True) else (3, 3)
    method = of_two(tmp_path, releases=two_sources(tmp_path, widths=widths), **settings).double()
    seen: list[Tensor] = []
    monkeypatch.setattr(fedgnn, "unowned_items", lambda *asked: seen.append(unowned_items(*asked)) or seen[-1])
    clients = clients_of(method)
    updates, vectors, losses = method.play(clients)
    drawn = seen[0].split(method.target_rows.counts_of(clients).tolist())
    for place, user in enumerate(clients.tolist()):
        loss, moves = Alone(method, user, drawn[place].flatten().tolist()).moves()
        assert float(losses[place]) == pytest.approx(loss)
        assert torch.allclose(vectors[place], method.factors[user] + moves["vector"])
        sent = updates.of(place)
        assert sent.shared.keys() == method.shared().keys()
        for name, part in [*sent.shared.items(), *zip(sent.rows.tolist(), sent.differences, strict=True)]:
            assert torch.allclose(part, moves[name])


def test_only_maps_that_the_round_uses_are_sent(tmp_path: Path) -> None:
    method = of_two(tmp_path)
    neither, in_book = clients_of(method)[3:], clients_of(method)[1:2]
    assert method.copies(neither).keys() == {"sending"}
    assert {name.split(".")[1] for name in method.copies(in_book) if name != "sending"} == {"book"}
    assert torch.isfinite(method.step(UserBatch(neither))["loss"])


def test_fine_tuning_holds_attention_and_maps(tmp_path: Path) -> None:
    """It begins with what the graph makes, in its epoch, and moves items and the clients' own vectors."""
    before, after = (of_two(tmp_path / str(epochs), epochs, finetune_after=1) for epochs in (1, 3))
    assert not before.tuning
    assert after.tuning
    for name, part in before.shared().items():
        assert torch.equal(part, after.shared()[name])
    assert torch.equal(before.factors, after.factors)
    known = after.target_rows.counts() > 0
    with torch.no_grad():
        made = before.scored_by(torch.arange(60))
        moved = (after.tuned - made).norm(dim=1)
        assert 0 < float(moved[known].mean()) < float(made[known].norm(dim=1).mean())
        assert torch.equal(moved[~known], torch.zeros_like(moved[~known]))
        assert torch.equal(after.scored_by(torch.arange(60))[known], after.tuned[known])
        assert torch.allclose(after.scored_by(torch.arange(60))[~known], made[~known], atol=1e-6)
    assert not torch.equal(before.items, after.items)
    updates, _, losses = after.play(clients_of(after))
    assert updates.shared == {}
    assert losses.isfinite().all()


@pytest.mark.parametrize("expansion", [True, False])
def test_cold_users_are_scored_by_their_virtual_users_alone(expansion: bool, tmp_path: Path) -> None:
    method = of_two(tmp_path, expansion=expansion)
    known, linked = method.target_rows.counts() > 0, method.has_row(torch.arange(60))
    cold = (~known & linked).nonzero().squeeze(1)
    with torch.no_grad():
        scores = method.score_all(cold)
        method.factors[cold] += 5
        assert torch.equal(method.score_all(cold), scores)
        assert (scores != 0).any(1).all()
        assert (method.layers((~known & ~linked).nonzero().squeeze(1)) == 0).all()
        if not expansion:
            virtual, _ = method.virtual_users(cold)
            for place in range(len(cold)):
                own = virtual.vectors[virtual.owners == place].mean(0)
                assert torch.allclose(method.layers(cold)[place], own, atol=1e-6)


def test_domain_attention_is_what_virtual_users_weigh(tmp_path: Path) -> None:
    method = of_two(tmp_path)
    users = clients_of(method)
    with torch.no_grad():
        found = method.domain_attention(users)
        own = method.target_rows.bags(users)
        virtual, counts = method.virtual_users(users)
        weights = method.graphs(method.factors[users], method.items[own.items], own.rows, virtual).virtual_weights
    assert counts == {"book": 2, "film": 2}
    assert torch.allclose(found["book"][:2], weights[:2])
    assert torch.allclose(found["film"][[0, 2]], weights[2:])
    assert (found["book"][2:] == 0).all()
    assert (found["film"][[1, 3]] == 0).all()
    without = of_two(tmp_path / "mean", expansion=False).domain_attention(users)
    assert all((part == 0).all() for part in without.values())


def test_mean_attention_is_logged_for_each_source_until_fine_tuning(tmp_path: Path) -> None:
    def logged(finetune_after: int | None) -> Trainer:
        method = FedGCDR(num_factors=3, map_dims=(4,), lr=1e-8, local_lr=1e-8, finetune_after=finetune_after)
        trainer = fitted(method, around(two_sources(tmp_path), evaluation=COLD, batch_size=16, **TWO), 2)
        known = (method.target_rows.counts() > 0).nonzero().squeeze(1)
        with torch.no_grad():
            found = method.domain_attention(known)
        for name in TWO["sources"] if finetune_after is None else ():
            present = method.sources[name].links[known] >= 0
            ours = float(trainer.callback_metrics[f"train/attention/{name}"])
            assert ours == pytest.approx(float(found[name][present].mean()), rel=1e-4)
        return trainer

    assert "train/attention/film" in logged(None).callback_metrics


def test_releases_of_nobody_change_nothing(tmp_path: Path) -> None:
    """Whatever their layers: with the same weights users are scored, and a round costs, as in FedGNN."""
    ours = of_two(tmp_path, epochs=2, releases=of_nobody(tmp_path))
    alone = FedGNN(num_factors=3, num_negatives=2)
    fitted(alone, around(evaluation=COLD, batch_size=16, **TWO))
    kept = alone.state_dict()
    alone.load_state_dict({name: ours.state_dict()[name] for name in kept})
    users = (ours.target_rows.counts() > 0).nonzero().squeeze(1)
    losses = []
    for method in (ours, alone):
        torch.manual_seed(3)  # of the negatives
        losses.append(method.step(UserBatch(users))["loss"].item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    with torch.no_grad():
        assert torch.allclose(ours.score_all(users), alone.score_all(users), atol=1e-6)
    assert ours.virtual_users(users)[1] == {"book": 0, "film": 0}


@pytest.mark.slow
def test_a_planted_transfer_is_found(tmp_path: Path) -> None:
    """Users without target history are served by their own vectors, not by somebody else's."""
    publisher = embedded()

    def method() -> FedGCDR:
        return FedGCDR(num_factors=8, num_layers=1, lr=0.1, map_dims=(16,), finetune_after=None, local_lr=5.0)

    found = cold_hit_rate(method(), publisher, tmp_path, 40)
    assert found > cold_hit_rate(method(), Shuffled(publisher), tmp_path, 40) + 0.05


def test_releases_of_other_layers_or_widths_are_refused(tmp_path: Path) -> None:
    releases = two_sources(tmp_path, layers=(1, 1))
    message = (
        r"num_layers is 2; the release of 'book' has 1 layers\. Set model\.num_layers to 1, or publish with a FedGNN"
    )
    with pytest.raises(TypeError, match=message):
        of_two(tmp_path, releases=releases)
    message = r"num_factors is 3; the release of 'film' has width 5\. Set model\.num_factors to 5"
    with pytest.raises(TypeError, match=message):
        of_two(tmp_path / "wide", mapping=False)
